"""How much each head counts: one convex step on leave-one-out logits, and what those say of accuracy.

This is stacked generalisation (Wolpert, Neural Networks 1992; Breiman, Machine Learning 1996): weights that
are not negative, fitted to the logits of samples by heads that have not seen them, as a maximum a posteriori
around fixed weights, which also serve where nothing can be left out.

Losses count a share 1/(n+2) of each of the n samples as spread over all classes. A perfect record of n
samples proves no better odds than that (Laplace smoothing, by his rule of succession), and without it
separable samples would make the classifier infinitely sure of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a share (Wilson 1927).

    Args:
        share: of successes in the trials.
        n: trials; samples that depend on each other count as fewer.

    Example:
        >>> low, high = wilson(0.75, 60)
        >>> round(low, 3), round(high, 3)
        (0.628, 0.842)
    """
    square = NORMAL_95**2
    middle = share + square / (2 * n)
    half = NORMAL_95 * np.sqrt(share * (1 - share) / n + square / (4 * n**2))
    low, high = np.clip([middle - half, middle + half], 0, 1 + square / n) / (1 + square / n)
    return float(low), float(high)


Floats: TypeAlias = NDArray[np.float32]
LARGEST_SCALE = 20.0  # of logits, and one over the smallest: temperatures that are considered
FOLDS = 5  # of the samples that weights are chosen and judged by
NORMAL_95 = 1.959964  # standard deviations
DESIGN_EFFECT = 2.0  # held-out samples that say as much as one independent trial
LEAST_WEIGHT = 1e-3  # of the weights without evidence, where the evidence is against all heads


@dataclass(frozen=True)
class Estimate:
    """Accuracy that held-out given samples foretell, where all classes are as frequent."""

    accuracy: float
    low: float
    high: float
    n: int  # samples that were held out
    n_classes: int  # of which there were some


@dataclass(frozen=True)
class HeldOut:
    """Joint logits of given samples by heads and weights that never saw them."""

    logits: Floats  # (n, K)
    class_index: NDArray[np.int64]  # (n,)
    position: NDArray[np.int64]  # (n,) among all given samples, of which some may not be held out
    foretold: Floats  # (n, K) the same with `LeftOut.own`: answers as they are for new samples

    def shared_with(self, other: HeldOut) -> tuple[HeldOut, HeldOut]:
        """Both, with the samples that both have."""
        _, mine, theirs = np.intersect1d(self.position, other.position, return_indices=True)
        both = ((self, mine), (other, theirs))
        first, second = (
            HeldOut(h.logits[i], h.class_index[i], h.position[i], h.foretold[i]) for h, i in both
        )
        return first, second

    def estimate(self) -> Estimate:
        """The accuracy on new samples, of which every class that was held out has as many.

        The answers depend on each other: the mean of a class is in those to all its samples, so their
        variance is about twice that of independent trials (Bengio and Grandvalet, No unbiased estimator of
        the variance of K-fold cross-validation, JMLR 2004, on why it has to be assumed).
        """
        counts = np.bincount(self.class_index)[self.class_index]
        weights = 1 / counts / (1 / counts).sum()
        accuracy = float(weights @ (self.foretold.argmax(axis=1) == self.class_index))
        effective = 1 / float(np.square(weights).sum()) / DESIGN_EFFECT
        return Estimate(accuracy, *wilson(accuracy, effective), len(counts), len(np.unique(self.class_index)))

    def target_share(self, prior: float) -> NDArray[np.float64]:
        """(K,) samples that a class should have, in those of a class of mean difficulty.

        The difficulty of a class is the mean probability that its samples lack, over that of all samples.
        The few samples of a class say little, so each class counts `prior` more of mean difficulty. Where the
        errors of a class fall with 1 / n, all together are fewest when n goes with the square root of it.
        """
        n_classes = self.logits.shape[1]
        probability = softmax(self.logits.astype(np.float64), axis=1)
        missed = 1 - np.take_along_axis(probability, self.class_index[:, None], axis=1)[:, 0]
        mean = missed.mean()
        if mean < 1e-9:
            return np.ones(n_classes)
        of_class = np.bincount(self.class_index, weights=missed, minlength=n_classes)
        counts = np.bincount(self.class_index, minlength=n_classes)
        return np.asarray(np.sqrt((of_class / mean + prior) / (counts + prior)), dtype=np.float64)

    def rivals(self, least: float) -> list[int | None]:
        """The class that each class is most mistaken for, either way; None below the probability `least`."""
        n_classes = self.logits.shape[1]
        probability = softmax(self.scale() * self.logits.astype(np.float64), axis=1)
        sums, counts = np.zeros((n_classes, n_classes)), np.bincount(self.class_index, minlength=n_classes)
        np.add.at(sums, self.class_index, probability)
        mistaken = sums / np.maximum(counts, 1)[:, None]
        mistaken = mistaken + mistaken.T
        np.fill_diagonal(mistaken, 0)
        rivals = mistaken.argmax(axis=1)
        return [int(c) if mistaken[own, c] >= least else None for own, c in enumerate(rivals)]

    def scale(self) -> float:
        """The factor of the logits with the smallest cross-entropy: one over the temperature.

        Temperature scaling: Guo et al., On calibration of modern neural networks, ICML 2017.
        """
        if not self.logits.any():
            return 1.0
        target, limit = smoothed(self.class_index, self.logits.shape[1]), np.log(LARGEST_SCALE)
        best = minimize_scalar(
            lambda log_scale: cross_entropy(np.float32(np.exp(log_scale)) * self.logits, target),
            bounds=(-limit, limit),
            method="bounded",
        )
        return float(np.exp(best.x))


