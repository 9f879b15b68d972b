"""Linear discriminants: a view's second head, in closed form.

The samples of a class scatter around its mean, alike in all classes as far as a few samples can tell.
Weighing directions by that scatter makes a view with many columns usable where a trained head has too
little to learn from, and takes no training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adamab.method.blas_threads import eigen
from adamab.method.views import PreparedView, class_means, unit

Floats = NDArray[np.float32]
PROTOTYPES = 100  # percent of shrinkage from which directions count alike: cosines with the class means
LENGTH = 16.0  # of the class vectors, root mean square: the scale of a calibrator's logits

# For one sample a class, chosen on pictures of 37 to 200 classes (results/quality-story.md). The ridge counts
# in squared lengths of a sample: with a handful of classes it leaves nearly a cosine. So do the neighbours:
# of eleven classes or fewer they are all others, whose mean is about the same for each.
LONE_RIDGE = 20.0
CROWDING = 0.5  # share of the neighbours' mean score that is taken off
NEIGHBOURS = 10
LEAST_SQUARE = 0.05  # of the mean of all classes: what noise leaves of the length of a mean at least
# Power of what brings squared lengths to the middle, for the vectors themselves: half of the way, 0.5 being
# all of it and 0 none. Both lose on development parts: 0.5 up to 2 points on pictures, 0 up to 1 on TREC.
SHORTENED = 0.25
CROWD_BLOCK = 4_000_000  # logits that are looked at in one go


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
class Lengths:
    """Squared length that the mean of n samples has on average: a true one, and noise over n."""

    middle: float  # of all classes
    noise: float
    inverse: float  # mean of 1 / n over the classes
    least: float  # the smallest and the largest 1 / n that this was learned from
    most: float

    @classmethod
    def of(cls, squares: NDArray[np.floating], counts: NDArray[np.int64], noise: float) -> Lengths:
        """Of classes with these squared lengths, where the length of one sample has so much noise."""
        inverse = 1 / counts
        middle, mean, least = float(squares.mean()), float(inverse.mean()), float(inverse.min())
        most_noise = (1 - LEAST_SQUARE) * middle / (mean - least)  # or nothing would be left of some mean
        return cls(middle, min(noise, most_noise), mean, least, float(inverse.max()))

    def shrinking(self, n: NDArray[np.int64]) -> NDArray[np.floating]:
        """What brings squared lengths of means of n samples to the middle."""
        inverse = np.clip(1 / n, self.least, self.most)
        found: NDArray[np.floating] = self.middle / (self.middle + self.noise * (inverse - self.inverse))
        return found


@dataclass(frozen=True)
class LinearState:
    """Logits are `vectors` q + `bias`."""

    vectors: Floats  # (K, r)
    bias: Floats  # (K,)
    scale: float  # that brought both to the common length
    measure: Measure  # that they were made with, for a class that comes later
    lengths: Lengths | None = None  # the same; None where all classes had as many samples

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

    The mean of few samples is longer than the true one, and the bias would hold that against the class:
    there the means have the length that classes have on average (`Lengths`). That does not go by the
    lengths of classes with many and few samples: a bandit asks for more samples of difficult classes, whose
    means are shorter. With as many samples of each class it changes nothing.
    """
    learned = weight > 0
    means = class_means(prepared.queries, class_index, learned, n_classes)
    counts = np.bincount(class_index[learned], minlength=n_classes)
    present = counts > 0
    scatter = _Scatter.of(prepared.queries, class_index, weight, means)
    values, directions = scatter.values, scatter.directions
    turned, even = means @ directions, float(values.mean())
    differ = len(np.unique(counts[present])) > 1
    # The same for all classes; one that comes later is measured against it (`class_rows`).
    usual_noise = len(values) * float(np.mean(1 / counts[present])) if present.any() else 0.0
    found = {}
    for shrinkage in shrinkages:
        if shrinkage >= PROTOTYPES or even < 1e-9:
            measure, lengths = Measure(directions, None), None
            vectors, bias = unit(means), np.zeros(n_classes, np.float32)
        else:
            share = shrinkage / 100
            variances = (1 - share) * values + share * even
            measure, scaled = Measure(directions, variances), turned / variances
            squares = (scaled * turned).sum(axis=1)
            lengths = None
            if differ and squares.any():
                noise = scatter.noise(variances, 1 - share)
                lengths = Lengths.of(squares[present], counts[present], noise)
            shrunk = np.ones(n_classes) if lengths is None else lengths.shrinking(np.maximum(counts, 1))
            vectors = (scaled * (shrunk**SHORTENED)[:, None]) @ directions.T
            bias = 0.5 * (usual_noise - shrunk * squares)
        found[shrinkage] = replace(_told(vectors, bias, present, measure), lengths=lengths)
    return found


