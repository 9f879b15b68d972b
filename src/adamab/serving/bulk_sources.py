"""An input of any size as numbered parts of rows: files, folders of files, pictures, Parquet."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

from adamab.errors import MissingExtraError, TaskError
from adamab.serving.bulk_rows import RawRow, raw_rows
from adamab.task.files import ENDINGS
from adamab.task.image_folders import ENDINGS as PICTURES
from adamab.task.image_folders import image_files
from adamab.task.image_samples import PATH_KEYS
from adamab.task.image_sets import is_image_set, read_image_set
from adamab.task.messages import one_line, place, short
from adamab.task.spec import Modality

PARQUET = "parquet"
PICTURE_LIST = "pictures"  # a folder, one picture, or a published data set
_BATCH = 2048  # rows of Parquet that are decoded at a time


@dataclass(frozen=True)
class Source:
    """One file, or one folder of pictures. Its name tells it from the others; rows are counted in it."""

    path: str
    name: str
    kind: str
    modality: Modality

    @property
    def columns(self) -> tuple[str, ...]:
        """One of these must be there."""
        return ("text",) if self.modality == "text" else PATH_KEYS

    def without_folder(self, message: str) -> str:
        """A message about a row as it is written into a part, which may be read on any machine."""
        folder = self.path if os.path.isdir(self.path) else os.path.dirname(self.path)
        return message.replace(one_line(os.path.join(folder, "")), "") if len(folder) > 1 else message


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a source. `table` is None where the part was finished before.

    Of Parquet the table is what stands in the file, else it is `line`, `fields` (as JSON) and `error`.
    """

    source: int
    number: int
    first: int  # row of the source, from 0
    table: Any


def pyarrow() -> Any:
    """The module, which comes with the extra `ray`."""
    try:
        pyarrow = import_module("pyarrow")  # it has no types
        import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("pyarrow, which reads and writes Parquet,", "parquet") from None
    return pyarrow


def find_sources(text: str, kind: str | None, modality: Modality) -> list[Source]:
    """The files that INPUT names, sorted by name; pictures of a folder are one source."""
    path = Path(text)
    if modality == "image" and (is_image_set(text) or _is_of_pictures(path, kind)):
        return [Source(text, path.name or text, PICTURE_LIST, modality)]
    if not path.is_dir():
        return [Source(text, path.name, kind or _kind_of(path), modality)]
    files = sorted(entry for entry in path.iterdir() if entry.is_file() and _is_data(entry))
    kinds = {kind or _kind_of(file) for file in files}
    if len(kinds) != 1:
        found = "several kinds of data files" if kinds else "no data file"
        raise TaskError(f"{place(path)}: holds {found}; keep files of one kind in it: {_endings()}")
    return [Source(str(file), file.name, kinds.copy().pop(), modality) for file in files]


def _is_of_pictures(path: Path, kind: str | None) -> bool:
    return path.is_dir() or (kind is None and path.suffix.lower() in PICTURES)


def _is_data(path: Path) -> bool:
    known = path.suffix.lower() in (*ENDINGS, f".{PARQUET}")
    return known and not path.name.startswith((".", "_"))


def _kind_of(path: Path) -> str:
    if not path.exists():
        raise TaskError(f"{place(path)}: no such file or folder; check the path")
    ending = path.suffix.lower()
    if ending == f".{PARQUET}":
        return PARQUET
    if ending not in ENDINGS:
        raise TaskError(f"{place(path)}: unknown ending {short(path.suffix)}; use one of {_endings()}")
    return ENDINGS[ending]


def _endings() -> str:
    return ", ".join(sorted([*ENDINGS, f".{PARQUET}"]))


def identity_of(source: Source) -> list[str]:
    """Name and a digest of what tells another content: size and time of the files, which are not read."""
    digest = hashlib.sha256()
    files = _pictures(source) if source.kind == PICTURE_LIST else [(source.name, Path(source.path))]
    for name, path in files:
        try:
            found = os.stat(path)
        except OSError as error:
            raise TaskError(f"{place(path)}: cannot be read ({one_line(error.strerror)})") from None
        digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return [source.name, digest.hexdigest()]


