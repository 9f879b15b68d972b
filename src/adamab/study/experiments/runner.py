"""Runs what an experiment says, cell by cell; what is in the file of rows is not run again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path

from threadpoolctl import threadpool_limits

from adamab.errors import StoppedError
from adamab.run.outside import Outside
from adamab.study.datasets.base import DataSet, Draw, load_data_set
from adamab.study.experiments.cells import FOLDS, POOL, RECORDED, Cell, DrawKey, Expansion, LeftOut
from adamab.study.experiments.definition import BY_FOLDS, Experiment
from adamab.study.experiments.materials import Materials, draws_of, embedder_of, gather
from adamab.study.experiments.measure import Measured, measure
from adamab.study.experiments.rows import Row, Rows, name_of
from adamab.task.messages import place

REMOTE = ("chat", "rerank")
OnCell = Callable[[int, int, str], None]  # done, in all, what
_LONGEST_FIRST = ("cub200", "flowers102", "pets", "trec")


@dataclass(frozen=True)
class Result:
    """The rows of an experiment and what was left out of it."""

    experiment: Experiment
    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...]
    titles: Mapping[str, str]  # of the sets
    chosen: tuple[Row, ...] = ()  # by the folds: what was cross-validated for each of `rows`


def load_sets(experiment: Experiment, data: Path) -> dict[str, DataSet]:
    """The experiment's data sets from the folder `data`."""
    return {name: load_data_set(name, data) for name in experiment.sets}


