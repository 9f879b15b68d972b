"""What a classifier may consist of; every refusal is a one-line `ValueError`.

The same checks guard a classifier that training has just built and one that comes from a file.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from adamab.task.messages import short

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

_DEEPEST = 32  # far from Python's recursion limit, wherever the data are walked again


def check_text(value: object, what: str, *, empty: bool = False) -> None:
    """Refuse what is not a text, is empty, or could not be written as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is of type {type(value).__name__}, not a text")
    if not value and not empty:
        raise ValueError(f"{what} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} {short(value)} holds half a character") from None


def check_classes(classes: object) -> None:
    """At least two different names."""
    if not isinstance(classes, tuple) or len(classes) < 2:
        raise ValueError("two or more classes are needed")
    for name in classes:
        check_text(name, "a class name")
    if len(set(classes)) < len(classes):
        twice, _ = Counter(classes).most_common(1)[0]
        raise ValueError(f"class {short(twice)} stands there twice")


def check_array(array: object, what: str, dimensions: int) -> None:
    """A float32 array without an empty dimension, all values finite."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{what} is of type {type(array).__name__}, not an array")
    if array.dtype != np.float32:
        raise ValueError(f"{what} has dtype {array.dtype}, not float32")
    if array.ndim != dimensions or 0 in array.shape:
        raise ValueError(f"{what} has shape {array.shape}; {dimensions} dimension(s), none empty, are needed")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} holds a value that is not finite")


def check_width(what: str, width: int, needed: int) -> None:
    """Two arrays that are multiplied must fit."""
    if width != needed:
        raise ValueError(f"{what} is {width} wide where {needed} is needed")


def check_metadata(metadata: object) -> None:
    """Only what JSON can say: texts, finite numbers, true, false, null, and dicts and lists of them."""
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata are of type {type(metadata).__name__}, not a dict")
    _check_plain(metadata, "metadata", 0)


def _check_plain(value: object, where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"metadata are nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            check_text(key, f"a key in {where}", empty=True)
            _check_plain(item, f"{where}.{key}" if depth == 0 else where, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, where, depth + 1)
    elif isinstance(value, str):
        check_text(value, where, empty=True)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} holds {value}, which JSON cannot say")
    elif not (value is None or isinstance(value, bool | int | float)):
        raise ValueError(f"{where} holds a {type(value).__name__}, which JSON cannot say")
