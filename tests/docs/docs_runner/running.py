"""From a page to a terminal: the order in which its blocks are executed."""

import json
import shutil
import tomllib

import yaml

from docs_runner.pages import blocks_of, commands_of, starts_of
from docs_runner.shell import Terminal

# Pages that take longer than a developer wants to wait; `make test-slow` runs them.
SLOW = {
    "docs/compare.md",
    "docs/costs.md",
    "docs/page.md",
    "docs/reproducing.md",
    "docs/runs.md",
    "docs/serving.md",
    "docs/spark.md",
    "docs/sweep.md",
}


def run_page(page, folder, starts, monkeypatch):
    """Execute a page from top to bottom in an empty folder."""
    folder.mkdir()
    for name in starts_of(page):
        shutil.copytree(starts.folder(name), folder, dirs_exist_ok=True)
    with Terminal(folder, monkeypatch) as terminal:
        for block in blocks_of(page):
            _run_block(block, terminal)


def _run_block(block, terminal):
    if block.kind == "commands":
        for line, command, shown in commands_of(block):
            terminal.command(command, shown, f"{block.place} (line {line})")
    elif block.kind == "python":
        terminal.python(block.text, block.place)
    elif block.kind == "data":
        _data(block, terminal.folder)
    elif block.kind == "output":
        terminal.output(block.text, block.place)


def _data(block, folder):
    """Write it where the page says; JSON, YAML and TOML must be such."""
    readers = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}
    if block.language in readers and "…" not in block.text:
        readers[block.language](block.text)
    if block.file is not None:
        place = folder / block.file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.text, encoding="utf-8")
