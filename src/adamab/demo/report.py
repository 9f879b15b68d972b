"""The demo's files: `demo.md` for people, `demo.json` with the raw figures, and drawings as PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from adamab.demo.story import INTERVALS, NAMES, POLICIES, PROBE, RECIPE, SIMILARITY, Row, Summary, findings
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
    """Accuracy against synthetic samples, a line a policy, with intervals."""
    with new_figure(figsize=(8.6, 5.2)) as (figure, plt):
        axes = figure.subplots()
        for place, name in enumerate((PROBE, *POLICIES)):
            _curve(axes, _rows(summary, name), name, (place - 1.5) * summary.most / 90)
        zero_shot = summary.row(SIMILARITY, "none", 0)
        axes.axhline(100 * zero_shot.accuracy.mean, color=QUIET, linewidth=1.2, linestyle=":")
        _direct_labels(axes, summary)
        percent_axis(axes, plt)
        amounts = sorted({row.synthetic for row in summary.rows})
        axes.set_xticks(amounts, [_amount(n, len(summary.classes)) for n in amounts])
        axes.set_xlabel("Synthetic samples")
        axes.set_xlim(-0.06 * summary.most, 1.04 * summary.most)
        axes.set_title(_accuracy_title(summary), loc="left", fontsize=12.5, pad=14)
        note = f"{summary.n_given} given examples, {summary.n_test} test messages; bars: 95 % intervals."
        if summary.same_samples:
            note += " ADAMAB and round-robin end with the same samples."
        figure.text(0.01, 0.012, note, color=QUIET, fontsize=9)
        figure.subplots_adjust(left=0.09, right=0.7, bottom=0.17, top=0.87)
        return save_figure(figure, directory, "accuracy")


def draw_samples(summary: Summary, directory: Path) -> list[Path]:
    """Samples of each class, a panel a policy: given in grey, synthetic in the policy's colour."""
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
        return save_figure(figure, directory, "samples")


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


def save_figure(figure: Any, directory: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG and return both paths."""
    paths = [directory / f"{name}.png", directory / f"{name}.svg"]
    figure.savefig(paths[0], dpi=130)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _rows(summary: Summary, name: str) -> list[Row]:
    """The points of one line; all recipe lines start at the given examples alone."""
    if name == PROBE:
        return [row for row in summary.rows if row.method == PROBE]
    return [row for row in summary.rows if row.method == RECIPE and row.policy in ("none", name)]


def _curve(axes: Any, rows: Sequence[Row], name: str, shift: float) -> None:
    # Moved sideways a little, or intervals at the same number of samples hide each other.
    x = [row.synthetic + shift for row in rows]
    y = [100 * row.accuracy.mean for row in rows]
    errors = [
        [100 * (row.accuracy.mean - row.accuracy.low) for row in rows],
        [100 * (row.accuracy.high - row.accuracy.mean) for row in rows],
    ]
    style = {"color": COLOURS[name], "marker": MARKERS[name], "linestyle": "--" if name == PROBE else "-"}
    axes.errorbar(x, y, yerr=errors, linewidth=2, markersize=7, elinewidth=1.2, capsize=3, **style)


def _direct_labels(axes: Any, summary: Summary) -> None:
    """Names at the right end of their lines, pushed apart where they would overlap."""
    ends = []
    for name in MARKERS:
        label = "linear probe" if name == PROBE else f"calibrator, {NAMES[name]}"
        ends.append((_rows(summary, name)[-1].accuracy.mean, label, COLOURS[name]))
    ends.append((summary.row(SIMILARITY, "none", 0).accuracy.mean, "zero-shot", QUIET))
    low, high = axes.get_ylim()
    gap, ends = 0.055 * (high - low), sorted(ends)
    places = _apart([100 * end[0] for end in ends], gap)
    for y, (accuracy, name, colour) in zip(places, ends, strict=True):
        axes.annotate(
            f"{name} {100 * accuracy:.1f} %",
            (1.02, y),
            xycoords=("axes fraction", "data"),
            color=colour,
            va="center",
            fontweight="bold",
            fontsize=10,
            annotation_clip=False,
        )


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Ascending values moved apart to at least `gap`, around where they were."""
    low = [v - i * gap for i, v in enumerate(values)]
    # The closest non-decreasing sequence: neighbours that are too close share their mean.
    blocks: list[list[float]] = []
    for value in low:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    level = [float(np.mean(block)) for block in blocks for _ in block]
    return [value + i * gap for i, value in enumerate(level)]


def percent_axis(axes: Any, plt: Any) -> None:
    """Accuracies in percent on the vertical axis."""
    axes.yaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:.0f} %"))
    axes.set_ylabel("Accuracy on test messages")
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)


def _amount(n: int, n_classes: int) -> str:
    return "0\n(given examples only)" if n == 0 else f"{n}\n({n / n_classes:g} a class)"


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
    axes.set_title(f"{NAMES[policy]}\n{spread} samples a class", loc="left", fontsize=11.5)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.1, y=0.02)


HEADER = ("Method, samples by", "Added", "Accuracy, %", "Against the probe")


def cells(summary: Summary) -> list[tuple[str, ...]]:
    """The table's rows as text."""
    return [(row.label, str(row.synthetic), *_numbers(row)) for row in summary.table()]


def _numbers(row: Row) -> tuple[str, str]:
    """Short, so that the table fits a terminal of 80 columns; the header has the units."""
    a, d = row.accuracy, row.difference
    accuracy = f"{100 * a.mean:.1f} ({100 * a.low:.1f}–{100 * a.high:.1f})"
    if d is None:
        return accuracy, ""
    return accuracy, f"{100 * d.mean:+.1f} ({100 * d.low:+.1f}, {100 * d.high:+.1f})"


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
    """Write everything and return where it is."""
    directory.mkdir(parents=True, exist_ok=True)
    data = {"command": command, "adamab": __version__, **summary.to_json()}
    text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False)
    (directory / "demo.json").write_text(text + "\n", encoding="utf-8")
    (directory / "demo.md").write_text(_markdown(summary, command), encoding="utf-8")
    figures = [*draw_accuracy(summary, directory), *draw_samples(summary, directory)]
    return [directory / "demo.md", directory / "demo.json", *figures]


def _markdown(summary: Summary, command: str) -> str:
    lines = [_line(HEADER), _line(["---", "---:", "---:", "---:"]), *map(_line, cells(summary))]
    said = "\n".join(f"- {sentence}" for sentence in findings(summary))
    return (
        f"# Demo: the support-desk task\n\nMade by `{command}`; the raw figures are in `demo.json`.\n\n"
        + "\n".join(lines)
        + f"\n\n{caption(summary)}\n\n{said}\n\n"
        "![Accuracy against synthetic samples](accuracy.svg)\n\n![Samples of each class](samples.svg)\n"
    )


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"
