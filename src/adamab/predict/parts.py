"""Predictions as numbered parts in a folder: each is whole or not there, and one that is there is made once.

Parts are numbered rows of numbered sources, so it does not matter who makes them and in which order. A
manifest says of which input, model and question they are. JSONL parts are joined into one JSONL, CSV or TSV
file; Parquet parts stay or are joined. A row has an answer or an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import RunError, TaskError, one_line, os_errors, place, storable
from adamab.model.storage import DOCUMENT, read_file
from adamab.predict.predictor import Predictor, Question
from adamab.predict.readers import (
    IMAGES,
    STDIN,
    Part,
    Source,
    identity_of,
    no_rows,
    none_answered,
    parquet_schema,
    parts_of,
    rows_of,
    source_columns,
)
from adamab.predict.writers import (
    Columns,
    answer_arrays,
    output_names,
    plain_value,
    row_writer,
)
from adamab.providers.sqlite_file import WriterLock
from adamab.run.resume import first_difference
from adamab.task.table_files import DELIMITERS, PARQUET, XLSX, pyarrow

if TYPE_CHECKING:
    from adamab.model.predictor import Inference

MANIFEST = "_manifest.json"  # readers of Parquet folders pass by names that begin with _ or .
SPENDING = "_spending.db"
_LOCK = ".lock"
_PART = re.compile(r"part-(\d{5,})-(\d{6,})\.(jsonl|parquet)")
_ERRORS = b"adamab.errors"
# What users call the parts of `Job.identity`.
_LABELS = {name: name for name in ("input", "model", "question", "embedder")} | {
    "table": "way to read the input",
    "vectors": "file of vectors, by size and time",
    "part_rows": "number of rows per part (--part-rows)",
}


@dataclass(frozen=True)
class Status:
    """A part that is there now."""

    source: int
    number: int
    rows: int
    errors: int
    overlong: int = 0  # texts that were longer than the embedder takes


@dataclass(frozen=True)
class Finished:
    """What a job has come to, the parts of earlier starts included."""

    rows: int
    errors: int
    parts: int
    reused: int  # parts that earlier starts finished
    overlong: int = 0


@dataclass(frozen=True)
class Job:
    """Everything that decides the parts."""

    question: Question
    output: str  # the folder of the parts
    sources: tuple[Source, ...]
    part_rows: int
    columns: Columns | None = None  # of Parquet parts; None where parts are JSONL
    vectors: str = ""  # what else decides the answers, where the embedder only looks vectors up

    @property
    def kind(self) -> str:
        """How the parts are written."""
        return "jsonl" if self.columns is None else PARQUET

    def identity(self) -> dict[str, Any] | None:
        """What a second start must find again to go on; None where the input cannot be read twice."""
        if self.question.input == STDIN:
            return None
        identity = {
            "input": [identity_of(source) for source in self.sources],
            "model": hashlib.sha256(read_file(Path(self.question.run) / DOCUMENT)).hexdigest(),
            "question": asdict(self.question.options),
            "embedder": self.question.embedder,
            "table": self.question.table.as_written(),
            "vectors": self.vectors,
            "part_rows": self.part_rows,
        }
        return dict(json.loads(json.dumps(identity)))  # as it comes back from the manifest


def make_job(question: Question, inference: Inference, folder: Path, part_rows: int, *, parquet: bool) -> Job:
    """The job for an input; the columns of Parquet parts are decided here, by headers or the first rows.

    Args:
        question: what is asked, of which model and about which input.
        inference: the model that is open.
        folder: of the parts.
        part_rows: rows per part.
        parquet: whether parts are Parquet, else JSONL.

    Returns:
        Everything that decides the parts.
    """
    sources = question.sources(inference)
    columns = _parquet_columns(sources, part_rows) if parquet else None
    output = os.path.abspath(folder)
    return Job(question, output, tuple(sources), part_rows, columns, inference.vectors_version)


def _parquet_columns(sources: Sequence[Source], part_rows: int) -> Columns:
    first, several = sources[0], len(sources) > 1
    if first.kind == PARQUET:
        schema = parquet_schema(first)
        for source in sources[1:]:
            if not parquet_schema(source).equals(schema):
                raise TaskError(
                    f"{place(source.path)}: has other columns or types than {first.name}; "
                    "keep files of one schema in a folder"
                )
        return Columns()
    if not several and next(rows_of(first), None) is None:
        raise no_rows(first.path)
    if first.kind == "jsonl":
        rows = (row.fields for source in sources for row in rows_of(source) if row.error is None)
        return Columns.of_objects(islice(rows, part_rows))
    if first.kind in (*DELIMITERS, XLSX):
        # All of them now: what is wrong with the last file should not show after hours.
        headers = [source_columns(source).names for source in sources]
        return Columns.of_texts(next(filter(None, headers), []), spill=several)
    return Columns.of_texts(["image" if first.kind == IMAGES else "text"])


class PartsFolder:
    """Where parts are written: by one job at a time, which may have workers in many processes.

    Messages call it `shown`, which is the file that its parts become.
    """

    def __init__(self, path: Path, kind: str = PARQUET, shown: Path | None = None) -> None:
        self.path, self._kind, self._shown = path, kind, shown or path

    @contextmanager
    def begun(self, identity: Mapping[str, Any] | None, say: Callable[[str], None]) -> Iterator[None]:
        """The folder for this job alone; refused, or started over, if what is there is of another.

        What goes wrong leaves what is worth keeping: finished parts, and paid calls.

        Args:
            identity: what parts of an earlier start must have in common with this one; None if nothing can.
            say: called with a line for the user.
        """
        with self.held():
            self._begin(identity, say)
            try:
                yield
            except BaseException:
                if identity is None or not (self.finished() or (self.path / SPENDING).exists()):
                    self.clear()
                raise

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep other jobs out of it; an empty one is removed at the end."""
        lock = self._locked()
        try:
            yield
        finally:
            with suppress(OSError):  # before it is released: whoever waits for it sees that it is gone
                (self.path / _LOCK).unlink()
            lock.release()
            with suppress(OSError):
                self.path.rmdir()

    def _locked(self) -> WriterLock:
        while True:
            with os_errors(self._shown, "cannot be written"):
                self.path.mkdir(parents=self._shown == self.path, exist_ok=True)
            lock = WriterLock(self.path, _LOCK, "these parts")
            if (self.path / _LOCK).exists():
                return lock
            lock.release()

    def _begin(self, identity: Mapping[str, Any] | None, say: Callable[[str], None]) -> None:
        before = self.manifest()
        if before is None and any(not name.startswith((".part-", _LOCK)) for name in os.listdir(self.path)):
            raise RunError(f"{place(self.path)}: holds other files; name a new or an empty folder")
        if before is not None and "input" in before:
            difference = first_difference(before, identity or {}, _LABELS)
            if difference is None:
                return
            if self._kind != PARQUET:
                say(f"note: {self._shown}: has unfinished parts of another {difference}; starting over")
            elif self.finished():
                raise RunError(
                    f"{place(self.path)}: holds parts of another {difference}; name another folder, or "
                    "remove this one"
                )
        if before is not None:
            self.clear()
        self._write_manifest(identity or {})

    def manifest(self) -> dict[str, Any] | None:
        """What is known of the parts; None where there is no job yet."""
        try:
            manifest = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise RunError(
                f"{place(self.path / MANIFEST)}: cannot be read ({one_line(error)}); remove the folder"
            ) from None
        return manifest if isinstance(manifest, dict) else {}

    def complete(self, total: Finished) -> None:
        """Say that every row of the input is in a part, and remove what killed workers left behind."""
        counts = {"rows": total.rows, "errors": total.errors, "parts": total.parts, "complete": True}
        self._write_manifest({**(self.manifest() or {}), **counts})
        self._remove(".part-")

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        content = json.dumps({"format": 1, **manifest}, indent=1) + "\n"
        self._replace(self.path / MANIFEST, lambda path: path.write_text(content, encoding="utf-8"))

    def finished(self) -> list[tuple[int, int]]:
        """Source and number of each part that is there, in the order of their rows."""
        matches = (_PART.fullmatch(name) for name in os.listdir(self.path))
        return sorted((int(match[1]), int(match[2])) for match in matches if match and match[3] == self._kind)

    def parts(self) -> list[Path]:
        """The files of these parts."""
        return [self.part(*numbers) for numbers in self.finished()]

    def part(self, source: int, number: int) -> Path:
        """Where a part is or will be. The names sort as the rows do.

        Args:
            source: number of the source.
            number: of the part in it.
        """
        return self.path / f"part-{source:05d}-{number:06d}.{self._kind}"

    def write(self, source: int, number: int, content: Any, errors: int = 0) -> None:
        """A part appears under its name when all of it is on the disk.

        Args:
            source: number of the source.
            number: of the part in it.
            content: rows, or an Arrow table.
            errors: rows without an answer.
        """

        def put(path: Path) -> None:
            if self._kind == PARQUET:
                noted = content.replace_schema_metadata({_ERRORS: str(errors).encode()})
                pyarrow().parquet.write_table(noted, path)
                return
            with open(path, "wb") as stream:
                for row in content:
                    stream.write(json.dumps(row, default=plain_value).encode() + b"\n")

        self._replace(self.part(source, number), put)

    def status(self, source: int, number: int) -> Status:
        """How many rows and errors a part has that is there.

        Args:
            source: number of the source.
            number: of the part in it.
        """
        path = self.part(source, number)
        if self._kind != PARQUET:
            failed = [row["error"] is not None for row in read_rows(path)]
            return Status(source, number, len(failed), sum(failed))
        with _damage(path):
            metadata = pyarrow().parquet.read_metadata(path)
            errors = int((metadata.metadata or {}).get(_ERRORS, b"0"))
        return Status(source, number, metadata.num_rows, errors)

    def join(self, kind: str, output: Path, rows: int, *, spill: bool) -> None:
        """One file of all parts; it appears under its name when it is whole, and the parts go.

        Args:
            kind: csv, tsv, jsonl or parquet.
            output: the file.
            rows: how many it must have.
            spill: whether rows of later parts may have fields that those of the first have not.
        """
        temporary = self.path / ".part-joined"
        with os_errors(self._shown, "cannot be written"):
            joined = (
                _join_parquet(self.parts(), temporary)
                if kind == PARQUET
                else _join_rows(self.parts(), kind, temporary, spill=spill)
            )
            if joined != rows:
                raise RunError(
                    f"{place(self.path)}: holds {joined} rows where {rows} were predicted; "
                    "remove the folder, then start again"
                )
            _sync(temporary)  # the parts, which are on the disk, go next
            os.replace(temporary, os.path.realpath(output))
            self.clear()

    def forget_parts(self) -> None:
        """Remove what is made; the next start makes it again, with what is spent still counted."""
        self._remove("part-", ".part-")

    def clear(self) -> None:
        """Remove everything of ours, the manifest last: without it the rest would be other people's files."""
        self.forget_parts()
        self._remove(SPENDING)
        self._remove(MANIFEST)

    def _remove(self, *prefixes: str) -> None:
        for name in os.listdir(self.path):
            if name.startswith(prefixes):
                (self.path / name).unlink(missing_ok=True)

    def _replace(self, target: Path, put: Callable[[Path], object]) -> None:
        temporary = self.path / f".part-{uuid.uuid4().hex}"
        try:
            with os_errors(self._shown, "cannot be written"):
                put(temporary)
                _sync(temporary)
                os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def parts_beside(output: Path) -> Path:
    """Where the parts of a file are until it is whole."""
    target = Path(os.path.realpath(output))
    return target.with_name(f".{target.name}.parts")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL part."""
    with _damage(path), open(path, "rb") as stream:
        yield from map(json.loads, stream)


def read_table(path: Path) -> Any:
    """The table of a Parquet part."""
    with _damage(path):
        return pyarrow().parquet.read_table(path).replace_schema_metadata(None)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # Arrow's errors are one of these
        raise RunError(
            f"{place(path)}: is damaged ({one_line(error)[:200]}); remove it, then start again"
        ) from None


def _join_rows(parts: Sequence[Path], kind: str, target: Path, *, spill: bool) -> int:
    count = 0
    with open(target, "wb") as stream:
        write = row_writer(kind, stream, chain.from_iterable(map(read_rows, parts[:1])), spill=spill)
        for part in parts:
            for row in read_rows(part):
                write(row)
                count += 1
    return count


def _join_parquet(parts: Sequence[Path], target: Path) -> int:
    count = 0
    with pyarrow().parquet.ParquetWriter(target, read_table(parts[0]).schema) as writer:
        for table in map(read_table, parts):
            writer.write_table(table)
            count += len(table)
    return count


def _sync(path: Path) -> None:
    """Wait until the file is on the disk."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())


