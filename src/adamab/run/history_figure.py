"""A run's rounds as one figure of matplotlib, without pyplot: no window, no global state."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adamab.errors import MissingExtraError
from adamab.task.html import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adamab.run.records import RoundRecord

MOST_CLASSES = 20
_ENTERED, _KEPT_OUT, _LOSS = "#0072B2", "#BBBBBB", "#D55E00"  # apart in greyscale, and for the colour-blind
_NOTHING = "There are no rounds to draw: nothing was generated in this fit."
_UNSEEN = re.compile(r"[^\S ]")  # line breaks and the like


def draw_history(history: Sequence[RoundRecord]) -> Figure:
    """Loss by round, choices by class, synthetic samples of each class."""
    names = _names(history)
    figure = _new_figure(height=4.2 + 0.24 * len(names))
    if not history:
        figure.text(0.5, 0.5, _NOTHING, ha="center", va="center")
        return figure
    grid = figure.add_gridspec(2, 2, height_ratios=(3.2, 1 + 0.24 * len(names)), width_ratios=(3, 2))
    _draw_loss(figure.add_subplot(grid[0, :]), history)
    chosen = figure.add_subplot(grid[1, 0])
    _draw_choices(chosen, history, names)
    _draw_samples(figure.add_subplot(grid[1, 1], sharey=chosen), history, names)
    return figure


def _new_figure(*, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plots") from None

    class NotebookFigure(Figure):
        """Shows itself in notebooks that have not imported pyplot, too."""

        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png")
            return stream.getvalue()

    return NotebookFigure(figsize=(9, min(height, 10)), layout="constrained", facecolor="white")


def _names(history: Sequence[RoundRecord]) -> list[str]:
    """Chosen classes, the most chosen first; beyond a number they share one line."""
    chosen = Counter(record.chosen for record in history if record.chosen is not None)
    return [name for name, _ in chosen.most_common(MOST_CLASSES)]


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
    labels = [_label(name) for name in names]
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
    axes.set(title="Synthetic samples a class", xlabel="samples")
    axes.tick_params(axis="y", labelleft=False)
    _tidy(axes, grid="x")


def _label(name: str) -> str:
    return _UNSEEN.sub(" ", clean(name, 28))


def _tidy(axes: Any, grid: str = "y") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.get_major_locator().set_params(integer=True)
