"""The runner notices a page that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from docs_runner.output import missing_line
from docs_runner.pages import blocks_of
from docs_runner.running import run_page
from docs_runner.starts import Starts

Run = Callable[[str], None]


@pytest.fixture(name="run")
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(text: str) -> None:
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        run_page(page, tmp_path / "folder", Starts(tmp_path), monkeypatch)

    return run


def fenced(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


def test_a_right_page_passes(run: Run) -> None:
    run(
        fenced(
            "console", "$ NAME='a b'", '$ echo "$NAME" > file.txt', "$ adamab init t", "wrote t/task.yaml; …"
        )
        + fenced("python", "import pathlib", "print(pathlib.Path('file.txt').read_text().strip(), 2.75)")
        + fenced("text", "a b 3.5")
    )


@pytest.mark.parametrize(
    "block",
    [
        fenced("console", "$ echo 3 classes", "4 classes"),
        fenced("console", "$ echo nothing", "something"),
        fenced("console", "$ false"),
        fenced("console", "$ adamab fit nothing.yaml --run run"),
        fenced("console", "$ adamab --version", "adamab: no such thing"),
        fenced("console", "$ python -m adamab.testing --fault nonsense"),
        fenced("text", "never printed"),
        fenced("yaml", "a: [1"),
    ],
)
def test_a_wrong_block_fails(run: Run, block: str) -> None:
    with pytest.raises(Exception, match=r"shows:|exit code|ended:|while parsing"):
        run(block)


def test_a_wrong_snippet_fails(run: Run) -> None:
    with pytest.raises(NameError):
        run(fenced("python", "print(texts)"))


def test_a_refusal_that_is_shown_is_expected(run: Run) -> None:
    run(fenced("console", "$ adamab fit nothing.yaml --run run", "adamab: nothing.yaml: no such file; …"))


def test_servers_of_two_pages_do_not_meet(run: Run) -> None:
    serve = ["$ python -m adamab.testing --port 8455", "serving openai http://127.0.0.1:8455/v1, …"]
    run(fenced("console", *serve, "$ curl -s http://127.0.0.1:8455/_seen", "{}"))


def test_blocks_without_a_dollar_are_no_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        fenced("", "adamab fit")
        + "<!-- not run: long, a day -->\n"
        + fenced("console", "$ make quality-full")
    )
    first, second = blocks_of(page)
    assert (first.kind, second.kind, second.reason) == ("output", "skip", "long, a day")


@pytest.mark.parametrize(
    ("wanted", "printed", "matches"),
    [
        ("took 1.5 seconds", "took 12.25 seconds", True),
        ("12 samples", "13 samples", False),
        ("model 8399e678…", "model 0123abcd4567", True),
        (" a   b", "a b", True),
        ("…, then", "first, then", True),
        ("…, then", "first, and then", False),
        ("-10.8 (-15.2, -6.5)", "+1.0 (-0.2, +2.2)", True),
    ],
)
def test_lines_are_compared_by_words_and_whole_numbers(wanted: str, printed: str, matches: bool) -> None:
    assert (missing_line([wanted], printed, exact=False) is None) == matches
