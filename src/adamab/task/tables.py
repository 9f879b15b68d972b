"""Data files as rows, samples and texts to classify: which column is what, and what stands in it.

Whatever the bytes are, the outcome is rows or one `TaskError` that names file and line; `scan_rows` tells
what is wrong with a row beside it and goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from adamab.errors import TaskError, place, short, suggestion
from adamab.task.images import Image
from adamab.task.spec import Sample
from adamab.task.table_files import (
    AS_IT_IS,
    ENDINGS,
    LINE,
    PARQUET,
    PLAIN,
    SNIFFED,
    RawRow,
    TableOptions,
    check_there,
    misread,
    opened,
    read_table,
)
from adamab.task.words import checked

_TEXT = ("text",)
_LABELS = ("label", "class")
# Names by which people call these columns, and by which they are recognised.
_TEXT_NAMES = ("text", "sentence", "message", "review", "content", "body", "comment", "utterance", "document")
_LABEL_NAMES = ("label", "class", "category", "intent", "target", "topic", "sentiment")
# How programs write that there is no label; NA is a country as well.
_MISSING = {"NaN", "nan", "None", "NULL", "null", "N/A", "n/a", "#N/A", "<NA>"}
_NO_TEXTS = (*_LABEL_NAMES, "id", "image", "path", "file")
_LOOKED_AT = 100  # rows that show which columns there are
_LEAST_LENGTH, _TIMES_LONGER = 8, 2  # characters of a text, and how much longer than the next column it is
_LONGEST_NAME = 40  # characters of a column's name


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a file is what, and all of them in order."""

    names: tuple[str, ...] = _TEXT
    text: str = "text"
    labels: tuple[str, ...] = _LABELS
    id: str = "id"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a data file and the line it starts on; with an error its fields are what could be read."""

    path: Path
    line: int
    fields: dict[str, object]
    error: str | None = None
    columns: Columns = Columns()

    @property
    def place(self) -> str:
        """`file:line`."""
        return place(self.path, self.line)


def read_rows(
    path: Path,
    *,
    plain_text: bool = False,
    columns: Sequence[str] = _TEXT,
    options: TableOptions = AS_IT_IS,
    labelled: bool = False,
) -> Iterator[Row]:
    """Rows of a data file, by its ending; blank lines, and rows in which every cell is empty, are skipped.

    Args:
        path: a file with one row or more.
        plain_text: also take a `.txt` file, with one text per line.
        columns: names of which one must be in a table's header, unless another is recognised.
        options: how the file is written.
        labelled: whether a column of classes is looked for.
    """
    kind, is_empty = _kind(path, plain_text), True
    with opened(path) as handle:
        for row in scan_rows(path, handle, kind, columns, options, labelled=labelled):
            if row.error is not None:
                raise TaskError(row.error)
            if len(row.fields) <= 1 or any(row.fields.values()):
                is_empty = False
                yield row
    if is_empty:
        raise TaskError(f"{place(path)}: holds no rows; add at least one")


def _kind(path: Path, plain_text: bool) -> str:
    known = {ending: kind for ending, kind in ENDINGS.items() if plain_text or kind != PLAIN}
    kind = known.get(path.suffix.lower())
    check_there(path)
    if kind is None:
        raise TaskError(
            f"{place(path)}: unknown ending {short(path.suffix)}; use one of {', '.join(sorted(known))}"
        )
    return kind


def scan_rows(
    path: Path,
    handle: BinaryIO,
    kind: str,
    columns: Sequence[str] = _TEXT,
    options: TableOptions = AS_IT_IS,
    *,
    labelled: bool = False,
) -> Iterator[Row]:
    """Every row of an open file, the broken ones among them; a table without a header is refused.

    Args:
        path: of the file, for messages.
        handle: the open file.
        kind: one of the values of `ENDINGS`.
        columns: names of which one must be in a table's header, unless another is recognised.
        options: how the file is written.
        labelled: whether a column of classes is looked for.
    """
    decided, rows = _looked_at(path, handle, kind, columns, options, labelled)
    for line, fields, problem in rows:
        if problem is not None:
            read = {decided.text if name == LINE else name: value for name, value in fields.items()}
            fields = dict.fromkeys(decided.names) | read
        yield Row(path, line, fields, problem, decided)


def read_columns(
    path: Path,
    kind: str,
    columns: Sequence[str] = _TEXT,
    options: TableOptions = AS_IT_IS,
    *,
    labelled: bool = False,
) -> Columns:
    """Which column of a file is what; it has no names where the file is empty.

    Args:
        path: of the file.
        kind: one of the values of `ENDINGS`.
        columns: names of which one must be there, unless another is recognised.
        options: how the file is written.
        labelled: whether a column of classes is looked for.
    """
    with opened(path) as handle:
        return _looked_at(path, handle, kind, columns, options, labelled)[0]


def _looked_at(
    path: Path,
    handle: BinaryIO,
    kind: str,
    wanted: Sequence[str],
    options: TableOptions,
    labelled: bool,
) -> tuple[Columns, Iterator[RawRow]]:
    """Which column is what, as the header and the first rows say, and all rows."""
    table = read_table(path, handle, kind, options)
    first, names = list(islice(table.rows, _LOOKED_AT)), table.names
    if kind == PLAIN:
        return Columns(), chain(first, table.rows)
    if names is None:  # some objects may have other fields than the first
        readable = (fields for _, fields, problem in first if problem is None)
        names = list(dict.fromkeys(chain.from_iterable(readable)))
    sample = [fields for _, fields, problem in first if problem is None and any(fields.values())]
    texts = (value for fields in sample for value in fields.values() if isinstance(value, str))
    if (text := misread(texts, options.encoding)) is not None:
        how = "leave out --encoding" if options.encoding else "save the file again from where it comes"
        options.note(
            f"warning: {place(path)}: {short(text)} looks like UTF-8 that was read as "
            f"{options.encoding or 'cp1252'}; {how}"
        )
    decided = _decide(table.where, names, sample, wanted, options, labelled, table.names is not None)
    return decided, chain(first, table.rows)


def _decide(
    where: str,
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    wanted: Sequence[str],
    options: TableOptions,
    labelled: bool,
    is_table: bool,
) -> Columns:
    """Which column is what: as the options say, as it is called, or as its rows show."""
    label = options.label_column if labelled else None
    named = {"--text-column": options.text_column, "--label-column": label, "--id-column": options.id_column}
    for option, name in named.items():
        if name is not None and names and name not in names:
            raise TaskError(f"{where}: {option}: no column {short(name)}; {suggestion(name, names)}")
    text, id_ = options.text_column, options.id_column or "id"
    if text is None:
        text = next((name for name in wanted if name in names), None)
    if text is None and "text" in wanted:
        others = [name for name in names if name not in (options.label_column, id_)]
        text = _obvious_text([name for name in others if name.casefold() not in _NO_TEXTS], rows)
        if text is not None:
            options.note(f"note: taking column {short(text)} for the texts; --text-column names another")
    if text is None and is_table:
        raise TaskError(
            f"{where}: no column {wanted[0]!r} in {short(', '.join(names))}; name the right one with "
            f"--text-column, or start with a header line such as: {wanted[0]},label"
        )
    labels = _LABELS if label is None else (label,)
    if labelled and not set(labels) & set(names):
        others = [name for name in names if name not in (text, id_)]
        known = [name for name in others if name.casefold() in _LABEL_NAMES]
        known = known or [name for name in others if _repeats(name, rows, 1 if len(others) == 1 else 2)]
        if len(known) == 1:
            labels = (known[0],)
            options.note(
                f"note: taking column {short(known[0])} for the classes; --label-column names another"
            )
    return Columns(tuple(names), text or wanted[0], labels, id_)


def _repeats(name: str, rows: Sequence[Mapping[str, object]], times: int) -> bool:
    """Whether a column may name classes: each stands there so often on average, and one more than once."""
    values = [str(value) for row in rows if (value := row.get(name)) not in (None, "")]
    is_full = len(values) == len(rows) or times == 1
    return is_full and 1 < len(set(values)) <= len(values) / times and len(set(values)) < len(values)


def _obvious_text(names: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str | None:
    """The one column that is called like a text, else the one that is much longer than all others."""
    known = [name for name in names if name.casefold() in _TEXT_NAMES]
    if len(known) == 1:
        return known[0]
    lengths: Counter[str] = Counter()
    for row in rows:
        lengths.update({name: len(text) for name in names if isinstance(text := row.get(name), str)})
    (name, longest), (_, next_one) = [*lengths.most_common(2), ("", 0), ("", 0)][:2]
    is_text = longest >= _LEAST_LENGTH * len(rows) and longest >= _TIMES_LONGER * next_one
    # A cell that is long, or is not divided as it should be, shows that the first line is no header.
    is_name = 0 < len(name) <= _LONGEST_NAME and len(name.split()) < 5 and not set(name) & set(SNIFFED)
    return name if is_text and is_name else None


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text or image to classify, with every field of its row and the line it starts on."""

    text: str
    fields: dict[str, object]
    line: int
    id: str | None = None
    image: Image | None = None


