"""Linear discriminants: a view's second head, in closed form.

The samples of a class scatter around its mean, alike in all classes as far as a few samples can tell.
Weighing directions by that scatter makes a view with many columns usable where a trained head has too
little to learn from, and takes no training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adamab.method.blas_threads import eigen
from adamab.method.views import PreparedView, class_means, unit

Floats = NDArray[np.float32]
PROTOTYPES = 100  # percent of shrinkage from which directions count alike: cosines with the class means
LENGTH = 16.0  # of the class vectors, root mean square: the scale of a calibrator's logits


@dataclass(frozen=True)
class Measure:
    """What the shrunken scatter makes of a class mean; without variances all directions count alike."""

    directions: NDArray[np.floating]  # (r, r), one a column
    variances: NDArray[np.floating] | None  # (r,) within classes, shrunken

    def inverse(self) -> Floats | None:
        """(r, r) of the shrunken scatter."""
        if self.variances is None:
            return None
        found: Floats = ((self.directions / self.variances) @ self.directions.T).astype(np.float32)
        return found


@dataclass(frozen=True)
class LinearState:
    """Logits are `vectors` q + `bias`."""

    vectors: Floats  # (K, r)
    bias: Floats  # (K,)
    scale: float  # that brought both to the common length
    measure: Measure  # that they were made with, for a class that comes later

    def logits(self, queries: Floats) -> Floats:
        """(n, K) of prepared queries."""
        found: Floats = queries @ self.vectors.T + self.bias
        return found


def discriminants(
    prepared: PreparedView,
    class_index: NDArray[np.int64],  # (n,)
    weight: Floats,  # (n,): 0 for samples that may not be learned from
    n_classes: int,
    shrinkages: Sequence[int],  # percent
) -> dict[int, LinearState]:
    """One discriminant a shrinkage, by shrinkage.

    The scatter within classes is shrunk towards the same in all directions. Without scatter, which is
    one sample a class, only the class means are left. All have class vectors of the same length around
    their mean, so that what folds say of one scale is true of another.

    The mean of few samples is longer than the true one, in the shrunken scatter's measure by one over
    their number in each direction or more, and the bias would hold that against the class: so much is
    taken off. With as many samples of each class that changes nothing.
    """
    learned = weight > 0
    means = class_means(prepared.queries, class_index, learned, n_classes)
    counts = np.bincount(class_index[learned], minlength=n_classes)
    present = counts > 0
    values, directions = _scatter(prepared.queries, class_index, weight, means)
    turned, even = means @ directions, float(values.mean())
    noise = len(values) / np.maximum(counts, 1)
    found = {}
    for shrinkage in shrinkages:
        if shrinkage >= PROTOTYPES or even < 1e-9:
            measure = Measure(directions, None)
            vectors, bias = unit(means), np.zeros(n_classes, np.float32)
        else:
            share = shrinkage / 100
            variances = (1 - share) * values + share * even
            measure, scaled = Measure(directions, variances), turned / variances
            vectors, bias = scaled @ directions.T, 0.5 * (noise - (scaled * turned).sum(axis=1))
        found[shrinkage] = _told(vectors, bias, present, measure)
    return found


def _scatter(
    queries: Floats, class_index: NDArray[np.int64], weight: Floats, means: Floats
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Variances within classes and their directions: (r,) and (r, r)."""
    learned = weight > 0
    residuals = (queries[learned] - means[class_index[learned]]) * np.sqrt(weight[learned])[:, None]
    freedom = float(weight[learned].sum()) - len(np.unique(class_index[learned]))
    values, directions = eigen(residuals.T @ residuals / max(freedom, 1.0))
    return np.maximum(values, 0), directions


def _told(
    vectors: NDArray[np.floating], bias: NDArray[np.floating], present: NDArray[np.bool_], measure: Measure
) -> LinearState:
    """At the common length; of a class without samples nothing is said: it has the others' mean."""
    if not present.any():
        return LinearState(np.zeros_like(vectors, np.float32), np.zeros_like(bias, np.float32), 0.0, measure)
    centre = vectors[present].mean(axis=0)
    length = float(np.sqrt(np.mean(np.sum((vectors[present] - centre) ** 2, axis=1))))
    scale = LENGTH / max(length, 1e-12)
    vectors = np.where(present[:, None], vectors, centre)
    bias = np.where(present, bias, bias[present].mean())
    return LinearState(
        (scale * vectors).astype(np.float32), (scale * bias).astype(np.float32), scale, measure
    )
