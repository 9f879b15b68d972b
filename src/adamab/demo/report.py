"""The demo's files: `demo.md` for people, `demo.json` with the raw figures, and drawings as PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from adamab.demo.story import INTERVALS, NAMES, POLICIES, PROBE, RECIPE, SIMILARITY, Summary, findings
from adamab.errors import MissingExtraError
from adamab.task.prompts import spoken
from adamab.version import __version__

COLOURS = {"adamab": "#D55E00", "round-robin": "#0072B2", "random": "#009E73", PROBE: "#555555"}
MARKERS = {"adamab": "o", "round-robin": "s", "random": "^", PROBE: "D"}
GIVEN, QUIET = "#BBBBBB", "#777777"
_STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "svg.fonttype": "none",  # text stays text: searchable, and small files
    "svg.hashsalt": "adamab",  # the same figure is the same file
}


def check_matplotlib() -> None:
    """Fail before the work, not after it."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots")


def draw_accuracy(summary: Summary, directory: Path) -> list[Path]:
    """Accuracy against synthetic samples, one line per policy, with intervals.

    Args:
        summary: What was measured.
        directory: Where the figure goes.

    Returns:
        The files that were written.
    """
    with new_figure(figsize=(8.6, 5.2)) as (figure, plt):
        axes = figure.subplots()
        for place, name in enumerate((PROBE, *POLICIES)):
            _curve(axes, summary, name, (place - 1.5) * summary.most / 90)
        zero_shot = 100 * summary.row(SIMILARITY, "none", 0).accuracy.mean
        label = f"zero-shot {zero_shot:.1f} %"
        axes.axhline(zero_shot, color=QUIET, linewidth=1.2, linestyle=":", label=label)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=10)
        percent_axis(axes, plt)
        amounts = sorted({row.synthetic for row in summary.rows} - {0})
        per_class = [f"{n}\n({n / len(summary.classes):g} per class)" for n in amounts]
        axes.set_xticks([0, *amounts], ["0\n(given examples only)", *per_class])
        axes.set_xlabel("Synthetic samples")
        axes.set_xlim(-0.06 * summary.most, 1.04 * summary.most)
        axes.set_title(_accuracy_title(summary), loc="left", fontsize=12.5, pad=14)
        note = f"{summary.n_given} given examples, {summary.n_test} test messages; bars: 95 % intervals."
        if summary.same_samples:
            note += " ADAMAB and round-robin end with the same samples."
        figure.text(0.01, 0.012, note, color=QUIET, fontsize=9)
        figure.subplots_adjust(left=0.09, right=0.68, bottom=0.17, top=0.87)
        return _save(figure, directory, "accuracy")


def draw_samples(summary: Summary, directory: Path) -> list[Path]:
    """Samples of each class, one panel per policy: given in grey, synthetic in the policy's colour.

    Args:
        summary: What was measured.
        directory: Where the figure goes.

    Returns:
        The files that were written.
    """
    with new_figure(figsize=(10.5, 5.6)) as (figure, _):
        panels = figure.subplots(1, len(POLICIES), sharey=True, sharex=True)
        for axes, policy in zip(panels, POLICIES, strict=True):
            _panel(axes, summary, policy)
        panels[0].set_yticks(range(len(summary.classes)), [spoken(c) for c in summary.classes])
        panels[0].invert_yaxis()
        panels[1].set_xlabel("Training samples of the class (grey: given, colour: synthetic)")
        title = f"Who gets the {summary.most} synthetic samples? Seed {summary.seeds[0]}, by policy"
        figure.suptitle(title, x=0.01, ha="left", fontsize=13)
        figure.subplots_adjust(left=0.16, right=0.98, bottom=0.12, top=0.83, wspace=0.1)
        return _save(figure, directory, "samples")