def _pictures(source: Source) -> Iterator[tuple[str, Path]]:
    """What a row calls a picture, and where it is."""
    path = Path(source.path)
    if is_image_set(source.path):
        for found in read_image_set(source.path):
            yield str(found.path), found.path
    elif path.is_dir():
        for file in image_files(path):
            yield file.relative_to(path).as_posix(), file
    else:
        yield source.name, path


def picture_of(source: Source, fields: dict[str, object]) -> Path:
    """Where the picture of a row of `PICTURE_LIST` is."""
    path, name = Path(source.path), str(fields["image"])
    if is_image_set(source.path):
        return Path(name)
    return path / name if path.is_dir() else path


def rows_of(source: Source) -> Iterator[RawRow]:
    """Every row of a source in order."""
    if source.kind == PARQUET:
        parquet_schema(source)
        found = chain.from_iterable(batch.to_pylist() for batch in parquet_batches(source))
        yield from (RawRow(number, fields) for number, fields in enumerate(found, 1))
    elif source.kind == PICTURE_LIST:
        for number, (name, _) in enumerate(_pictures(source), 1):
            yield RawRow(number, {"image": name})
    else:
        yield from raw_rows(Path(source.path), source.kind, source.columns)


def parquet_schema(source: Source) -> Any:
    """The Arrow schema of a Parquet file, with a column of texts or paths in it."""
    with _open_parquet(source) as file:
        schema = file.schema_arrow
    if len(set(schema.names)) < len(schema.names):
        twice = Counter(schema.names).most_common(1)[0][0]
        raise TaskError(f"{place(source.path)}: column {short(twice)} stands there twice; rename one")
    if not set(source.columns) & set(schema.names):
        raise TaskError(
            f"{place(source.path)}: no column {source.columns[0]!r} in {short(', '.join(schema.names))}"
        )
    return schema.remove_metadata()


def parquet_batches(source: Source) -> Iterator[Any]:
    """Record batches of a Parquet file, a few rows at a time."""
    pa = pyarrow()
    with _open_parquet(source) as file:
        try:
            yield from file.iter_batches(batch_size=_BATCH)
        except (pa.ArrowException, OSError) as error:
            raise TaskError(f"{place(source.path)}: is damaged ({one_line(error)[:200]})") from None


def _open_parquet(source: Source) -> Any:
    pa = pyarrow()
    try:
        return pa.parquet.ParquetFile(source.path, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise TaskError(f"{place(source.path)}: is no Parquet file ({one_line(error)[:200]})") from None


def parts_of(number: int, source: Source, part_rows: int, finished: Collection[int] = ()) -> Iterator[Part]:
    """The parts of source `number` in order; the rows of finished ones are read over."""
    tables = _parquet_tables if source.kind == PARQUET else _row_tables
    for part, make in enumerate(tables(source, part_rows)):
        yield Part(number, part, part * part_rows, None if part in finished else make())


def _row_tables(source: Source, part_rows: int) -> Iterator[Callable[[], Any]]:
    rows = rows_of(source)
    while chunk := list(islice(rows, part_rows)):
        yield partial(_table, chunk)


def _table(rows: list[RawRow]) -> Any:
    pa = pyarrow()
    fields = [None if row.fields is None else json.dumps(row.fields) for row in rows]
    return pa.table(
        {
            "line": pa.array([row.line for row in rows], pa.int64()),
            "fields": pa.array(fields, pa.large_string()),
            "error": pa.array([row.error for row in rows], pa.string()),
        }
    )


def _parquet_tables(source: Source, part_rows: int) -> Iterator[Callable[[], Any]]:
    pa = pyarrow()
    held: list[Any] = []
    for batch in parquet_batches(source):
        held.append(batch)
        while sum(len(batch) for batch in held) >= part_rows:
            whole = pa.Table.from_batches(held)
            yield whole.slice(0, part_rows).combine_chunks
            held = whole.slice(part_rows).to_batches()
    if sum(len(batch) for batch in held):
        yield pa.Table.from_batches(held).combine_chunks
