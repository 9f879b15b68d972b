"""How predictions are written: rows of JSONL, CSV and TSV, and the columns of Parquet.

The columns of tables and of Parquet parts are decided once, by headers or the first rows, whatever a later
row says. Parquet keeps its own. Of CSV and TXT every field is a string. Of JSONL a field is a boolean, an
integer, a number or a string if it is one in all of the first rows, else JSON text. What has no column, or
does not fit its column, stands in `other_fields` as a JSON object: nothing is lost.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import os
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from adamab.errors import TaskError, place, short, storable
from adamab.model.classifier import UNKNOWN, PredictOptions
from adamab.task.images import is_url
from adamab.task.table_files import DELIMITERS, PARQUET, pyarrow

if TYPE_CHECKING:
    from adamab.model import Answers

PARTS = "parts"  # a folder of Parquet files
OTHER = "other_fields"
OURS = ("class", "probability", "classes", "probabilities", "set", "error")
PARQUET_NAMES = (*OURS, "source", "row", OTHER)
_KINDS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": PARQUET}
_JSON = "json"  # strings as they are, everything else as JSON text
_LARGEST = 2**63
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")


def output_kind(source: str, output: Path | None, *, as_json: bool) -> str:
    """How predictions are written.

    Args:
        source: the input, which must not be the output.
        output: a file or a folder; None is stdout.
        as_json: whether stdout is JSONL instead of CSV.

    Returns:
        `csv`, `tsv`, `jsonl` or `parquet` by the ending, `parts` for a folder.
    """
    if output is None or is_special(output):
        return "jsonl" if as_json else "csv"
    if output.exists() and os.path.exists(source) and os.path.samefile(source, output):
        raise TaskError(f"{place(output)}: is the input as well; name another file for the output")
    if is_url(output):
        raise TaskError(f"{place(output)}: is a web address; name a file of this machine for the output")
    kind = PARTS if output.is_dir() or not output.suffix else _KINDS.get(output.suffix.lower())
    if kind is None:
        raise TaskError(
            f"{place(output)}: unknown ending {short(output.suffix)}; use one of {', '.join(_KINDS)}, "
            "or a folder, which has none"
        )
    if as_json and kind in DELIMITERS:
        raise TaskError(f"{place(output)}: --json does not go with this ending; use .jsonl, or leave it out")
    return kind


def is_special(path: Path) -> bool:
    """A device or a pipe: written to, never replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def answer_rows(names: Sequence[str], answers: Answers, k: int) -> list[dict[str, Any]]:
    """Our fields of each row; an unknown input keeps the probability of the class it is nearest to.

    Args:
        names: of the classes.
        answers: of a classifier.
        k: classes per row.

    Returns:
        A row of fields per answer.
    """
    rows = []
    for number, (indices, shares) in enumerate(
        zip(answers.indices.tolist(), answers.probabilities.tolist(), strict=True)
    ):
        classes = [names[index] for index in indices]
        rounded = [round(share, 6) for share in shares]
        unknown = answers.unknown is not None and bool(answers.unknown[number])
        row: dict[str, Any] = {"class": UNKNOWN if unknown else classes[0], "probability": rounded[0]}
        if k > 1:
            row |= {"classes": classes, "probabilities": rounded}
        if answers.sets is not None:
            row["set"] = [names[index] for index in answers.sets[number]]
        rows.append(row)
    return rows


def output_names(fields: Iterable[str], ours: Collection[str] = PARQUET_NAMES) -> dict[str, str]:
    """The name that each field has in the output: one that is called like one of ours is `input_NAME`.

    Args:
        fields: names in the input.
        ours: names that predictions use.

    Returns:
        New name by old name.
    """
    fields = list(fields)
    taken = {*fields, *ours}
    names = {}
    for name in fields:
        new = name
        while new in ours or (new != name and new in taken):
            new = f"input_{new}"
        taken.add(new)
        names[name] = new
    return names


def output_row(fields: Mapping[str, object], answer: Mapping[str, Any]) -> dict[str, Any]:
    """A row of JSONL, CSV or TSV.

    Args:
        fields: of the input.
        answer: our fields.

    Returns:
        The input's fields, then ours.
    """
    names = output_names(fields, (*OURS, OTHER))
    return {**{names[name]: value for name, value in fields.items()}, **answer}


def row_writer(
    kind: str, stream: BinaryIO, first: Iterable[Mapping[str, Any]], *, spill: bool
) -> Callable[[Mapping[str, Any]], None]:
    """Writes rows to an open file; of a table the first rows decide the columns.

    Args:
        kind: csv, tsv or jsonl.
        stream: the file.
        first: the first rows, which are not written here.
        spill: whether later rows may have other fields, which then go into `other_fields`.

    Returns:
        A function that writes one row.
    """
    text = codecs.getwriter("utf-8")(stream, "backslashreplace")
    if kind not in DELIMITERS:
        return lambda row: text.write(to_json(row) + "\n")
    writer = csv.writer(text, delimiter=DELIMITERS[kind], lineterminator="\n")
    names = dict.fromkeys(chain.from_iterable(first))
    fields = [name for name in names if name not in OURS]
    columns = [*fields, *[OTHER] * spill, *(name for name in names if name in OURS)]
    writer.writerow(map(no_formula, columns))

    def write(row: Mapping[str, Any]) -> None:
        others = {name: value for name, value in row.items() if name not in names}
        row = {**row, OTHER: others or None}
        writer.writerow([_cell(row.get(name)) for name in columns])

    return write


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return json.dumps(value)  # a cell may say NaN
    return no_formula(value) if isinstance(value, str) else to_json(value)


