"""Linear discriminants: a view's second head, in closed form.

Linear discriminant analysis (Fisher 1936) with shrinkage of the covariance towards the same in all directions
(Friedman, Regularized discriminant analysis, JASA 1989; Ledoit and Wolf, A well-conditioned estimator for
large-dimensional covariance matrices, JMVA 2004), by an amount that folds choose.

The samples of a class scatter around its mean, alike in all classes as far as a few samples can tell.
Weighing directions by that scatter makes a view with many columns usable where a trained head has too little
to learn from, and takes no training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adamab.method.views import PreparedView, class_means, eigen, unit
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]
Numbers = NDArray[np.floating]
PROTOTYPES = 100  # percent of shrinkage from which directions count alike: cosines with the class means
SAME = 1e-5  # of the length of class vectors: less than this between them is rounding
CROWD_BLOCK = 4_000_000  # logits that are looked at in one go


@dataclass(frozen=True)
class MeanLengthCorrection:
    """Squared length that the mean of n samples has on average: that of the class with most, and noise."""

    shortest: float  # of means of as many samples as the class with most has
    inverse: float  # its 1 / n
    noise: float  # of one sample
    exponent: float  # power of the correction in the class vectors

    @classmethod
    def of(cls, squares: Numbers, inverses: Numbers, noise: float, recipe: Recipe) -> MeanLengthCorrection:
        """Of classes with these squared lengths and 1 / n, by the noise of one sample.

        Args:
            squares: (K,) squared lengths of the class means.
            inverses: (K,) 1 / n of each class.
            noise: squared length that chance adds to one sample.
            recipe: how far the correction goes.
        """
        least, middle = float(inverses.min()), float(squares.mean())
        apart = float(inverses.mean()) - least
        noise = min(noise, (1 - recipe.least_mean_square) * middle / max(apart, 1e-12))
        return cls(middle - noise * apart, least, noise, recipe.length_exponent)


def discriminant_rows(
    turned: Numbers,  # (K, r) S⁻¹m, in any coordinates
    squares: Numbers,  # (K,) mᵀS⁻¹m
    inverses: Numbers,  # (K,) 1 / n
    lengths: MeanLengthCorrection | None,
) -> tuple[Numbers, Numbers]:
    """Rows of classes by their means m of n samples and the scatter S; a fit and an added class share them.

    The mean of few samples is longer than the true one: by r / n on average, which a two-covariance model
    (Ioffe, Probabilistic linear discriminant analysis, ECCV 2006) takes off. Where classes differ in n, the
    excess is measured instead (`lengths`), and all go by the length of the class with most samples.

    Args:
        turned: (K, r) S⁻¹m, in any coordinates.
        squares: (K,) mᵀS⁻¹m.
        inverses: (K,) 1 / n.
        lengths: of means of different n; None where all classes have as many samples.

    Returns:
        Vectors (K, r) and biases (K,), before they are brought to a common scale.
    """
    if lengths is None:
        return turned, 0.5 * (turned.shape[1] * inverses - squares)
    more = lengths.noise * np.maximum(inverses - lengths.inverse, 0)
    shrunk = lengths.shortest / (lengths.shortest + more)
    return turned * (shrunk**lengths.exponent)[:, None], -0.5 * shrunk * squares


@dataclass(frozen=True)
class LinearState:
    """Logits are `vectors` q + `bias`."""

    vectors: Floats  # (K, r)
    bias: Floats  # (K,)
    scale: float  # that brought both to the common length
    directions: Numbers | None = None  # (r, r) of the scatter, one per column; None: all count alike
    variances: Numbers | None = None  # (r,) within classes, shrunken
    lengths: MeanLengthCorrection | None = None  # None where all classes had as many samples

    def logits(self, queries: Floats) -> Floats:
        """(n, K) of prepared queries."""
        return np.asarray(queries @ self.vectors.T + self.bias, dtype=np.float32)

    def inverse_scatter(self) -> Floats | None:
        """(r, r) of the shrunken scatter."""
        if self.directions is None or self.variances is None:
            return None
        return np.asarray((self.directions / self.variances) @ self.directions.T, dtype=np.float32)


def discriminants(
    prepared: PreparedView,
    class_index: NDArray[np.int64],  # (n,)
    weight: Floats,  # (n,): 0 for samples that may not be learned from
    n_classes: int,
    recipe: Recipe,
) -> dict[int, LinearState]:
    """One discriminant per shrinkage of the recipe, by shrinkage.

    Without scatter, which is one sample per class, only the class means are left. All have class vectors of
    the same length around their mean, so that what folds say of one scale is true of another.

    How much too long a mean is (`discriminant_rows`) is not learned from classes with many and with few
    samples: a bandit asks for more samples of difficult classes, whose means are shorter for that.

    Args:
        prepared: the view, in the coordinates of the head.
        class_index: (n,) class of each sample.
        weight: (n,) 0 for samples that may not be learned from.
        n_classes: K.
        recipe: shrinkages and scales.
    """
    means = class_means(prepared.queries, class_index, weight, n_classes)
    scatter = _Scatter.of(prepared.queries, class_index, weight, means)
    values, directions, inverses = scatter.values, scatter.directions, scatter.inverses
    present = inverses > 0
    turned, even = means @ directions, float(values.mean())
    differ = len(np.unique(inverses[present])) > 1
    states = {}
    for shrinkage in recipe.shrinkages:
        if shrinkage >= PROTOTYPES or even < 1e-9:
            states[shrinkage] = _common_scale(unit(means), np.zeros(n_classes), present, recipe)
            continue
        share = shrinkage / 100
        variances = (1 - share) * values + share * even
        scaled, lengths = turned / variances, None
        squares = (scaled * turned).sum(axis=1)
        if differ and squares.any():
            noise = scatter.noise(variances, 1 - share)
            lengths = MeanLengthCorrection.of(squares[present], inverses[present], noise, recipe)
        rows, bias = discriminant_rows(scaled, squares, inverses, lengths)
        state = _common_scale(rows @ directions.T, bias, present, recipe)
        states[shrinkage] = replace(state, directions=directions, variances=variances, lengths=lengths)
    return states


def one_shot_discriminant(
    prepared: PreparedView,
    class_index: NDArray[np.int64],  # (n,) no class twice
    n_classes: int,
    recipe: Recipe,
) -> LinearState:
    """Where a class is known by one sample alone, and there is no scatter within any.

    Directions in which the samples of all classes differ much are then the best guess at those in which
    samples of one class do: a ridge holds them back a little. And in many dimensions some samples are hubs,
    close to a great many others, so that their classes would be the answer too often. As in cross-domain
    similarity local scaling (CSLS; Lample et al., Word translation without parallel data, ICLR 2018), what a
    class scores on the samples of those classes that it is closest to is taken off.

    Args:
        prepared: the view, in the coordinates of the head.
        class_index: (n,) no class twice.
        n_classes: K.
        recipe: ridge and weight of hubness.
    """
    samples = prepared.queries
    means = class_means(samples, class_index, np.ones(len(samples), np.bool_), n_classes)
    values, directions = eigen(samples.T @ samples)
    mean_square = max(float(np.mean(np.sum(samples**2, axis=1))), 1e-12)
    variances = np.maximum(values, 0) + recipe.one_shot_ridge * mean_square
    vectors = (means @ directions / variances) @ directions.T
    bias = np.zeros(n_classes)
    hubness = _hubness(vectors[class_index], samples, recipe.hubness_neighbours)
    bias[class_index] = -recipe.hubness_weight * hubness
    present = np.bincount(class_index, minlength=n_classes) > 0
    # The ridge is no scatter, which an added class would be held against: cosines serve there.
    return replace(_common_scale(vectors, bias, present, recipe), scale=recipe.discriminant_scale)


def _hubness(vectors: Numbers, samples: Floats, neighbours: int) -> Numbers:
    """(n,) mean score of each class on the samples of others that it scores highest."""
    n = len(samples)
    scores = np.zeros(n)
    nearest, step = min(n - 1, neighbours), max(1, CROWD_BLOCK // n)
    for start in range(0, n if n > 1 else 0, step):
        block = vectors[start : start + step] @ samples.T
        rows = np.arange(len(block))
        block[rows, start + rows] = -np.inf
        scores[start : start + step] = np.partition(block, n - nearest, axis=1)[:, n - nearest :].mean(axis=1)
    return scores


@dataclass(frozen=True)
class _Scatter:
    """How samples differ from the means of their classes."""

    values: Numbers  # (r,) variances
    directions: Numbers  # (r, r)
    residuals: Numbers  # (n, r) each times the root of its sample's weight
    weight: Numbers  # (n,)
    share: Numbers  # (n,) the sample's share in the mean of its class
    inverses: Numbers  # (K,) 1 / n, with weights the same variance of a mean; 0 without samples
    of_class: NDArray[np.int64]  # (n,)
    freedom: float

    @classmethod
    def of(cls, queries: Floats, class_index: NDArray[np.int64], weight: Floats, means: Floats) -> _Scatter:
        learned = weight > 0
        of_class, evidence = class_index[learned], weight[learned].astype(np.float64)
        residuals = (queries[learned] - means[of_class]) * np.sqrt(weight[learned])[:, None]
        of_each = np.bincount(of_class, evidence, len(means))
        freedom = max(float(evidence.sum()) - np.count_nonzero(of_each), 1.0)
        values, directions = eigen(residuals.T @ residuals / freedom)
        squared = np.bincount(of_class, evidence**2, len(means))
        inverses = squared / np.maximum(of_each, 1e-12) ** 2
        share = evidence / of_each[of_class]
        return cls(np.maximum(values, 0), directions, residuals, evidence, share, inverses, of_class, freedom)

    def noise(self, variances: Numbers, scatter_share: float) -> float:
        """What chance adds to the squared length of one sample, when directions count by `variances`.

        Each sample is measured by what the scatter would be without it, and from the mean of its siblings:
        `scatter_share` of `variances` is the scatter, which knows its own samples' noise far too well. In
        closed form, since a sample changes the scatter by one direction.
        """
        several = self.share < 1
        share, weight = self.share[several], self.weight[several]
        own = (self._turned_squares[several] / variances).sum(axis=1)
        without = own / np.maximum(1 - scatter_share * own / (self.freedom * (1 - share)), 1e-6)
        varies = 1 - 2 * share + self.inverses[self.of_class[several]]  # a residual, of one sample being 1
        return float(without.sum() / (weight @ varies))

    @cached_property
    def _turned_squares(self) -> Numbers:  # (n, r) the same for every shrinkage
        return (self.residuals @ self.directions) ** 2


def _common_scale(vectors: Numbers, bias: Numbers, present: NDArray[np.bool_], recipe: Recipe) -> LinearState:
    """At the common length; of a class without samples nothing is said: it has the others' mean."""
    rows = vectors[present]
    centre = rows.sum(axis=0) / max(len(rows), 1)
    length, whole = (float(np.sqrt(np.sum(r**2) / max(len(r), 1))) for r in (rows - centre, rows))
    if length <= SAME * whole:  # classes whose means are the same cannot be distinguished
        return LinearState(np.zeros_like(vectors, np.float32), np.zeros_like(bias, np.float32), 0.0)
    scale = recipe.discriminant_scale / length
    vectors = np.where(present[:, None], vectors, centre)
    bias = np.where(present, bias, bias[present].mean())
    return LinearState((scale * vectors).astype(np.float32), (scale * bias).astype(np.float32), scale)
