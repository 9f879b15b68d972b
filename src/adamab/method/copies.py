"""Which samples repeat another: a copy in training would give a held-out sample away."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024  # rows at a time
ALIKE = 1e-3  # of the typical distance from the mean: what a service answers twice differs by less


def originals_of(
    vectors: NDArray[np.float32],  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,)
) -> NDArray[np.int64]:
    """(n,) one of the samples of the same class and source that a sample repeats; itself if none.

    Copies have the same projection on any direction, so only neighbours on one need to be compared: a drawn
    one, on which samples that differ hardly ever meet.
    """
    n, width = vectors.shape
    centre, direction = vectors.mean(axis=0, dtype=np.float64) if n else 0.0, _direction(width)
    projection, squares = np.empty(n), 0.0
    for rows in _blocks(n):
        centred = vectors[rows] - centre
        projection[rows], squares = centred @ direction, squares + float(np.square(centred).sum())
    order = np.lexsort((projection, given, class_index))
    after, before = order[1:], order[:-1]
    apart = (class_index[after] != class_index[before]) | (given[after] != given[before])
    least = ALIKE * math.sqrt(squares / max(n, 1))
    for rows in _blocks(len(apart)):
        steps = vectors[after[rows]].astype(np.float64) - vectors[before[rows]]
        apart[rows] |= np.linalg.norm(steps, axis=1) > least
    originals = np.arange(n)
    for i, j in zip(before[~apart], after[~apart], strict=True):  # in order, so runs are followed
        first = originals[i]  # not the neighbour: else a crowd of neighbours would be one sample
        if np.linalg.norm(vectors[j].astype(np.float64) - vectors[first]) <= least:
            originals[j] = first
    return originals


def _direction(width: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal(width)


def _blocks(n: int) -> Iterator[slice]:
    """Of rows, so that no second matrix as large as the first is made."""
    return (slice(start, start + BLOCK) for start in range(0, n, BLOCK))
