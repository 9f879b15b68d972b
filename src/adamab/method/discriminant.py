"""The two-covariance discriminant: one formula for classes of no, one, few and many samples.

Two-covariance model (probabilistic linear discriminant analysis: Ioffe, ECCV 2006; Prince and Elder, ICCV
2007) in its conjugate form: a sample of class c is N(m_c, W), and the means m_c themselves are N(0, W / λ).

    W   = (S + ν w I) / (N - K + ν)     S scatter within classes, w its mean variance per column
    F_c = n_c / (n_c + λ)               reliability of a mean of n_c samples (James and Stein 1961)
    z_c = F_c xᵀW⁻¹x̄_c - ½ F_c |x̄_c|² + ½ (1 - F_c) b        lengths in the metric of W⁻¹
    z_c = 0                             where n_c = 0

The prior of W is an inverse Wishart distribution with as many degrees of freedom as the view has columns (ν).
Rows have length one, so the share w of their square that is scatter within classes gives λ = w / (1 - w); it
is estimated by empirical Bayes. b is the mean of F_c |x̄_c|² over the classes. With equal counts all of this
is linear discriminant analysis (Fisher 1936) with shrinkage (Friedman 1989).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adamab.method.views import class_means, eigen, originals_of, spread, spread_within
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
MOST_WITHIN = 0.98  # of a row's square: with more, no mean would count
LEAST_LEFT = 1e-9  # of a direction's scatter when the sample that makes it is left out
NOTHING = 1e-9  # weight that is rounding


@dataclass(frozen=True)
class FitSamples:
    """The classes of the samples of a fit, which all views share; none of them repeats another.

    Near copies are a family: whoever is left out takes its family along, or it would be vouched for.
    """

    class_index: NDArray[np.int64]  # (n,)
    given: NDArray[np.bool_]  # (n,) the others are synthetic
    n_classes: int
    pooled: str  # name of the view of the embeddings themselves
    family: NDArray[np.intp]  # (n,) the same number for near copies of each other
    position: NDArray[np.intp]  # (n,) of a given sample among all given samples
    copies: bool = False  # whether the synthetic samples are made of given ones alone

    @classmethod
    def of(
        cls,
        vectors: NDArray[np.float32],
        class_index: NDArray[np.int64],
        given: NDArray[np.bool_],
        n_classes: int,
        pooled: str,
        recipe: Recipe,
        *,
        copies: bool = False,
    ) -> tuple[FitSamples, NDArray[np.intp]]:
        """The samples that repeat no other, and their numbers among all samples.

        Args:
            vectors: (n, d) in the pooled view.
            class_index: (n,) class of each.
            given: (n,) whether a sample is a given one.
            n_classes: K.
            pooled: name of that view.
            recipe: what counts as a repeat and as a near copy.
            copies: whether the synthetic samples are made of given ones alone.
        """
        sources = np.where(given, class_index, n_classes + class_index)
        first = originals_of(vectors, sources, recipe.repeat_distance * spread(vectors))
        rows = np.flatnonzero(first == np.arange(len(first)))
        few, classes = vectors[rows], class_index[rows]
        family = originals_of(few, classes, recipe.family_distance * spread_within(few, classes))
        position = (np.cumsum(given) - 1)[rows]
        return cls(classes, given[rows], n_classes, pooled, family, position, copies), rows

    def weights(self, recipe: Recipe) -> Numbers:
        """(n,) of the samples. Samples made of given ones add nothing to the weight of their class."""
        weights = np.where(self.given, 1.0, recipe.synthetic_weight)
        if self.copies:
            given, every = (
                np.bincount(self.class_index, w, self.n_classes) for w in (self.given * 1.0, weights)
            )
            share = np.divide(given, every, where=given > 0, out=np.ones_like(every))
            weights = weights * share[self.class_index]
        return weights


@dataclass(frozen=True)
class TwoCovariance:
    """What all classes share, and the formula that makes a class's row of it."""

    precision: NDArray[np.floating]  # (r, r) W⁻¹
    outside: float  # the same in directions that no sample of the fit has, which all count alike
    ratio: float  # λ, the variance within classes to that between them
    length: float  # b

    def class_rows(
        self, means: NDArray[np.floating], counts: NDArray[np.floating]
    ) -> tuple[Numbers, Numbers]:
        """Vectors (K, r) and biases (K,): the logits of a row x are `vectors @ x + bias`.

        Args:
            means: (K, r) of the samples of each class.
            counts: (K,) samples of each class, or their weights.
        """
        turned = means @ self.precision
        reliability = counts / (counts + self.ratio)
        squares = (turned * means).sum(axis=1)
        bias = 0.5 * ((1 - reliability) * self.length - reliability * squares)
        return reliability[:, None] * turned, np.where(counts > 0, bias, 0.0)