class Worker:
    """Predicts and writes parts; without an inference it opens one in the process where it first works."""

    def __init__(self, job: Job, inference: Inference | None = None) -> None:
        self.job, self._folder = job, PartsFolder(Path(job.output), job.kind)
        self._inference = inference

    @cached_property
    def predictor(self) -> Predictor:
        """The model with its embedder."""
        if self._inference is None:
            with suppress(OSError):  # an embedder may be named by a path from there
                os.chdir(self.job.question.folder)
        return Predictor(self.job.question, self._inference)

    def __call__(self, part: Part) -> Status:
        """The part is on the disk when this returns."""
        before = self.predictor.inference.overlong
        source, errors = self.job.sources[part.source], 0
        content: Any
        if self.job.columns is None:
            content = self.predictor.rows(source, part.rows(source))
            errors = sum(row["error"] is not None for row in content)
        else:
            content, errors = self._table(part, source, self.job.columns)
        self._folder.write(part.source, part.number, content, errors)
        overlong = self.predictor.inference.overlong - before
        return Status(part.source, part.number, len(content), errors, overlong)

    def _table(self, part: Part, source: Source, columns: Columns) -> tuple[Any, int]:
        """One row per row of the input, and how many of them have an error."""
        pa = pyarrow()
        rows = part.rows(source, needed=True)
        answers = self.predictor.answers(source, rows)
        if source.kind == PARQUET:
            names = output_names(part.content.column_names)
            arrays = {names[name]: part.content.column(name) for name in names}
        else:
            arrays = columns.arrays([row.fields for row in rows])
        if len(self.job.sources) > 1:
            arrays["source"] = pa.array([storable(source.name)] * len(rows), pa.string())
        arrays["row"] = pa.array(range(part.first, part.first + len(rows)), pa.int64())
        table = pa.table(arrays | answer_arrays(self.job.question.options, answers))
        return table, sum(answer["error"] is not None for answer in answers)


