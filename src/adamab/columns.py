"""What people pass as X and y: lists, arrays, Series and one-column tables of any library, as plain lists."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from difflib import get_close_matches
from numbers import Number
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from adamab.errors import TaskError, one_line, short
from adamab.task.image_folders import image_at
from adamab.task.spec import Modality, Sample, check_reserved
from adamab.task.words import checked

Column: TypeAlias = Any  # what `column` reads
_ONE_LABEL = ": a sample has one label here, and where several are true at once, fit one classifier per label"


def column(values: Column, name: str) -> list[Any]:
    """The values of one column, in order.

    Tables are known by their column names: `columns` in pandas and polars, `column_names` in pyarrow and
    datasets. A table of several columns is refused, since its names would be taken for its rows.

    Args:
        values: a list, an array, a Series, or a table with one column.
        name: X or y, for messages.
    """
    names = getattr(values, "column_names", None)
    names = getattr(values, "columns", None) if names is None else names
    if names is not None:
        names = list(names)
        if len(names) != 1:
            listed = ", ".join(one_line(repr(each)) for each in names[:5])
            more = ", …" if len(names) > 5 else ""
            example = one_line(f"{name}[{names[0]!r}]") if names else "a list"
            raise TaskError(
                f"{name} is a table of {len(names)} columns ({listed}{more}); give one, such as {example}"
                f"{_ONE_LABEL if name == 'y' else ''}"
            )
        values = values[names[0]]
    if hasattr(values, "__array__") and not isinstance(values, Iterable):
        values = np.asarray(values)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        if values.ndim != 2 or values.shape[1] != 1:
            several = _ONE_LABEL if name == "y" else ""
            raise TaskError(f"{name} is an array of shape {values.shape}; give one column{several}")
        values = values[:, 0]
    if isinstance(values, str | bytes | PathLike | Mapping | Set) or not isinstance(values, Iterable):
        raise TaskError(f"{name} is of type {type(values).__name__}; give a list, an array or a Series")
    # pyarrow's values are wrapped one by one unless it is asked for Python's.
    return list(values.to_pylist() if hasattr(values, "to_pylist") else values)


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, and what pandas writes for them."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def samples_of(texts: Column, modality: Modality, name: str = "X") -> list[Sample]:
    """Texts or paths of images as samples without a label, checked; `name` is that of the argument."""
    if modality not in ("text", "image"):
        raise TaskError(f"modality is {short(modality)}; use 'text' or 'image'")
    items = column(texts, name)
    for i, item in enumerate(items):
        if is_missing(item):
            raise TaskError(f"{name}[{i}] is missing ({item}); fill it in or leave the row out")
        if not isinstance(item, str) and (modality == "text" or not isinstance(item, PathLike)):
            wanted = "a text" if modality == "text" else "the path of an image"
            raise TaskError(f"{name}[{i}] is {type(item).__name__}, not {wanted}; give a list of {modality}s")
        if modality == "text":
            checked(str(item), f"{name}[{i}]", "the text")
    if modality == "text":
        return [Sample(str(item), "") for item in items]
    return [Sample.of_image(image_at(Path(item)), "") for item in items]


def labels_of(y: Column, descriptions: Any = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The label of each sample, and the classes: these labels and those that are only described.

    Args:
        y: the label of each sample.
        descriptions: sentences by label, or None.

    Returns:
        (n,) labels and (K,) sorted classes, all of one type.
    """
    if not isinstance(descriptions, Mapping | None):
        kind = type(descriptions).__name__
        raise TaskError(f"descriptions is of type {kind}; give a mapping from labels to sentences")
    labels = column(y, "y")
    size, kinds = len(labels), {_kind_of(label, f"y[{i}]"): label for i, label in enumerate(labels)}
    present = set(labels)
    bare = [label for label in present - set(descriptions or ()) if isinstance(label, str)]
    for label in descriptions or ():
        kinds[_kind_of(label, "a label in descriptions")] = label
        if label not in present:
            if isinstance(label, str) and (near := get_close_matches(label, bare, n=1)):
                raise TaskError(
                    f"no sample has the label {label!r} of descriptions; did you mean {near[0]!r}? "
                    "If both are meant, describe both"
                )
            labels.append(label)
    if len(kinds) > 1:
        listed = " and ".join(repr(label) for label in kinds.values())
        raise TaskError(f"y has labels of several types, such as {one_line(listed)}; give labels of one type")
    array = np.array(labels)
    with warnings.catch_warnings():
        # With one or two samples per class, which is what this is for, it asks whether numbers are meant.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        check_classification_targets(array)
    return array[:size], np.unique(array)


def _kind_of(label: Any, where: str) -> str:
    """What a label is: `str`, `number` or another type; refused where it is none or several."""
    if is_missing(label):
        raise TaskError(f"{where} is {label}; give every sample a label or leave it out")
    if isinstance(label, str):
        return "str"
    if isinstance(label, Number | np.bool_):
        return "number"
    if isinstance(label, Sequence | np.ndarray) or not isinstance(label, Hashable):
        raise TaskError(f"{where} is of type {type(label).__name__}; give a string or a number{_ONE_LABEL}")
    return type(label).__name__


def new_label(label: Any, known: NDArray[Any]) -> NDArray[Any]:  # (1,)
    """A label that comes later, of the type of the others."""
    if is_missing(label):
        raise TaskError(f"the label is {label}; name the new class")
    new = np.array([label], dtype=object if known.dtype == object else None)
    if new.shape != (1,) or new.dtype.kind != known.dtype.kind:
        raise TaskError(
            f"label {label!r} is of type {type(label).__name__}, and the others are of {known.dtype}; "
            "give one of their type"
        )
    check_reserved(str(label))
    return new
