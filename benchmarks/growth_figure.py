"""The curves of docs/scaling.md, from the tables that `benchmarks.growth` wrote.

`python -m benchmarks.growth_figure` draws them again from results/benchmark-tables.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS

FIGURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "growth.svg"
NAMES = {"K": "classes", "n": "samples", "d": "width"}
ACTIONS = ("scoring", "epoch", "prediction")
BARE, PRODUCTS, MEGABYTES = 3, 4, 7  # first columns of a row, after K, n and d


def draw(tables: Sequence[Sequence[Sequence[str]]], path: Path = FIGURE) -> None:
    """Seconds above and memory below, one column a table (K, n, d), both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "adamab"  # the same image gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(tables), figsize=(10, 6), sharey="row", layout="constrained")
    for column, rows in enumerate(tables):
        numbers = [[float(cell.replace(",", "")) for cell in row] for row in rows]
        _column(axes[0][column], axes[1][column], column, numbers)
    axes[0][0].set_ylabel("seconds")
    axes[1][0].set_ylabel("MB beyond the data")
    axes[0][0].legend(fontsize=8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _column(above: Any, below: Any, place: int, rows: Sequence[Sequence[float]]) -> None:
    sizes = [row[place] for row in rows]
    for number, action in enumerate(ACTIONS):
        above.loglog(sizes, [row[BARE] * row[PRODUCTS + number] for row in rows], marker="o", label=action)
        below.loglog(sizes, [max(row[MEGABYTES + number], 1) for row in rows], marker="o", label=action)
    above.loglog(sizes, [row[BARE] for row in rows], color="black", linestyle="--", label="bare product")
    others = [other for other in range(len(NAMES)) if other != place]
    fixed = (f"{list(NAMES)[other]} = {rows[0][other]:,.0f}" for other in others)
    above.set_title(", ".join(fixed), fontsize=10)
    below.set_xlabel(list(NAMES.values())[place])
    for axis in (above, below):
        axis.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)


def _main() -> None:
    kept = json.loads((RESULTS / "benchmark-tables.json").read_text(encoding="utf-8"))["growth"]["tables"]
    draw([table["rows"] for table in kept])


if __name__ == "__main__":
    _main()
