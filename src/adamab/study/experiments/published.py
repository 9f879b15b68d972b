"""The numbers that the paper prints, for orientation beside ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from adamab.errors import TaskError
from adamab.task.messages import short, suggestion

NOT_COMPARABLE = (
    "For orientation only, and not directly comparable: the paper has other embedders and generators, drew "
    "its given samples from the official test splits, and chose its settings by the best test accuracy."
)
FILE = "published.json"  # accuracy in %, by set and within it by setting


@dataclass(frozen=True)
class PublishedRow:
    """One line of a table of the paper."""

    method: str
    parameters: str
    accuracy: dict[tuple[str, str], float]  # in %, by set and setting


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper, by the name that its source gives it."""

    name: str
    sets: tuple[str, ...]
    settings: tuple[str, ...]
    rows: tuple[PublishedRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        rows = [
            {
                "method": row.method,
                "parameters": row.parameters,
                "accuracy": {f"{name} {setting}": value for (name, setting), value in row.accuracy.items()},
            }
            for row in self.rows
        ]
        return {"table": self.name, "rows": rows}


def published_table(name: str) -> PublishedTable:
    """The table of that name."""
    known = _read()
    if name not in known:
        raise TaskError(f"published: the paper has no table {short(name)}; {suggestion(name, known)}")
    table = known[name]
    places = [(a, b) for a in table["sets"] for b in table["settings"]]
    rows = tuple(
        PublishedRow(row["method"], str(row["parameters"]), dict(zip(places, row["accuracy"], strict=True)))
        for row in table["rows"]
    )
    return PublishedTable(name, tuple(table["sets"]), tuple(table["settings"]), rows)


@cache
def _read() -> dict[str, Any]:
    text = (files("adamab.study.experiments") / FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
