"""Pieces of error messages: every message of this room is one line with a place and a remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from os import PathLike

from adamab.errors import TaskError
from adamab.task.words import folded

_SHOWN_NAMES = 8
_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_JOINER = re.compile(f"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])")


def one_line(text: object) -> str:
    """`text` with everything that could break a line or a terminal written as an escape.

    What joins two emoji into one breaks neither.
    """
    shown = str(text)
    joiners = {found.start() for found in _JOINER.finditer(shown)}
    return "".join(
        c if c.isprintable() or number in joiners else c.encode("unicode_escape").decode()
        for number, c in enumerate(shown)
    )


def short(text: object, width: int = 40) -> str:
    """`text` quoted, escaped and cut, for use inside a message."""
    shown = str(text)
    return repr(shown if len(shown) <= width else shown[: width - 1] + "…")


def place(path: str | PathLike[str], line: int | None = None) -> str:
    """`file` or `file:line`, the form that editors open."""
    return one_line(path) if line is None else f"{one_line(path)}:{line}"


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest known word, or the first few if none is near."""
    names = list(known)
    near = difflib.get_close_matches(word[:80], names, n=1)
    if near:
        return f"did you mean {short(near[0])}?"
    more = ", …" if len(names) > _SHOWN_NAMES else ""
    return f"known: {', '.join(one_line(n[:40]) for n in names[:_SHOWN_NAMES])}{more}"


def storable(name: str) -> str:
    """`name` as SQLite takes it, which is UTF-8 only: a name may hold half a character."""
    return name.encode("utf-8", "backslashreplace").decode()


def checked(text: str, where: str, what: str) -> str:
    """`text` without outer white space; refused when it is empty or cannot be written as UTF-8.

    JSON and YAML escapes can smuggle in NUL and halves of surrogate pairs, which caches,
    tokenizers and output files choke on much later.
    """
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise TaskError(f"{where}: {what} {short(text)} holds a NUL or half a character; remove it")
    if not folded(text):
        raise TaskError(f"{where}: {what} is empty; fill it in or remove it")
    return text.strip()