def lone_discriminant(
    prepared: PreparedView,
    class_index: NDArray[np.int64],  # (n,) no class twice
    n_classes: int,
) -> LinearState:
    """Where a class is known by one sample alone, and there is no scatter within any.

    Directions in which the samples of all classes differ much are then the best guess at those in which
    samples of one class do: a ridge holds them back a little. And in many dimensions some samples lie
    close to a great many others, so that their classes would be the answer too often. What a class
    scores on the samples of those classes that it is closest to tells how crowded its place is.
    """
    samples = prepared.queries
    means = class_means(samples, class_index, np.ones(len(samples), np.bool_), n_classes)
    values, directions = eigen(samples.T @ samples)
    variances = np.maximum(values, 0) + LONE_RIDGE * max(float(np.mean(np.sum(samples**2, axis=1))), 1e-12)
    vectors = (means @ directions / variances) @ directions.T
    bias = np.zeros(n_classes)
    bias[class_index] = -CROWDING * _crowding(vectors[class_index], samples)
    present = np.bincount(class_index, minlength=n_classes) > 0
    state = _told(vectors, bias, present, Measure(directions, variances))
    # The ridge is no scatter, which a class that comes later would be held against: cosines serve there.
    return replace(state, scale=LENGTH, measure=Measure(directions, None))


def _crowding(vectors: NDArray[np.floating], samples: Floats) -> NDArray[np.floating]:
    """(n,) mean score of each class on the samples of others that it scores highest."""
    n = len(samples)
    if n < 2:
        return np.zeros(n)
    nearest = min(n - 1, NEIGHBOURS)
    found = np.empty(n)
    step = max(1, CROWD_BLOCK // n)
    for start in range(0, n, step):
        scores = vectors[start : start + step] @ samples.T
        rows = np.arange(len(scores))
        scores[rows, start + rows] = -np.inf
        found[start : start + step] = np.partition(scores, n - nearest, axis=1)[:, n - nearest :].mean(axis=1)
    return found


@dataclass(frozen=True)
class _Scatter:
    """How samples differ from the means of their classes."""

    values: NDArray[np.floating]  # (r,) variances
    directions: NDArray[np.floating]  # (r, r)
    residuals: NDArray[np.floating]  # (n, r) each times the root of its sample's weight
    siblings: NDArray[np.int64]  # (n,) samples of the own class, itself among them
    weight: Floats  # (n,)
    freedom: float

    @classmethod
    def of(cls, queries: Floats, class_index: NDArray[np.int64], weight: Floats, means: Floats) -> _Scatter:
        learned = weight > 0
        of_class, weight = class_index[learned], weight[learned]
        residuals = (queries[learned] - means[of_class]) * np.sqrt(weight)[:, None]
        counts = np.bincount(of_class, minlength=1)
        freedom = max(float(weight.sum()) - np.count_nonzero(counts), 1.0)
        values, directions = eigen(residuals.T @ residuals / freedom)
        return cls(np.maximum(values, 0), directions, residuals, counts[of_class], weight, freedom)

    def noise(self, variances: NDArray[np.floating], share: float) -> float:
        """What chance adds to the squared length of one sample, when directions count by `variances`.

        Each sample is measured by what the scatter would be without it, and from the mean of its siblings:
        `share` of `variances` is the scatter, which knows its own samples' noise far too well. In closed
        form, since a sample changes the scatter by one direction.
        """
        several = self.siblings > 1
        kept = (self.siblings[several] - 1) / self.siblings[
            several
        ]  # of a residual, by the sample's own pull
        own = (((self.residuals[several] @ self.directions) ** 2) / variances).sum(axis=1)
        without = own / np.maximum(1 - share * own / (self.freedom * kept), 1e-6)
        return float(without.sum() / (self.weight[several] @ kept))


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
