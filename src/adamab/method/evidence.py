"""What the folds say: how long each head trains, how steep it is, and how much each view counts.

A component is anything that has logits: a view's calibrator at one of its checkpoints, its discriminant
at one of its shrinkages, or its untrained similarity. Its out-of-fold logits, and nothing else, decide
here; those of a synthetic sample count less than those of a given one.

Losses count a share 1/(n+2) of each of the n held-out samples as spread over all classes. A perfect
record of n samples proves no better odds than that (Laplace's rule), and without it separable folds
would make the classifier infinitely sure of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax

from adamab.method.statistics import wilson

Floats: TypeAlias = NDArray[np.float32]
Kind: TypeAlias = Literal["calibrator", "discriminant", "similarity"]
PRIOR_SAMPLES = 4  # of mean difficulty, beside those of a class: with fewer, chance sends batches astray
MISTAKEN = 0.05  # of the probability, both ways together: less is no reason to warn a generator
SCALES = np.exp(np.linspace(np.log(0.02), np.log(20), 40)).astype(
    np.float32
)  # temperatures tried, as factors of logits


@dataclass(frozen=True)
class Component:
    """Out-of-fold logits of one component, at each of its options.

    An option is a number of steps (calibrator) or a shrinkage in percent (discriminant).
    """

    view: str
    kind: Kind
    options: tuple[int, ...]  # (S,)
    logits: Floats  # (S, n, K), rows of the held-out samples
    typical: float = 0.0  # factor of its logits that brings it to the steepness of the others

    def rows(self, keep: NDArray[np.bool_]) -> Component:
        """The same with some of the samples."""
        return replace(self, logits=self.logits[:, keep])

    def among(self, classes: NDArray[np.intp]) -> Component:
        """The same with some of the classes."""
        return replace(self, logits=self.logits[:, :, classes])


@dataclass(frozen=True)
class Judged:
    """Held-out samples and how much each counts: a given one 1, a synthetic one less."""

    class_index: NDArray[np.int64]  # (n,)
    weight: Floats  # (n,)
    possible: NDArray[np.bool_] | None = None  # (K,) classes of which samples can be held out; None: all

    def rows(self, keep: NDArray[np.bool_]) -> Judged:
        """Some of the samples."""
        return Judged(self.class_index[keep], self.weight[keep], self.possible)

    def fairly(self, components: Sequence[Component]) -> tuple[Sequence[Component], Judged]:
        """Components and samples without the classes that are never the answer.

        Whatever speaks against the class of a single sample would be right each time.
        """
        if self.possible is None or self.possible.all():
            return components, self
        classes = np.flatnonzero(self.possible)
        place = np.cumsum(self.possible) - 1
        return [c.among(classes) for c in components], Judged(place[self.class_index], self.weight)

    @property
    def total(self) -> float:
        """The number of given samples that they are worth."""
        return float(self.weight.sum())

    def mean(self, losses: NDArray[np.floating]) -> float:
        """Of what the samples lose."""
        return float(losses @ self.weight) / self.total

    def targets(self, n_classes: int) -> Floats:
        """(n, K) the own class, less what so many samples cannot prove."""
        n, doubt = len(self.class_index), 1 / (self.total + 2)
        target = np.full((n, n_classes), doubt / n_classes, dtype=np.float32)
        target[np.arange(n), self.class_index] += 1 - doubt
        return target


@dataclass(frozen=True)
class Share:
    """How one component enters the classifier: logits at `option`, times `weight`."""

    view: str
    kind: Kind
    option: int
    weight: float


@dataclass(frozen=True)
class Estimate:
    """Out-of-fold accuracy on the given samples: what can be told without a test set."""

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

    def rows(self, keep: NDArray[np.intp]) -> HeldOut:
        """Some of the samples."""
        return HeldOut(self.logits[keep], self.class_index[keep], self.position[keep])

    def estimate(self) -> Estimate:
        """Their accuracy."""
        correct, n = int((np.argmax(self.logits, axis=1) == self.class_index).sum()), len(self.class_index)
        return Estimate(correct / n, *wilson(correct, n), n)

    def difficulty(self) -> NDArray[np.float64]:
        """(K,) the probability that is not given to the own class, by class, over the mean of all samples.

        The few samples of a class say little, so each class counts some more of mean difficulty.
        """
        n_classes = self.logits.shape[1]
        probability = softmax(self.logits.astype(np.float64), axis=1)
        missed = 1 - np.take_along_axis(probability, self.class_index[:, None], axis=1)[:, 0]
        mean = missed.mean()
        if mean < 1e-9:
            return np.ones(n_classes)
        of_class = np.bincount(self.class_index, weights=missed, minlength=n_classes)
        counts = np.bincount(self.class_index, minlength=n_classes)
        found: NDArray[np.float64] = (of_class / mean + PRIOR_SAMPLES) / (counts + PRIOR_SAMPLES)
        return found

    def need(self) -> NDArray[np.float64]:
        """(K,) samples that a class should have, in those of a class of mean difficulty.

        Where the errors of a class fall with 1 / n, all together are fewest when n goes with the square
        root of its difficulty.
        """
        return np.sqrt(self.difficulty())

    def rivals(self) -> list[int | None]:
        """The class that each class is most mistaken for, either way round; None where hardly ever."""
        n_classes = self.logits.shape[1]
        probability = softmax(self.scale() * self.logits.astype(np.float64), axis=1)
        sums, counts = np.zeros((n_classes, n_classes)), np.bincount(self.class_index, minlength=n_classes)
        np.add.at(sums, self.class_index, probability)
        mistaken = sums / np.maximum(counts, 1)[:, None]
        mistaken = mistaken + mistaken.T
        np.fill_diagonal(mistaken, 0)
        found = mistaken.argmax(axis=1)
        return [int(c) if mistaken[own, c] >= MISTAKEN else None for own, c in enumerate(found)]

    def scale(self) -> float:
        """The factor of the logits with the smallest cross-entropy: one over the temperature."""
        if not self.logits.any():
            return 1.0
        judged = Judged(self.class_index, np.ones(len(self.class_index), np.float32))
        target = judged.targets(self.logits.shape[1])

        def loss(log_scale: float) -> float:
            return _cross_entropy(np.float32(np.exp(log_scale)) * self.logits, target, judged)

        found = minimize_scalar(loss, bounds=np.log(SCALES[[0, -1]]), method="bounded")
        return float(np.exp(found.x))

    def lean(self, seen: NDArray[np.float64], scale: float) -> float:
        """How far the logits, times `scale`, follow the classes' shares in training, from 0 to 1.

        Were inputs as many of each class, logits z - lean log(seen) would surprise least; `seen` (K,) is what
        training saw of the classes. Classes of which no sample is held out have no say. Calibrators
        learn the shares, discriminants and similarities do not, so it differs from task to task.
        """
        classes, place = np.unique(self.class_index, return_inverse=True)
        log_seen = np.log(seen[classes])
        if np.ptp(log_seen) < 1e-9:  # nothing to be learned, and no reason to move anything
            return 0.0
        logits = scale * self.logits[:, classes].astype(np.float64)
        alike = len(place) / (len(classes) * np.bincount(place))  # all classes weigh the same
        judged = Judged(place, alike[place].astype(np.float32))
        target = judged.targets(len(classes))

        def loss(lean: float) -> float:
            return _cross_entropy(logits - lean * log_seen, target, judged)

        return float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)


def in_both(first: HeldOut, second: HeldOut) -> tuple[HeldOut, HeldOut]:
    """The samples that two fits have both held out."""
    _, mine, theirs = np.intersect1d(first.position, second.position, return_indices=True)
    return first.rows(mine), second.rows(theirs)


def stratified_folds(
    class_index: NDArray[np.int64], n_folds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(n,) the fold that holds each sample out; -1 for the only sample of a class, never held out."""
    folds = np.full(len(class_index), -1, dtype=np.int64)
    by_class = np.argsort(class_index, kind="stable")
    starts = np.flatnonzero(np.diff(class_index[by_class], prepend=-1))
    for of_class in np.split(by_class, starts[1:]):
        members = rng.permutation(of_class)
        if len(members) > 1:
            folds[members] = (np.arange(len(members)) + rng.integers(n_folds)) % n_folds
    return folds


