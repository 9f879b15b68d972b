"""The runner notices a page that is wrong."""

import pytest
from docs_runner.running import run_page
from docs_runner.starts import Starts


@pytest.fixture(name="run")
def _run(tmp_path, monkeypatch):
    def run(text):
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        run_page(page, tmp_path / "folder", Starts(tmp_path), monkeypatch)

    return run


def fenced(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


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
        fenced("python", "print(texts)"),
    ],
)
def test_a_wrong_block_fails(run, block):
    with pytest.raises(Exception, match=r"shows:|exit code|ended:|while parsing|not defined"):
        run(block)
