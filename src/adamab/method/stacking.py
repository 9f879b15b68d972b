"""What the folds say: how long each head trains, how steep it is, and how much each view counts.

This is stacked generalisation (Wolpert, Neural Networks 1992) after temperature scaling (Guo et al., On
calibration of modern neural networks, ICML 2017) of each part.

A component is anything that has logits: a view's calibrator at one of its checkpoints, its discriminant
at one of its shrinkages, or its untrained similarity. Its out-of-fold logits, and nothing else, decide
here; those of a synthetic sample count less than those of a given one.

Losses count a share 1/(n+2) of each of the n held-out samples as spread over all classes. A perfect
record of n samples proves no better odds than that (Laplace smoothing, by his rule of succession), and
without it separable folds would make the classifier infinitely sure of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax

from adamab.task.recipe import Recipe


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share.

    Args:
        successes: those of n trials.
        n: one or more.

    Example:
        >>> low, high = wilson(45, 60)
        >>> round(low, 3), round(high, 3)
        (0.628, 0.842)
    """
    from scipy.stats import binomtest

    low, high = binomtest(successes, n).proportion_ci(method="wilson")
    return float(low), float(high)


Floats: TypeAlias = NDArray[np.float32]
Kind: TypeAlias = Literal["calibrator", "discriminant", "similarity"]
# Temperatures that are tried, as factors of logits
SCALES = np.exp(np.linspace(np.log(0.02), np.log(20), 40)).astype(np.float32)


@dataclass(frozen=True)
class Component:
    """Out-of-fold logits of one component, at each of its options.

    An option is a number of steps (calibrator) or a shrinkage in percent (discriminant).
    """

    view: str
    kind: Kind
    options: tuple[int, ...]  # (S,)
    logits: Floats  # (S, n, K), rows of the held-out samples
    prior_scale: float = 0.0  # factor of its logits that brings it to the steepness of the others


@dataclass(frozen=True)
class EvaluationSet:
    """Held-out samples and how much each counts: a given one 1, a synthetic one less."""

    class_index: NDArray[np.int64]  # (n,)
    weight: Floats  # (n,)
    evaluable: NDArray[np.bool_] | None = None  # (K,) classes of which samples can be held out; None: all

    def targets(self, n_classes: int) -> Floats:
        """(n, K) the own class, less what so many samples cannot prove."""
        n, doubt = len(self.class_index), 1 / (float(self.weight.sum()) + 2)
        target = np.full((n, n_classes), doubt / n_classes, dtype=np.float32)
        target[np.arange(n), self.class_index] += 1 - doubt
        return target

    def cross_entropy(self, logits: NDArray[np.floating], target: Floats) -> float:
        """Weighted mean over the samples, of logits and targets (n, K).

        Args:
            logits: (n, K).
            target: (n, K) of `targets`.
        """
        shifted = logits - logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(axis=1)) - (target * shifted).sum(axis=1)
        return float(losses @ self.weight) / float(self.weight.sum())


@dataclass(frozen=True)
class Share:
    """How one component enters the classifier: logits at `option`, times `weight`."""

    view: str
    kind: Kind
    option: int
    weight: float


@dataclass(frozen=True)
class Estimate:
    """Out-of-fold accuracy on the given samples: what can be said without a test set."""

    accuracy: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class HeldOut:
    """Joint logits of given samples by heads and weights that never saw them."""

    logits: Floats  # (n, K)
    class_index: NDArray[np.int64]  # (n,)
    position: NDArray[np.int64]  # (n,) among all given samples, of which some may not be held out

    def shared_with(self, other: HeldOut) -> tuple[HeldOut, HeldOut]:
        """Both, with the samples that both have."""
        _, mine, theirs = np.intersect1d(self.position, other.position, return_indices=True)
        both = ((self, mine), (other, theirs))
        first, second = (HeldOut(h.logits[i], h.class_index[i], h.position[i]) for h, i in both)
        return first, second

    def estimate(self) -> Estimate:
        """Their accuracy."""
        correct, n = int((np.argmax(self.logits, axis=1) == self.class_index).sum()), len(self.class_index)
        return Estimate(correct / n, *wilson(correct, n), n)

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
        """The factor of the logits with the smallest cross-entropy: one over the temperature."""
        if not self.logits.any():
            return 1.0
        samples = EvaluationSet(self.class_index, np.ones(len(self.class_index), np.float32))
        target = samples.targets(self.logits.shape[1])
        best = minimize_scalar(
            lambda log_scale: samples.cross_entropy(np.float32(np.exp(log_scale)) * self.logits, target),
            bounds=np.log(SCALES[[0, -1]]),
            method="bounded",
        )
        return float(np.exp(best.x))

    def prior_exponent(self, trained_on: NDArray[np.float64], scale: float) -> float:
        """How far the logits, times `scale`, follow the classes' shares in training, from 0 to 1.

        Were inputs as many of each class, logits z - exponent log(share) would surprise least: prior shift
        (Saerens et al., Adjusting the outputs of a classifier to new a priori probabilities, Neural
        Computation 2002) with a strength that is learned. Classes of which no sample is held out have no say.
        Calibrators learn the shares, discriminants and similarities do not, so it differs by task.

        Args:
            trained_on: (K,) weight of the samples of each class in training.
            scale: one over the temperature.
        """
        classes, place = np.unique(self.class_index, return_inverse=True)
        log_share = np.log(trained_on[classes])
        if np.ptp(log_share) < 1e-9:  # nothing to be learned, and no reason to move anything
            return 0.0
        logits = scale * self.logits[:, classes].astype(np.float64)
        balance = len(place) / (len(classes) * np.bincount(place))  # all classes weigh the same
        samples = EvaluationSet(place, balance[place].astype(np.float32))
        target = samples.targets(len(classes))
        best = minimize_scalar(
            lambda exponent: samples.cross_entropy(logits - exponent * log_share, target),
            bounds=(0, 1),
            method="bounded",
        )
        return float(best.x)


