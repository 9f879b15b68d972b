"""The fenced blocks of a Markdown page, and what the page says about them in comments.

Three comments are read, all invisible to readers:

- `<!-- starts from: triage, messages -->`, anywhere: the files that the page takes for granted;
- `<!-- file: NAME -->`, right before a fence: the block is written into that file of the page's folder;
- `<!-- not run: KIND -->` or `<!-- not run: KIND, MORE -->`, right before a fence: why nobody executes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

# Why a block may stand there without being executed. Anything else is a page to be rewritten.
REASONS = {
    "installs": "it fetches packages or a repository",
    "other software": "it needs a program that is not part of this project",
    "real key": "it calls a service that costs money",
    "download": "it fetches a model, or needs one that the reader has",
    "long": "it takes minutes or hours",
    "data sets": "it needs published data that is not in the repository",
    "interactive": "somebody presses keys, or looks at a browser",
    "illustration": "it is a drawing, a pattern with gaps, or a part of a file",
}
SHELLS = {"console", "sh", "bash", "shell"}
DATA = {"yaml", "json", "jsonl", "toml", "csv", "xml", "html", "javascript", "dockerfile", "latex"}

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})\s*(?P<language>[\w.+-]*)(?P<more>.*)$")
_COMMENT = re.compile(r"^\s*<!--\s*(not run|file):\s*(.*?)\s*-->\s*$")
NOTE = re.compile(r"^\s*<!--\s*(?:not run|file):", re.MULTILINE)
_STARTS = re.compile(r"<!--\s*starts from:\s*(.*?)\s*-->")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its fence, counted from 1."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None = None
    file: str | None = None

    @property
    def place(self):
        """`docs/costs.md:12`, for messages."""
        return f"{shown(self.page)}:{self.line}"

    @property
    def kind(self):
        """What is done with it: `skip`, `commands`, `python`, `data`, or `output` of commands before it."""
        if self.reason is not None:
            return "skip"
        if self.file is not None:
            return "data"
        if self.language == "python":
            return "python"
        if self.language in SHELLS or (not self.language and re.search(r"^\$ ", self.text, re.MULTILINE)):
            return "commands"
        return "data" if self.language in DATA else "output"


def shown(page):
    """A page's path from the repository's folder."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def all_pages():
    """README.md and every page of the documentation."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def starts_of(page):
    """The names after `starts from:`."""
    starts = _STARTS.search(page.read_text(encoding="utf-8"))
    return [name.strip() for name in starts[1].split(",")] if starts else []


def blocks_of(page):
    """The fenced blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    blocks = []
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        end = _end(lines, number, fence["ticks"])
        body = [line.removeprefix(fence["indent"]) for line in lines[number + 1 : end]]
        notes = dict(_notes(lines, number))
        text = "\n".join(body) + "\n"
        blocks.append(
            Block(page, number + 1, fence["language"], text, notes.get("not run"), notes.get("file"))
        )
        number = end + 1
    return blocks


def commands_of(block):
    """(line, command, shown output) of a block; a backslash at the end continues on the next line."""
    commands = []
    lines = block.text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("$ "):
            command, at = line[2:], block.line + 1 + number
            while command.endswith("\\") and number + 1 < len(lines):
                number += 1
                command = command[:-1] + lines[number].removeprefix(">").strip()
            commands.append((at, command, []))
        elif commands:
            commands[-1][2].append(line)
        elif line.strip():
            raise ValueError(f"{block.place}: a block of commands begins with a line that is none: {line}")
        number += 1
    if not commands:
        raise ValueError(f"{block.place}: commands begin with '$ '")
    return commands


def _end(lines, start, ticks):
    for number in range(start + 1, len(lines)):
        if lines[number].strip() == ticks:
            return number
    raise ValueError(f"line {start + 1}: a fence that is never closed")


def _notes(lines, fence):
    """The comments right before the fence; a blank line may stand between."""
    notes = []
    number = fence - 1
    while number >= 0 and (not lines[number].strip() or _COMMENT.match(lines[number])):
        if comment := _COMMENT.match(lines[number]):
            notes.append((comment[1], comment[2]))
        number -= 1
    return notes