def choose_shares(
    components: Sequence[Component], judged: Judged, *, pull: float, typical: float = 0.0
) -> list[Share]:
    """Option and temperature component by component, then one non-negative weight each.

    `pull` counts in samples: it weighs as much in the choice of weights as so many of them. So does
    `typical`, where samples of some class cannot be held out: the strength of the weights that components
    have without evidence, which is not for or against any class.
    """
    fair, among = judged.fairly(components)
    chosen = [_best_option(component, among) for component in fair]
    logits = np.stack([scale * c.logits[i] for c, (i, scale) in zip(fair, chosen, strict=True)])
    weights = stack_weights(logits, among, pull / judged.total)
    doubt = 0.0 if among is judged else typical / (typical + judged.total)
    return [
        Share(c.view, c.kind, c.options[i], float((1 - doubt) * weight * scale + doubt * usual))
        for c, (i, scale), weight, usual in zip(
            components, chosen, weights, typical_weights(components), strict=True
        )
    ]


def typical_weights(components: Sequence[Component]) -> list[float]:
    """Without evidence: all of a like steepness, those that nobody could weigh left out."""
    counted = sum(c.typical > 0 for c in components)
    return [c.typical / max(counted, 1) for c in components]


def honest_logits(
    components: Sequence[Component],
    judged: Judged,
    folds: NDArray[np.int64],  # (n,)
    *,
    pull: float,
    typical: float = 0.0,
) -> Floats:
    """(n, K) joint logits where each fold is judged with the shares that the other folds chose.

    Choosing and judging on the same predictions would flatter: a handful of weights fits a handful
    of samples.
    """
    joint = np.zeros(components[0].logits.shape[1:], np.float32)
    for fold in np.unique(folds):
        held = folds == fold
        others = [c.rows(~held) for c in components]
        shares = choose_shares(others, judged.rows(~held), pull=pull, typical=typical)
        joint[held] = sum(_of_share(c, share)[held] for c, share in zip(components, shares, strict=True))
    return joint


