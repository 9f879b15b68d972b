"""Vectors of every picture of a data set, computed once and stored as `mobilenetv2.npz`.

The file holds `X` (n, d), `y` (n,) the classes as numbers, `split` (n,) and `labels` (K,) their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.study.datasets.base import data_directory as data_directory
from adamab.task.messages import place, short

FOLDERS = {"pets": "oxford_pets", "flowers102": "flowers102", "cub200": "cub200"}
FILE = "mobilenetv2.npz"
_ARRAYS = ("X", "y", "split", "labels")
_BLOCK = 1024
# Of ten thousand pairs of one class at most two or three exceed it, and these are copies.
TWIN = 0.97


@dataclass(frozen=True)
class ImageFeatures:
    """All pictures of a set, and which of them are for testing."""

    name: str
    vectors: NDArray[np.float32]  # (n, d)
    class_index: NDArray[np.int64]  # (n,)
    is_test: NDArray[np.bool_]  # (n,) by the official split
    class_names: tuple[str, ...]

    @cached_property
    def twins_of_test(self) -> NDArray[np.bool_]:
        """(n,) training pictures whose cosine with a test picture is at least `TWIN`.

        The sets hold some pictures twice, on both sides of the official split.
        """
        units = self.vectors / np.maximum(np.linalg.norm(self.vectors, axis=1, keepdims=True), 1e-12)
        tests, found = units[self.is_test], np.zeros(len(units), dtype=np.bool_)
        training = np.flatnonzero(~self.is_test)
        for start in range(0, len(training), _BLOCK):
            rows = training[start : start + _BLOCK]
            found[rows] = (units[rows] @ tests.T >= TWIN).any(axis=1)
        return found


def features_file(name: str, directory: Path) -> Path:
    """Where the vectors of a data set are."""
    return directory / FOLDERS[name] / FILE


def load_features(name: str, directory: Path) -> ImageFeatures:
    """The vectors of data set `name` below `directory`."""
    path = features_file(name, directory)
    arrays = _arrays(path)
    vectors = arrays["X"].astype(np.float32)
    index, split, labels = arrays["y"].astype(np.int64), arrays["split"], arrays["labels"]
    if vectors.ndim != 2 or not len(vectors) == len(index) == len(split):
        raise TaskError(f"{place(path)}: X, y and split are not of one length; get the file again")
    if not np.isfinite(vectors).all() or index.min() < 0 or index.max() >= len(labels):
        raise TaskError(f"{place(path)}: a vector is not finite or a class has no name; get the file again")
    is_test: NDArray[np.bool_] = split == "test"
    return ImageFeatures(name, vectors, index, is_test, tuple(str(label) for label in labels))


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in _ARRAYS}
    except FileNotFoundError:
        raise TaskError(f"{place(path)}: no such file; name the folder of data sets with --data") from None
    except KeyError as error:
        missing = next((key for key in _ARRAYS if key in str(error)), "")
        raise TaskError(f"{place(path)}: lacks the array {short(missing)}; get the file again") from None
    except Exception as error:  # a damaged archive fails in many ways
        raise TaskError(f"{place(path)}: cannot be read ({type(error).__name__}); get it again") from None
