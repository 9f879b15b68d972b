"""Rows of a data file, the broken ones among them: what is wrong with a row is told beside it.

The strict readers of `task.files` stop at the first broken row. Here a file is one of thousands, and a
row that cannot be read is the business of its reader alone.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from adamab.errors import TaskError
from adamab.task.files import LONGEST_LINE, decoded_line, json_object, open_regular, table_header
from adamab.task.messages import one_line, place

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it stands in its file: its fields, or what is wrong with it."""

    line: int
    fields: dict[str, object] | None
    error: str | None = None


def raw_rows(path: Path, kind: str, columns: Sequence[str]) -> Iterator[RawRow]:
    """Every row of a CSV, TSV, JSONL or TXT file; one of `columns` must be in a table's header."""
    try:
        with open_regular(path) as handle:
            yield from _READERS[kind](path, handle, columns)
    except OSError as error:
        raise TaskError(
            f"{place(path)}: cannot be read ({one_line(error.strerror)}); check the path"
        ) from None


def _lines(path: Path, handle: BinaryIO) -> Iterator[tuple[int, int, bytes | None]]:
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
    for number, offset, raw in _lines(path, handle):
        where = place(path, number)
        try:
            if raw is None:
                raise TaskError(f"{where}: the line is longer than 16 MB")
            if (text := decoded_line(path, number, offset, raw).strip()) == "":
                continue
            row = RawRow(number, parse(where, text))
        except TaskError as error:
            row = RawRow(number, None, one_line(error))
        yield row


def _as_text(_: str, line: str) -> dict[str, object]:
    return {"text": line}


def _table(path: Path, handle: BinaryIO, columns: Sequence[str], *, delimiter: str) -> Iterator[RawRow]:
    # What is not UTF-8 is carried through the reader, so that it costs its own row and no other.
    lines = (_carried(raw) for _, _, raw in _lines(path, handle))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    problem: str | None
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            cells, problem = [], f"not valid CSV ({one_line(error)}); check the quotes"
        else:
            problem = _problem(cells, header)
            if not cells:
                continue
        if header is None:
            if problem is not None:
                raise TaskError(f"{place(path, line)}: {problem}")
            header = table_header(place(path, line), cells, columns)
        elif problem is not None:
            yield RawRow(line, None, f"{place(path, line)}: {problem}")
        else:
            yield RawRow(line, dict(zip(header, cells, strict=True)))


def _carried(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode("utf-8", "surrogateescape")


def _problem(cells: Sequence[str], header: Sequence[str] | None) -> str | None:
    if header is not None and cells and len(cells) != len(header):
        return f"{len(cells)} fields where the header has {len(header)}; put texts in double quotes"
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "is not UTF-8; save the file as UTF-8"
    return None


_READERS: dict[str, Callable[[Path, BinaryIO, Sequence[str]], Iterator[RawRow]]] = {
    "csv": partial(_table, delimiter=","),
    "tsv": partial(_table, delimiter="\t"),
    "jsonl": partial(_each_line, parse=json_object),
    "txt": partial(_each_line, parse=_as_text),
}
