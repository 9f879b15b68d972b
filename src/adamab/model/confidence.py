"""What samples that were held out say about how sure a classifier may be.

Two scores of a row of logits, both larger for what fits worse, and neither changed by a number that is
added to all logits: logits of several folds would not be comparable otherwise.

    surprise of class k    -log p_k
    strangeness            mean over k of log p_k: how little the row differs from knowing nothing

Thresholds and prediction sets are split conformal prediction (Papadopoulos et al., Inductive confidence
machines for regression, ECML 2002; Lei et al., Distribution-free predictive inference for regression, JASA
2018): a new sample like the n held-out ones scores at most their ⌈(n + 1) share⌉-th smallest score with
probability `share` or more.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.model.heads import Array

    Numbers: TypeAlias = NDArray[np.floating[Any]]
    Score: TypeAlias = Literal["strangeness", "surprise"]

MOST = 1000  # scores of a kind that are kept; of more, evenly spaced ones
_ROUNDING = 1e-9  # 0.9 times 10 is nine, whatever floats say
_SCORES = ("strangeness", "surprise")


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """Scores of held-out given samples, in rising order, and what else probabilities rest on.

    Example:
        >>> scores = {"strangeness": (-3.0, -2.0, -1.0), "surprise": (0.1, 0.2, 2.0)}
        >>> confidence = Confidence(seen=(1.0, 1.0), n=3, **scores)
        >>> confidence.threshold("surprise", 0.5), confidence.threshold("surprise", 0.9)
        (0.2, inf)
    """

    seen: tuple[float, ...]  # (K,) what the loss saw of each class: samples, times their weights
    temperature: float = 1.0  # by which the heads' logits are divided already
    n: int = 0  # samples that were held out; 0 where none could be
    strangeness: tuple[float, ...] = ()
    surprise: tuple[float, ...] = ()  # of the true class
    prior_exponent: float = 1.0  # how far logits follow `seen`: 0 not at all, 1 by the shares

    def __post_init__(self) -> None:
        if not isinstance(self.seen, tuple) or not self.seen:
            raise ValueError("'seen' is not a list of numbers")
        if not all(type(value) is float and 0 < value < math.inf for value in (*self.seen, self.temperature)):
            raise ValueError("'seen' or the temperature holds something other than a finite number above 0")
        if type(self.prior_exponent) is not float or not 0 <= self.prior_exponent <= 1:
            raise ValueError("'prior_exponent' is not a number from 0 to 1")
        if type(self.n) is not int or self.n < 0:
            raise ValueError("the number of held-out samples is not a count")
        for name in _SCORES:
            scores, size = getattr(self, name), min(self.n, MOST)
            if not isinstance(scores, tuple) or len(scores) != size:
                raise ValueError(f"{name!r} is not a list of {size} numbers")
            if not all(type(score) is float and math.isfinite(score) for score in scores):
                raise ValueError(f"{name!r} holds something other than a finite number")
            if any(a > b for a, b in itertools.pairwise(scores)):
                raise ValueError(f"{name!r} is not in rising order")

    def assumed(self) -> Numbers:
        """(K,) the shares of the classes that the logits take for granted."""
        weights = np.array(self.seen) ** self.prior_exponent
        shares: Numbers = weights / weights.sum()
        return shares

    def threshold(self, score: Score, share: float) -> float:
        """What a new sample's score stays at or below with probability `share`.

        Args:
            score: which of the two scores.
            share: from 0 to 1.

        Returns:
            Infinity where there are too few held-out samples to say. Of scores that were thinned out, the
            next larger one that was kept.
        """
        scores = self.strangeness if score == "strangeness" else self.surprise
        rank = math.ceil((self.n + 1) * share - _ROUNDING)
        if rank > self.n:
            return math.inf
        return scores[_ceiling(max(rank, 1) * len(scores), self.n) - 1]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Confidence:
        """From its fields as JSON has them."""
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()}
        return cls(**values)


def confidence_of(
    logits: Numbers,
    class_index: NDArray[np.int64],
    seen: Numbers,
    scale: float,
    *,
    final: Numbers | None = None,
    prior_exponent: float,
) -> Confidence:
    """What held-out samples say, by their logits.

    A class of which nothing was seen counts as one sample: a share of zero would make it certain or
    impossible as soon as somebody states another.

    Args:
        logits: (n, K) of the held-out samples.
        class_index: (n,) their classes.
        seen: (K,) what the loss saw of each class: samples, times their weights.
        scale: factor of the logits in prediction: one over the temperature.
        final: (n, K) logits of the same samples by folds that trained on synthetic samples as well, as the
            classifier did. More samples make logits steeper, so strangeness is taken from them. Surprise
            is not: whatever wrote the synthetic samples had seen the held-out ones and their classes.
        prior_exponent: how far logits follow `seen`.
    """
    scaled = logits.astype(np.float64) * scale
    steep = scaled if final is None else final.astype(np.float64) * scale
    return Confidence(
        seen=tuple(float(count) or 1.0 for count in seen),
        temperature=1 / scale,
        prior_exponent=prior_exponent,
        n=len(scaled),
        strangeness=_thinned(strangeness(steep)),
        surprise=_thinned(surprise(scaled)[np.arange(len(scaled)), class_index]),
    )


def strangeness(logits: Numbers) -> Numbers:
    """(n,) mean logarithm of the probabilities of each row (n, K)."""
    scores: Numbers = -surprise(logits).mean(axis=1)
    return scores


def surprise(logits: Numbers) -> Numbers:
    """(n, K) minus the logarithms of the probabilities."""
    below = logits.max(axis=1, keepdims=True) - logits
    with np.errstate(under="ignore"):
        scores: Numbers = below + np.log(np.exp(-below).sum(axis=1, keepdims=True))
    return scores


def softmax(block: Array) -> Array:
    """In place; every row sums to 1."""
    with np.errstate(over="ignore", under="ignore"):  # far below the maximum is 0
        block -= block.max(axis=1, keepdims=True)
        np.exp(block, out=block)
    block /= block.sum(axis=1, keepdims=True)
    return block


def _thinned(scores: Numbers) -> tuple[float, ...]:
    """All, or MOST of them at even distances in rank, the largest among them."""
    ranked, n = np.sort(scores), len(scores)
    if n > MOST:
        ranked = ranked[[_ceiling((j + 1) * n, MOST) - 1 for j in range(MOST)]]
    return tuple(float(score) for score in ranked)


def _ceiling(a: int, b: int) -> int:
    """Of a / b."""
    return -(-a // b)
