"""How different the samples of a class are from each other, given against synthetic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Diversity(NamedTuple):
    """Mean pairwise cosine distance within one class; None below two samples.

    Synthetic samples far below the given ones are a generator that repeats itself.
    """

    given: float | None
    synthetic: float | None


def diversity(
    pooled: NDArray[np.float32],  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,)
    n_classes: int,
) -> list[Diversity]:
    """The figure of each class. A vector of zeros has no direction and counts as no sample.

    Example:
        >>> x = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
        >>> diversity(x, np.array([0, 0, 0]), np.array([True, True, False]), 1)
        [Diversity(given=1.0, synthetic=None)]
    """
    return [
        Diversity(
            given=mean_distance(pooled[(class_index == c) & given]),
            synthetic=mean_distance(pooled[(class_index == c) & ~given]),
        )
        for c in range(n_classes)
    ]


def mean_distance(vectors: NDArray[np.float32]) -> float | None:  # (n, d)
    """1 - (|Σu|² - n) / (n (n - 1)) with the unit vectors u: all pairs in O(nd), since |Σu|² is their sum."""
    exact = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", exact, exact))
    units = exact[lengths > 0] / lengths[lengths > 0, None]
    n = len(units)
    if n < 2:
        return None
    total = units.sum(axis=0)
    cosine = (float(total @ total) - n) / (n * (n - 1))
    return min(max(1.0 - cosine, 0.0), 2.0)  # rounding
