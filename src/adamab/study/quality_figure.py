"""The yardstick's figure: the default's lead over the best rival of each cell, and mean ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adamab.study.figures import COLOURS, QUIET, new_figure, save_figure
from adamab.study.quality_plan import DEFAULT, IMAGE_SETS, TEXT_SETS
from adamab.study.quality_summary import FAMILIES, Summary, Tally

OURS, LOSS = COLOURS["adamab"], COLOURS["round-robin"]
_TEXT, _IMAGE = {"marker": "o"}, {"marker": "s", "markerfacecolor": "white"}


def draw(summary: Summary, directory: Path, name: str, *, note: str) -> list[Path]:
    """Both panels as PNG and SVG."""
    tallies = list(summary.tallies)
    methods = _methods(tallies)
    height = 2.3 + 0.42 * max(len(tallies), len(methods))
    with new_figure(figsize=(12.5, height)) as (figure, _):
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        _leads(left, tallies)
        _ranks(right, tallies, methods)
        figure.suptitle(_title(tallies[-1]), x=0.01, ha="left", fontsize=13)
        figure.text(0.01, 0.012, note, color=QUIET, fontsize=9)
        top, bottom = 1 - 1.05 / height, 0.95 / height
        figure.subplots_adjust(left=0.09, right=0.985, bottom=bottom, top=top, wspace=0.55)
        return save_figure(figure, directory, name)


def _title(overall: Tally) -> str:
    lead = 100 * overall.lead.mean
    side = "ahead of" if lead > 0 else "behind"
    return (
        f"The default recipe is {abs(lead):.1f} points {side} the best rival of each cell on average; "
        f"wins–losses {overall.wins}–{overall.losses} in {overall.cells} cells"
    )


def _leads(axes: Any, tallies: Sequence[Tally]) -> None:
    for place, tally in enumerate(tallies):
        low, mean, high = (100 * x for x in (tally.lead.low, tally.lead.mean, tally.lead.high))
        colour = OURS if mean >= 0 else LOSS
        family = tally.name in FAMILIES
        style = {"color": colour, "markersize": 9 if family else 7, "linewidth": 2.4 if family else 1.6}
        axes.errorbar([mean], [place], xerr=[[mean - low], [high - mean]], fmt="o", capsize=3, **style)
        for x, told in ((1.08, f"{mean:+.1f}"), (1.19, f"{tally.wins}–{tally.losses}")):
            where = {"xycoords": ("axes fraction", "data"), "va": "center", "ha": "right"}
            axes.annotate(told, (x, place), fontsize=10, **where)
    axes.axvline(0, color="#333333", linewidth=1)
    for x, told in ((1.08, "lead"), (1.23, "wins–losses")):
        axes.annotate(told, (x, 1.02), xycoords="axes fraction", color=QUIET, fontsize=9, ha="right")
    _names(axes, [tally.name for tally in tallies])
    axes.set_xlabel("Points ahead, mean of the cells with 95 % interval")
    axes.set_title("Against the best rival of each cell", loc="left", fontsize=11.5, pad=16)


def _ranks(axes: Any, tallies: Sequence[Tally], methods: Sequence[str]) -> None:
    families = {"text sets": (TEXT_SETS, _TEXT), "image sets": (IMAGE_SETS, _IMAGE)}
    for name, (members, style) in families.items():
        found = _of_family(tallies, name, members)
        if found is None:
            continue
        rows = [(i, found.ranks[m], m) for i, m in enumerate(methods) if m in found.ranks]
        for place, rank, method in rows:
            axes.plot(rank, place, color=OURS if method == DEFAULT else QUIET, markersize=8, **style)
        axes.plot([], [], color=QUIET, linestyle="", markersize=8, label=name, **style)
    _names(axes, methods)
    axes.set_xlabel("Mean rank by accuracy, 1 is best")
    axes.set_title("Mean rank", loc="left", fontsize=11.5, pad=16)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, ncols=2)


def _of_family(tallies: Sequence[Tally], name: str, members: Sequence[str]) -> Tally | None:
    """The family's tally, or that of its only set."""
    by_name = {tally.name: tally for tally in tallies}
    return by_name.get(name) or next((by_name[m] for m in members if m in by_name), None)


def _methods(tallies: Sequence[Tally]) -> list[str]:
    """The best rank over everything first."""
    overall = tallies[-1].ranks
    return sorted(overall, key=lambda method: overall[method])


def _names(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