@contextmanager
def new_figure(**options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure in the house's style, closed at the end."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with matplotlib.rc_context(_STYLE):
        figure = plt.figure(facecolor="white", **options)
        try:
            yield figure, plt
        finally:
            plt.close(figure)


def _save(figure: Any, directory: Path, name: str) -> list[Path]:
    """As PNG and SVG."""
    paths = [directory / f"{name}.png", directory / f"{name}.svg"]
    figure.savefig(paths[0], dpi=130)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _curve(axes: Any, summary: Summary, name: str, shift: float) -> None:
    if name == PROBE:
        label, rows = "linear probe", [row for row in summary.rows if row.method == PROBE]
    else:  # all lines of the recipe start at the given examples alone
        label = f"calibrator, {NAMES[name]}"
        rows = [row for row in summary.rows if row.method == RECIPE and row.policy in ("none", name)]
    # Moved sideways a little, or intervals at the same number of samples hide each other.
    x = [row.synthetic + shift for row in rows]
    means, lows, highs = (
        100 * np.array([getattr(row.accuracy, end) for row in rows]) for end in ("mean", "low", "high")
    )
    style = {"color": COLOURS[name], "marker": MARKERS[name], "linestyle": "--" if name == PROBE else "-"}
    axes.errorbar(
        x,
        means,
        yerr=[means - lows, highs - means],
        label=f"{label} {means[-1]:.1f} %",
        linewidth=2,
        markersize=7,
        elinewidth=1.2,
        capsize=3,
        **style,
    )


def percent_axis(axes: Any, plt: Any) -> None:
    """Accuracies in percent on the vertical axis."""
    axes.yaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:.0f} %"))
    axes.set_ylabel("Accuracy on test messages")
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)


def _accuracy_title(summary: Summary) -> str:
    start = 100 * summary.row(RECIPE, "none", 0).accuracy.mean
    ends = [100 * summary.row(RECIPE, policy, summary.most).accuracy.mean for policy in POLICIES]
    span = f"{min(ends):.0f} to {max(ends):.0f}" if round(min(ends)) < round(max(ends)) else f"{ends[0]:.0f}"
    return (
        f"Calibrator: {start:.0f} % from the given examples, {span} % with {summary.most} synthetic samples"
    )


def _panel(axes: Any, summary: Summary, policy: str) -> None:
    counts = np.array(summary.samples_by_class[policy][0])
    given = summary.n_given // len(summary.classes)
    places = np.arange(len(counts))
    axes.barh(places, np.minimum(counts, given), color=GIVEN, height=0.7)
    axes.barh(places, counts - given, left=given, color=COLOURS[policy], height=0.7)
    for place, count in zip(places, counts, strict=True):
        axes.text(count + 0.5, place, str(count), va="center", fontsize=9.5, color="#333333")
    spread = f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else f"{counts.min()}"
    axes.set_title(f"{NAMES[policy]}\n{spread} samples per class", loc="left", fontsize=11.5)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.1, y=0.02)


HEADER = ("Method, samples by", "Added", "Accuracy, %", "Against the probe")


def cells(summary: Summary) -> list[tuple[str, ...]]:
    """The table's rows as text, short, so that it fits a terminal of 80 columns."""
    rows: list[tuple[str, ...]] = []
    for row in summary.table():
        a, d = row.accuracy, row.difference
        accuracy = f"{100 * a.mean:.1f} ({100 * a.low:.1f}–{100 * a.high:.1f})"
        lead = "" if d is None else f"{100 * d.mean:+.1f} ({100 * d.low:+.1f}, {100 * d.high:+.1f})"
        rows.append((row.label, str(row.synthetic), accuracy, lead))
    return rows


def caption(summary: Summary) -> str:
    """What the table's numbers are."""
    n = len(summary.seeds)
    return (
        f"{summary.n_given} given examples, {len(summary.classes)} classes, {summary.n_test} test messages; "
        f"mean of {n} seed{'s' if n > 1 else ''}. {INTERVALS} "
        "Added: synthetic samples. Against the probe: percentage points to the linear probe with as many "
        "samples."
    )


def write_report(summary: Summary, directory: Path, *, command: str) -> list[Path]:
    """Write page, raw figures and drawings.

    Args:
        summary: What was measured.
        directory: Where the files go; it is made.
        command: What made them, for the page.

    Returns:
        The files, the page first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    data = {"command": command, "adamab": __version__, **summary.to_json()}
    text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False)
    (directory / "demo.json").write_text(text + "\n", encoding="utf-8")
    (directory / "demo.md").write_text(_markdown(summary, command), encoding="utf-8")
    figures = [*draw_accuracy(summary, directory), *draw_samples(summary, directory)]
    return [directory / "demo.md", directory / "demo.json", *figures]


def _markdown(summary: Summary, command: str) -> str:
    rows = [HEADER, ("---", "---:", "---:", "---:"), *cells(summary)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    sentences = "\n".join(f"- {sentence}" for sentence in findings(summary))
    return (
        f"# Demo: the support-desk task\n\nMade by `{command}`; the raw figures are in `demo.json`.\n\n"
        f"{table}\n\n{caption(summary)}\n\n{sentences}\n\n"
        "![Accuracy against synthetic samples](accuracy.svg)\n\n![Samples of each class](samples.svg)\n"
    )
