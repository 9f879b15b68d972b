"""Every error that ADAMAB raises on purpose, in one tree.

    AdamabError
    ├── TaskError                 the task file, its examples, a data file
    │   └── ImageError            an image that cannot be read, or is refused
    ├── RecipeError               a hyperparameter out of range, an unknown preset
    ├── MissingExtraError         an optional package is not installed; names its pip line
    ├── ProviderError
    │   ├── EmbedderError         an embedder cannot be found, read or trusted
    │   │   └── FingerprintError  a model meets another embedder than it was fitted with
    │   ├── GeneratorError        a generator cannot be found or read
    │   ├── ApiError              an API refuses, fails or cannot be reached
    │   ├── BudgetError           a call would exceed the budget, so it was not made
    │   ├── StoppedError          somebody asked to stop, so a call was not made
    │   └── CacheError            the vector cache is unreadable or unwritable
    ├── ModelFileError            a saved classifier is damaged, foreign or of another version
    └── RunError                  a run directory cannot be used as asked

Each message is one line: what is wrong, where, and what to do. The command line
prints it and exits with code 2; a traceback is a bug. The functions at the end word
places and what a user wrote, so that no message breaks a line or a terminal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from typing import Any

_SHOWN_NAMES = 8
_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_JOINER = re.compile(f"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")  # a file of HTML must not hold these


class AdamabError(Exception):
    """Base of all errors that a user can cause and fix."""


class TaskError(AdamabError, ValueError):
    """The task, its examples or a data file is malformed."""


class ImageError(TaskError):
    """An image is broken, too large, or no image; the message names its file."""


class RecipeError(AdamabError, ValueError):
    """A recipe's value is out of range or its preset unknown."""


class MissingExtraError(AdamabError, ImportError):
    """An optional dependency is missing."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed; run: pip install 'adamab[{extra}]'")
        self.what = what
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        # BaseException pickles by `args`, which hold the finished message; worker
        # processes need the two words it was made from.
        return type(self), (self.what, self.extra)


class ProviderError(AdamabError):
    """Something outside this package failed or cannot be used."""


class EmbedderError(ProviderError):
    """An embedder cannot be found, read or trusted."""


class FingerprintError(EmbedderError):
    """A model was fitted with another embedder."""


class GeneratorError(ProviderError):
    """A generator cannot be found or read."""


class ApiError(ProviderError):
    """An API refused a request, failed, or cannot be reached.

    The message names the service, the status and what to do; it never quotes a request or a response.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        too_large: bool = False,
        refused: bool = False,
        unsupported: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.too_large = too_large  # the request has more items or tokens than the service takes
        self.refused = refused  # on grounds of content
        self.unsupported = unsupported  # the service does not know a parameter of the request

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class BudgetError(ProviderError):
    """A call would exceed the budget; it was not made."""


class StoppedError(ProviderError):
    """Somebody asked to stop; the next call was not made."""


class CacheError(ProviderError):
    """The vector cache cannot be read or written."""


class ModelFileError(AdamabError, ValueError):
    """A saved classifier is damaged, foreign or of another version."""


class RunError(AdamabError):
    """A run directory cannot be used as asked."""


def imported(module: str, what: str, extra: str) -> Any:
    """A module of an optional package, or the line that says how to get it.

    Args:
        module: its name.
        what: what messages call it.
        extra: the extra of adamab that brings it.
    """
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(what, extra) from None


def one_line(text: object) -> str:
    """`text` with everything that could break a line or a terminal written as an escape.

    What joins two emoji into one breaks neither.
    """
    shown = str(text)
    joiners = {match.start() for match in _JOINER.finditer(shown)}
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


@contextmanager
def os_errors(
    path: str | PathLike[str], problem: str, error_class: type[AdamabError] = RunError, remedy: str = ""
) -> Iterator[None]:
    """What the system says about a file or folder becomes one line, such as `PATH: PROBLEM (disk full)`.

    Args:
        path: the file or folder.
        problem: what failed, in words that follow the path.
        error_class: of the error that is raised.
        remedy: what to do, which ends the line.
    """
    try:
        yield
    except OSError as error:
        reason, then = one_line(error.strerror or error)[:200], f"; {remedy}" if remedy else ""
        raise error_class(f"{place(path)}: {problem} ({reason}){then}") from None


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest known word, or the first few if none is near.

    Args:
        word: as somebody wrote it.
        known: words that would be right.
    """
    names = list(known)
    near = difflib.get_close_matches(word[:80], names, n=1)
    if near:
        return f"did you mean {short(near[0])}?"
    more = ", …" if len(names) > _SHOWN_NAMES else ""
    return f"known: {', '.join(one_line(n[:40]) for n in names[:_SHOWN_NAMES])}{more}"


def storable(name: str) -> str:
    """`name` as SQLite takes it, which is UTF-8 only: a name may hold half a character."""
    return name.encode("utf-8", "backslashreplace").decode()


def clean(value: object, width: int | None = None) -> str:
    """The text of a value as every browser can show it, cut to `width` characters.

    Halves of characters and control characters become the replacement character.

    Example:
        >>> clean("caf\\ud83d\\x00"), clean("long", 3)
        ('caf��', 'lo…')
    """
    text = str(value)
    if width is not None and len(text) > width:
        text = text[: width - 1] + "…"
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROL.sub("�", whole)
