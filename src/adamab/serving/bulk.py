"""Bulk prediction: an input of any size into a folder of Parquet parts, in bounded memory.

Parts are numbered rows of numbered files, so it does not matter who makes them and in which order. One that
is there is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adamab.errors import RunError, TaskError
from adamab.run.inference import Inference
from adamab.serving.bulk_job import Job
from adamab.serving.bulk_parts import PartsFolder, Status, read_part
from adamab.serving.bulk_predictor import Predictor
from adamab.serving.bulk_sources import Part, parts_of
from adamab.task.messages import place


@dataclass(frozen=True)
class Finished:
    """What a job has come to, the parts of earlier starts included."""

    rows: int = 0
    errors: int = 0
    parts: int = 0
    found: int = 0  # parts that were there before
    overlong: int = 0

    def __add__(self, status: Status) -> Finished:
        return Finished(
            self.rows + status.rows,
            self.errors + status.errors,
            self.parts + 1,
            self.found + (not status.fresh),
            self.overlong + status.overlong,
        )


Engine = Callable[[Job], Iterator[Status]]


@contextmanager
def bulk_begun(job: Job) -> Iterator[PartsFolder]:
    """OUT for this job alone; refused if what is there is of another."""
    folder = PartsFolder(Path(job.output))
    with folder.held():
        folder.begin(job.identity())
        yield folder


def run_bulk(job: Job, engine: Engine, on_part: Callable[[Status], None]) -> Finished:
    """Make every part that is not there; raises where no row at all has an answer."""
    folder = PartsFolder(Path(job.output))
    before = folder.manifest() or {}
    if before.get("complete") and len(folder.parts()) == before["parts"]:
        parts = int(before["parts"])
        return Finished(int(before["rows"]), int(before["errors"]), parts, parts)
    total, seen = Finished(), set[tuple[int, int]]()
    for status in engine(job):
        if (status.source, status.number) not in seen:  # a worker that was replaced may tell twice
            seen.add((status.source, status.number))
            total += status
            on_part(status)
    _check(job, folder, seen, total)
    folder.complete(total.rows, total.errors, total.parts)
    folder.sweep()
    return total


def _check(job: Job, folder: PartsFolder, seen: set[tuple[int, int]], total: Finished) -> None:
    there = {(source, number) for source, numbers in folder.finished().items() for number in numbers}
    if seen - there:
        raise RunError(f"{place(job.output)}: {len(seen - there)} parts were removed meanwhile; start again")
    if total.rows == 0:
        path = Path(job.sources[0].path)
        raise TaskError(f"{place(path.parent if job.several else path)}: holds no rows; add at least one")
    if total.errors == total.rows:
        reason = read_part(folder.part(*min(seen))).column("error")[0].as_py()
        folder.forget_parts()  # or the next start would tell of what may be mended
        raise TaskError(f"{place(job.output)}: none of {total.rows} rows has an answer; the first: {reason}")


def here(inference: Inference) -> Engine:
    """The engine `local`: this process, one part after the other."""

    def run(job: Job) -> Iterator[Status]:
        worker = Worker(job, inference)
        finished = PartsFolder(Path(job.output)).finished()
        for number, source in enumerate(job.sources):
            for part in parts_of(number, source, job.part_rows, finished.get(number, ())):
                yield worker(part)

    return run


class Worker:
    """Predicts and writes parts; each engine has one or more."""

    def __init__(self, job: Job, inference: Inference | None = None) -> None:
        self._predictor = Predictor(job, inference)
        self._folder = PartsFolder(Path(job.output))

    def __call__(self, part: Part) -> Status:
        """The part is on the disk when this returns."""
        if part.table is None:
            return self._folder.status(part.source, part.number)
        before = self._predictor.inference.overlong
        table, errors = self._predictor.predicted(part)
        self._folder.write(part.source, part.number, table, errors)
        overlong = self._predictor.inference.overlong - before
        return Status(part.source, part.number, len(table), errors, True, overlong)
