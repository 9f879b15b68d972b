"""What pages of results are made of: tables as Markdown, figures as SVG, and their figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Table:
    """Text ready to be laid out."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """A table for Markdown."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        return "\n".join(_piped(row) for row in (self.header, rule, *self.rows))


def _piped(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", r"\|") for value in values) + " |"


def means_with_errors(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means of the other columns with their standard errors, in %; one row alone has none."""
    groups = rows.groupby(by, sort=False)
    means, errors = 100 * groups.mean(), 100 * groups.sem()
    return means.map("{:.1f}".format) + errors.map(lambda error: f" ± {error:.1f}" if error == error else "")


def as_document(values: Mapping[str, object]) -> str:
    """`values` as JSON, a line a key, and a line an item of a list of objects; six digits are enough.

    Example:
        >>> print(as_document({"seeds": 2, "rows": [{"p": 0.1234567}, {"p": 1.0}]}), end="")
        {
        "seeds":2,
        "rows":[
        {"p":0.123457},
        {"p":1.0}
        ]
        }
    """
    text = json.dumps(values, allow_nan=False)
    short = json.loads(text, parse_float=lambda number: float(f"{float(number):.6g}"))
    return "{\n" + ",\n".join(f"{_compact(key)}:{_lines(value)}" for key, value in short.items()) + "\n}\n"


def _lines(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    return _compact(value)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def save_figure(figure: Any, directory: Path, name: str) -> list[Path]:
    """Write a figure as SVG; the same figure is the same file."""
    path = directory / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    return [path]
