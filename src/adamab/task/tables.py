"""Data files as rows, samples and texts to classify: JSONL, CSV, TSV and plain text, read as a stream.

Whatever the bytes are, the outcome is rows or one `TaskError` that names file and line; `scan_rows` tells
what is wrong with a row beside it and goes on.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO, NoReturn

from adamab.errors import TaskError, one_line, os_errors, place, short, suggestion
from adamab.task.images import Image, is_url, open_regular
from adamab.task.spec import Sample
from adamab.task.words import checked

# Ending of a file -> how its rows are written.
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".txt": "txt"}
_PLAIN = "txt"
_TEXT = ("text",)
_CLASS_KEYS = ("label", "class")
LONGEST_LINE = 16 * 2**20  # a file without line breaks must not fill the memory


DELIMITERS = {"csv": ",", "tsv": "\t"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a data file and the line it starts on; where it has an error, it has no fields."""

    path: Path
    line: int
    fields: dict[str, object]
    error: str | None = None

    @property
    def place(self) -> str:
        """`file:line`."""
        return place(self.path, self.line)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, line ends kept, a byte order mark dropped."""
    with opened(path) as handle:
        for line in _raw_lines(handle):
            yield line[0], _decoded(path, *line)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """An open file that is read to its end; what is wrong with it is one line."""
    with open_regular(path) as handle, os_errors(path, "cannot be read", TaskError, "check the path"):
        yield handle


def _raw_lines(handle: BinaryIO) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and bytes of each line; None for one that is too long to be held."""
    number = offset = 0
    while raw := handle.readline(LONGEST_LINE + 1):
        number += 1
        start, offset, is_long = offset, offset + len(raw), len(raw) > LONGEST_LINE
        yield number, start, None if is_long else raw
        while is_long and raw and not raw.endswith(b"\n"):
            raw = handle.readline(LONGEST_LINE + 1)
            offset += len(raw)


def _decoded(path: Path, number: int, offset: int, raw: bytes | None) -> str:
    """A line as text; refuses what is too long or not UTF-8."""
    if raw is None:
        raise TaskError(f"{place(path, number)}: the line is longer than 16 MB; is this a text file?")
    if offset == 0 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TaskError(f"{place(path, 1)}: the file is in UTF-16; save it as UTF-8")
    if b"\0" in raw:
        where = offset + raw.index(b"\0")
        raise TaskError(f"{place(path, number)}: NUL at byte {where}, not a text file; save it as UTF-8 text")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise TaskError(
            f"{place(path, number)}: byte {offset + exc.start} (0x{raw[exc.start]:02x}) is not UTF-8; "
            "save the file as UTF-8"
        ) from None
    return text.removeprefix("\ufeff") if number == 1 else text


def read_rows(path: Path, *, plain_text: bool = False, columns: Sequence[str] = _TEXT) -> Iterator[Row]:
    """Rows of a JSONL, CSV or TSV file, by its ending; blank lines are skipped.

    Args:
        path: a file with one row or more.
        plain_text: also take a `.txt` file, with one text per line.
        columns: names of which one must be in a table's header.
    """
    kind, row = _kind(path, plain_text), None
    with opened(path) as handle:
        for row in scan_rows(path, handle, kind, columns):
            if row.error is not None:
                raise TaskError(row.error)
            yield row
    if row is None:
        raise TaskError(f"{place(path)}: holds no rows; add at least one")


def check_there(path: Path) -> None:
    """Before anything is said about the name of a file: it may not exist, or be no file."""
    if is_url(path):
        raise TaskError(f"{place(path)}: is a web address, and URLs are never fetched; download it first")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TaskError(f"{place(path)}: no such file; check the path") from None
    except (OSError, ValueError):  # whoever opens it says what is wrong
        pass


def _kind(path: Path, plain_text: bool) -> str:
    known = {ending: kind for ending, kind in ENDINGS.items() if plain_text or kind != _PLAIN}
    kind = known.get(path.suffix.lower())
    check_there(path)
    if kind is None:
        raise TaskError(
            f"{place(path)}: unknown ending {short(path.suffix)}; use one of {', '.join(sorted(known))}"
        )
    return kind


