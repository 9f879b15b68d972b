"""The drawings of the convergence study: descents by round, and both sides of the first theorem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adamab.demo.story import COLOURS, QUIET, new_figure
from experiments.convergence_descent import Floats, Summary
from experiments.pages import save_figure
from experiments.theory import Check, quadratic_check

NAMES = {
    "oracle": "oracle (sees the true gradient)",
    "adamab": "ADAMAB, α of the paper",
    "product": "ADAMAB, α of the product",
    "tight": "tight bound",
    "greedy": "greedy (no bonus)",
    "round-robin": "round-robin",
    "random": "random",
}
TITLES = {
    "hwu64-home": "HWU64, home",
    "hwu64-office": "HWU64, office",
    "demo": "Support desk",
}
# Lines that coincide must both be seen: the thick ones are drawn first, the broken ones on top.
STYLES: dict[str, dict[str, Any]] = {
    "random": {"color": COLOURS["random"], "linewidth": 1.6},
    "round-robin": {"color": COLOURS["round-robin"], "linewidth": 2.4},
    "adamab": {"color": COLOURS["adamab"], "linewidth": 3.2},
    "product": {"color": "#E69F00", "linewidth": 1.6, "linestyle": (0, (7, 4))},
    "greedy": {"color": "#222222", "linewidth": 1.2, "linestyle": (0, (4, 3))},
    "tight": {"color": "#56B4E9", "linewidth": 1.8, "linestyle": (0, (1, 2.5))},
    "oracle": {"color": "#CC79A7", "linewidth": 2.0},
}
BANDS = ("random", "round-robin", "adamab", "oracle")
POINTS = 40  # of a line: more make a file that takes half a megabyte, and look the same
CHECKS = ("#0072B2", "#009E73", "#D55E00")


def draw_descents(summaries: Sequence[Summary], directory: Path) -> list[Path]:
    """A row a problem: gradient shift, regret, and the counts at the moment of choice."""
    rows = len(summaries)
    with new_figure(figsize=(13.5, 1.9 + 3.5 * rows)) as (figure, _):
        panels = figure.subplots(rows, 3, squeeze=False)
        for row, summary in zip(panels, summaries, strict=True):
            _shift(row[0], summary)
            _regret(row[1], summary)
            _ratio(row[2], summary)
        for axes in panels[-1]:
            axes.set_xlabel("Round (one sample and one step each)")
        height = figure.get_figheight()
        figure.suptitle(_headline(summaries), x=0.01, y=1 - 0.16 / height, ha="left", va="top", fontsize=14)
        _legend(figure, height)
        note = (
            "Lines: mean of the seeds. Bands: smallest to largest seed. "
            "With the same seed every policy has the same start and the same draws of each class."
        )
        figure.text(0.01, 0.1 / height, note, color=QUIET, fontsize=9.5)
        bottom, top = 0.85 / height, 1 - 1.65 / height
        figure.subplots_adjust(left=0.07, right=0.985, bottom=bottom, top=top, hspace=0.36, wspace=0.25)
        return save_figure(figure, directory, "convergence")


def draw_bound(checks: Sequence[Check], directory: Path) -> list[Path]:
    """Left: both sides by T where β is known. Right: at which rates the bound is true."""
    with new_figure(figsize=(11.5, 4.9)) as (figure, _):
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        for check, colour in zip(checks, CHECKS, strict=True):
            rounds = np.arange(1, len(check.left) + 1)
            shown = check.left > 1e-9  # below, only rounding is left
            left.plot(rounds, check.right, color=colour, linestyle="--", linewidth=1.8)
            left.plot(rounds[shown], check.left[shown], color=colour, linewidth=2.2, label=check.name)
        left.set(xscale="log", yscale="log", xlabel="Steps T", ylabel="Squared norm of the true gradient")
        left.set_ylim(bottom=1e-6)
        left.set_xlim(right=15 * len(checks[0].left))  # room for the names
        left.legend(frameon=False, fontsize=10, loc="lower right")
        left.set_title("Solid: smallest so far. Dashed: the theorem's bound", loc="left", fontsize=11.5)
        _rates(right)
        figure.suptitle(_bound_headline(checks), x=0.01, ha="left", fontsize=13.5)
        figure.subplots_adjust(left=0.075, right=0.985, bottom=0.13, top=0.83, wspace=0.22)
        return save_figure(figure, directory, "convergence-bound")


def _shift(axes: Any, summary: Summary) -> None:
    for policy, style in STYLES.items():
        _line(axes, summary.curve(policy, "shift"), policy, style)
    axes.set(yscale="log", ylabel="Gradient shift δ²")
    _plain_ticks(axes)
    axes.set_title(f"{title(summary)}\nHow far the step is from the true gradient", loc="left", fontsize=11)


def _regret(axes: Any, summary: Summary) -> None:
    width = min(len(summary.population.class_names), summary.problem.setting.rounds)
    for policy, style in STYLES.items():
        if policy != "oracle":
            _line(axes, _running(summary.curve(policy, "regret"), width), policy, style, first=width)
    axes.set(yscale="log", ylabel="Regret")
    _plain_ticks(axes)
    axes.set_title(f"\nShift above the best class's (mean of {width} rounds)", loc="left", fontsize=11)


def _ratio(axes: Any, summary: Summary) -> None:
    for policy, style in STYLES.items():
        so_far = np.maximum.accumulate(summary.curve(policy, "chosen_ratio"), axis=1)
        _line(axes, so_far, policy, style)
    m = summary.constants.ratio_bound
    axes.axhline(m, color="#222222", linewidth=1.2)
    axes.annotate(
        f"M = {m:.2f}, the lemma's bound", (0.99, m), xycoords=("axes fraction", "data"), xytext=(0, -13),
        textcoords="offset points", ha="right", fontsize=10,
    )  # fmt: skip
    axes.set(ylabel="Ratio, largest so far", ylim=(0.8, None))
    axes.set_title("\nSamples of the chosen / the smallest class", loc="left", fontsize=11)


def _line(axes: Any, curves: Floats, policy: str, style: dict[str, Any], *, first: int = 1) -> None:
    points = np.unique(np.linspace(0, curves.shape[1] - 1, POINTS).round().astype(np.int64))
    x, curves = first + points, curves[:, points]
    if policy in BANDS:
        axes.fill_between(x, curves.min(0), curves.max(0), color=style["color"], alpha=0.13, linewidth=0)
    axes.plot(x, curves.mean(0), **style)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)


def _plain_ticks(axes: Any) -> None:
    """1, 2, 5, 10 instead of powers, or 1, 10, 100 where that would be many, and none in between."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _running(curves: Floats, width: int) -> Floats:
    window = np.ones(width) / width
    return np.stack([np.convolve(curve, window, mode="valid") for curve in curves])