def read_samples(
    path: str | PathLike[str],
    class_names: Collection[str] | None = None,
    options: TableOptions = AS_IT_IS,
) -> list[Sample]:
    """Samples of a data file with `text`, `label` (or `class`) and perhaps `id`.

    Args:
        path: the file; rows are kept as they are, repeats included.
        class_names: those that are allowed; None allows all.
        options: how the file is written.
    """
    return [sample for _, sample in placed_samples(Path(path), class_names, options)]


def read_texts(path: str | PathLike[str], options: TableOptions = AS_IT_IS) -> Iterator[TextRow]:
    """Texts of a data file with `text` and perhaps `id`, or a `.txt` file with one per line.

    A stream: the file is never in memory as a whole. Blank lines are skipped.

    Args:
        path: the file.
        options: how it is written.
    """
    return map(text_row, read_rows(Path(path), plain_text=True, options=options))


def text_row(row: Row) -> TextRow:
    """A row as a text to classify; raises `TaskError` where it holds none."""
    return TextRow(_text(row), row.fields, row.line, id_of(row))


def placed_samples(
    path: Path, class_names: Collection[str] | None, options: TableOptions = AS_IT_IS
) -> Iterator[tuple[str, Sample]]:
    """Samples of a data file, each with its `file:line`.

    Args:
        path: of the file.
        class_names: those that are allowed; None allows all.
        options: how the file is written.
    """
    known = None if class_names is None else frozenset(class_names)
    for row in read_rows(path, options=options, labelled=True):
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
    keys = [key for key in row.columns.labels if key in row.fields]
    if not keys:
        raise TaskError(
            f"{row.place}: no 'label' (or 'class') in {short(', '.join(row.fields), 60)}; add it, or say "
            "with --label-column which column has the classes"
        )
    if len(keys) > 1:
        raise TaskError(f"{row.place}: both 'label' and 'class' are there; choose one with --label-column")
    value = row.fields[keys[0]]
    if isinstance(value, list):
        raise TaskError(
            f"{row.place}: '{keys[0]}' is {short(value)}; a text has one class, so write its name"
        )
    if isinstance(value, float) and value.is_integer():  # pandas makes them where some are missing
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    name = string_of(row, keys[0])
    if name in _MISSING:
        raise TaskError(
            f"{row.place}: '{keys[0]}' is {short(name)}, as programs write a missing one; remove the row, or "
            "rename the class"
        )
    return name


def _text(row: Row) -> str:
    name = row.columns.text
    if name not in row.fields:
        keys = suggestion(name, row.fields) if row.fields else "the object is empty"
        raise TaskError(f"{row.place}: no {name!r} in the row ({keys}); add it")
    return string_of(row, name)


def string_of(row: Row, key: str) -> str:
    """A field that must be a text."""
    value = row.fields[key]
    if value is None or value != value:  # NaN
        raise TaskError(f"{row.place}: '{key}' is empty; put a text there or remove the row")
    if not isinstance(value, str):
        kind = ENDINGS.get(row.path.suffix.lower())
        remedy = "save the column as texts" if kind == PARQUET else "put it in double quotes"
        raise TaskError(f"{row.place}: '{key}' is {short(value)}, not a text; {remedy}")
    return checked(value, row.place, f"'{key}'")


def id_of(row: Row) -> str | None:
    """The id of a row, if it has one."""
    key = row.columns.id
    value = row.fields.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TaskError(f"{row.place}: '{key}' is {short(value)}; write a text or a whole number")
    return checked(str(value), row.place, f"'{key}'")