def no_formula(text: str) -> str:
    """A cell of CSV that no spreadsheet takes for a formula: what begins like one follows an apostrophe.

    Example:
        >>> no_formula("=1+1"), no_formula("-3.50"), no_formula("a=b")
        ("'=1+1", '-3.50', 'a=b')
    """
    is_formula = text.startswith(("=", "+", "-", "@", "\t", "\r")) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def to_json(value: object) -> str:
    """JSON, with null for numbers that it has no word for; Parquet may hold them."""
    return json.dumps(_finite(value), ensure_ascii=False, default=plain_value)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def plain_value(value: object) -> str:
    """Of Parquet: bytes as Base64, dates and decimals as they are written."""
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class Columns:
    """Names and types of the input's fields in Parquet; `spill` where `other_fields` is a column."""

    types: dict[str, str] = field(default_factory=dict)  # bool, int, float, string or json
    spill: bool = False

    @classmethod
    def of_objects(cls, rows: Iterable[Mapping[str, object]]) -> Columns:
        """What the first rows of JSONL say; later ones may say anything else."""
        types: dict[str, str] = {}
        for name, value in chain.from_iterable(fields.items() for fields in rows):
            if not _is_torn(name):
                types[name] = _joined(types.get(name), _type_of(value))
        return cls({name: "string" if kind == "null" else kind for name, kind in types.items()}, spill=True)

    @classmethod
    def of_texts(cls, names: Iterable[str], *, spill: bool = False) -> Columns:
        """Fields that are all strings.

        Args:
            names: what they are called.
            spill: whether rows may have other fields, which then go into `other_fields`.
        """
        return cls(dict.fromkeys(names, "string"), spill)

    def arrays(self, rows: Sequence[Mapping[str, object] | None]) -> dict[str, Any]:
        """A column per field, by the name that it has in the output; None is a row that could not be read."""
        pa = pyarrow()
        names = output_names(self.types)
        types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
        columns: dict[str, list[Any]] = {name: [] for name in self.types}
        others: list[str | None] = []
        for fields in rows:
            rest = dict(fields or {})
            for name, kind in self.types.items():
                value = rest.get(name)
                fits = value is not None and (_fits(value, kind) or not self.spill)
                columns[name].append(_typed(value, kind) if fits else None)
                if fits or value is None:
                    rest.pop(name, None)
            others.append(json.dumps(rest, ensure_ascii=True) if rest else None)
        arrays = {
            names[name]: pa.array(columns[name], types.get(kind, pa.string()))
            for name, kind in self.types.items()
        }
        return arrays | ({OTHER: pa.array(others, pa.string())} if self.spill else {})


def answer_names(options: PredictOptions) -> list[str]:
    """Our fields of a row, in order."""
    left_out = [] if options.k > 1 else ["classes", "probabilities"]
    return [name for name in OURS if name not in (*left_out, "set" if options.coverage is None else "")]


def answer_arrays(options: PredictOptions, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Our columns of Parquet, in order.

    Args:
        options: what was asked for.
        answers: our fields of each row.

    Returns:
        An Arrow array per column.
    """
    pa = pyarrow()
    names, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    types = {"probability": pa.float64(), "classes": names, "probabilities": numbers, "set": names}
    return {
        name: pa.array([row[name] for row in answers], types.get(name, pa.string()))
        for name in answer_names(options)
    }


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int" if -_LARGEST <= value < _LARGEST else _JSON
        case float():
            return "float"
        case str():
            return "string"
    return _JSON


def _joined(before: str | None, now: str) -> str:
    if before in (None, "null", now):
        return now
    if now == "null":
        return str(before)
    return "float" if {before, now} == {"int", "float"} else _JSON


def _fits(value: object, kind: str) -> bool:
    own = _type_of(value)
    if kind == "float" and isinstance(value, int) and own == "int":
        return abs(value) <= 2**53  # larger ones would be rounded
    return kind in (_JSON, own) and not (isinstance(value, str) and _is_torn(value))


def _is_torn(text: str) -> bool:
    """Half a surrogate pair, which JSON can say and Parquet cannot."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _typed(value: object, kind: str) -> object:
    if isinstance(value, str):
        return storable(value)  # a file's name may be torn
    if kind == _JSON:
        return storable(json.dumps(value, ensure_ascii=False))
    return float(value) if kind == "float" else value  # type: ignore[arg-type]
