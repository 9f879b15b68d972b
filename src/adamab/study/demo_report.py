"""The demo's files: `demo.md` for people, `demo.json` with the raw figures, and the drawings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from adamab.study.demo_summary import INTERVALS, Row, Summary, findings
from adamab.study.figures import draw_accuracy, draw_samples
from adamab.version import __version__

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
