"""Data files as plain rows: what CSV, TSV, JSONL, XLSX, Parquet and text have in common, read as streams.

A row that cannot be read does not stop its reader: what is wrong stands beside it.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import warnings
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from importlib import import_module
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from adamab.errors import TaskError, imported, one_line, os_errors, place, short
from adamab.task.images import is_url, open_regular

PARQUET, XLSX, PLAIN = "parquet", "xlsx", "txt"
# Ending of a file -> how its rows are written.
ENDINGS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": PARQUET,
    ".tsv": "tsv",
    ".txt": PLAIN,
    ".xlsx": XLSX,
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
LONGEST_LINE = 16 * 2**20  # a file without line breaks must not fill the memory
MOST_UNPACKED = 512 * 2**20  # bytes of a spreadsheet, which is a ZIP file
MOST_ROWS, MOST_COLUMNS = 2**20, 1000  # of a spreadsheet
BATCH = 2048  # rows of Parquet that are decoded at a time
SNIFFED = ",;\t|"  # of those that divide a file alike the first counts
_LOOKED_AT, _SNIFFED_BYTES = 20, 2**20  # rows and bytes that show how a table is written
LINE = ""  # the one field of a row of JSONL that could not be read: its line

RawRow = tuple[int, dict[str, object], str | None]  # the line it begins on, its fields, what is wrong with it
RawCells = tuple[int, list[str], str | None]


@dataclass(frozen=True)
class TableOptions:
    """How a data file is written, as far as it does not show that itself.

    Args:
        text_column: what its column of texts (or of images) is called; None takes `text`, or an obvious one.
        label_column: the same of classes: `label`, `class`, or an obvious one.
        id_column: the same of ids; None takes `id`, if it is there.
        delimiter: between the cells of CSV and TSV; None takes what divides the first rows.
        encoding: of everything but Parquet and XLSX; None is UTF-8.
        note: called with a line about each column that was recognised.
    """

    text_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    note: Callable[[str], object] = field(default=str, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            named = {"tab": "\t", "\\t": "\t"}.get(self.delimiter, self.delimiter)
            if len(named) != 1 or named in '"\r\n':
                raise TaskError(
                    f"delimiter {short(named)} divides no cells; use one character, such as ';' or tab"
                )
            object.__setattr__(self, "delimiter", named)
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, ValueError):
                raise TaskError(
                    f"encoding {short(self.encoding)} is unknown; use one such as cp1252, latin-1 or utf-16"
                ) from None
            if codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig"):
                object.__setattr__(self, "encoding", None)

    def as_written(self) -> dict[str, str]:
        """What somebody said, by the names of the fields."""
        names = (one.name for one in fields(self) if one.name != "note")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


AS_IT_IS = TableOptions()


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


class _Recoded:
    """The lines of a file in another encoding as they would be in UTF-8; what is wrong becomes U+FFFD."""

    def __init__(self, handle: BinaryIO, encoding: str) -> None:
        self._text = io.TextIOWrapper(handle, encoding, errors="replace", newline="\n")
        self._is_broken = False

    def readline(self, limit: int) -> bytes:
        try:
            return b"" if self._is_broken else self._text.readline(limit).encode("utf-8", "surrogatepass")
        except UnicodeError:  # not even its beginning is right
            self._is_broken = True
            return "\ufffd".encode()

    def leave_open(self) -> None:
        """The file is somebody else's."""
        with suppress(ValueError):  # it is closed
            self._text.detach()


