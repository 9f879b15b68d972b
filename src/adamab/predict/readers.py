"""What is to be predicted, as rows: data files, folders of them, images, vectors, stdin.

A row that cannot be read does not stop its reader: what is wrong stands beside it, and whoever wants all rows
or none raises the first of these errors.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import EmbedderError, TaskError, one_line, os_errors, place, short
from adamab.task.image_folders import ENDINGS as IMAGE_ENDINGS
from adamab.task.image_folders import PATH_KEYS, image_at, image_files, image_path
from adamab.task.images import is_url
from adamab.task.table_files import (
    AS_IT_IS,
    DELIMITERS,
    ENDINGS,
    PARQUET,
    TableOptions,
    check_there,
    open_parquet,
    opened,
    parquet_batches,
    pyarrow,
)
from adamab.task.table_files import count_rows as count_rows_of_file
from adamab.task.tables import Columns, Row, TextRow, id_of, read_columns, scan_rows, text_row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adamab.model import Classifier
    from adamab.task.spec import Modality

STDIN = "-"
VECTORS = "npz"
IMAGES = "images"  # a folder or one image
_PLAIN_STDIN = "stdin"  # where nobody says how it is written


@dataclass(frozen=True)
class Source:
    """One file, or one folder of images. Its name tells it from the others; rows are counted in it."""

    path: str
    name: str
    kind: str
    modality: Modality
    options: TableOptions = AS_IT_IS

    @property
    def columns(self) -> tuple[str, ...]:
        """One of these must be there."""
        return ("text",) if self.modality == "text" else PATH_KEYS

    def without_folder(self, message: str) -> str:
        """A message about a row as it is written into a part, which may be read on any machine."""
        folder = self.path if os.path.isdir(self.path) else os.path.dirname(self.path)
        return message.replace(one_line(os.path.join(folder, "")), "") if len(folder) > 1 else message

    @property
    def place(self) -> Path:
        """What messages call it."""
        return Path("stdin" if self.path == STDIN else self.path)

    def image_path(self, row: Row) -> Path:
        """Where the image of a row is."""
        if self.kind != IMAGES:
            return image_path(row)
        return Path(self.path) / str(row.fields["image"]) if os.path.isdir(self.path) else Path(self.path)

    def sample(self, row: Row) -> TextRow:
        """The text or image of a row; raises what is wrong with it."""
        if row.error is not None:
            raise TaskError(row.error)
        if self.modality == "text":
            return text_row(row)
        image = image_at(self.image_path(row))
        id_ = None if self.kind == IMAGES else id_of(row)
        return TextRow(image.reference, row.fields, row.line, id_, image)


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a source: raw ones, or an Arrow table as it stands in a Parquet file.

    None where the part was finished before.
    """

    source: int
    number: int
    first: int  # row of the source, from 0
    content: Any
    columns: Columns | None = None  # of a table

    def rows(self, source: Source, *, needed: bool = False) -> list[Row]:
        """The rows.

        Args:
            source: where the part comes from; rows name it in messages.
            needed: of a table, only those columns that the answers depend on.
        """
        if self.columns is None:
            return list(self.content)
        table, columns = self.content, self.columns
        if needed:
            names = (*source.columns, columns.text, columns.id)
            table = table.select([name for name in table.column_names if name in names])
        numbered = enumerate(table.to_pylist(), self.first + 1)
        return [Row(source.place, number, fields, None, columns) for number, fields in numbered]


