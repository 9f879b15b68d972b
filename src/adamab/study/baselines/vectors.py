"""What the baselines on vectors share: unit rows, and choosing a setting by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from adamab.study.baselines.base import Floats

Ints = NDArray[np.int64]
Setting = TypeVar("Setting")
FOLDS = 5


def unit(x: Floats) -> NDArray[np.float64]:
    """Rows of length one; a row of zeros stays what it is."""
    rows = np.asarray(x, dtype=np.float64)
    units: NDArray[np.float64] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return units


def in_columns(
    known: NDArray[np.floating], columns: Ints, n_classes: int, empty: float = 0.0
) -> NDArray[np.float64]:
    """(n, K) with `known` in its columns; a class without samples keeps its own, at `empty`."""
    all_columns = np.full((len(known), n_classes), empty)
    all_columns[:, columns] = known
    return all_columns


def folds(y: Ints, random_state: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows to learn from and rows to score, five times or less; none where a class has one sample."""
    from sklearn.model_selection import StratifiedKFold

    if len(y) == 0:
        return []
    smallest = int(np.unique(y, return_counts=True)[1].min())
    if smallest < 2:
        return []
    split = StratifiedKFold(min(FOLDS, smallest), shuffle=True, random_state=random_state)
    return list(split.split(y, y))


def best(
    settings: Iterable[Setting], accuracy: Callable[[Setting], float], distance: Callable[[Setting], float]
) -> Setting:
    """The setting of the highest accuracy; of equals the one at the least distance from the default."""
    scores = {setting: round(accuracy(setting), 9) for setting in settings}
    return max(scores, key=lambda setting: (scores[setting], -distance(setting)))


def accuracies(
    y: Ints, splits: Iterable[tuple[NDArray[np.intp], NDArray[np.intp]]], predict: Callable[..., Ints]
) -> Iterator[float]:
    """The accuracy on each fold of `predict(learned_from, scored)`."""
    for learned_from, scored in splits:
        yield float((predict(learned_from, scored) == y[scored]).mean())