def stack_weights(logits: Floats, judged: Judged, pull: float) -> NDArray[np.float64]:
    """Weights w >= 0 that minimise the cross-entropy of Σ w_v z_v, pulled towards each other.

    Minimises mean cross-entropy + pull * Σ (w_v - mean w)².
    """
    n_views, _, n_classes = logits.shape
    target = judged.targets(n_classes)
    counted = (judged.weight / judged.total)[:, None]

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        joint = np.tensordot(weights, logits, 1)
        joint -= joint.max(axis=1, keepdims=True)
        residual = np.exp(joint)
        sums = residual.sum(axis=1)
        loss = judged.mean(np.log(sums) - (target * joint).sum(axis=1))
        residual /= sums[:, None]
        residual -= target
        residual *= counted
        gradient = np.tensordot(logits, residual, ([1, 2], [0, 1]))
        apart = weights - weights.mean()
        return loss + pull * float(apart @ apart), gradient + 2 * pull * apart

    start = np.full(n_views, 1 / n_views)
    found = minimize(objective, start, jac=True, bounds=[(0, None)] * n_views, method="L-BFGS-B")
    weights: NDArray[np.float64] = found.x
    return weights if weights.any() else start


def best_scale(logits: Floats, judged: Judged) -> tuple[float, float]:
    """The smallest cross-entropy that a temperature can give, and its scale; the flatter on a tie.

    The loss is convex in the scale, so half of those that are left can go at each look.
    """
    target = judged.targets(logits.shape[1])

    def loss(at: int) -> float:
        return _cross_entropy(SCALES[at] * logits, target, judged)

    low, high = 0, len(SCALES) - 1
    while low < high:
        middle = (low + high) // 2
        if loss(middle) <= loss(middle + 1):
            high = middle
        else:
            low = middle + 1
    return loss(low), float(SCALES[low])


def _best_option(component: Component, judged: Judged) -> tuple[int, float]:
    """Option and scale with the smallest cross-entropy; the earlier on a tie."""
    best = [best_scale(logits, judged) for logits in component.logits]
    option = min(range(len(best)), key=lambda i: best[i][0])
    return option, best[option][1]


def _of_share(component: Component, share: Share) -> Floats:
    scaled: Floats = share.weight * component.logits[component.options.index(share.option)]
    return scaled


def _cross_entropy(logits: NDArray[np.floating], target: Floats, judged: Judged) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = (target * shifted).sum(axis=1)
    return judged.mean(np.log(np.exp(shifted).sum(axis=1)) - expected)
