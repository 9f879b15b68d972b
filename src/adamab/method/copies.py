"""Which samples repeat another: a copy in training would give a held-out sample away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024  # rows at a time
NEIGHBOURS = 3  # on the direction
ALIKE = 1e-3  # of the typical distance from the middle: what a service answers twice differs by less


def originals_of(
    vectors: NDArray[np.float32],  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,)
) -> NDArray[np.int64]:
    """(n,) one of the samples of the same class and source that a sample repeats; itself if none.

    Copies have the same projection on any direction, so only those that are near each other on a drawn one
    are compared. Of exact copies none is missed; of copies that differ a little, a few are, where a class
    has thousands of samples and others come between.
    """
    n, width = vectors.shape
    centre = np.median(vectors, axis=0).astype(np.float64) if n else 0.0  # a mean follows the longest ones
    direction = _direction(width)
    projection, distance = np.empty(n), np.empty(n)
    for rows in _blocks(n):
        centred = vectors[rows] - centre
        projection[rows], distance[rows] = centred @ direction, np.linalg.norm(centred, axis=1)
    order = np.lexsort((projection, given, class_index))
    least = ALIKE * _typical(distance)
    originals = np.arange(n)
    for step in range(1, min(NEIGHBOURS, n - 1) + 1):
        before, after = order[:-step], order[step:]
        near = (class_index[after] == class_index[before]) & (given[after] == given[before])
        for rows in _blocks(len(near)):
            apart = vectors[after[rows]].astype(np.float64) - vectors[before[rows]]
            near[rows] &= np.linalg.norm(apart, axis=1) <= least
        for i, j in zip(before[near], after[near], strict=True):  # in order, so runs are followed
            first = originals[i]  # not the neighbour: else a crowd of neighbours would be one sample
            if originals[j] == j and np.linalg.norm(vectors[j].astype(np.float64) - vectors[first]) <= least:
                originals[j] = first
    for _ in range(NEIGHBOURS):  # a first one may have found another before it
        originals = originals[originals]
    return originals


def _typical(distance: NDArray[np.float64]) -> float:
    """Of the samples from their middle. A few that are far away must not make the others look alike."""
    if not len(distance):
        return 0.0
    return float(np.median(distance)) or float(np.sqrt(np.square(distance).mean()))


def _direction(width: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal(width)


def _blocks(n: int) -> Iterator[slice]:
    """Of rows, so that no second matrix as large as the first is made."""
    return (slice(start, start + BLOCK) for start in range(0, n, BLOCK))