def _raw_lines(handle: BinaryIO, encoding: str | None = None) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and bytes of each line; None for one that is too long to be held."""
    lines = handle if encoding is None else _Recoded(handle, encoding)
    number = offset = 0
    try:
        while raw := lines.readline(LONGEST_LINE + 1):
            number += 1
            start, offset, is_long = offset, offset + len(raw), len(raw) > LONGEST_LINE
            yield number, start, None if is_long else raw
            while is_long and raw and not raw.endswith(b"\n"):
                raw = lines.readline(LONGEST_LINE + 1)
                offset += len(raw)
    finally:
        if isinstance(lines, _Recoded):
            lines.leave_open()


def _decoded(path: Path, number: int, offset: int, raw: bytes | None, encoding: str | None = None) -> str:
    """A line as text; refuses what is too long or not in the encoding."""
    if raw is None:
        raise TaskError(f"{place(path, number)}: the line is longer than 16 MB; is this a text file?")
    if encoding is not None and "\ufffd".encode() in raw:
        raise TaskError(f"{place(path, number)}: is not {encoding}; name another with --encoding")
    try:
        text = raw.decode("utf-8")
        if "\0" not in text:
            return text.removeprefix("\ufeff") if number == 1 else text
        problem = f"NUL at byte {offset + raw.index(0)}, not a text file"
    except UnicodeDecodeError as exc:
        problem = f"byte {offset + exc.start} (0x{raw[exc.start]:02x}) is not UTF-8"
    likely = _likely_encoding(raw, is_first=offset == 0)
    remedy = f"a guess is {likely}: try --encoding {likely} and look at the letters, or " if likely else ""
    raise TaskError(f"{place(path, number)}: {problem}; {remedy}save the file as UTF-8")


def _likely_encoding(raw: bytes, *, is_first: bool) -> str | None:
    """What a line looks like that is not UTF-8; None where it is no text in any known encoding."""
    if is_first and raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if b"\0" in raw:  # every second byte of what is mostly ASCII
        zeros = {"utf-16-be": raw[0:200:2].count(0), "utf-16-le": raw[1:200:2].count(0)}
        name = max(zeros, key=zeros.__getitem__)
        return name if is_first and zeros[name] >= max(4, len(raw[:200]) // 4) else None
    # In Western languages letters beyond ASCII stand alone; elsewhere whole words are made of them.
    foreign = re.search(rb"[\x80-\xff]{4}", raw)
    for name in ("gb18030", "cp1251", "cp1252") if foreign else ("cp1252",):
        with suppress(UnicodeDecodeError):
            if all(c.isprintable() or c.isspace() for c in raw.decode(name)):
                return name
    return "latin-1"


def misread(texts: Iterable[str], encoding: str | None) -> str | None:
    """A text that shows that all of these were UTF-8 before somebody read them in another encoding.

    Args:
        texts: as they were read; those in ASCII show nothing.
        encoding: in which; None is UTF-8, which may hold what was read as cp1252 before.
    """
    worst = None
    for text in texts:
        if text.isascii():
            continue
        try:
            again = text.encode(encoding or "cp1252").decode("utf-8")
        except (UnicodeError, LookupError):
            return None
        worst = text if worst is None and again != text else worst
    return worst


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


@dataclass(frozen=True)
class RawTable:
    """An open data file."""

    where: str  # `file`, or `file:line` of the header
    names: Sequence[str] | None  # of its columns; None where each row has its own
    rows: Iterator[RawRow]


def read_table(path: Path, handle: BinaryIO, kind: str, options: TableOptions) -> RawTable:
    """An open file as rows; a header that is broken, or has a name twice, is refused.

    Args:
        path: of the file, for messages.
        handle: the open file.
        kind: one of the values of `ENDINGS`.
        options: how the file is written.
    """
    where = place(path)
    if kind == PLAIN:
        return RawTable(where, ("text",), _plain_rows(path, handle, options))
    if kind == "jsonl":
        return RawTable(where, None, _json_rows(path, handle, options))
    if kind == PARQUET:
        file = open_parquet(path)
        names, rows = file.schema_arrow.names, _parquet_rows(path, file)
    else:
        if is_sheet := kind == XLSX:
            delimiter, cells = "", _xlsx_rows(path, handle, options)
        else:
            lines, delimiter = _csv_lines(path, handle, kind, options)
            cells = _csv_rows(lines, delimiter)
        header = next(cells, None)
        if header is None:
            return RawTable(where, None, iter(()))
        if header[2] is not None:
            raise TaskError(header[2])
        first = list(islice(cells, _LOOKED_AT))
        where, names = place(path, header[0]), _named(header[1])
        _check_header(where, header[1], first)
        rows = _with_names(path, names, chain(first, cells), None if is_sheet else delimiter)
    if len(set(names)) < len(names):
        raise TaskError(f"{where}: column {short(_repeated(names))} stands there twice; rename one")
    return RawTable(where, names, rows)


def _plain_rows(path: Path, handle: BinaryIO, options: TableOptions) -> Iterator[RawRow]:
    for line in _raw_lines(handle, options.encoding):
        try:
            text = _decoded(path, *line, options.encoding).strip()
        except TaskError as error:
            yield line[0], {"text": _legible(line[2], line[0]).strip()}, str(error)
        else:
            if text:
                yield line[0], {"text": text}, None


def _json_rows(path: Path, handle: BinaryIO, options: TableOptions) -> Iterator[RawRow]:
    for line in _raw_lines(handle, options.encoding):
        try:
            text = _decoded(path, *line, options.encoding)
            if text.strip():
                yield line[0], json_object(place(path, line[0]), text), None
        except TaskError as error:
            yield line[0], {LINE: _legible(line[2], line[0]).strip()}, str(error)


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


def _repeated(names: Iterable[str]) -> str:
    return Counter(names).most_common(1)[0][0]


def _named(cells: Sequence[str]) -> list[str]:
    """The names of a header; a column without one is called by its number."""
    return [cell.strip() or f"column {number}" for number, cell in enumerate(cells, 1)]


def _check_header(where: str, header: Sequence[str], rows: Sequence[RawCells]) -> None:
    """A title above the header is refused: what stands under it would be taken for what it is not."""
    wide = [line for line, cells, _ in rows if sum(map(bool, cells)) > 1]
    is_alone = header[0].strip() and not any(header[1:]) and not set(header[0]) & set(SNIFFED)
    if is_alone and 2 * len(wide) > len(rows):
        raise TaskError(
            f"{where}: {short(header[0])} stands alone above rows of several cells; if line {wide[0]} is the "
            "header, remove what is above it; else put texts that hold the separator in double quotes"
        )


def _with_names(
    path: Path, names: Sequence[str], rows: Iterable[RawCells], delimiter: str | None
) -> Iterator[RawRow]:
    """Rows of a table by the names of its columns; those of a spreadsheet, without delimiter, may be ragged.

    A row with something wrong keeps what could be read.
    """
    for line, cells, problem in rows:
        if delimiter is None:
            cells = [*cells, *[""] * len(names)]
        elif len(cells) != len(names):
            problem = problem or (
                f"{place(path, line)}: {len(cells)} fields where the header has {len(names)}; "
                "put texts that hold the separator in double quotes"
            )
            last = len(names) - 1
            cells = cells[:last] + ([delimiter.join(cells[last:])] if cells[last:] else [])
        yield line, dict(zip(names, cells, strict=False)), problem


def _csv_lines(path: Path, handle: BinaryIO, kind: str, options: TableOptions) -> tuple[_CsvLines, str]:
    """The lines of a table and its delimiter: as somebody says, or the file, or as its first lines show."""
    raw_lines = _raw_lines(handle, options.encoding)
    first, delimiter = list(islice(raw_lines, 1)), options.delimiter
    if first and (stated := _stated(path, first[0], options)):
        first.clear()
        if delimiter is None:
            try:
                delimiter = TableOptions(delimiter=stated).delimiter
            except TaskError as error:
                raise TaskError(f"{place(path, 1)}: {error}") from None
    elif delimiter is None and kind != "tsv":
        while len(first) <= _LOOKED_AT and sum(len(raw or b"") for *_, raw in first) < _SNIFFED_BYTES:
            if (line := next(raw_lines, None)) is None:
                break
            first.append(line)
        delimiter = _sniffed([(raw or b"").decode("utf-8", "replace") for *_, raw in first])
    return _CsvLines(path, options.encoding, chain(first, raw_lines)), delimiter or DELIMITERS[kind]


def _csv_rows(lines: _CsvLines, delimiter: str) -> Iterator[RawCells]:
    """Every row of a table, the header among them; blank lines are passed over.

    A line that is no row, for the sake of a quotation mark perhaps, takes none of the next ones with it.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.begin_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as exc:
            reason = "quotation mark that is not closed" if len(lines.row) > 1 else one_line(exc)
            if "universal-newline" in reason or "newline=''" in reason:
                reason = "lines that end in a carriage return alone"
            number, text = lines.back_to_second()
            problem = f"not valid CSV ({reason}); check the quotes, double those inside"
            if text is None:
                problem = "the line is longer than 16 MB; is this a text file?"
            cells = [] if text is None else text.rstrip("\r\n").split(delimiter)
            yield number, cells, lines.problem or f"{place(lines.path, number)}: {problem}"
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
        else:
            if cells:
                yield lines.row[0][0], cells, lines.problem


