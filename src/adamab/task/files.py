"""Files as lines and rows: UTF-8 text, JSONL, CSV and TSV, read as a stream.

Whatever the bytes are, the outcome is rows or one `TaskError` that names file and line.
"""

from __future__ import annotations

import csv
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn

from adamab.errors import TaskError
from adamab.task.images import is_url
from adamab.task.messages import one_line, place, short

# Ending of a file -> how its rows are written.
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".txt": "txt"}
_PLAIN = "txt"
_TEXT = ("text",)
LONGEST_LINE = 16 * 2**20  # a file without line breaks must not fill the memory


Lines = Iterator[tuple[int, str]]  # numbered from 1


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a data file and the line it starts on."""

    path: Path
    line: int
    fields: dict[str, object]

    @property
    def place(self) -> str:
        """`file:line`."""
        return place(self.path, self.line)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, line ends kept, a byte order mark dropped."""
    try:
        with open_regular(path) as handle:
            yield from _decoded_lines(path, handle)
    except (OSError, ValueError) as exc:  # ValueError: a path that holds a NUL
        if isinstance(exc, TaskError):
            raise
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise TaskError(f"{place(path)}: cannot be read ({one_line(reason)}); check the path") from None


def open_regular(path: Path) -> BinaryIO:
    """The open file, if it is one that is read to its end."""
    # A named pipe or a device would block or never end, so look before opening.
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise TaskError(f"{place(path)}: no such file; check the path") from None
    if stat.S_ISDIR(mode):
        raise TaskError(f"{place(path)}: is a directory; name a file in it")
    if not stat.S_ISREG(mode):
        raise TaskError(f"{place(path)}: is not a regular file; save the data as a file first")
    return open(path, "rb")


def _decoded_lines(path: Path, handle: BinaryIO) -> Iterator[tuple[int, str]]:
    number = offset = 0
    while raw := handle.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise TaskError(f"{place(path, number)}: the line is longer than 16 MB; is this a text file?")
        text = decoded_line(path, number, offset, raw)
        offset += len(raw)
        yield number, text.removeprefix("\ufeff") if number == 1 else text


def decoded_line(path: Path, number: int, offset: int, raw: bytes) -> str:
    """A line as text; refuses what is not UTF-8."""
    if offset == 0 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TaskError(f"{place(path, 1)}: the file is in UTF-16; save it as UTF-8")
    if b"\0" in raw:
        where = offset + raw.index(b"\0")
        raise TaskError(f"{place(path, number)}: NUL at byte {where}, not a text file; save it as UTF-8 text")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise TaskError(
            f"{place(path, number)}: byte {offset + exc.start} (0x{raw[exc.start]:02x}) is not UTF-8; "
            "save the file as UTF-8"
        ) from None


def read_rows(
    path: Path, *, plain_text: bool = False, kind: str | None = None, columns: Sequence[str] = _TEXT
) -> Iterator[Row]:
    """Rows of a JSONL, CSV or TSV file, by its ending; with `plain_text` also of a `.txt` file.

    `kind` (csv, tsv, jsonl, txt) says how the file is written whatever its ending is. One of `columns`
    must be in a table's header. Blank lines are skipped; a file without any row is refused.
    """
    yield from _rows(path, read_lines(path), kind or _kind(path, plain_text), columns)


def read_stream(handle: BinaryIO, name: str, kind: str) -> Iterator[Row]:
    """Rows of an open stream, which messages call `name`."""
    path = Path(name)
    yield from _rows(path, _decoded_lines(path, handle), kind)


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


def _rows(path: Path, lines: Lines, kind: str, columns: Sequence[str] = _TEXT) -> Iterator[Row]:
    row = None
    for row in _READERS[kind](path, lines, columns):
        yield row
    if row is None:
        raise TaskError(f"{place(path)}: holds no rows; add at least one")


def _txt(path: Path, lines: Lines, _: Sequence[str]) -> Iterator[Row]:
    for number, line in lines:
        if line.strip():
            yield Row(path, number, {"text": line.strip()})


def _jsonl(path: Path, lines: Lines, _: Sequence[str]) -> Iterator[Row]:
    for number, line in lines:
        if line.strip():
            yield Row(path, number, json_object(place(path, number), line))


def json_object(where: str, line: str) -> dict[str, object]:
    """The object that a line of JSONL holds."""
    try:
        value = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
    except TaskError as exc:
        raise TaskError(f"{where}: {exc}") from None
    except json.JSONDecodeError as exc:
        raise TaskError(
            f"{where}: not valid JSON ({exc.msg}, column {exc.colno}); write one object a line"
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


def _csv(path: Path, lines: Lines, columns: Sequence[str], delimiter: str = ",") -> Iterator[Row]:
    header: list[str] | None = None
    for line, cells in _csv_cells(path, lines, delimiter):
        if header is None:
            header = table_header(place(path, line), cells, columns)
        elif len(cells) != len(header):
            raise TaskError(
                f"{place(path, line)}: {len(cells)} fields where the header has {len(header)}; "
                "put texts that hold the separator in double quotes"
            )
        else:
            yield Row(path, line, dict(zip(header, cells, strict=True)))


def _csv_cells(path: Path, lines: Lines, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1  # a quoted text may span lines: name the first
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as exc:
            raise TaskError(
                f"{place(path, line)}: not valid CSV ({one_line(exc)}); check the quotes, double those inside"
            ) from None
        if cells:
            yield line, cells


def table_header(where: str, cells: list[str], columns: Sequence[str]) -> list[str]:
    """The names of a table's columns, one of `columns` among them."""
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


_READERS: dict[str, Callable[[Path, Lines, Sequence[str]], Iterator[Row]]] = {
    "csv": _csv,
    "tsv": partial(_csv, delimiter="\t"),
    "jsonl": _jsonl,
    _PLAIN: _txt,
}
