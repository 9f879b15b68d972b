"""Where recipes of a sweep are cross-validated: cells that have a row are not worked out again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.study.engines import Crew
from adamab.study.row_file import RowFile
from adamab.study.sweep_cells import FoldCell, FoldRow, SweepMaterials

Options: TypeAlias = Mapping[str, Any]
Floats: TypeAlias = NDArray[np.float64]
OnCell = Callable[[int, int, str], None]  # done, in all, what


class Bench:
    """The rows of a sweep, and who adds to them."""

    def __init__(
        self, materials: SweepMaterials, rows: RowFile[FoldRow], crew: Crew, on_cell: OnCell
    ) -> None:
        self._materials, self._rows, self._crew, self._on_cell = materials, rows, crew, on_cell
        self._done: dict[str, int] = {}  # cells, by what they are for

    def measure(self, asked: Sequence[tuple[Options, int]], total: int, what: str) -> None:
        """Cross-validate recipes, each with the seed of its folds; `total` cells are expected of this."""
        cells = list(dict.fromkeys(cell for options, seed in asked for cell in self._cells(options, seed)))
        todo = [cell for cell in cells if cell.key not in self._rows.known]
        done = self._done.get(what, 0) + len(cells) - len(todo)
        self._on_cell(done, total, what)
        for _, row in self._crew(todo) if todo else ():
            self._rows.add(row)
            done += 1
            self._on_cell(done, total, what)
        self._done[what] = done

    def by_sample(self, options: Options, seed: int) -> tuple[Floats, Floats]:
        """(n,) losses and hits of the samples that are held out, in the task's order."""
        folds = self._materials.folds(seed)
        losses, hits = np.full(len(folds), np.nan), np.full(len(folds), np.nan)
        for cell in self._cells(options, seed):
            row = self._rows.known[cell.key]
            held_out = folds == cell.fold
            losses[held_out], hits[held_out] = row.losses, row.hits
        return losses[folds >= 0], hits[folds >= 0]

    def _cells(self, options: Options, seed: int) -> list[FoldCell]:
        return [FoldCell.of(options, seed, fold) for fold in self._materials.used_folds(seed)]