def _stated(path: Path, line: tuple[int, int, bytes | None], options: TableOptions) -> str | None:
    """The delimiter that a first line of Excel's states, such as `sep=;`; such a line is no row."""
    with suppress(TaskError):  # whoever reads it as a header says what is wrong
        stated = re.fullmatch(r"sep=(.)\s*", _decoded(path, *line, options.encoding))
        return stated and stated[1]
    return None


def _sniffed(lines: Sequence[str]) -> str:
    """What divides most rows into as many cells as the header, or alike under a title of one cell."""
    scores = {}
    for delimiter in SNIFFED:
        with suppress(csv.Error):
            width, *widths = [len(cells) for cells in csv.reader(lines, delimiter=delimiter) if cells] or [1]
            usual, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
            if width == 1:
                count *= usual > 1 and 2 * count > len(widths)
            else:
                count = widths.count(width)
            scores[delimiter] = count, width > 1, width
    return max(scores, key=scores.__getitem__, default=",")


class _CsvLines:
    """Lines as the CSV reader wants them; what is wrong with one is carried past the reader."""

    def __init__(
        self, path: Path, encoding: str | None, lines: Iterator[tuple[int, int, bytes | None]]
    ) -> None:
        self.path, self.encoding, self._lines = path, encoding, lines
        self.row: list[tuple[int, int, bytes | None]] = []  # those of the row that is read
        self._again = deque[tuple[int, int, bytes | None]]()
        self.problem: str | None = None

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        self.row.append(self._again.popleft() if self._again else next(self._lines))
        number, _, raw = self.row[-1]
        if raw is None:
            raise csv.Error("too long")
        try:
            return _decoded(self.path, *self.row[-1], self.encoding)
        except TaskError as error:
            # Carried through the reader, so that it costs its own row and no other.
            self.problem = self.problem or str(error)
            return _legible(raw, number)

    def begin_row(self) -> None:
        self.row, self.problem = [], None

    def back_to_second(self) -> tuple[int, str | None]:
        """Go on after the first line of the row that is read; its number, and what can be read of it."""
        (number, offset, raw), *others = self.row
        self._again.extendleft(reversed(others))
        self.problem = None
        if raw is None:
            return number, None
        try:
            return number, _decoded(self.path, number, offset, raw, self.encoding)
        except TaskError as error:
            self.problem = str(error)
            return number, _legible(raw, number)