def find_sources(
    text: str, kind: str | None, modality: Modality, options: TableOptions = AS_IT_IS
) -> list[Source]:
    """The files that INPUT names, sorted by name; images of a folder are one source.

    Args:
        text: a file, a folder, or `-` for stdin.
        kind: how it is written; None if its ending says so.
        modality: of the model.
        options: how its tables are written.

    Returns:
        The sources in the order of their rows.
    """
    path = Path(text)
    if text == STDIN:
        if modality == "image":
            raise TaskError("images are not read from stdin; name a folder, or a file with their paths")
        return [Source(text, "stdin", kind or _PLAIN_STDIN, modality, options)]
    if modality == "image" and path.is_dir():
        return [Source(text, path.name or text, IMAGES, modality)]
    if modality == "image" and kind is None and path.suffix.lower() in IMAGE_ENDINGS:
        return [Source(text, text, IMAGES, modality)]
    if not path.is_dir():
        return [Source(text, path.name, kind or _kind_of(path), modality, options)]
    files = sorted(entry for entry in path.iterdir() if entry.is_file() and _is_data(entry))
    kinds = {kind or _kind_of(file) for file in files}
    if len(kinds) != 1:
        which = "several kinds of data files" if kinds else "no data file"
        endings = ", ".join(sorted(ENDINGS))
        raise TaskError(f"{place(path)}: holds {which}; keep files of one kind in it: {endings}")
    (common,) = kinds
    return [Source(str(file), file.name, common, modality, options) for file in files]


def _is_data(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith((".", "_"))


def _kind_of(path: Path) -> str:
    if not (path.exists() or is_url(path)):
        raise TaskError(f"{place(path)}: no such file or folder; check the path")
    check_there(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        endings = ", ".join(sorted([*ENDINGS, f".{VECTORS}"]))
        raise TaskError(
            f"{place(path)}: unknown ending {short(path.suffix)}; use one of {endings}, or say --format"
        )
    return ENDINGS[ending]


def identity_of(source: Source) -> list[str]:
    """Name, a digest of what tells another content (size and time of the files, which are not read), kind."""
    digest = hashlib.sha256()
    for name, path in _images(source) if source.kind == IMAGES else [(source.name, Path(source.path))]:
        with os_errors(path, "cannot be read", TaskError):
            status = os.stat(path)
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return [source.name, digest.hexdigest(), source.kind]


def parts_of(
    number: int, source: Source, part_rows: int, finished: Collection[tuple[int, int]] = ()
) -> Iterator[Part]:
    """The parts of a source in order.

    Args:
        number: of the source.
        source: what is read.
        part_rows: rows per part.
        finished: source and number of parts whose rows are skipped.

    Returns:
        Parts, those that are finished without content.
    """
    columns = source_columns(source) if source.kind == PARQUET else None
    chunks = _chunks(rows_of(source), part_rows) if columns is None else parquet_tables(source, part_rows)
    for part, content in enumerate(chunks):
        yield Part(number, part, part * part_rows, None if (number, part) in finished else content, columns)


def _chunks(rows: Iterator[Row], size: int) -> Iterator[Any]:
    while chunk := list(islice(rows, size)):
        yield chunk


def read_samples(text: str, modality: Modality, options: TableOptions = AS_IT_IS) -> list[TextRow]:
    """Every row of INPUT; the first broken one is an error.

    Args:
        text: a file, a folder, or `-` for stdin.
        modality: of the model.
        options: how its tables are written.

    Returns:
        The texts or images.
    """
    sources = find_sources(text, None, modality, options)
    samples = [source.sample(row) for source in sources for row in rows_of(source)]
    if not samples:
        raise no_rows(text)
    return samples


def no_rows(text: str) -> TaskError:
    """The error for an input without any row."""
    return TaskError(f"{place('stdin' if text == STDIN else text)}: holds no rows; add at least one")


def none_answered(text: str, rows: int, reason: str) -> TaskError:
    """The error for an input of which no row has an answer.

    Args:
        text: the input.
        rows: how many it has.
        reason: what is wrong with the first.
    """
    return TaskError(f"{place(text)}: none of {rows} rows has an answer; the first: {one_line(reason)}")


def rows_of(source: Source) -> Iterator[Row]:
    """Every row of a source in order; one of its columns must be in a table's header."""
    if source.kind == IMAGES:
        for number, (name, _) in enumerate(_images(source), 1):
            yield Row(source.place, number, {"image": name})
    elif source.kind == _PLAIN_STDIN:
        rows = scan_rows(source.place, sys.stdin.buffer, "txt", options=source.options)
        for row in islice(rows, 1):
            _check_plain(row)
            yield row
        yield from rows
    elif source.path == STDIN:
        yield from scan_rows(source.place, sys.stdin.buffer, source.kind, source.columns, source.options)
    else:
        with opened(source.place) as handle:
            yield from scan_rows(source.place, handle, source.kind, source.columns, source.options)


def source_columns(source: Source) -> Columns:
    """Which column of a file is what."""
    return read_columns(source.place, source.kind, source.columns, source.options)


def fields_vary(sources: Sequence[Source]) -> bool:
    """Whether a later row may have a field that the first ones have not."""
    return len(sources) > 1 or sources[0].kind == "jsonl"


def count_rows(source: Source) -> int | None:
    """How many rows a source has, without looking at what is in them; None where that is not known."""
    if source.kind == IMAGES:
        return sum(1 for _ in _images(source))
    if source.path == STDIN or is_url(source.place):
        return None
    return count_rows_of_file(source.place, source.kind, source.options)


def _check_plain(row: Row) -> None:
    """Plain lines are texts as they are, unless the first shows that they are something else."""
    text = str(row.fields.get("text", ""))
    if other := looks_like(text):
        raise TaskError(
            f"{row.place}: {short(text)} looks like {other.upper()}, and stdin is read as plain lines; "
            f"add --format {other}, or --format txt if it is a text"
        )


def looks_like(line: str) -> str:
    """`jsonl`, `csv` or `tsv` where a first line is an object or a header; else nothing."""
    with suppress(ValueError, RecursionError):
        if line.startswith("{") and isinstance(json.loads(line), dict):
            return "jsonl"
    for kind, delimiter in DELIMITERS.items():
        with suppress(csv.Error):
            if "text" in (cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))):
                return kind
    return ""


