"""Every command and every snippet of the pages is executed, and prints what the page shows."""

import pytest
from docs_runner.pages import all_pages, blocks_of, shown
from docs_runner.running import SLOW, run_page

PAGES = [page for page in all_pages() if any(block.kind != "skip" for block in blocks_of(page))]
QUICK = [page for page in PAGES if shown(page) not in SLOW]


@pytest.mark.parametrize("page", QUICK, ids=shown)
def test_a_page_does_what_it_shows(page, tmp_path, starts, monkeypatch):
    run_page(page, tmp_path / "page", starts, monkeypatch)


def test_slow_pages_exist():
    assert {shown(page) for page in PAGES} >= SLOW