def _legend(figure: Any, height: float) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], **STYLES[policy]) for policy in NAMES]
    place = (0.005, 1 - 0.5 / height)
    figure.legend(lines, NAMES.values(), loc="upper left", bbox_to_anchor=place, ncols=4, frameon=False)


def _rates(axes: Any) -> None:
    factors = np.linspace(0.05, 2, 79)
    shares = [1 / quadratic_check(float(factor)).factor for factor in factors]
    axes.plot(factors, shares, color="#D55E00", linewidth=2.2)
    axes.axhspan(1, 2.1, color="#D55E00", alpha=0.08, linewidth=0)
    axes.axvline(1, color=QUIET, linewidth=1, linestyle=":")
    axes.text(0.1, 1.9, "here the bound is false", color="#A34700", fontsize=10.5)
    axes.text(1.04, 0.08, "the theorem's condition\nends at 1/β", color=QUIET, fontsize=10)
    axes.set(xlabel="Rate, as a multiple of 1/β", ylabel="Left side / bound, one step", ylim=(0, 2.1))
    axes.set_title("L(w) = βw²/2: exact at 1/β, false above", loc="left", fontsize=11.5)


def title(summary: Summary) -> str:
    """The problem in words."""
    kind = {"default": "product's calibrator", "paper": "paper's calibrator"}[
        summary.problem.setting.calibrator
    ]
    name = TITLES.get(summary.problem.set, summary.problem.set)
    return f"{name}, {len(summary.population.class_names)} classes, {kind}"


def _headline(summaries: Sequence[Summary]) -> str:
    leads = [100 * s.of("adamab").against_round_robin.mean for s in summaries]
    oracle = [100 * s.of("oracle").against_round_robin.mean for s in summaries]
    random = [100 * s.of("random").against_round_robin.mean for s in summaries]
    return (
        f"Gradient shift against round-robin's: ADAMAB (α of the paper) {span(leads)} %, "
        f"random {span(random)} %, the oracle {span(oracle)} %"
    )


def span(values: Sequence[float]) -> str:
    """`-3.1` or `-3.1 to +1.0`, with a sign."""
    low, high = (f"{value:+.1f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _bound_headline(checks: Sequence[Check]) -> str:
    held = all(check.holds for check in checks)
    worst = min(check.factor for check in checks)
    return (
        f"First theorem, logistic regression with a known β: {'holds' if held else 'FAILS'} at every T; "
        f"the worst bias comes within a factor of {worst:.2f}"
    )
