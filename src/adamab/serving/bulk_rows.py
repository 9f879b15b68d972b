"""Rows of a data file, the broken ones among them: what is wrong with a row is told beside it.

The strict readers of `task.files` stop at the first broken row. Here a file is one of thousands, and a
row that cannot be read is the business of its reader alone.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from adamab.errors import TaskError
from adamab.task.files import LONGEST_LINE, decoded_line, json_object, open_regular, table_header
from adamab.task.messages import one_line, place

_BOM = b"\xef\xbb\xbf"
DELIMITERS = {"csv": ",", "tsv": "\t"}
_TOO_LONG = "the line is longer than 16 MB"


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it stands in its file: its fields, or what is wrong with it."""

    line: int
    fields: dict[str, object] | None
    error: str | None = None


def raw_rows(path: Path, kind: str, columns: Sequence[str]) -> Iterator[RawRow]:
    """Every row of a CSV, TSV, JSONL or TXT file; one of `columns` must be in a table's header."""
    with _opened(path) as handle:
        yield from _READERS[kind](path, handle, columns)


def table_names(path: Path, kind: str, columns: Sequence[str]) -> list[str]:
    """The header of a CSV or TSV file; nothing where the file is empty."""
    with _opened(path) as handle:
        return _header(path, _csv_rows(handle, DELIMITERS[kind]), columns)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_regular(path) as handle:
            yield handle
    except OSError as error:
        raise TaskError(
            f"{place(path)}: cannot be read ({one_line(error.strerror)}); check the path"
        ) from None


def _lines(handle: BinaryIO) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and bytes of each line; None for one that is too long to be held."""
    number = offset = 0
    while raw := handle.readline(LONGEST_LINE + 1):
        number += 1
        start, offset, whole = offset, offset + len(raw), raw
        while len(raw) > LONGEST_LINE and not raw.endswith(b"\n"):
            raw = handle.readline(LONGEST_LINE + 1)
            offset += len(raw)
        if number == 1:
            whole = whole.removeprefix(_BOM)
        yield number, start, whole if len(whole) <= LONGEST_LINE else None


def _each_line(
    path: Path, handle: BinaryIO, _: Sequence[str], *, parse: Callable[[str, str], dict[str, object]]
) -> Iterator[RawRow]:
    for number, offset, raw in _lines(handle):
        where = place(path, number)
        try:
            if raw is None:
                raise TaskError(f"{where}: {_TOO_LONG}")
            if (text := decoded_line(path, number, offset, raw).strip()) == "":
                continue
            row = RawRow(number, parse(where, text))
        except TaskError as error:
            row = RawRow(number, None, one_line(error))
        yield row


def _as_text(_: str, line: str) -> dict[str, object]:
    return {"text": line}


def _table(path: Path, handle: BinaryIO, columns: Sequence[str], *, delimiter: str) -> Iterator[RawRow]:
    rows = _csv_rows(handle, delimiter)
    names = _header(path, rows, columns)
    for line, cells, problem in rows:
        if problem := problem or _misfit(cells, names):
            yield RawRow(line, None, f"{place(path, line)}: {problem}")
        else:
            yield RawRow(line, dict(zip(names, cells, strict=True)))


def _header(path: Path, rows: Iterator[_CsvRow], columns: Sequence[str]) -> list[str]:
    """The first of the rows; nothing where there is none."""
    for line, cells, problem in rows:
        if problem is not None:
            raise TaskError(f"{place(path, line)}: {problem}")
        return table_header(place(path, line), cells, columns)
    return []


_CsvRow = tuple[int, list[str], str | None]  # the line it begins on, its cells, what is wrong with it


def _csv_rows(handle: BinaryIO, delimiter: str) -> Iterator[_CsvRow]:
    """Every row of a table, the header among them; blank lines are passed over."""
    lines = _Carried()
    reader = csv.reader(map(lines, _lines(handle)), delimiter=delimiter, strict=True)
    while True:
        line = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except _TooLongError:
            yield line, [], _TOO_LONG
        except csv.Error as error:
            yield line, [], f"not valid CSV ({one_line(error)}); check the quotes"
        else:
            if cells:
                yield line, cells, _not_utf8(cells)


class _TooLongError(Exception):
    """A line that is not held in memory: the reader forgets the row and goes on with the next line."""


class _Carried:
    """Lines as the CSV reader wants them; it does not count those that raise, so they are counted here."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, line: tuple[int, int, bytes | None]) -> str:
        self.number, _, raw = line
        if raw is None:
            raise _TooLongError
        # What is not UTF-8 is carried through the reader, so that it costs its own row and no other.
        return raw.decode("utf-8", "surrogateescape")


def _misfit(cells: Sequence[str], names: Sequence[str]) -> str | None:
    if len(cells) == len(names):
        return None
    return f"{len(cells)} fields where the header has {len(names)}; put texts in double quotes"


def _not_utf8(cells: Sequence[str]) -> str | None:
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "is not UTF-8; save the file as UTF-8"
    return None


_READERS: dict[str, Callable[[Path, BinaryIO, Sequence[str]], Iterator[RawRow]]] = {
    **{kind: partial(_table, delimiter=delimiter) for kind, delimiter in DELIMITERS.items()},
    "jsonl": partial(_each_line, parse=json_object),
    "txt": partial(_each_line, parse=_as_text),
}
