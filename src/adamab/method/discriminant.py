"""Linear discriminants: a view's second head, in closed form.

The samples of a class scatter around its mean, alike in all classes as far as a few samples can tell.
Weighing directions by that scatter makes a view with many columns usable where a trained head has too
little to learn from, and takes no training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
# Power of what takes the noise off squared lengths, for the vectors themselves: half of the way, 0.5 being
# all of it and 0 none. Both lose on development parts (results/quality-story.md).
SHORTENED = 0.25
SAME = 1e-5  # of the length of class vectors: less than this between them is rounding
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
    """Squared length that the mean of n samples has on average: that of the class with most, and noise."""

    shortest: float  # of means of as many samples as the class with most has
    inverse: float  # its 1 / n
    noise: float  # of one sample

    @classmethod
    def of(cls, squares: NDArray[np.floating], inverses: NDArray[np.floating], noise: float) -> Lengths:
        """Of classes with these squared lengths and 1 / n, by the noise of one sample."""
        least, middle = float(inverses.min()), float(squares.mean())
        apart = float(inverses.mean()) - least
        most_noise = (1 - LEAST_SQUARE) * middle / max(apart, 1e-12)  # or nothing would be left of some mean
        noise = min(noise, most_noise)
        return cls(middle - noise * apart, least, noise)

    def shrinking(self, inverses: NDArray[np.floating]) -> NDArray[np.floating]:
        """What brings squared lengths of means to the shortest, by 1 / n of each."""
        more = self.noise * np.maximum(inverses - self.inverse, 0)
        found: NDArray[np.floating] = self.shortest / (self.shortest + more)
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
    there it goes by the length that the mean of as many samples as the class with most has would have
    (`Lengths`). What is too long is not learned from classes with many and with few samples: a bandit asks
    for more samples of difficult classes, whose means are shorter for that. With as many samples of each
    class nothing changes.
    """
    means = class_means(prepared.queries, class_index, weight, n_classes)
    scatter = _Scatter.of(prepared.queries, class_index, weight, means)
    values, directions, inverses = scatter.values, scatter.directions, scatter.inverses
    present = inverses > 0
    turned, even = means @ directions, float(values.mean())
    differ = len(np.unique(inverses[present])) > 1
    # The same for all classes; one that comes later is measured against it (`class_rows`).
    usual_noise = len(values) * float(inverses[present].mean()) if present.any() and not differ else 0.0
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
                lengths = Lengths.of(squares[present], inverses[present], noise)
            shrunk = np.ones(n_classes) if lengths is None else lengths.shrinking(inverses)
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
    weight: NDArray[np.floating]  # (n,)
    pull: NDArray[np.floating]  # (n,) the sample's share in the mean of its class
    inverses: NDArray[np.floating]  # (K,) 1 / n, with weights the same variance of a mean; 0 without samples
    of_class: NDArray[np.int64]  # (n,)
    freedom: float

    @classmethod
    def of(cls, queries: Floats, class_index: NDArray[np.int64], weight: Floats, means: Floats) -> _Scatter:
        learned = weight > 0
        of_class, counted = class_index[learned], weight[learned].astype(np.float64)
        residuals = (queries[learned] - means[of_class]) * np.sqrt(weight[learned])[:, None]
        of_each = np.bincount(of_class, counted, len(means))
        freedom = max(float(counted.sum()) - np.count_nonzero(of_each), 1.0)
        values, directions = eigen(residuals.T @ residuals / freedom)
        squared = np.bincount(of_class, counted**2, len(means))
        inverses = squared / np.maximum(of_each, 1e-12) ** 2
        pull = counted / of_each[of_class]
        return cls(np.maximum(values, 0), directions, residuals, counted, pull, inverses, of_class, freedom)

    def noise(self, variances: NDArray[np.floating], share: float) -> float:
        """What chance adds to the squared length of one sample, when directions count by `variances`.

        Each sample is measured by what the scatter would be without it, and from the mean of its siblings:
        `share` of `variances` is the scatter, which knows its own samples' noise far too well. In closed
        form, since a sample changes the scatter by one direction.
        """
        several = self.pull < 1
        pull, weight = self.pull[several], self.weight[several]
        own = (self._turned_squares[several] / variances).sum(axis=1)
        without = own / np.maximum(1 - share * own / (self.freedom * (1 - pull)), 1e-6)
        varies = 1 - 2 * pull + self.inverses[self.of_class[several]]  # a residual, of one sample being 1
        return float(without.sum() / (weight @ varies))

    @cached_property
    def _turned_squares(self) -> NDArray[np.floating]:  # (n, r) the same for every shrinkage
        return (self.residuals @ self.directions) ** 2


def _told(
    vectors: NDArray[np.floating], bias: NDArray[np.floating], present: NDArray[np.bool_], measure: Measure
) -> LinearState:
    """At the common length; of a class without samples nothing is said: it has the others' mean."""
    told = vectors[present]
    centre = told.sum(axis=0) / max(len(told), 1)
    length = _root_mean_square(told - centre)
    if length <= SAME * _root_mean_square(told):  # classes whose means are the same are not told apart
        return LinearState(np.zeros_like(vectors, np.float32), np.zeros_like(bias, np.float32), 0.0, measure)
    scale = LENGTH / length
    vectors = np.where(present[:, None], vectors, centre)
    bias = np.where(present, bias, bias[present].mean())
    return LinearState(
        (scale * vectors).astype(np.float32), (scale * bias).astype(np.float32), scale, measure
    )


def _root_mean_square(rows: NDArray[np.floating]) -> float:
    """Of the lengths of rows; 0 without any."""
    return float(np.sqrt(np.sum(rows**2) / max(len(rows), 1)))