def scan_rows(path: Path, handle: BinaryIO, kind: str, columns: Sequence[str] = _TEXT) -> Iterator[Row]:
    """Every row of an open file, the broken ones among them; a table without a header is refused.

    Args:
        path: of the file, for messages.
        handle: the open file.
        kind: csv, tsv, jsonl or txt.
        columns: names of which one must be in a table's header.
    """
    if kind in DELIMITERS:
        yield from _table_rows(path, handle, kind, columns)
        return
    for line in _raw_lines(handle):
        number = line[0]
        try:
            text = _decoded(path, *line)
            if not text.strip():
                continue
            is_json = kind == "jsonl"
            row = Row(
                path, number, json_object(place(path, number), text) if is_json else {"text": text.strip()}
            )
        except TaskError as error:
            row = Row(path, number, {}, str(error))
        yield row


def json_object(where: str, line: str) -> dict[str, object]:
    """The object that a line of JSONL holds.

    Args:
        where: `file:line`, for messages.
        line: its text.
    """
    try:
        value = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
    except TaskError as exc:
        raise TaskError(f"{where}: {exc}") from None
    except json.JSONDecodeError as exc:
        raise TaskError(
            f"{where}: not valid JSON ({exc.msg}, column {exc.colno}); write one object per line"
        ) from None
    except (ValueError, RecursionError):
        raise TaskError(f"{where}: a number too long or nesting too deep; simplify the line") from None
    if not isinstance(value, dict):
        raise TaskError(f'{where}: {short(line.strip())} is not an object; write {{"text": …}}')
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise TaskError(f"key {short(_repeated([name for name, _ in pairs]))} stands there twice; keep one")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise TaskError(f"{name} is not a JSON value; write null")


def _table_rows(path: Path, handle: BinaryIO, kind: str, columns: Sequence[str]) -> Iterator[Row]:
    rows = _csv_rows(path, handle, kind)
    header = _header(path, rows, columns)
    for line, cells, problem in rows:
        if problem is None and len(cells) != len(header):
            problem = (
                f"{place(path, line)}: {len(cells)} fields where the header has {len(header)}; "
                "put texts that hold the separator in double quotes"
            )
        yield Row(path, line, {} if problem else dict(zip(header, cells, strict=True)), problem)


def read_header(path: Path, kind: str, columns: Sequence[str] = _TEXT) -> list[str]:
    """The header of a CSV or TSV file; nothing where the file is empty.

    Args:
        path: of the file.
        kind: csv or tsv.
        columns: names of which one must be in it.
    """
    with opened(path) as handle:
        return _header(path, _csv_rows(path, handle, kind), columns)


_CsvRow = tuple[int, list[str], str | None]  # the line it begins on, its cells, what is wrong with it


def _header(path: Path, rows: Iterator[_CsvRow], columns: Sequence[str]) -> list[str]:
    for line, cells, problem in rows:
        if problem is not None:
            raise TaskError(problem)
        return table_header(place(path, line), cells, columns)
    return []


def _csv_rows(path: Path, handle: BinaryIO, kind: str) -> Iterator[_CsvRow]:
    """Every row of a table, the header among them; blank lines are passed over."""
    lines = _CsvLines(path)
    reader = csv.reader(map(lines, _raw_lines(handle)), delimiter=DELIMITERS[kind], strict=True)
    while True:
        line, lines.problem = lines.number + 1, None  # a quoted text may span lines: name the first
        try:
            cells = next(reader)
        except StopIteration:
            return
        except _TooLongError:
            yield line, [], f"{place(path, line)}: the line is longer than 16 MB; is this a text file?"
        except csv.Error as exc:
            problem = f"not valid CSV ({one_line(exc)}); check the quotes, double those inside"
            yield line, [], lines.problem or f"{place(path, line)}: {problem}"
        else:
            if cells:
                yield line, cells, lines.problem


class _TooLongError(Exception):
    """A line that is not held in memory: the CSV reader forgets the row and goes on with the next line."""


