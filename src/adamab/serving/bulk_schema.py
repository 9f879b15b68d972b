"""The columns of a part: the same names and types in every part, whatever a later row says.

Columns are decided once. Parquet keeps its own. Of CSV and TXT every field is a string. Of JSONL a field
is a boolean, an integer, a number or a string if it is one in all of the first rows, else JSON text.
What has no column, or does not fit its column, stands in `other_fields` as a JSON object: nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from adamab.classifier.answers import Asked
from adamab.serving.answer_rows import OURS
from adamab.serving.bulk_sources import pyarrow
from adamab.task.messages import storable

OTHER = "other_fields"
_NAMES = frozenset((*OURS, "source", "row", "error", OTHER))
_JSON = "json"  # strings as they are, everything else as JSON text
_LARGEST = 2**63


@dataclass(frozen=True)
class Columns:
    """Names and types of the input's fields; `spill` where `other_fields` is a column."""

    types: dict[str, str] = field(default_factory=dict)  # bool, int, float, string or json
    spill: bool = False

    @classmethod
    def of_objects(cls, rows: Iterable[Mapping[str, object]]) -> Columns:
        """What the first rows of JSONL say; later ones may say anything else."""
        found: dict[str, str] = {}
        for name, value in chain.from_iterable(fields.items() for fields in rows):
            if not _is_torn(name):
                found[name] = _joined(found.get(name), _type_of(value))
        return cls({name: "string" if kind == "null" else kind for name, kind in found.items()}, spill=True)

    @classmethod
    def of_texts(cls, names: Iterable[str], *, spill: bool = False) -> Columns:
        """Fields that are all strings."""
        return cls(dict.fromkeys(names, "string"), spill)

    def arrays(self, rows: Sequence[Mapping[str, object] | None]) -> dict[str, Any]:
        """A column a field, by the name that it has in the output; None is a row that could not be read."""
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
                columns[name].append(_cell(value, kind) if fits else None)
                if fits or value is None:
                    rest.pop(name, None)
            others.append(json.dumps(rest, ensure_ascii=True) if rest else None)
        made = {
            names[name]: pa.array(columns[name], types.get(kind, pa.string()))
            for name, kind in self.types.items()
        }
        return made | ({OTHER: pa.array(others, pa.string())} if self.spill else {})


def output_names(fields: Iterable[str]) -> dict[str, str]:
    """The name that each field has in the output: one that is called like one of ours is `input_NAME`."""
    taken = set(fields) | _NAMES
    found = {}
    for name in fields:
        new = name
        while new in _NAMES or (new != name and new in taken):
            new = f"input_{new}"
        taken.add(new)
        found[name] = new
    return found


def answer_types(asked: Asked) -> dict[str, Any]:
    """Our columns and their types, in order."""
    pa = pyarrow()
    found = {"class": pa.string(), "probability": pa.float64()}
    if asked.k > 1:
        found |= {"classes": pa.list_(pa.string()), "probabilities": pa.list_(pa.float64())}
    if asked.coverage is not None:
        found["set"] = pa.list_(pa.string())
    return found | {"error": pa.string()}


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
    found = _type_of(value)
    if kind == "float" and isinstance(value, int) and found == "int":
        return abs(value) <= 2**53  # larger ones would be rounded
    return kind in (_JSON, found) and not (isinstance(value, str) and _is_torn(value))


def _is_torn(text: str) -> bool:
    """Half a surrogate pair, which JSON can say and Parquet cannot."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _cell(value: object, kind: str) -> object:
    if isinstance(value, str):
        return storable(value)  # a file's name may be torn
    if kind == _JSON:
        return storable(json.dumps(value, ensure_ascii=False))
    return float(value) if kind == "float" else value  # type: ignore[arg-type]
