"""Every command and every snippet of the pages is executed, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_runner.pages import all_pages, blocks_of, shown
from docs_runner.running import SLOW, run_page
from docs_runner.starts import Starts

PAGES = [page for page in all_pages() if any(block.kind != "skip" for block in blocks_of(page))]
QUICK = [page for page in PAGES if shown(page) not in SLOW]


@pytest.mark.parametrize("page", QUICK, ids=shown)
def test_a_page_does_what_it_shows(
    page: Path, tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_page(page, tmp_path / "page", starts, monkeypatch)


def test_slow_pages_exist() -> None:
    assert {shown(page) for page in PAGES} >= SLOW
