"""Does the code still measure what the yardstick's published rows say? Some of them are measured again.

    python -m experiments check-rows --rows 100 --seed 0

Rows of SetFit are left out. A row is the same if every test sample is right or wrong as it was, and each
class has as many samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from experiments.cells import DrawKey
from experiments.datasets.base import DataSet, Draw, data_directory, load_data_set
from experiments.measure import Measured, gather, measure
from experiments.quality_plan import SETFIT
from experiments.rows import Row, read_parquet
from experiments.shapes import shaped

PUBLISHED = Path(__file__).parents[1] / "results" / "quality.rows.parquet"


def chosen_rows(path: Path, count: int, seed: int) -> list[Row]:
    """So many rows of the file by chance, those of a set together."""
    rows = [row for row in read_parquet(path) if row.cell.method != SETFIT]
    rows.sort(key=lambda row: row.key)
    places = np.random.default_rng(seed).permutation(len(rows))[:count]
    return sorted((rows[place] for place in places), key=lambda row: (row.cell.set, row.key))


def measured_again(rows: Sequence[Row], data: DataSet, embedder: str) -> Iterator[tuple[Row, Measured]]:
    """Rows of the test part of one set, each with what the code of today measures."""
    draws = _draws(rows, data)
    materials = gather(draws, {data.name: data}, embedder, ["zero-shot"])
    for row in rows:
        with threadpool_limits(1):
            yield row, measure(row.cell, materials)


def _draws(rows: Sequence[Row], data: DataSet) -> Mapping[DrawKey, Draw]:
    keys = dict.fromkeys(row.cell.draw for row in rows)
    return {
        key: shaped(data.draw(key.seed, given=key.given, generator=key.source), key.shape)  # type: ignore[arg-type]
        for key in keys
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, say row by row what differs, and return 1 if anything does."""
    parser = argparse.ArgumentParser("python -m experiments check-rows")
    parser.add_argument("--rows", type=int, default=100, help="how many are measured again")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--file", type=Path, default=PUBLISHED, help="the published rows")
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    parser.add_argument("--sets", help="only rows of these, with commas between them")
    parser.add_argument("--embedder", default="local", help="of the texts, as in adamab fit")
    options = parser.parse_args(arguments)
    rows = chosen_rows(options.file, options.rows, options.seed)
    names = dict.fromkeys(row.cell.set for row in rows)
    if options.sets:
        names = {name: None for name in names if name in options.sets.split(",")}
    same = checked = 0
    for name in names:
        data = load_data_set(name, Path() if name == "demo" else data_directory(options.data))
        of_set = [row for row in rows if row.cell.set == name]
        for row, again in measured_again(of_set, data, options.embedder):
            difference = _difference(row.measured, again)
            checked, same = checked + 1, same + (not difference)
            print(f"{_named(row)}: {difference or 'the same'}", flush=True)
    print(f"{same} of {checked} rows are the same")
    return int(same < checked)


def _named(row: Row) -> str:
    cell = row.cell
    method = " ".join(filter(None, [cell.method, cell.recipe, cell.policy]))
    return f"{cell.set} {cell.given}+{cell.amount} {cell.generator} {method} {cell.options} seed {cell.seed}"


def _difference(published: Measured, again: Measured) -> str:
    if len(published.correct) != len(again.correct):
        return f"{len(again.correct)} test samples instead of {len(published.correct)}"
    gained = int((again.correct & ~published.correct).sum())
    lost = int((published.correct & ~again.correct).sum())
    parts = [f"{lost} hits fewer and {gained} more of {len(again.correct)}"] if gained or lost else []
    if published.counts != again.counts:
        moved = np.abs(np.subtract(published.counts, again.counts)).sum()
        parts.append(f"{moved} samples of classes differ")
    return ", ".join(parts)