class _CsvLines:
    """Lines as the CSV reader wants them; what is wrong with one is carried past the reader."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0
        self.problem: str | None = None

    def __call__(self, line: tuple[int, int, bytes | None]) -> str:
        self.number, _, raw = line
        if raw is None:
            raise _TooLongError
        try:
            return _decoded(self.path, *line)
        except TaskError as error:
            # Carried through the reader, so that it costs its own row and no other.
            self.problem = self.problem or str(error)
            return raw.decode("utf-8", "surrogateescape")


def table_header(where: str, cells: list[str], columns: Sequence[str]) -> list[str]:
    """The names of a table's columns.

    Args:
        where: `file:line` of the header, for messages.
        cells: its cells as they were read.
        columns: names of which the header must have at least one.
    """
    header = [cell.strip() for cell in cells]
    if not set(columns) & set(header):
        raise TaskError(
            f"{where}: no column {columns[0]!r} in {short(', '.join(header))}; "
            f"start with a header line such as: {columns[0]},label"
        )
    if len(set(header)) < len(header):
        raise TaskError(f"{where}: column {short(_repeated(header))} stands there twice; rename one")
    return header


def _repeated(names: list[str]) -> str:
    return Counter(names).most_common(1)[0][0]


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text or image to classify, with every field of its row and the line it starts on."""

    text: str
    fields: dict[str, object]
    line: int
    id: str | None = None
    image: Image | None = None


def read_samples(path: str | PathLike[str], class_names: Collection[str] | None = None) -> list[Sample]:
    """Samples of a JSONL, CSV or TSV file with `text`, `label` (or `class`) and perhaps `id`.

    Args:
        path: the file; rows are kept as they are, repeats included.
        class_names: those that are allowed; None allows all.
    """
    return [sample for _, sample in placed_samples(Path(path), class_names)]


def read_texts(path: str | PathLike[str]) -> Iterator[TextRow]:
    """Texts of a JSONL, CSV or TSV file with `text` and perhaps `id`, or a `.txt` file with one per line.

    A stream: the file is never in memory as a whole. Blank lines are skipped.
    """
    return map(text_row, read_rows(Path(path), plain_text=True))


def text_row(row: Row) -> TextRow:
    """A row as a text to classify; raises `TaskError` where it holds none."""
    return TextRow(_text(row), row.fields, row.line, id_of(row))


def placed_samples(path: Path, class_names: Collection[str] | None) -> Iterator[tuple[str, Sample]]:
    """Samples of a data file, each with its `file:line`.

    Args:
        path: of the file.
        class_names: those that are allowed; None allows all.
    """
    known = None if class_names is None else frozenset(class_names)
    for row in read_rows(path):
        class_name = class_name_of(row)
        if known is not None and class_name not in known:
            raise unknown_class(row.place, class_name, class_names or ())
        yield row.place, Sample(_text(row), class_name, id=id_of(row))


def unknown_class(where: str, class_name: str, known: Collection[str]) -> TaskError:
    """The error for an example of a class that the task does not list.

    Args:
        where: the example's place, for the message.
        class_name: the class that it names.
        known: the task's classes; one that is spelled alike is suggested.
    """
    return TaskError(
        f"{where}: example of unknown class {short(class_name)}; {suggestion(class_name, known)}"
    )


def class_name_of(row: Row) -> str:
    """The class that a row names."""
    keys = [key for key in _CLASS_KEYS if key in row.fields]
    if not keys:
        raise TaskError(f"{row.place}: no 'label' (or 'class') beside the text; name the class of each row")
    if len(keys) > 1:
        raise TaskError(f"{row.place}: both 'label' and 'class' are there; keep one")
    return string_of(row, keys[0])


def _text(row: Row) -> str:
    if "text" not in row.fields:
        keys = suggestion("text", row.fields) if row.fields else "the object is empty"
        raise TaskError(f"{row.place}: no 'text' in the row ({keys}); add it")
    return string_of(row, "text")


def string_of(row: Row, key: str) -> str:
    """A field that must be a text."""
    value = row.fields[key]
    if value is None:
        raise TaskError(f"{row.place}: '{key}' is empty; put a text there or remove the row")
    if not isinstance(value, str):
        raise TaskError(f"{row.place}: '{key}' is {short(value)}, not a text; put it in double quotes")
    return checked(value, row.place, f"'{key}'")


def id_of(row: Row) -> str | None:
    """The id of a row, if it has one."""
    value = row.fields.get("id")
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TaskError(f"{row.place}: 'id' is {short(value)}; write a text or a whole number")
    return checked(str(value), row.place, "'id'")
