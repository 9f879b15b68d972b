"""What the folds say: how long each head trains, how steep it is, and how much each view counts.

A component is anything that has logits: a view's calibrator at one of its checkpoints, its discriminant
at one of its shrinkages, or its untrained similarity. Its out-of-fold logits on the given samples, and
nothing else, decide here.

Losses count a share 1/(n+2) of each of the n held-out samples as spread over all classes. A perfect
record of n samples proves no better odds than that (Laplace's rule), and without it separable folds
would make the classifier infinitely sure of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from adamab.method.statistics import wilson

Floats: TypeAlias = NDArray[np.float32]
Kind: TypeAlias = Literal["calibrator", "discriminant", "similarity"]
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

    def rows(self, keep: NDArray[np.bool_]) -> Component:
        """The same with some of the samples."""
        return Component(self.view, self.kind, self.options, self.logits[:, keep])


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

    def estimate(self) -> Estimate:
        """Their accuracy."""
        correct, n = int((np.argmax(self.logits, axis=1) == self.class_index).sum()), len(self.class_index)
        return Estimate(correct / n, *wilson(correct, n), n)

    def scale(self) -> float:
        """The factor of the logits with the smallest cross-entropy: one over the temperature."""
        if not self.logits.any():
            return 1.0
        target = _targets(self.class_index, self.logits.shape[1])

        def loss(log_scale: float) -> float:
            return _cross_entropy(np.float32(np.exp(log_scale)) * self.logits, target)

        found = minimize_scalar(loss, bounds=np.log(SCALES[[0, -1]]), method="bounded")
        return float(np.exp(found.x))


def stratified_folds(
    class_index: NDArray[np.int64], n_folds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(n,) the fold that holds each sample out; -1 for the only sample of a class, never held out."""
    folds = np.full(len(class_index), -1, dtype=np.int64)
    for c in np.unique(class_index):
        members = rng.permutation(np.flatnonzero(class_index == c))
        if len(members) > 1:
            folds[members] = (np.arange(len(members)) + rng.integers(n_folds)) % n_folds
    return folds


def choose_shares(
    components: Sequence[Component], class_index: NDArray[np.int64], pull: float
) -> list[Share]:
    """Option and temperature component by component, then one non-negative weight each.

    `pull` counts in samples: it weighs as much in the choice of weights as so many of them.
    """
    chosen = [_best_option(component, class_index) for component in components]
    logits = np.stack([scale * c.logits[i] for c, (i, scale) in zip(components, chosen, strict=True)])
    weights = stack_weights(logits, class_index, pull / len(class_index))
    return [
        Share(c.view, c.kind, c.options[i], float(weight * scale))
        for c, (i, scale), weight in zip(components, chosen, weights, strict=True)
    ]


def honest_logits(
    components: Sequence[Component],
    class_index: NDArray[np.int64],  # (n,)
    folds: NDArray[np.int64],  # (n,)
    pull: float,
) -> HeldOut:
    """Joint logits where each fold is judged with the shares that the other folds chose.

    Choosing and judging on the same predictions would flatter: a handful of weights fits a handful
    of samples.
    """
    joint = np.zeros(components[0].logits.shape[1:], np.float32)
    for fold in np.unique(folds):
        held = folds == fold
        shares = choose_shares([c.rows(~held) for c in components], class_index[~held], pull)
        joint[held] = sum(_of_share(c, share)[held] for c, share in zip(components, shares, strict=True))
    return HeldOut(joint, class_index)


def stack_weights(logits: Floats, class_index: NDArray[np.int64], pull: float) -> NDArray[np.float64]:
    """Weights w >= 0 that minimise the cross-entropy of Σ w_v z_v, pulled towards each other.

    Minimises mean cross-entropy + pull * Σ (w_v - mean w)².
    """
    n_views, n, n_classes = logits.shape
    target = _targets(class_index, n_classes)

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        joint = np.tensordot(weights, logits, 1)
        joint -= joint.max(axis=1, keepdims=True)
        residual = np.exp(joint)
        sums = residual.sum(axis=1)
        loss = float((np.log(sums) - (target * joint).sum(axis=1)).mean())
        residual /= sums[:, None]
        residual -= target
        gradient = np.tensordot(logits, residual, ([1, 2], [0, 1])) / n
        apart = weights - weights.mean()
        return loss + pull * float(apart @ apart), gradient + 2 * pull * apart

    start = np.full(n_views, 1 / n_views)
    found = minimize(objective, start, jac=True, bounds=[(0, None)] * n_views, method="L-BFGS-B")
    weights: NDArray[np.float64] = found.x
    return weights if weights.any() else start


def best_scale(logits: Floats, class_index: NDArray[np.int64]) -> tuple[float, float]:
    """The smallest cross-entropy that a temperature can give, and its scale; the flatter on a tie.

    The loss is convex in the scale, so half of those that are left can go at each look.
    """
    target = _targets(class_index, logits.shape[1])
    low, high = 0, len(SCALES) - 1
    while low < high:
        middle = (low + high) // 2
        if _cross_entropy(SCALES[middle] * logits, target) <= _cross_entropy(
            SCALES[middle + 1] * logits, target
        ):
            high = middle
        else:
            low = middle + 1
    return _cross_entropy(SCALES[low] * logits, target), float(SCALES[low])


def _best_option(component: Component, class_index: NDArray[np.int64]) -> tuple[int, float]:
    """Option and scale with the smallest cross-entropy; the earlier on a tie."""
    best = [best_scale(logits, class_index) for logits in component.logits]
    option = min(range(len(best)), key=lambda i: best[i][0])
    return option, best[option][1]


def _of_share(component: Component, share: Share) -> Floats:
    scaled: Floats = share.weight * component.logits[component.options.index(share.option)]
    return scaled


def _cross_entropy(logits: Floats, target: Floats) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = (target * shifted).sum(axis=1)
    return float((np.log(np.exp(shifted).sum(axis=1)) - expected).mean())


def _targets(class_index: NDArray[np.int64], n_classes: int) -> Floats:
    """(n, K) the own class, less what n samples cannot prove."""
    doubt = 1 / (len(class_index) + 2)
    target = np.full((len(class_index), n_classes), doubt / n_classes, dtype=np.float32)
    target[np.arange(len(class_index)), class_index] += 1 - doubt
    return target
