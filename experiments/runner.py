"""Runs what an experiment says, cell by cell; what is in the file of rows is not run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from adamab.engines import HERE, Engine
from adamab.errors import ApiError, StoppedError, place
from adamab.providers.metering import CallContext
from adamab.task import Sample
from experiments.cells import FOLDS, POOL, RECORDED, Cell, DrawKey, Expansion, LeftOut
from experiments.datasets.base import DataSet, Draw
from experiments.definition import BY_FOLDS, NONE, Experiment
from experiments.measure import Materials, Measured, draws_of, embedder_of, gather, measure
from experiments.rows import Row, Rows

REMOTE = ("chat", "rerank")
Models = tuple[str, str]
OnCell = Callable[[int, int, str], None]  # done, in all, what
_LONGEST_FIRST = ("cub200", "flowers102", "pets", "trec")


@dataclass(frozen=True)
class Result:
    """The rows of an experiment and what was left out of it."""

    experiment: Experiment
    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...]
    titles: Mapping[str, str]  # of the sets
    tests: Mapping[DrawKey, tuple[Sample, ...]]  # what rows of a draw are scored on, in their order
    chosen: tuple[Row, ...] = ()  # by the folds: what was cross-validated for each of `rows`


class Runner:
    """One experiment; `work` is the folder where finished cells are kept.

    Experiments that share a file of rows are handed it as `rows`, so that it is read once.
    """

    def __init__(
        self, experiment: Experiment, sets: Mapping[str, DataSet], work: Path, rows: Rows | None = None
    ) -> None:
        self.experiment, self.sets = experiment, sets
        self.expansion = Expansion(experiment, self.sets)
        self.draws: dict[DrawKey, Draw] = draws_of(
            (cell.draw for cell in self.expansion.cells), self.sets, experiment
        )
        self.rows = Rows(work, experiment.name) if rows is None else rows
        self._fingerprints: dict[str, str] = {}
        self._failed: dict[Models, ApiError] = {}  # why nothing can be measured with them

    def cells(self) -> list[Cell]:
        """What is run first: everything, or the cross-validation that decides what is scored."""
        if self.experiment.chosen == BY_FOLDS:
            return [replace(cell, scored=FOLDS) for cell in self.expansion.cells]
        return self.expansion.cells

    def to_do(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells without a row, those that take longest first so that no process waits at the end."""
        known = self.rows.known  # if there are none, a dry run has no need of the embedder's fingerprint
        todo = [cell for cell in cells if not known or self.key(cell) not in known]
        return sorted(todo, key=_effort)

    def key(self, cell: Cell) -> str:
        """The key of a cell's row."""
        return cell.key(self.draws[cell.draw], self._fingerprint(cell.set), self.experiment.version)

    def remote(self) -> bool:
        """Whether anything is asked of an API; then one process does it all, under one budget."""
        named = [cell.method.partition(":")[0] for cell in self.expansion.cells]
        paid = any(name in REMOTE for name in named) or any(
            cell.generator not in (RECORDED, POOL) for cell in self.expansion.cells
        )
        return paid or any(embedder_of(s, self.experiment.embedder)[0].api for s in self.sets.values())

    def run(
        self,
        *,
        engine: Engine | None = None,
        call_context: CallContext | None = None,
        on_cell: OnCell = lambda *_: None,
    ) -> Result:
        """Measure what is missing and return everything."""
        engine = HERE if self.remote() else engine or Engine()
        cells = self.cells()
        self._measure(cells, engine, call_context, on_cell)
        validated: list[Row] = []
        if self.experiment.chosen == BY_FOLDS:
            validated = best_by_folds([self.row(cell) for cell in self._measured(cells)])
            cells = [replace(row.cell, scored="test") for row in validated]
            self._measure(cells, engine, call_context, on_cell)
        left_out = {
            LeftOut(cell.set, cell.generator, cell.amount, f"{' and '.join(filter(None, models))}: {why}")
            for cell in cells
            if (why := self._failed.get(models := models_of(cell)))
        }
        if not (finished := self._measured(cells)):
            raise next(iter(self._failed.values()))
        return Result(
            self.experiment,
            tuple(self.row(cell) for cell in finished),
            (*self.expansion.left_out, *sorted(left_out, key=str)),
            {name: data.title for name, data in self.sets.items()},
            {key: draw.test for key, draw in self.draws.items()},
            tuple(validated),
        )

    def _measured(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells whose models answered; what a failed one did before would not be comparable."""
        return [cell for cell in cells if models_of(cell) not in self._failed]

    def row(self, cell: Cell) -> Row:
        """The row of a finished cell, whichever experiment measured it."""
        return replace(self.rows.known[self.key(cell)], experiment=self.experiment.name)

    def _measure(
        self, cells: Sequence[Cell], engine: Engine, call_context: CallContext | None, on_cell: OnCell
    ) -> None:
        todo = self.to_do(cells)
        if not todo:
            return
        done = before = len(cells) - len(todo)
        try:
            on_cell(done, len(cells), "embedding")
            draws = {cell.draw: self.draws[cell.draw] for cell in todo}
            experiment = self.experiment
            materials = gather(draws, self.sets, experiment.embedder, experiment.settings, call_context)
            work: Callable[[Cell, Materials], Measured | None] = measure
            if call_context is not None:
                work = partial(self._measure_or_fail, call_context=call_context)
            with engine.workers(work, materials) as map_items:
                for cell, measured in map_items(todo):
                    done += 1
                    if measured is None:
                        on_cell(done, len(cells), f"failed: {self._failed[models_of(cell)]}")
                        continue
                    self.rows.add(Row(self.key(cell), self.experiment.name, cell, measured))
                    on_cell(done, len(cells), _told(cell))
        except (KeyboardInterrupt, StoppedError):
            kept = f"{done} of {len(cells)} cells are done ({done - before} of them now)"
            where = place(self.rows.path) + ("" if call_context is None else ", answers in your cache")
            raise StoppedError(
                f"stopped; {kept} and kept in {where}: run the same command again to go on"
            ) from None

    def _measure_or_fail(
        self, cell: Cell, materials: Materials, call_context: CallContext
    ) -> Measured | None:
        """The figures of a cell; None where a model behind it has failed, which is not asked again."""
        if call_context.stop is not None and call_context.stop.is_set():
            raise StoppedError("stopped before a cell")
        models = models_of(cell)
        try:
            return None if models in self._failed else measure(cell, materials, call_context)
        except ApiError as error:
            if not any(models):
                raise
            self._failed[models] = error
            return None

    def _fingerprint(self, name: str) -> str:
        if name not in self._fingerprints:
            self._fingerprints[name] = embedder_of(self.sets[name], self.experiment.embedder)[0].fingerprint
        return self._fingerprints[name]


def best_by_folds(rows: Sequence[Row]) -> list[Row]:
    """The best options of each seed by cross-validation; of equals the first in the grid's order."""
    best: dict[Cell, Row] = {}
    for row in rows:
        choice = place_of(row.cell)
        if choice not in best or row.accuracy > best[choice].accuracy:
            best[choice] = row
    return list(best.values())


def place_of(cell: Cell) -> Cell:
    """What cells have in common of which one is chosen."""
    return replace(cell, options="", amount="", rounds=0, policy="")


def models_of(cell: Cell) -> Models:
    """The models behind an API that a cell asks: its method and its generator; empty where it asks none."""
    method = cell.method if cell.method.partition(":")[0] in REMOTE else ""
    generates = cell.policy != NONE and cell.generator not in (RECORDED, POOL)
    return method, cell.generator if generates else ""


def _effort(cell: Cell) -> tuple[int, int, int]:
    slow = _LONGEST_FIRST.index(cell.set) if cell.set in _LONGEST_FIRST else len(_LONGEST_FIRST)
    return slow, -(cell.method == "calibrator"), -cell.rounds


def _told(cell: Cell) -> str:
    named = [cell.set, cell.generator, cell.setting, cell.method, cell.recipe, cell.policy, cell.amount]
    return " ".join(filter(None, [*named, f"seed {cell.seed}"]))
