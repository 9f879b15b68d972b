"""What `adamab predict` reads and writes."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from adamab.cli.console import standard_output
from adamab.errors import EmbedderError, TaskError
from adamab.serving.answer_rows import OURS, told_row
from adamab.task.images import is_url
from adamab.task.messages import place, short

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adamab.classifier import Answers, Classifier
    from adamab.task import TextRow
    from adamab.task.images import Image
    from adamab.task.spec import Modality

STDIN = "-"
PARQUET, PARTS = "parquet", "parts"  # outputs that bulk prediction writes
_FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": PARQUET}


class Row(Protocol):
    """A text to classify and the fields that it came with."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def id(self) -> str | None:
        """What its vector is looked up by."""

    @property
    def image(self) -> Image | None:
        """The picture, if it is one."""

    @property
    def fields(self) -> dict[str, object]:
        """Everything that stood in its row."""


@dataclass(frozen=True)
class Vectors:
    """Rows of an npz file: ids, views and, where the file has them, texts."""

    ids: Sequence[str]
    views: Mapping[str, NDArray[np.float32]]
    texts: Sequence[str] | None

    def part(self, start: int, stop: int) -> Vectors:
        """Some of the rows."""
        texts = None if self.texts is None else self.texts[start:stop]
        return Vectors(self.ids[start:stop], {v: x[start:stop] for v, x in self.views.items()}, texts)

    def fields(self) -> Iterator[dict[str, object]]:
        """What the answers repeat of each row."""
        for number, id_ in enumerate(self.ids):
            yield {"id": id_} if self.texts is None else {"id": id_, "text": self.texts[number]}


def read_rows(source: str, kind: str | None = None) -> Iterator[Row]:
    """Texts of a data file, or of stdin; `kind` says how they are written, else the file's ending does."""
    from adamab.task import read_text_stream, read_texts

    if source == STDIN:
        rows = read_text_stream(sys.stdin.buffer, "stdin", kind or "txt")
        return rows if kind else _plain(rows)
    if os.path.isdir(source) or (kind is None and source.lower().endswith(".parquet")):
        return many_rows(source, kind, "text")
    if kind is None:
        _check_ending(Path(source))
    return read_texts(source, kind=kind)


def many_rows(source: str, kind: str | None, modality: Modality) -> Iterator[Row]:
    """Rows of a folder of data files, or of Parquet; the first broken one is an error."""
    from adamab.serving.bulk_predictor import strict_row
    from adamab.serving.bulk_sources import find_sources, rows_of

    row = None
    for found in find_sources(source, kind, modality):
        for row in rows_of(found):
            yield strict_row(found, row)
    if row is None:
        raise TaskError(f"{place(source)}: holds no rows; add at least one")


def _check_ending(path: Path) -> None:
    from adamab.task.files import ENDINGS, check_there

    endings = ", ".join(sorted([*ENDINGS, ".npz", ".parquet"]))
    if path.suffix.lower() not in ENDINGS:
        check_there(path)
        raise TaskError(
            f"{place(path)}: unknown ending {short(path.suffix)}; use one of {endings}, or say --format"
        )


def _plain(rows: Iterator[TextRow]) -> Iterator[Row]:
    """Lines as they are, unless the first shows that they are something else."""
    first = next(rows)  # an empty input is refused before
    if kind := _looks_like(first.text):
        raise TaskError(
            f"stdin:{first.line}: {short(first.text)} looks like {kind.upper()}, and stdin is read as plain "
            f"lines; add --format {kind}, or --format txt if it is a text"
        )
    yield first
    yield from rows


def _looks_like(line: str) -> str:
    """`jsonl`, `csv` or `tsv` where a first line is an object or a header; else nothing."""
    with suppress(ValueError, RecursionError):
        if line.startswith("{") and isinstance(json.loads(line), dict):
            return "jsonl"
    for kind, delimiter in (("csv", ","), ("tsv", "\t")):
        with suppress(csv.Error):
            if "text" in (cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))):
                return kind
    return ""


def read_vectors(path: Path, classifier: Classifier) -> Vectors:
    """An npz file of vectors that the classifier's embedder made."""
    from adamab.providers.embedders.npz import read_npz

    found = read_npz(path)
    # A file may say that its vectors are from the very embedder that the model was fitted with.
    if found.model is None or found.model != classifier.fingerprint:
        classifier.check_fingerprint(found.fingerprint)
    texts = None if classifier.vocabulary is None else _texts(path, len(found.ids))
    return Vectors(found.ids, found.views, texts)