@dataclass(frozen=True)
class LeftOut:
    """Logits of samples by a discriminant that has not seen them.

    Without the sample its class has n - 1 samples, and the other classes have n. So the F of its class is
    smaller and the noise of its mean larger, and hits counted by these logits are too few, above all where n
    is two. For the number of hits `own` is the logit of the sample's class with the F of n samples, drawn to
    the mean of all such logits by sqrt((n - 1) / n), which takes the noise of n - 1 samples to that of n.
    """

    logits: Floats  # (m, K)
    own: Floats  # (m,)


class Discriminant:
    """A view's discriminant, fitted; and what it says of samples that it has not seen.

    Args:
        queries: (n, r) prepared samples.
        samples: their classes.
        recipe: what is assumed of scatter within classes.

    Attributes:
        shared: what an added class gets its row from.
        vectors: (K, r) of the classes.
        bias: (K,).
    """

    def __init__(self, queries: Floats, samples: FitSamples, recipe: Recipe) -> None:
        self._queries, self._samples = queries, samples
        class_index, n_classes = samples.class_index, samples.n_classes
        x, weight = queries, samples.weights(recipe)
        self._weight = weight
        self._counts = np.bincount(class_index, weight, n_classes).astype(np.float64)
        present, width = self._counts > 0, x.shape[1]
        self._means = class_means(x, class_index, weight, n_classes)
        residuals = (x - self._means[class_index]).astype(np.float64)
        freedom = max(float(weight.sum()) - np.count_nonzero(present), 0.0)
        values, axes = eigen((residuals * weight[:, None]).T @ residuals)
        values = np.maximum(values, 0)
        prior = recipe.within_evidence
        within = (float(values.sum()) + prior * recipe.within_share) / (freedom + prior)
        within = min(within, MOST_WITHIN)
        # W in units of its mean variance, so that logits of views of all widths are alike
        self._step = width / within / (freedom + width)
        self._whitening = axes / np.sqrt(values * self._step + width / (freedom + width))
        white = self._means @ self._whitening
        ratio = within / (1 - within)
        lengths = self._counts / (self._counts + ratio) * (white**2).sum(axis=1)
        length = float(lengths[present].mean()) if present.any() else 0.0
        precision, outside = self._whitening @ self._whitening.T, (freedom + width) / width
        self.shared = TwoCovariance(precision, outside, ratio, length)
        self.vectors, self.bias = self.shared.class_rows(self._means.astype(np.float64), self._counts)

    def leave_one_out(self, rows: NDArray[np.intp]) -> LeftOut:
        """Exact logits of some of the samples by the discriminant of all others.

        Leaving a sample out moves the mean of its class and takes one direction off the scatter, which is a
        rank-one downdate of W (Sherman and Morrison 1950). Near copies of it are left out with it. What is
        estimated from all samples stays: centre, λ, b and the degrees of freedom. A sample without which its
        class has none gets zeros: of its class nothing would be left.

        Args:
            rows: (m,) numbers of samples.
        """
        shared, own_class, weight = self.shared, self._samples.class_index[rows], self._weight[rows]
        # Whitened: W is the identity.
        x, white = self._queries[rows] @ self._whitening, self._means @ self._whitening
        residual = x - white[own_class]
        count = self._counts[own_class]
        left = np.where(count - weight > NOTHING, count - weight, 0.0)
        alone = left == 0
        safe = np.where(alone, 1.0, left)
        step = np.where(alone, 0.0, weight * count / safe * self._step)
        factor = step / np.maximum(1 - step * (residual**2).sum(axis=1), LEAST_LEFT)
        along = factor * (x * residual).sum(axis=1)
        to_means = residual @ white.T  # (m, K)
        reliability = self._counts / (self._counts + shared.ratio)
        logits = reliability * (x @ white.T + along[:, None] * to_means)
        logits += self.bias - 0.5 * reliability * factor[:, None] * to_means**2
        mean = white[own_class] - residual * (weight / safe)[:, None]
        to_mean = (residual * mean).sum(axis=1)
        slope = (x * mean).sum(axis=1) + along * to_mean
        square = (mean**2).sum(axis=1) + factor * to_mean**2
        less = left / (left + shared.ratio)
        own = less * slope + 0.5 * ((1 - less) * shared.length - less * square)
        logits[np.arange(len(rows)), own_class] = own
        full = count / (count + shared.ratio)
        own = full * slope + 0.5 * ((1 - full) * shared.length - less * square)
        logits[alone] = 0
        self._leave_families_out(logits, own, left, rows, white)
        judged = left > NOTHING
        if judged.any():
            middle = own[judged].mean()
            own = middle + np.sqrt(left / count) * (own - middle)
        return LeftOut(logits.astype(np.float32), np.where(judged, own, 0).astype(np.float32))

    def _leave_families_out(
        self, logits: Numbers, own_logit: Numbers, left: Numbers, rows: NDArray[np.intp], white: Numbers
    ) -> None:
        """The same for samples that have near copies: a downdate of the family's rank (Woodbury 1950).

        `left` is what the class of each sample has without it.
        """
        family, ratio, length = self._samples.family, self.shared.ratio, self.shared.length
        sizes = np.bincount(family, minlength=len(family))
        for number in np.unique(family[rows][sizes[family[rows]] > 1]):
            members, own = np.flatnonzero(family == number), np.flatnonzero(family[rows] == number)
            class_ = self._samples.class_index[number]
            weight = self._weight[members]
            counts, means = self._counts.copy(), white.copy()
            counts[class_] -= weight.sum()
            left[own] = max(counts[class_], 0.0)
            if counts[class_] <= NOTHING:
                logits[own] = 0
                continue
            residuals = self._queries[members] @ self._whitening - white[class_]
            mean = weight @ residuals / weight.sum()
            means[class_] -= mean * (weight.sum() / counts[class_])
            gone = np.vstack(
                [np.sqrt(weight)[:, None] * residuals, weight.sum() / np.sqrt(counts[class_]) * mean]
            )
            kernel = np.eye(len(gone)) - self._step * gone @ gone.T
            x, to_means = self._queries[rows[own]] @ self._whitening, gone @ means.T
            back = self._step * np.linalg.solve(kernel, to_means)
            reliability = counts / (counts + ratio)
            squares = (means**2).sum(axis=1) + (to_means * back).sum(axis=0)
            bias = 0.5 * ((1 - reliability) * length - reliability * squares)
            slopes = x @ means.T + x @ gone.T @ back
            logits[own] = reliability * slopes + np.where(counts > 0, bias, 0)
            full = self._counts[class_] / (self._counts[class_] + ratio)
            less = reliability[class_]
            own_logit[own] = full * slopes[:, class_] + 0.5 * ((1 - full) * length - less * squares[class_])
