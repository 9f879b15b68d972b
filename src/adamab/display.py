"""What people see of a fit in a terminal or a notebook: a bar while it runs, a figure of its rounds."""

from __future__ import annotations

import io
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from adamab.errors import clean, imported

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adamab.run.records import RoundRecord

_BETWEEN = 0.1  # seconds between two drawings in a notebook: each of them is a message to the browser
MOST_CLASSES = 20
_ENTERED, _KEPT_OUT, _LOSS = "#0072B2", "#BBBBBB", "#D55E00"  # apart in greyscale, and for the colour-blind
_UNSEEN = re.compile(r"[^\S ]")  # line breaks and the like


class Bar:
    """Where a long command tells how far it is; this one shows nothing."""

    visible = False

    def step(self, count: int = 1) -> None:
        """So much more is done."""

    def phase(self, description: str, total: int | None = None) -> None:
        """Something else begins.

        Args:
            description: what begins, shown beside the bar.
            total: how many steps it has; None if that is not known.
        """


@contextmanager
def progress(description: str, *, quiet: bool = False) -> Iterator[Bar]:
    """A bar while there is a person to see it, on stderr or in the notebook; nothing is left of it.

    Args:
        description: what is being done, shown beside the bar until its next phase.
        quiet: show nothing, whoever is there.
    """
    # Whether IPython runs here with a front end that shows HTML; it is not imported to find out.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not quiet and getattr(shell, "kernel", None) is not None:
        yield from _notebook_bar(description)
        return
    if quiet or not sys.stderr.isatty():
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns: list[Any] = [SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn()]
    columns += [TimeElapsedColumn(), "left:", TimeLeft()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
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


class _RichBar(Bar):
    visible = True

    def __init__(self, shown: Any, task: Any) -> None:
        self._shown, self._task = shown, task

    def step(self, count: int = 1) -> None:
        self._shown.advance(self._task, count)

    def phase(self, description: str, total: int | None = None) -> None:
        self._shown.reset(self._task, description=description, total=total)


class _NotebookBar(Bar):
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
        share = "" if not self._total else f' value="{self._done}" max="{self._total}"'
        count = f"{self._done} of {self._total}, " if self._total else ""
        self._show(f"{escape(self._description)} <progress{share}></progress> {count}{seconds:.0f} s")


def _notebook_bar(description: str) -> Iterator[Bar]:
    from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

    handle = display(HTML(""), display_id=True)
    try:
        yield _NotebookBar(lambda text: handle.update(HTML(text)), description)
    finally:
        handle.update(HTML(""))


def draw_history(history: Sequence[RoundRecord]) -> Figure:
    """Loss by round, choices by class, synthetic samples of each class."""
    # Chosen classes, the most chosen first; beyond a number they share one line.
    choices = Counter(record.chosen for record in history if record.chosen is not None)
    names = [name for name, _ in choices.most_common(MOST_CLASSES)]
    figure = _new_figure(height=4.2 + 0.24 * len(names))
    if not history:
        nothing = "There are no rounds to draw: nothing was generated in this fit."
        figure.text(0.5, 0.5, nothing, ha="center", va="center")
        return figure
    grid = figure.add_gridspec(2, 2, height_ratios=(3.2, 1 + 0.24 * len(names)), width_ratios=(3, 2))
    _draw_loss(figure.add_subplot(grid[0, :]), history)
    chosen = figure.add_subplot(grid[1, 0])
    _draw_choices(chosen, history, names)
    _draw_samples(figure.add_subplot(grid[1, 1], sharey=chosen), history, names)
    return figure


def _new_figure(*, height: float) -> Figure:
    imported("matplotlib.figure", "matplotlib", "plots")
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """Shows itself in notebooks that have not imported pyplot, too."""

        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png")
            return stream.getvalue()

    return NotebookFigure(figsize=(9, min(height, 10)), layout="constrained", facecolor="white")


def _row(name: str | None, names: Sequence[str]) -> int | None:
    """The line on which a class is drawn."""
    if name is None:
        return None
    return names.index(name) if name in names else len(names)


def _draw_loss(axes: Any, history: Sequence[RoundRecord]) -> None:
    points = [(r.round, r.loss) for r in history if r.loss is not None]
    axes.plot([x for x, _ in points], [y for _, y in points], color=_LOSS, linewidth=1.6, marker=".")
    axes.set(title="Training loss after each round", xlabel="round", ylabel="loss")
    if not points:
        axes.text(0.5, 0.5, "no model was trained in the rounds", transform=axes.transAxes, ha="center")
    _tidy(axes)


def _draw_choices(axes: Any, history: Sequence[RoundRecord], names: Sequence[str]) -> None:
    rows = [(r.round, _row(r.chosen, names)) for r in history]
    drawn = [(x, y) for x, y in rows if y is not None]
    axes.scatter([x for x, _ in drawn], [y for _, y in drawn], color=_ENTERED, marker="s", s=16)
    labels = [_UNSEEN.sub(" ", clean(name, 28)) for name in names]
    if any(y == len(names) for _, y in drawn):
        others = {r.chosen for r in history if _row(r.chosen, names) == len(names)}
        labels.append(f"{len(others)} other classes")
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(max(len(labels), 1) - 0.5, -0.5)
    axes.set(title="Class chosen in each round", xlabel="round")
    _tidy(axes, grid="x")


def _draw_samples(axes: Any, history: Sequence[RoundRecord], names: Sequence[str]) -> None:
    entered: Counter[int] = Counter()
    kept_out: Counter[int] = Counter()
    for record in history:
        row = _row(record.chosen, names)
        if row is not None:
            entered[row] += record.accepted
            kept_out[row] += sum(record.rejected.values())
    rows = sorted(entered)
    widths = [entered[row] for row in rows]
    axes.barh(rows, widths, color=_ENTERED, height=0.6, label="entered")
    if kept_out.total():
        axes.barh(
            rows,
            [kept_out[row] for row in rows],
            left=widths,
            color=_KEPT_OUT,
            height=0.6,
            hatch="///",
            edgecolor="white",
            label="kept out by the gate",
        )
        axes.legend(frameon=False, fontsize="small")
    axes.set(title="Synthetic samples per class", xlabel="samples")
    axes.tick_params(axis="y", labelleft=False)
    _tidy(axes, grid="x")


def _tidy(axes: Any, grid: str = "y") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.get_major_locator().set_params(integer=True)
