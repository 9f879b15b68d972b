"""Every fenced block is executed, compared or read; or it says in one of a few words why not."""

import pytest
from docs_runner.pages import (
    NOTE,
    REASONS,
    SHELLS,
    all_pages,
    blocks_of,
    commands_of,
    shown,
    starts_of,
)
from docs_runner.starts import MAKERS

PAGES = all_pages()


def not_run(page):
    return [block for block in blocks_of(page) if block.reason is not None]


def test_what_is_not_run_has_a_reason_of_the_list():
    kinds = {block.place: str(block.reason).partition(",")[0] for page in PAGES for block in not_run(page)}
    print(*(f"{place}: {kind}" for place, kind in kinds.items()), sep="\n")
    assert {place: kind for place, kind in kinds.items() if kind not in REASONS} == {}


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_note_stands_right_before_a_fence(page):
    read = sum((block.reason is not None) + (block.file is not None) for block in blocks_of(page))
    assert len(NOTE.findall(page.read_text(encoding="utf-8"))) == read


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_can_be_told_from_output(page):
    for block in blocks_of(page):
        if block.language in SHELLS or block.kind == "commands":
            assert commands_of(block)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_page_starts_from_what_can_be_made(page):
    assert set(starts_of(page)) <= set(MAKERS)
