"""How far a long piece of work is, for whoever waits: a bar in a terminal or in a notebook, else nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

_BETWEEN = 0.1  # seconds between two drawings in a notebook: each of them is a message to the browser


class Bar(Protocol):
    """Where a long command tells how far it is."""

    def step(self, count: int = 1) -> None:
        """So much more is done."""

    def phase(self, description: str, total: int | None = None) -> None:
        """Something else begins."""


class _NoBar:
    def step(self, count: int = 1) -> None: ...

    def phase(self, description: str, total: int | None = None) -> None: ...


@contextmanager
def progress(description: str, *, quiet: bool = False) -> Iterator[Bar]:
    """A bar while there is a person to see it, on stderr or in the notebook; nothing is left of it."""
    if not quiet and _in_notebook():
        yield from _notebook_bar(description)
        return
    if quiet or not sys.stderr.isatty():
        yield _NoBar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns: list[Any] = [SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as shown:
        yield _RichBar(shown, shown.add_task(description, total=None))


def round_counter(bar: Bar, total: int) -> Callable[[Any], None]:
    """What a fit calls with each of its `total` rounds, so that `bar` tells them."""
    begun = False

    def on_round(record: Any) -> None:
        nonlocal begun
        if not begun:
            begun = True
            bar.phase("rounds", total - record.round + 1)
        bar.step()
        if record.round == total:
            bar.phase("training the classifier")

    return on_round


class _RichBar:
    def __init__(self, shown: Any, task: Any) -> None:
        self._shown, self._task = shown, task

    def step(self, count: int = 1) -> None:
        self._shown.advance(self._task, count)

    def phase(self, description: str, total: int | None = None) -> None:
        self._shown.reset(self._task, description=description, total=total)


class _NotebookBar:
    """A bar of plain HTML. What rich shows in notebooks needs ipywidgets, which many have not."""

    def __init__(self, show: Callable[[str], None], description: str) -> None:
        self._show, self._drawn = show, 0.0
        self._started = time.monotonic()
        self.phase(description)

    def step(self, count: int = 1) -> None:
        self._done += count
        if time.monotonic() - self._drawn >= _BETWEEN or self._done == self._total:
            self._draw()

    def phase(self, description: str, total: int | None = None) -> None:
        self._description, self._total, self._done = description, total, 0
        self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        seconds = self._drawn - self._started
        known = "" if not self._total else f' value="{self._done}" max="{self._total}"'
        count = f"{self._done} of {self._total}, " if self._total else ""
        self._show(f"{escape(self._description)} <progress{known}></progress> {count}{seconds:.0f} s")


def _in_notebook() -> bool:
    """Whether IPython runs here with a front end that shows HTML; it is not imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _notebook_bar(description: str) -> Iterator[Bar]:
    from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

    handle = display(HTML(""), display_id=True)
    try:
        yield _NotebookBar(lambda text: handle.update(HTML(text)), description)
    finally:
        handle.update(HTML(""))