def _legible(raw: bytes | None, number: int) -> str:
    """What can be read of a line with something wrong."""
    text = (raw or b"").decode("utf-8", "replace").replace("\0", "\ufffd")
    return text.removeprefix("\ufeff") if number == 1 else text


def _xlsx_rows(path: Path, handle: BinaryIO, options: TableOptions) -> Iterator[RawCells]:
    """Every row of the first sheet of a spreadsheet as texts; empty ones are passed over."""
    openpyxl = imported("openpyxl", "openpyxl, which reads XLSX,", "xlsx")
    try:
        with zipfile.ZipFile(handle) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MOST_UNPACKED:
            most = f"{MOST_UNPACKED // 2**20} MB"
            raise TaskError(f"{place(path)}: holds more than {most} when unpacked; save it as CSV")
        with warnings.catch_warnings(action="ignore"):  # of styles and of parts that it does not know
            sheets = openpyxl.load_workbook(handle, read_only=True, data_only=True).worksheets
            sheets[0].reset_dimensions()  # what it says of its size may be wrong
            rows = sheets[0].iter_rows(values_only=True)
        if len(sheets) > 1:
            options.note(f"note: reading sheet {short(sheets[0].title)}, the first of {len(sheets)}")
        for line in count(1):
            with warnings.catch_warnings(action="ignore"):
                cells = next(rows, None)
            if cells is None:
                return
            if line > MOST_ROWS or len(cells) > MOST_COLUMNS:  # empty ones, too, take their time
                most = f"{MOST_ROWS:,} rows or {MOST_COLUMNS:,} columns"
                raise TaskError(f"{place(path, line)}: more than {most}; save it as CSV")
            texts = [_cell(value) for value in cells]
            while texts and not texts[-1]:
                texts.pop()
            if texts:
                yield line, texts, None
    except TaskError:
        raise
    except Exception as error:  # its parsers raise whatever comes up
        reason = one_line(error)[:100]
        raise TaskError(f"{place(path)}: is no XLSX file ({reason}); save it as XLSX or CSV") from None


