"""The quality gate: what a synthetic sample must pass.

The order is that of the costs: texts are looked at before they are embedded, and only what is left
meets the vectors and the model. The gate keeps no state, so a batch that is adopted again after a
resume meets the same decisions.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adamab.providers.generators.refusals import is_refusal
from adamab.run.holdout import Holdout
from adamab.task.recipe import Recipe
from adamab.task.words import folded

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Reason = Literal[
    "empty",
    "unreadable",
    "refusal",
    "held out",
    "rejected before",
    "repeat",
    "near duplicate",
    "inconsistent",
]
REASONS: tuple[Reason, ...] = get_args(Reason)  # in the order of the checks; users read these words

_BLOCK = 8192  # rows of the present samples in one product
_ROUNDING = 1e-6  # of a float32 cosine: equal vectors must meet a threshold of 1


class Gate:
    """What `recipe` and `holdout` let in.

    Example:
        >>> gate = Gate(Recipe(), holdout=Holdout(["Where is my parcel?"]))
        >>> gate.texts(["Refund me!", "refund  ME!", "where is my parcel"], present=set())
        (['Refund me!'], [('refund  ME!', 'repeat'), ('where is my parcel', 'held out')])
    """

    def __init__(
        self, recipe: Recipe, *, holdout: Holdout | None = None, rejected: Container[str] = frozenset()
    ) -> None:
        self.near_duplicate = recipe.near_duplicate
        self.most_probable = recipe.consistent
        self.holdout = holdout
        self.rejected = rejected  # folded texts that somebody does not want to see again

    def texts(
        self, batch: Sequence[str], present: Container[str], *, given: Sequence[str] = ()
    ) -> tuple[list[str], list[tuple[str, Reason]]]:
        """What passes of a batch, and what does not and why; `present` holds folded texts.

        `given` are the class's given samples: where one of them reads like a refusal, the class is
        about refusals and they may enter.
        """
        refusals_enter = any(is_refusal(text) for text in given)
        passed: dict[str, str] = {}
        rejected: list[tuple[str, Reason]] = []
        for text in batch:
            key = folded(text)
            reason = self._fault(text, key, refusals_enter)
            if reason is None and (key in present or key in passed):
                reason = "repeat"
            if reason is None:
                passed[key] = text
            else:
                rejected.append((text, reason))
        return list(passed.values()), rejected

    def _fault(self, text: str, key: str, refusals_enter: bool) -> Reason | None:
        """What is wrong with a text whatever else is there."""
        if not key:
            return "empty"
        if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
            return "unreadable"  # NUL or half a character: caches, tokenizers and files choke on them
        if not refusals_enter and is_refusal(text):
            return "refusal"
        if self.holdout is not None and text in self.holdout:
            return "held out"
        return "rejected before" if key in self.rejected else None

    def vectors(self, candidates: Floats, present: Floats) -> Mask:
        """(m,) whether a candidate (m, d) is no near duplicate of a present sample (n, d).

        Nor of an earlier candidate that passed. A vector of zeros has no direction and passes.
        """
        if self.near_duplicate is None or not len(candidates):
            return np.ones(len(candidates), dtype=np.bool_)
        units, threshold = _units(candidates), self.near_duplicate - _ROUNDING
        passed = ~_close_to_any(units, present, threshold)
        among = units @ units.T >= threshold
        for i in np.flatnonzero(passed):
            passed[i] = not (among[i, :i] & passed[:i]).any()
        return passed

    def consistent(self, scores: NDArray[np.floating], class_index: int) -> Mask:
        """(m,) whether fewer than `recipe.consistent` classes score higher; `scores` is (m, K).

        Logits or probabilities; classes of equal score do not stand in each other's way.
        """
        if self.most_probable is None:
            return np.ones(len(scores), dtype=np.bool_)
        own = scores[:, class_index, None]
        higher = ~(scores <= own)  # this way round NaN is consistent with nothing
        return np.asarray(higher.sum(axis=1) < self.most_probable)


def _units(vectors: Floats) -> Floats:
    """Rows of length one; zeros stay zeros."""
    lengths = _lengths(vectors)[:, None]
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def _lengths(vectors: Floats) -> NDArray[np.float64]:
    # Squares in float64 neither overflow nor vanish, and einsum makes no copy of the matrix.
    squares: NDArray[np.float64] = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    return np.sqrt(squares)


def _close_to_any(units: Floats, present: Floats, threshold: float) -> Mask:
    """(m,) whether cos(unit, row) >= threshold for some row: one product a block, rows left as they are."""
    close = np.zeros(len(units), dtype=np.bool_)
    for start in range(0, len(present), _BLOCK):
        rows = present[start : start + _BLOCK]
        lengths = _lengths(rows)
        dots = rows @ units.T  # (block, m)
        close |= ((dots >= threshold * lengths[:, None]) & (lengths[:, None] > 0)).any(axis=0)
    return close