def _texts(path: Path, rows: int) -> list[str]:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        texts = archive["texts"] if "texts" in archive.files else None
    if texts is None:
        raise EmbedderError(
            f"{place(path)}: the model looks at words as well; add an array 'texts', one a row, "
            "or fit with --set words=false"
        )
    if texts.dtype.kind != "U" or texts.shape != (rows,):
        raise EmbedderError(
            f"{place(path)}: 'texts' is {texts.dtype} of shape {texts.shape}; {rows} strings are needed"
        )
    found: list[str] = texts.tolist()
    return found


def answer(
    fields: Mapping[str, object], names: Sequence[str], told: Answers, number: int, k: int
) -> dict[str, Any]:
    """An output row: the input's fields, then ours, which are those of row `number` of what was told."""
    row = {f"input_{name}" if name in OURS else name: value for name, value in fields.items()}
    return row | told_row(names, told, number, k)


def check_output(source: str, output: Path | None) -> None:
    """Refuse what would destroy the input."""
    if output is None or source == STDIN:
        return
    if output.exists() and Path(source).exists() and os.path.samefile(source, output):
        raise TaskError(f"{place(output)}: is the input as well; name another file for the output")


def output_format(output: Path | None, as_json: bool) -> str:
    """`csv`, `tsv`, `jsonl` or `parquet` by the output's ending, `parts` for a folder; stdout by `--json`."""
    if output is None or _is_special(output):
        return "jsonl" if as_json else "csv"
    if is_url(output):
        raise TaskError(f"{place(output)}: is a web address; name a file of this machine for the output")
    kind = PARTS if output.is_dir() or not output.suffix else _FORMATS.get(output.suffix.lower())
    if kind is None:
        raise TaskError(
            f"{place(output)}: unknown ending {short(output.suffix)}; use one of {', '.join(_FORMATS)}, "
            "or a folder, which has none"
        )
    if as_json and kind not in ("jsonl", PARQUET, PARTS):
        raise TaskError(f"{place(output)}: --json does not go with this ending; use .jsonl, or leave it out")
    return kind


def _is_special(path: Path) -> bool:
    """A device or a pipe: written to, never replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def is_file(output: Path | None) -> bool:
    """Whether it is written beside its name first: no stdout, device or pipe."""
    return output is not None and not _is_special(Path(os.path.realpath(output)))


@contextmanager
def written(output: Path | None, kind: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Something that writes rows to stdout, a device or a pipe as they come."""
    if output is None:
        yield _on_stdout(row_writer(kind, sys.stdout.buffer, []))
        return
    try:
        with open(output, "wb") as stream:
            yield row_writer(kind, stream, [])
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise TaskError(f"{place(output)}: cannot be written ({error.strerror or error})") from None


def row_writer(kind: str, stream: BinaryIO, columns: list[str]) -> Callable[[dict[str, Any]], None]:
    """Writes rows to an open file; `columns` are those of a table whose header is there already."""
    if kind == "jsonl":
        return _jsonl(stream)
    return _table_writer("\t" if kind == "tsv" else ",", stream, columns)


def _on_stdout(write: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def put(row: dict[str, Any]) -> None:
        with standard_output():
            write(row)

    return put


def _jsonl(stream: BinaryIO) -> Callable[[dict[str, Any]], None]:
    def write(row: dict[str, Any]) -> None:
        stream.write((_json(row) + "\n").encode("utf-8", "backslashreplace"))

    return write


def _table_writer(delimiter: str, stream: BinaryIO, columns: list[str]) -> Callable[[dict[str, Any]], None]:
    line = io.StringIO()
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\n")

    def put(cells: Sequence[str]) -> None:
        writer.writerow(cells)
        stream.write(line.getvalue().encode("utf-8", "backslashreplace"))
        line.seek(0)
        line.truncate()

    def write(row: dict[str, Any]) -> None:
        if not columns:
            columns.extend(row)
            put(columns)
        new = [name for name in row if name not in columns]
        if new:
            raise TaskError(
                f"field {short(new[0])} stands in a later row and not in the first, so it has no column; "
                "write JSONL instead"
            )
        put([_cell(row.get(name)) for name in columns])

    return write


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return json.dumps(value)  # a cell may say NaN
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain_value)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=_plain_value)


def _finite(value: object) -> object:
    """The same with null for numbers that JSON has no word for; Parquet may hold them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def _plain_value(value: object) -> str:
    """Of Parquet: bytes as Base64, dates and decimals as they are written."""
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