def _cell(value: object) -> str:
    """A cell of a spreadsheet as it is shown there, or nearly."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def pyarrow() -> Any:
    """The module, which comes with the extra `parquet`."""
    imported("pyarrow.parquet", "pyarrow, which reads and writes Parquet,", "parquet")
    return import_module("pyarrow")  # it has no types


def open_parquet(path: Path) -> Any:
    """A Parquet file that is read in batches."""
    pa = pyarrow()
    try:
        return pa.parquet.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise TaskError(f"{place(path)}: is no Parquet file ({one_line(error)[:200]})") from None


def parquet_batches(path: Path, file: Any) -> Iterator[Any]:
    """The rows of an open Parquet file as Arrow batches.

    Args:
        path: of the file.
        file: what `open_parquet` gave.
    """
    try:
        yield from file.iter_batches(batch_size=BATCH)
    except (pyarrow().ArrowException, OSError) as error:
        raise TaskError(f"{place(path)}: is damaged ({one_line(error)[:200]})") from None


def _parquet_rows(path: Path, file: Any) -> Iterator[RawRow]:
    numbers = count(1)
    for batch in parquet_batches(path, file):
        for row in batch.to_pylist():
            yield next(numbers), row, None


def count_rows(path: Path, kind: str, options: TableOptions = AS_IT_IS) -> int | None:
    """How many rows a file has, without looking at what is in them; None where that is not known.

    A line break within quotes begins no row of a table, and a blank line is none.

    Args:
        path: of the file.
        kind: one of the values of `ENDINGS`.
        options: how the file is written.
    """
    with opened(path) as handle:
        if kind == PARQUET:
            return int(open_parquet(path).metadata.num_rows)
        if kind == XLSX:
            return None
        is_table, quoted, rows = kind in DELIMITERS, False, 0
        for number, offset, line in _raw_lines(handle, options.encoding):
            if number == 1 and is_table and _stated(path, (number, offset, line), options):
                continue
            line = line or b"."
            quoted ^= is_table and line.count(b'"') % 2 == 1
            rows += not quoted and not line.isspace()
    return max(rows - is_table, 0)