def smoothed(class_index: NDArray[np.int64], n_classes: int) -> Floats:
    """(n, K) targets: the own class, less what so many samples cannot prove."""
    n = len(class_index)
    target = np.full((n, n_classes), 1 / (n + 2) / n_classes, dtype=np.float32)
    target[np.arange(n), class_index] += 1 - 1 / (n + 2)
    return target


def cross_entropy(logits: NDArray[np.floating], target: Floats) -> float:
    """Mean over the samples, of logits and targets (n, K)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - (target * shifted).sum(axis=1)
    return float(losses.mean())


def stratified_folds(
    class_index: NDArray[np.int64], family: NDArray[np.intp], n_folds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(n,) the fold that holds each sample out; -1 for the only sample of a class, never held out.

    Args:
        class_index: (n,) class of each sample.
        family: (n,) the same number for near copies, which share a fold.
        n_folds: two or more.
        rng: deals the samples out.
    """
    folds = np.full(len(class_index), -1, dtype=np.int64)
    by_class = np.argsort(class_index, kind="stable")
    starts = np.flatnonzero(np.diff(class_index[by_class], prepend=-1))
    for of_class in np.split(by_class, starts[1:]):
        members = rng.permutation(of_class)
        if len(members) > 1:
            folds[members] = (np.arange(len(members)) + rng.integers(n_folds)) % n_folds
    _, first, of_family = np.unique(family, return_index=True, return_inverse=True)
    return folds[first][of_family]


def stack_weights(
    logits: Floats, class_index: NDArray[np.int64], prior: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """Weights a >= 0 that minimise Σ_i CE(Σ_h a_h z_h, y_i) + ridge Σ_h (a_h / prior_h - 1)².

    Args:
        logits: (H, n, K) of each head, by samples that it has not seen.
        class_index: (n,) their classes.
        prior: (H,) weights without evidence.
        ridge: strength of the prior, in samples.

    Example:
        >>> good, bad = np.eye(3), -np.eye(3)
        >>> good_weight, bad_weight = stack_weights(np.stack([good, bad]), np.arange(3), np.ones(2), 0.1)
        >>> bool(good_weight > 1 > bad_weight)
        True
    """
    if not logits.shape[1]:
        return prior
    target = smoothed(class_index, logits.shape[2])

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        joint = np.tensordot(weights, logits, 1)
        joint -= joint.max(axis=1, keepdims=True)
        residual = np.exp(joint)
        sums = residual.sum(axis=1)
        loss = float((np.log(sums) - (target * joint).sum(axis=1)).sum())
        residual /= sums[:, None]
        residual -= target
        apart = weights / prior - 1
        gradient = np.tensordot(logits, residual, ([1, 2], [0, 1])) + 2 * ridge * apart / prior
        return loss + ridge * float(apart @ apart), gradient

    best = minimize(objective, prior, jac=True, bounds=[(0, None)] * len(prior), method="L-BFGS-B")
    # Where all heads do worse than nothing there is an answer all the same, but one that is not sure.
    weights: NDArray[np.float64] = best.x if best.x.any() else LEAST_WEIGHT * prior
    return weights


def honest_logits(
    logits: Floats,
    class_index: NDArray[np.int64],
    family: NDArray[np.intp],
    prior: NDArray[np.float64],
    ridge: float,
    *,
    seed: int,
) -> Floats:
    """(n, K) joint logits of each sample, with weights that samples of other folds chose.

    Choosing and judging on the same predictions would flatter: a handful of weights fits a handful of
    samples.

    Args:
        logits: (H, n, K) of each head.
        class_index: (n,) classes of the samples.
        family: (n,) the same number for near copies.
        prior: (H,) weights without evidence.
        ridge: as in `stack_weights`.
        seed: of the folds.
    """
    joint = np.zeros(logits.shape[1:], np.float32)
    folds = stratified_folds(class_index, family, FOLDS, np.random.default_rng(seed))
    for fold in np.unique(folds):  # the only sample of a class has a fold of its own kind, -1
        own = folds == fold
        weights = stack_weights(logits[:, ~own], class_index[~own], prior, ridge)
        joint[own] = np.tensordot(weights, logits[:, own], 1)
    return joint
