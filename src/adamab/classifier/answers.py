"""From logits to what was asked for: likely classes, `unknown`, prediction sets, other class priors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adamab.classifier.confidence import softmax, strangeness, surprise
from adamab.errors import TaskError
from adamab.task.messages import short, suggestion

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.classifier.confidence import Confidence
    from adamab.classifier.heads import Array

UNKNOWN = "unknown"
_MANY = 32  # classes for each one asked for from which sorting all of them is a waste
_TOLERANCE = 1e-6  # shares that people write down do not sum to 1 exactly


@dataclass(frozen=True)
class Asked:
    """What is wanted of a prediction beside the most probable class."""

    k: int = 1  # so many classes, the best first
    priors: Mapping[str, float] | None = None  # shares of classes where the classifier is used
    unknown: float | None = None  # answer `unknown`, but keep this share of known inputs
    coverage: float | None = None  # sets that hold the true class with this probability

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k is {self.k}; ask for one class or more")
        for name, share in (("unknown", self.unknown), ("coverage", self.coverage)):
            if share is not None:
                _check_share(name, share)
        if self.coverage is not None and self.priors is not None:
            raise TaskError("prediction sets hold for the class shares of the examples; leave the priors out")

    @classmethod
    def for_sets(cls, coverage: float) -> Asked:
        """Prediction sets, for which a share has to be named."""
        _check_share("coverage", coverage)
        return cls(coverage=coverage)


def _check_share(name: str, share: object) -> None:
    number = isinstance(share, (int, float, np.integer, np.floating)) and not isinstance(share, bool)
    if not (number and 0 < share < 1):  # type: ignore[operator]
        shown = share if number else short(share)
        raise TaskError(f"{name} is {shown}; give a share between 0 and 1, such as 0.9")


@dataclass(frozen=True, eq=False)
class Answers:
    """One row a sample; what was not asked for is None."""

    indices: NDArray[np.int64]  # (n, k) classes, the most probable first
    probabilities: Array  # (n, k)
    unknown: NDArray[np.bool_] | None = None  # (n,)
    sets: list[list[int]] | None = None  # classes, the most probable first


class Answerer:
    """Turns logits of one classifier into answers; refuses what the classifier cannot tell."""

    def __init__(self, classes: Sequence[str], confidence: Confidence | None, asked: Asked) -> None:
        self._k = min(asked.k, len(classes))
        self._offsets = None if asked.priors is None else prior_offsets(asked.priors, classes, confidence)
        self._strangest = self._most_surprising = math.inf
        self._asked = asked
        if asked.unknown is not None:
            if UNKNOWN in classes:
                raise TaskError("the model has a class 'unknown' of its own; rename it to ask for unknown")
            self._strangest = _held_out(confidence).threshold("strangeness", asked.unknown)
        if asked.coverage is not None:
            self._most_surprising = _held_out(confidence).threshold("surprise", asked.coverage)

    def __call__(self, block: Array) -> Answers:
        """Of logits (n, K), which are overwritten."""
        unknown = None if self._asked.unknown is None else strangeness(block) > self._strangest
        sets = None if self._asked.coverage is None else self._sets(block)
        if self._offsets is not None:
            block += self._offsets
        softmax(block)
        indices = _best(block, self._k)
        return Answers(indices, np.take_along_axis(block, indices, axis=1), unknown, sets)

    def _sets(self, block: Array) -> list[list[int]]:
        # The most probable class is always in: an empty set would help nobody, and one more class
        # covers no less.
        sizes = np.maximum((surprise(block) <= self._most_surprising).sum(axis=1), 1)
        ordered = _best(block, block.shape[1])
        return [row[:size] for row, size in zip(ordered.tolist(), sizes.tolist(), strict=True)]


def too_few(confidence: Confidence | None, asked: Asked) -> Iterator[tuple[float, str]]:
    """Shares that so few held-out samples cannot vouch for, and what is answered then."""
    shares = ((asked.unknown, "no answer is unknown"), (asked.coverage, "every set holds all classes"))
    for share, result in shares:
        if share is not None and confidence is not None and not confidence.enough_for(share):
            yield share, result


def warn_of_too_few(confidence: Confidence | None, asked: Asked) -> None:
    """For people who call from Python and would see full sets, or no unknown, without a reason."""
    for share, result in too_few(confidence, asked):
        n = confidence.n if confidence else 0
        told = f"the {n} held-out samples cannot vouch for a share of {share:g}, so {result}; add examples"
        warnings.warn(told, UserWarning, stacklevel=4)


def joined(parts: Sequence[Answers]) -> Answers:
    """One after the other."""
    return Answers(
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.probabilities for part in parts]),
        None
        if parts[0].unknown is None
        else np.concatenate([p.unknown for p in parts if p.unknown is not None]),
        None if parts[0].sets is None else [one for part in parts for one in part.sets or ()],
    )


def prior_offsets(
    priors: Mapping[str, float], classes: Sequence[str], confidence: Confidence | None
) -> Array:
    """(K,) what stated shares of classes add to the logits: log(stated share / share that they assume).

    Classes that are not named share the rest as before.
    """
    if confidence is None:
        raise TaskError("the model does not know what class shares it assumes; fit again to state priors")
    if not isinstance(priors, Mapping):
        raise TaskError(f"priors is {short(priors)}; give shares by class, such as {{'refund': 0.2}}")
    assumed = confidence.assumed()
    stated = np.full(len(classes), np.nan)
    for name, share in priors.items():
        if name not in classes:
            raise TaskError(f"prior of {short(name)}, which is no class; {suggestion(str(name), classes)}")
        if isinstance(share, bool) or not isinstance(share, (int, float, np.number)) or not 0 <= share <= 1:
            shown = repr(share) if type(share) is float else short(share)
            raise TaskError(f"prior of {short(name)} is {shown}; give a share from 0 to 1")
        stated[classes.index(name)] = share
    rest, others = 1 - float(np.nansum(stated)), np.isnan(stated)
    if rest < -_TOLERANCE or (rest > _TOLERANCE and not others.any()):
        raise TaskError(f"the priors sum to {1 - rest:.6g}; the shares of all classes must sum to 1")
    stated[others] = max(rest, 0) * assumed[others] / assumed[others].sum()
    with np.errstate(divide="ignore"):  # a class that does not occur
        offsets: Array = np.log(stated / assumed).astype(np.float32)
    return offsets


def _held_out(confidence: Confidence | None) -> Confidence:
    if confidence is None or not confidence.n:
        raise TaskError(
            "the model was fitted without held-out samples, so nothing is known about unknown inputs or "
            "coverage; fit with two or more examples a class and a recipe with folds"
        )
    return confidence


def _best(block: Array, k: int) -> NDArray[np.int64]:
    if k == 1:
        best: NDArray[np.int64] = block.argmax(axis=1)[:, None]
        return best
    if k > block.shape[1] // _MANY:
        return np.argsort(-block, axis=1, kind="stable")[:, :k]
    # Of many classes the few best are found first. Equals of the last one may be left out by chance, so all
    # that are not below it come along, in the order of the classes.
    least = np.partition(block, -k, axis=1)[:, -k]
    found = np.empty((len(block), k), np.int64)
    for number, (row, low) in enumerate(zip(block, least, strict=True)):
        candidates = np.flatnonzero(row >= low)
        found[number] = candidates[np.argsort(-row[candidates], kind="stable")[:k]]
    return found