def predict_part(part: Part, worker: Worker) -> Status:
    """What an engine runs."""
    return worker(part)


def run_job(
    job: Job,
    folder: PartsFolder,
    predict: Callable[[Iterable[Part]], Iterator[tuple[Part, Status]]],
    on_part: Callable[[Status], None],
) -> Finished:
    """Make every part that is not there; raises where there is no row, or no row at all has an answer.

    Args:
        job: what decides the parts.
        folder: where they are.
        predict: yields each part with its status once it is on the disk, in any order.
        on_part: called with the status of each part.

    Returns:
        What the job has come to.
    """
    before = folder.manifest() or {}
    if before.get("complete") and len(folder.finished()) == before["parts"]:
        return Finished(before["rows"], before["errors"], before["parts"], before["parts"])
    earlier = {numbers: folder.status(*numbers) for numbers in folder.finished()}
    missing = (
        part
        for number, source in enumerate(job.sources)
        for part in parts_of(number, source, job.part_rows, earlier)
        if part.content is not None
    )
    statuses = dict(earlier)
    for status in chain(earlier.values(), (status for _, status in predict(missing))):
        statuses[status.source, status.number] = status
        on_part(status)
    if lost := len(set(statuses).difference(folder.finished())):
        raise RunError(f"{place(job.output)}: {lost} parts were removed meanwhile; start again")
    if not statuses:
        raise no_rows(job.question.input)
    known = statuses.values()
    total = Finished(
        rows=sum(status.rows for status in known),
        errors=sum(status.errors for status in known),
        parts=len(known),
        reused=len(earlier),
        overlong=sum(status.overlong for status in known),
    )
    if total.errors and total.errors == total.rows:
        path = folder.part(*min(statuses))
        is_table = job.kind == PARQUET
        reason = read_table(path)["error"][0].as_py() if is_table else next(read_rows(path))["error"]
        folder.forget_parts()  # or the next start would tell of what may be fixed by then
        raise none_answered(job.question.input, total.rows, reason)
    folder.complete(total)
    return total