def stratified_folds(
    class_index: NDArray[np.int64], n_folds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(n,) the fold that holds each sample out; -1 for the only sample of a class, never held out.

    Args:
        class_index: (n,) class of each sample.
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
    return folds


def choose_shares(components: Sequence[Component], scored: EvaluationSet, recipe: Recipe) -> list[Share]:
    """Option and temperature component by component, then one non-negative weight each; fixed shares without
    held-out samples.

    Args:
        components: with logits of the scored samples.
        scored: held-out samples.
        recipe: `weight_ridge` counts in samples: it weighs as much in the choice of weights as so many of
            them. So does `prior_evidence`, where samples of some class cannot be held out: the strength of
            the weights that components have without evidence, which is not for or against any class.
    """
    n = sum(c.prior_scale > 0 for c in components)
    # Without evidence: all of a like steepness, those without a usual weight left out.
    usual = [c.prior_scale / max(n, 1) for c in components]
    if not len(scored.class_index):
        step = min(recipe.checkpoints, key=lambda s: abs(s - recipe.default_steps))
        return [
            Share(c.view, c.kind, step if c.kind == "calibrator" else c.options[0], weight)
            for c, weight in zip(components, usual, strict=True)
        ]
    some, among = components, scored
    if scored.evaluable is not None and not scored.evaluable.all():
        # Whatever speaks against the class of a single sample would be right each time.
        classes, place = np.flatnonzero(scored.evaluable), np.cumsum(scored.evaluable) - 1
        some = [replace(c, logits=c.logits[:, :, classes]) for c in components]
        among = EvaluationSet(place[scored.class_index], scored.weight)
    chosen = []
    for component in some:
        losses, scales = zip(*(best_scale(logits, among) for logits in component.logits), strict=True)
        option = losses.index(min(losses))  # of equals the first
        chosen.append((option, scales[option]))
    total = float(scored.weight.sum())
    logits = np.stack([scale * c.logits[i] for c, (i, scale) in zip(some, chosen, strict=True)])
    weights = stack_weights(logits, among, recipe.weight_ridge / total)
    doubt = 0.0 if among is scored else recipe.prior_evidence / (recipe.prior_evidence + total)
    parts = zip(components, chosen, weights, usual, strict=True)
    return [
        Share(c.view, c.kind, c.options[i], float((1 - doubt) * weight * scale + doubt * prior))
        for c, (i, scale), weight, prior in parts
    ]


def honest_logits(
    components: Sequence[Component],
    scored: EvaluationSet,
    folds: NDArray[np.int64],  # (n,)
    recipe: Recipe,
) -> Floats:
    """(n, K) joint logits where each fold has the shares that the other folds chose.

    Choosing and judging on the same predictions would flatter: a handful of weights fits a handful
    of samples.

    Args:
        components: with logits of the scored samples.
        scored: held-out samples.
        folds: (n,) the fold that held each of them out.
        recipe: as in `choose_shares`.
    """
    joint = np.zeros(components[0].logits.shape[1:], np.float32)
    for fold in np.unique(folds):
        own, other = folds == fold, folds != fold
        rest = replace(scored, class_index=scored.class_index[other], weight=scored.weight[other])
        shares = choose_shares([replace(c, logits=c.logits[:, other]) for c in components], rest, recipe)
        for component, share in zip(components, shares, strict=True):
            joint[own] += share.weight * component.logits[component.options.index(share.option), own]
    return joint


def stack_weights(logits: Floats, scored: EvaluationSet, weight_ridge: float) -> NDArray[np.float64]:
    """Weights w >= 0 that minimise the cross-entropy of Σ w_v z_v, pulled towards each other.

    Minimises mean cross-entropy + weight_ridge * Σ (w_v - mean w)².

    Args:
        logits: (V, n, K) of each component, at its temperature.
        scored: held-out samples.
        weight_ridge: strength of the ridge.
    """
    n_views, _, n_classes = logits.shape
    target, total = scored.targets(n_classes), float(scored.weight.sum())
    weight = (scored.weight / total)[:, None]

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        joint = np.tensordot(weights, logits, 1)
        joint -= joint.max(axis=1, keepdims=True)
        residual = np.exp(joint)
        sums = residual.sum(axis=1)
        loss = float((np.log(sums) - (target * joint).sum(axis=1)) @ scored.weight) / total
        residual /= sums[:, None]
        residual -= target
        residual *= weight
        gradient = np.tensordot(logits, residual, ([1, 2], [0, 1]))
        apart = weights - weights.mean()
        return loss + weight_ridge * float(apart @ apart), gradient + 2 * weight_ridge * apart

    start = np.full(n_views, 1 / n_views)
    best = minimize(objective, start, jac=True, bounds=[(0, None)] * n_views, method="L-BFGS-B")
    weights: NDArray[np.float64] = best.x
    return weights if weights.any() else start


def best_scale(logits: Floats, scored: EvaluationSet) -> tuple[float, float]:
    """The smallest cross-entropy that a temperature can give, and its scale; the flatter on a tie.

    The loss is convex in the scale, so half of those that are left can go at each look.

    Args:
        logits: (n, K).
        scored: held-out samples.
    """
    target = scored.targets(logits.shape[1])
    low, high = 0, len(SCALES) - 1
    while low < high:
        middle = (low + high) // 2
        flat, steep = (scored.cross_entropy(s * logits, target) for s in SCALES[[middle, middle + 1]])
        if flat <= steep:
            high = middle
        else:
            low = middle + 1
    return scored.cross_entropy(SCALES[low] * logits, target), float(SCALES[low])
