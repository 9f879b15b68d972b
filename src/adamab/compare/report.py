"""A comparison as a table for people, and as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adamab.compare.bench import Comparison
from adamab.errors import TaskError, one_line, os_errors, place
from adamab.evaluation.metrics import Figure
from adamab.version import __version__

HEADER = ("method", "accuracy, %", "F1", "difference", "fit s", "params")
ENDINGS = (".md", ".csv", ".json")


def cells(comparison: Comparison) -> list[tuple[str, ...]]:
    """The table's rows as text, in the order of the methods."""
    return [
        (
            row.method.replace("+", " +"),  # where a narrow table may break it
            _percent(row.evaluation.accuracy),
            f"{100 * row.evaluation.macro_f1.value:.1f}",
            "reference" if row.method == comparison.reference else _points(row.difference),
            f"{row.fit_seconds:.2f}" if row.fit_seconds < 10 else f"{row.fit_seconds:.0f}",
            _count(row.n_parameters),
        )
        for row in comparison.rows
    ]


def caption(comparison: Comparison) -> Iterator[str]:
    """What the numbers are, and what else has to be said."""
    noun = "image" if comparison.modality == "image" else "text"
    yield (
        f"{one_line(comparison.task)}: {comparison.classes} classes, {comparison.given} given samples, "
        f"{comparison.n_test} test {noun}s"
    )
    yield (
        "accuracy with Wilson's 95 % interval; F1: macro-F1 in %; params: numbers that were trained; fit s: "
        "seconds without embedding the given samples, with generation where there is any"
    )
    if comparison.reference is not None:
        yield (
            f"difference: points of accuracy to {comparison.reference} on the same {noun}s, with the 95 % "
            "interval of a bootstrap over them; one fit each, so chance in fitting is not in it"
        )
    yield from comparison.notes
    yield from (f"no row of {one_line(name)}: {reason}" for name, reason in comparison.failed.items())


def leak_warning(comparison: Comparison) -> str:
    """The line about test samples that are given ones; empty where there are none."""
    if not comparison.left_out:
        return ""
    one = comparison.left_out == 1
    were = "sample is also a given one and was" if one else "samples are also given ones and were"
    return f"warning: {comparison.left_out} test {were} left out"


def check_output(path: Path, inputs: Sequence[str]) -> None:
    """Refuse a file of an unknown kind, in no folder, or that is read, before anything is fitted.

    Args:
        path: where the comparison is to be written.
        inputs: files that the comparison reads.
    """
    if path.suffix.lower() not in ENDINGS:
        raise TaskError(f"{place(path)}: unknown ending; write a file that ends in {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise TaskError(f"{place(path)}: there is no such folder; make it first")
    if path.is_dir():
        raise TaskError(f"{place(path)}: is a directory; name a file")
    if any(path.exists() and os.path.exists(file) and os.path.samefile(path, file) for file in inputs):
        raise TaskError(f"{place(path)}: is an input as well; name another file for the output")


def write_output(comparison: Comparison, path: Path, *, command: str) -> None:
    """Write the comparison as the file's ending says.

    Args:
        comparison: what to write.
        path: a file that ends in .md, .csv or .json.
        command: what made it.
    """
    written = {".md": _markdown, ".csv": _csv, ".json": _json}[path.suffix.lower()](comparison, command)
    with os_errors(path, "cannot be written", TaskError):
        path.write_text(written, encoding="utf-8")


def as_json(comparison: Comparison, command: str) -> dict[str, Any]:
    """Plain data, with what made it.

    Args:
        comparison: the table.
        command: what made it.

    Returns:
        A mapping for JSON.
    """
    return {"command": command, "adamab": __version__, **comparison.to_json()}


def _points(d: Figure | None) -> str:
    return "" if d is None else f"{100 * d.value:+.1f} ({100 * d.low:+.1f}, {100 * d.high:+.1f})"


def _percent(figure: Figure) -> str:
    return f"{100 * figure.value:.1f} ({100 * figure.low:.1f}–{100 * figure.high:.1f})"


def _count(number: int) -> str:
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _markdown(comparison: Comparison, command: str) -> str:
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *cells(comparison)]
    notes = filter(None, (*caption(comparison), leak_warning(comparison)))
    said = "\n".join(f"- {one_line(line)}" for line in notes)
    escaped = [[one_line(cell.replace("|", "\\|")) for cell in row] for row in rows]
    table = "\n".join(f"| {' | '.join(row)} |" for row in escaped)
    return f"# Methods on {one_line(comparison.task)}\n\nMade by `{command}`.\n\n{table}\n\n{said}\n"


def _csv(comparison: Comparison, command: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ("accuracy", "macro_f1", "difference")
    plain = ("method", "samples", "calibration_error", "fit_seconds", "predict_seconds", "n_parameters")
    writer.writerow([*plain, *(f"{f}{end}" for f in figures for end in ("", "_low", "_high"))])
    for row in (row.to_json() for row in comparison.rows):
        numbers = [(row[f] or {}).get(part, "") for f in figures for part in ("value", "low", "high")]
        writer.writerow([*(row[key] for key in plain), *numbers])
    return out.getvalue()


def _json(comparison: Comparison, command: str) -> str:
    return json.dumps(as_json(comparison, command), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
