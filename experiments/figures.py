"""Figures like the paper's: accuracy by samples per class and by α, a panel per set and generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adamab.demo.story import COLOURS, MARKERS, QUIET, new_figure, percent_axis
from experiments.cells import BOTH
from experiments.definition import CALIBRATOR, NONE
from experiments.pages import save_figure
from experiments.summary import OURS, POLICY_NAMES, PROBE, Line, Summary

PROBE_STYLE = {"color": "#555555", "marker": "D", "linestyle": "--"}
LITERAL_STYLE = {"color": "#CC79A7", "marker": "v", "linestyle": "-."}
OTHER = ("#56B4E9", "#E69F00", "#000000", "#F0E442")
RECIPES = {"default": COLOURS[OURS], "paper": COLOURS["round-robin"]}
_LEGEND = 2.9  # inches that a name in the legend takes
_COLUMNS, _WIDTH, _HEIGHT = 3, 4.1, 3.5  # of a panel, in inches


@dataclass
class Curve:
    """One line of a panel."""

    name: str
    style: dict[str, Any]
    points: list[tuple[float, Line]] = field(default_factory=list)


def draw(summary: Summary, directory: Path, name: str) -> list[Path]:
    """The figure `name` that the experiment asks for, or nothing."""
    experiment = summary.result.experiment
    if experiment.figure == "none":
        return []
    draw_panel, xlabel = _KINDS[experiment.figure]
    drawn = [x.cell for x in summary.lines if x.cell.policy != NONE and x.cell.setting != BOTH]
    places = list(dict.fromkeys((cell.set, cell.generator, cell.setting) for cell in drawn))
    if not places:
        return []
    rows = math.ceil(len(places) / _COLUMNS)
    columns = math.ceil(len(places) / rows)
    with new_figure(figsize=(_WIDTH * columns + 0.6, _HEIGHT * rows + 1.7)) as (figure, plt):
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (data_set, generator, setting) in zip(grid, places, strict=False):
            of_panel = [x for x in summary.lines if (x.cell.set, x.cell.generator) == (data_set, generator)]
            lines = [x for x in of_panel if x.cell.setting in (setting, BOTH)]
            draw_panel(axes, lines, summary)
            percent_axis(axes, plt)
            axes.set_ylabel("")
            several = len(experiment.settings) > 1
            title = f"{summary.result.titles[data_set]}, {generator}{f', {setting}' if several else ''}"
            more = axes.get_title(loc="left")
            axes.set_title("\n".join(filter(None, (title, more))), loc="left", fontsize=11)
            axes.set_xlabel(xlabel)
        for axes in grid[len(places) :]:
            axes.set_visible(False)
        _around(figure, grid[: len(places)], summary)
        return save_figure(figure, directory, name)


def _around(figure: Any, panels: Sequence[Any], summary: Summary) -> None:
    """Title above, legend and note below."""
    named: dict[str, Any] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    height = figure.get_figheight()
    columns = max(1, int(figure.get_figwidth() // _LEGEND))
    experiment = summary.result.experiment
    title = f"{experiment.title}, on {experiment.part} samples"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13)
    place = {"loc": "lower left", "bbox_to_anchor": (0.005, 0.3 / height)}
    figure.legend(named.values(), named, ncols=columns, frameon=False, fontsize=10, **place)
    seeds = f"{experiment.seeds} seed{'s' if experiment.seeds > 1 else ''}"
    note = f"{seeds}; embedder {experiment.embedder}; bars: 95 % intervals."
    figure.text(0.01, 0.1 / height, note, color=QUIET, fontsize=9)
    legend_rows = math.ceil(len(named) / columns)
    bottom = (1.15 + 0.24 * legend_rows) / height
    left = 0.62 / figure.get_figwidth()
    figure.subplots_adjust(
        left=left, right=0.985, bottom=bottom, top=1 - 0.9 / height, wspace=0.22, hspace=0.62
    )


def _by_samples(axes: Any, lines: Sequence[Line], summary: Summary) -> None:
    raw = next((x for x in lines if x.cell.method == "zero-shot"), None)
    curves = _sample_curves(lines)
    for number, curve in enumerate(curves):
        start = [(0.0, raw)] if raw is not None and curve.name.startswith(CALIBRATOR) else []
        _plot(axes, curve, [*start, *sorted(curve.points, key=lambda p: p[0])], shift=0.12 * (number - 2))
    ticks = sorted(
        {round(x) for curve in curves for x, _ in curve.points} | ({0} if raw is not None else set())
    )
    axes.set_xticks(ticks, ["0\nraw" if tick == 0 else str(tick) for tick in ticks])


def _sample_curves(lines: Sequence[Line]) -> list[Curve]:
    """One line a policy and recipe; all of a recipe start at the given samples alone."""
    curves: dict[tuple[str, str, str], Curve] = {}
    for line in lines:
        cell = line.cell
        if cell.policy != NONE:
            curves.setdefault((cell.method, cell.recipe, cell.policy), _sample_curve(line)).points.append(
                (line.per_class, line)
            )
    for (method, recipe, _), curve in curves.items():
        first = next(
            (x for x in lines if (x.cell.method, x.cell.recipe, x.cell.policy) == (method, recipe, NONE)),
            None,
        )
        if first is not None:
            curve.points.append((first.per_class, first))
    return list(curves.values())


def _sample_curve(line: Line) -> Curve:
    cell = line.cell
    if cell.method == PROBE:
        return Curve("linear probe", PROBE_STYLE)
    if cell.method != CALIBRATOR:
        return Curve(line.label, {"color": OTHER[len(cell.method) % len(OTHER)], "marker": "x"})
    name = f"calibrator ({cell.recipe}), {POLICY_NAMES[cell.policy]}"
    if cell.recipe != "default":
        return Curve(name, LITERAL_STYLE)
    colour = COLOURS.get(cell.policy, OTHER[0])
    return Curve(name, {"color": colour, "marker": MARKERS.get(cell.policy, "x"), "linestyle": "-"})


def _by_alpha(axes: Any, lines: Sequence[Line], summary: Summary) -> None:
    values = sorted(summary.result.experiment.vary.get("alpha", ()))
    curves: dict[tuple[str, str], Curve] = {}
    added = {x.cell.amount: x.synthetic for x in lines if x.cell.policy != NONE}
    for line in lines:
        cell = line.cell
        if cell.method != CALIBRATOR or cell.policy == NONE:
            continue
        first = cell.amount == next(iter(added))
        colour = RECIPES.get(cell.recipe, OTHER[0])
        name = f"{POLICY_NAMES[cell.policy]}, {cell.recipe} recipe"
        if cell.policy == OURS:
            style = {"color": colour, "linestyle": "-" if first else "--", "marker": "o" if first else "s"}
            curve = curves.setdefault((cell.recipe, cell.amount), Curve(name, style))
            curve.points.append((values.index(cell.settings["alpha"]), line))
        else:
            dots: Any = ":" if first else (0, (1, 4))
            axes.axhline(100 * line.accuracy.mean, color=colour, linestyle=dots, linewidth=1.6, label=name)
    for number, curve in enumerate(curves.values()):
        _plot(axes, curve, sorted(curve.points, key=lambda p: p[0]), shift=0.06 * (number - 1.5))
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    dashes = ("solid", "dashed")
    counts = [f"{count:.0f} ({dash})" for count, dash in zip(added.values(), dashes, strict=False)]
    axes.set_title(f"{' or '.join(counts)} samples added", loc="left")


def _plot(axes: Any, curve: Curve, points: Sequence[tuple[float, Line]], *, shift: float) -> None:
    # Moved sideways a little, or intervals at the same place hide each other.
    x = [place + shift for place, _ in points]
    y = [100 * line.accuracy.mean for _, line in points]
    below = [max(0.0, 100 * (line.accuracy.mean - line.accuracy.low)) for _, line in points]
    above = [max(0.0, 100 * (line.accuracy.high - line.accuracy.mean)) for _, line in points]
    style = {"linewidth": 1.8, "markersize": 5.5, "elinewidth": 0.9, "capsize": 2, **curve.style}
    axes.errorbar(x, y, yerr=[below, above], label=curve.name, **style)


_KINDS: dict[str, tuple[Callable[[Any, Sequence[Line], Summary], None], str]] = {
    "samples": (_by_samples, "Training samples per class, on average"),
    "alpha": (_by_alpha, "Exploration α"),
}