def _images(source: Source) -> Iterator[tuple[str, Path]]:
    """What a row calls an image, and where it is."""
    path = Path(source.path)
    if path.is_dir():
        for file in image_files(path):
            yield file.relative_to(path).as_posix(), file
    else:
        yield source.name, path


def parquet_schema(source: Source) -> Any:
    """The Arrow schema of a Parquet file, with a column of texts or paths in it."""
    source_columns(source)  # refuses a file without
    return open_parquet(source.place).schema_arrow.remove_metadata()


def parquet_tables(source: Source, rows: int) -> Iterator[Any]:
    """The rows of a Parquet file as Arrow tables.

    Args:
        source: the file.
        rows: rows per table.

    Returns:
        Tables, the last of which may be shorter.
    """
    pa = pyarrow()
    held: list[Any] = []
    for batch in parquet_batches(source.place, open_parquet(source.place)):
        held.append(batch)
        while sum(map(len, held)) >= rows:
            whole = pa.Table.from_batches(held)
            yield whole.slice(0, rows).combine_chunks()
            held = whole.slice(rows).to_batches()
    if sum(map(len, held)):
        yield pa.Table.from_batches(held).combine_chunks()


@dataclass(frozen=True)
class Vectors:
    """Rows of an npz file: ids, views and, where the classifier looks at words, texts."""

    ids: Sequence[str]
    views: dict[str, NDArray[np.float32]]
    texts: Sequence[str] | None


def read_vectors(path: Path, classifier: Classifier) -> Vectors:
    """An npz file of vectors that the classifier's embedder made.

    Args:
        path: the file.
        classifier: that the vectors are checked against.

    Returns:
        Ids, views and, where the classifier looks at words, texts.
    """
    import numpy as np

    from adamab.providers.embedders.stored import read_npz

    file = read_npz(path)
    # A file may say that its vectors are from the very embedder that the model was fitted with.
    if file.model is None or file.model != classifier.fingerprint:
        classifier.check_fingerprint(file.fingerprint)
    if classifier.vocabulary is None:
        return Vectors(file.ids, file.views, None)
    with np.load(path, allow_pickle=False) as archive:
        texts = archive["texts"] if "texts" in archive.files else None
    if texts is None:
        raise EmbedderError(
            f"{place(path)}: the model looks at words as well; add an array 'texts', one per row, "
            "or fit with --set words=false"
        )
    if texts.dtype.kind != "U" or texts.shape != (len(file.ids),):
        raise EmbedderError(
            f"{place(path)}: 'texts' is {texts.dtype} of shape {texts.shape}; "
            f"{len(file.ids)} strings are needed"
        )
    return Vectors(file.ids, file.views, texts.tolist())
