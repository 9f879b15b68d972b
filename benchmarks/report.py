"""Figures with their bars, tables, and the two files in results/ that keep them."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

RESULTS = Path(__file__).resolve().parent.parent / "results"


@dataclass(frozen=True)
class Figure:
    """A measured number with the bar that it has to stay below (or reach)."""

    name: str
    value: float
    bar: float
    at_most: bool = True
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bar is met; a figure that is not a number meets none."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar


@dataclass(frozen=True)
class Table:
    """Figures without a bar, to be read side by side."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Title and table."""
        return f"{self.title}:\n\n{table(self.header, self.rows)}"


@dataclass(frozen=True)
class Group:
    """What one module measured."""

    figures: list[Figure]
    tables: list[Table] = field(default_factory=list)


def seconds(action: Callable[[], object], repeat: int) -> float:
    """Median time of one call, after one that does not count."""
    return alternating([action], repeat)[0]


def alternating(actions: list[Callable[[], object]], repeat: int) -> list[float]:
    """Median time of each action; they take turns, so that a busy machine hits all alike."""
    times: list[list[float]] = [[] for _ in actions]
    for turn in range(repeat + 1):
        for action, own in zip(actions, times, strict=True):
            start = time.perf_counter()
            action()
            if turn:
                own.append(time.perf_counter() - start)
    return [float(np.median(own)) for own in times]


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figures_table(figures: list[Figure]) -> str:
    """Name, value, bar and note of every figure."""
    rows = [
        [
            f.name,
            _number(f.value),
            f"{'≤' if f.at_most else '≥'} {_number(f.bar)}",
            "yes" if f.holds else "**no**",
            f.note,
        ]
        for f in figures
    ]
    return table(["figure", "value", "bar", "holds", "note"], rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def write(name: str, group: Group, folder: Path = RESULTS) -> None:
    """Merge one group into benchmarks.json and benchmarks.md; the other groups stay as they are."""
    folder.mkdir(exist_ok=True)
    _write_json(folder / "benchmarks.json", group)
    _write_tables(folder / "benchmark-tables.json", name, group)
    _write_markdown(folder / "benchmarks.md", name, group)


def _write_json(path: Path, group: Group) -> None:
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for f in group.figures:
        kept[f.name] = {"value": round(f.value, 4), "bar": f.bar, "holds": f.holds}
    path.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n", encoding="utf-8")


def _write_tables(path: Path, name: str, group: Group) -> None:
    """The tables of benchmarks.md as data: the bars are in benchmarks.json."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    tables = [{"title": t.title, "header": t.header, "rows": t.rows} for t in group.tables]
    kept[name] = {
        "command": f"python -m benchmarks {name}",
        "seed": 0,
        "machine": _machine(),
        "tables": tables,
    }
    path.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")


def _write_markdown(path: Path, name: str, group: Group) -> None:
    """The file is a head and one section per group, `## name`."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S))
    parts = [
        f"Command: `python -m benchmarks {name}`. {_machine()}",
        figures_table(group.figures),
        *(t.markdown() for t in group.tables),
    ]
    sections[name] = "\n" + "\n\n".join(parts) + "\n"
    head = (
        "# Benchmarks\n\nWritten by `make bench`, each section by the command it names; "
        "`benchmarks.json` holds the figures, `benchmark-tables.json` the tables. "
        "Ratios are of medians measured in one run.\n\n"
    )
    body = "\n".join(f"## {key}\n{sections[key].rstrip()}\n" for key in sorted(sections))
    path.write_text(head + body, encoding="utf-8")


def _machine() -> str:
    threads = max((pool["num_threads"] for pool in threadpool_info()), default=1)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "onnxruntime", "torch"))
    return (
        f"Python {platform.python_version()}, {versions}, "
        f"{threads} threads on {os.cpu_count()} cores ({platform.machine()})."
    )
