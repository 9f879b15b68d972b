"""Rows of data files as samples of known classes and as texts to classify."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from adamab.errors import TaskError
from adamab.task.files import Row, read_rows, read_stream
from adamab.task.images import Image
from adamab.task.messages import checked, short, suggestion
from adamab.task.spec import Sample

_CLASS_KEYS = ("label", "class")


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text or picture to classify, with every field of its row and the line it starts on."""

    text: str
    fields: dict[str, object]
    line: int
    id: str | None = None
    image: Image | None = None


def read_samples(path: str | PathLike[str], class_names: Collection[str] | None = None) -> list[Sample]:
    """Samples of a JSONL, CSV or TSV file with `text`, `label` (or `class`) and perhaps `id`.

    Rows are kept as they are, repeats included; with `class_names` a row of another class is refused.
    """
    return [sample for _, sample in placed_samples(Path(path), class_names)]


def read_texts(path: str | PathLike[str], *, kind: str | None = None) -> Iterator[TextRow]:
    """Texts of a JSONL, CSV or TSV file with `text` and perhaps `id`, or a `.txt` file with one a line.

    `kind` (csv, tsv, jsonl, txt) takes the place of the file's ending. A stream: the file is never in
    memory as a whole. Blank lines are skipped.
    """
    for row in read_rows(Path(path), plain_text=True, kind=kind):
        yield text_row(row)


def read_text_stream(handle: BinaryIO, name: str, kind: str) -> Iterator[TextRow]:
    """The same of an open stream such as stdin; messages call it `name`."""
    for row in read_stream(handle, name, kind):
        yield text_row(row)


def text_row(row: Row) -> TextRow:
    """A row as a text to classify; raises `TaskError` where it holds none."""
    return TextRow(_text(row), row.fields, row.line, id_of(row))


def placed_samples(path: Path, class_names: Collection[str] | None) -> Iterator[tuple[str, Sample]]:
    """Samples of a data file, each with its `file:line`."""
    known = None if class_names is None else frozenset(class_names)
    for row in read_rows(path):
        class_name = class_name_of(row)
        if known is not None and class_name not in known:
            raise unknown_class(row.place, class_name, class_names or ())
        yield row.place, Sample(_text(row), class_name, id=id_of(row))


def unknown_class(where: str, class_name: str, known: Collection[str]) -> TaskError:
    """The error for an example of a class that the task does not list."""
    return TaskError(
        f"{where}: example of unknown class {short(class_name)}; {suggestion(class_name, known)}"
    )


def class_name_of(row: Row) -> str:
    """The class that a row names."""
    found = [key for key in _CLASS_KEYS if key in row.fields]
    if not found:
        raise TaskError(f"{row.place}: no 'label' (or 'class') beside the text; name the class of each row")
    if len(found) > 1:
        raise TaskError(f"{row.place}: both 'label' and 'class' are there; keep one")
    return string_of(row, found[0])


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