class Runner:
    """One experiment; `work` is the folder where finished cells are kept."""

    def __init__(self, experiment: Experiment, sets: Mapping[str, DataSet], work: Path) -> None:
        self.experiment, self.sets = experiment, sets
        self.expansion = Expansion(experiment, self.sets)
        self.draws: dict[DrawKey, Draw] = draws_of(
            (cell.draw for cell in self.expansion.cells), self.sets, experiment
        )
        self.rows = Rows(work / f"{experiment.name}.rows.jsonl")
        self._names: dict[DrawKey, tuple[str, str]] = {}
        self._fingerprints: dict[str, str] = {}

    def cells(self) -> list[Cell]:
        """What is run first: everything, or the cross-validation that decides what is scored."""
        if self.experiment.chosen == BY_FOLDS:
            return [replace(cell, scored=FOLDS) for cell in self.expansion.cells]
        return self.expansion.cells

    def to_do(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells without a row, those that take longest first so that no process waits at the end."""
        todo = [cell for cell in cells if self.key(cell) not in self.rows.known]
        return sorted(todo, key=_effort)

    def key(self, cell: Cell) -> str:
        """What the row of a cell is found by."""
        return cell.key(self.draws[cell.draw], self._fingerprint(cell.set), self.experiment.version)

    def remote(self) -> bool:
        """Whether anything is asked of an API; then one process does it all, under one budget."""
        named = [cell.method.partition(":")[0] for cell in self.expansion.cells]
        paid = any(name in REMOTE for name in named) or any(
            cell.generator not in (RECORDED, POOL) for cell in self.expansion.cells
        )
        return paid or any(embedder_of(s, self.experiment.embedder)[0].api for s in self.sets.values())

    def run(
        self, *, jobs: int = 2, outside: Outside | None = None, on_cell: OnCell = lambda *_: None
    ) -> Result:
        """Measure what is missing and return everything."""
        jobs = 0 if self.remote() else jobs
        cells = self.cells()
        self._measure(cells, jobs, outside, on_cell)
        validated: list[Row] = []
        if self.experiment.chosen == BY_FOLDS:
            validated = best_by_folds([self.row(cell) for cell in cells])
            cells = [replace(row.cell, scored="test") for row in validated]
            self._measure(cells, jobs, outside, on_cell)
        return Result(
            self.experiment,
            tuple(self.row(cell) for cell in cells),
            tuple(self.expansion.left_out),
            {name: data.title for name, data in self.sets.items()},
            tuple(validated),
        )

    def row(self, cell: Cell) -> Row:
        """The row of a finished cell, whichever experiment measured it."""
        return replace(self.rows.known[self.key(cell)], experiment=self.experiment.name)

    def _measure(self, cells: Sequence[Cell], jobs: int, outside: Outside | None, on_cell: OnCell) -> None:
        todo = self.to_do(cells)
        if not todo:
            return
        done = before = len(cells) - len(todo)
        on_cell(done, len(cells), "embedding")
        materials = self._materials(todo, outside)
        try:
            for cell, found in measured(todo, materials, jobs, outside):
                self.rows.add(self._row(cell, found))
                done += 1
                on_cell(done, len(cells), _told(cell))
        except KeyboardInterrupt:
            kept = f"{done} of {len(cells)} cells are done ({done - before} of them now)"
            raise StoppedError(f"stopped; {kept} and kept in {place(self.rows.path)}") from None

    def _materials(self, todo: Sequence[Cell], outside: Outside | None) -> Materials:
        draws = {key: self.draws[key] for key in dict.fromkeys(cell.draw for cell in todo)}
        return gather(draws, self.sets, self.experiment.embedder, self.experiment.settings, outside)

    def _row(self, cell: Cell, found: Measured) -> Row:
        if cell.draw not in self._names:
            draw = self.draws[cell.draw]
            self._names[cell.draw] = name_of(draw.test), name_of(draw.task.samples)
        tests, given = self._names[cell.draw]
        scored_on = given if cell.scored == FOLDS else tests
        return Row(self.key(cell), self.experiment.name, cell, found, scored_on)

    def _fingerprint(self, name: str) -> str:
        if name not in self._fingerprints:
            self._fingerprints[name] = embedder_of(self.sets[name], self.experiment.embedder)[0].fingerprint
        return self._fingerprints[name]


def best_by_folds(rows: Sequence[Row]) -> list[Row]:
    """The best options of each seed by cross-validation; of equals the first in the grid's order."""
    best: dict[Cell, Row] = {}
    for row in rows:
        place_ = replace(row.cell, options="", amount="", rounds=0, policy="")
        if place_ not in best or row.accuracy > best[place_].accuracy:
            best[place_] = row
    return list(best.values())


def measured(
    todo: Sequence[Cell], materials: Materials, jobs: int, outside: Outside | None = None
) -> Iterator[tuple[Cell, Measured]]:
    """The cells as they end, in no particular order; no jobs means this process."""
    if jobs == 0:
        for cell in todo:
            with threadpool_limits(1):
                found = measure(cell, materials, outside)
            yield cell, found
        return
    # One thread each: small matrices gain nothing from more.
    pool = ProcessPoolExecutor(min(jobs, len(todo)), get_context("spawn"), _start_worker, (materials,))
    try:
        futures = {pool.submit(_run_in_worker, cell): cell for cell in todo}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():  # a cell may take minutes, and nobody waits for it any more
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


_worker: Materials | None = None


def _start_worker(materials: Materials) -> None:
    global _worker
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    torch.set_num_threads(1)
    threadpool_limits(1)
    _worker = materials


def _run_in_worker(cell: Cell) -> Measured:
    if _worker is None:
        raise RuntimeError("the process was not started by _start_worker")
    return measure(cell, _worker)


def _effort(cell: Cell) -> tuple[int, int, int]:
    slow = _LONGEST_FIRST.index(cell.set) if cell.set in _LONGEST_FIRST else len(_LONGEST_FIRST)
    return slow, -(cell.method == "calibrator"), -cell.rounds


def _told(cell: Cell) -> str:
    named = [cell.set, cell.generator, cell.setting, cell.method, cell.recipe, cell.policy, cell.amount]
    return " ".join(filter(None, [*named, f"seed {cell.seed}"]))
