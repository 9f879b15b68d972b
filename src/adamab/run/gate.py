"""The quality gate: what a synthetic sample must pass.

The order is that of the costs: texts are looked at before they are embedded, and only what is left
meets the vectors and the model. The gate keeps no state, so a batch that is adopted again after a
resume meets the same decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamab.providers.generators.answers import is_refusal
from adamab.task.image_folders import read_images
from adamab.task.recipe import Recipe
from adamab.task.spec import Modality
from adamab.task.tables import read_texts
from adamab.task.words import bare, normalised_text

# Texts that must never be trained on: the leak check of `--holdout`.

# A held-out text of so many characters is also found inside a longer sample. A shorter one may be there
# by chance: 'how do I cancel' begins many messages.
CONTAINED_FROM = 30


class Holdout:
    """A set of held-out texts that knows whether a sample gives one of them away.

    Texts are compared without case, white space and punctuation. A sample is held out when it equals
    a held-out text or contains one of at least `CONTAINED_FROM` characters, as after 'Hello, '. A part
    of a held-out text, or one in other words, is not recognised.

    Example:
        >>> "where is my Parcel" in Holdout(["Where is my parcel?"])
        True
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._keys = frozenset(bare(text) for text in texts)
        # The beginnings of long texts, and how long the texts are that begin so: to look for all of
        # them in a sample takes one look-up a character, however many there are.
        self._lengths: dict[str, set[int]] = {}
        for key in self._keys:
            if len(key) >= CONTAINED_FROM:
                self._lengths.setdefault(key[:CONTAINED_FROM], set()).add(len(key))

    @classmethod
    def read(cls, source: str | Path, modality: Modality = "text") -> Holdout:
        """Texts of a JSONL, CSV or TSV file with `text`, or of a `.txt` file with one per line.

        Of images a folder or a file with paths; they are recognised by their bytes.
        """
        if modality == "image":
            return cls(row.text for row in read_images(source))
        return cls(row.text for row in read_texts(source))

    def __len__(self) -> int:
        """Different texts."""
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        """The texts as they are compared."""
        return iter(self._keys)

    def __contains__(self, text: str) -> bool:
        key = bare(text)
        return key in self._keys or any(self._starts_at(key, start) for start in range(len(key)))

    def _starts_at(self, key: str, start: int) -> bool:
        lengths = self._lengths.get(key[start : start + CONTAINED_FROM], ())
        return any(key[start : start + length] in self._keys for length in lengths)

    @property
    def digest(self) -> str:
        """sha256 of the set: the same whatever order, format or repeats the file has."""
        digests = sorted(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest() for key in self._keys)
        return hashlib.sha256(b"".join(digests)).hexdigest()


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
        self.max_label_rank = recipe.max_label_rank
        self.holdout = holdout
        self.rejected = rejected  # normalised texts that a person rejected

    def texts(
        self, batch: Sequence[str], present: Container[str], *, given: Sequence[str] = ()
    ) -> tuple[list[str], list[tuple[str, Reason]]]:
        """What passes of a batch, and what does not and why.

        Args:
            batch: texts that were generated for one class.
            present: the texts that the set has already, normalised.
            given: the class's given samples: where one of them reads like a refusal, the class is about
                refusals and they may enter.

        Returns:
            The texts that pass, and the others, each with the reason.
        """
        refusals_enter = any(is_refusal(text) for text in given)
        passed: dict[str, str] = {}
        rejected: list[tuple[str, Reason]] = []
        for text in batch:
            key = normalised_text(text)
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
        lengths, threshold = _lengths(candidates)[:, None], self.near_duplicate - _ROUNDING
        units = (candidates / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)  # zeros stay zeros
        passed = ~_close_to_any(units, present, threshold)
        among = units @ units.T >= threshold
        for i in np.flatnonzero(passed):
            passed[i] = not (among[i, :i] & passed[:i]).any()
        return passed

    def consistent(self, scores: NDArray[np.floating], class_index: int) -> Mask:
        """Whether fewer than `recipe.max_label_rank` classes score higher than a candidate's own.

        Args:
            scores: (m, K) logits or probabilities of the candidates; classes of equal score do not stand in
                each other's way.
            class_index: the class that they were generated for.

        Returns:
            (m,) which candidates are consistent.
        """
        own = scores[:, class_index, None]
        higher = ~(scores <= own)  # this way round NaN is consistent with nothing
        return np.asarray(higher.sum(axis=1) < (self.max_label_rank or np.inf))


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


# How different the samples of a class are from each other, given against synthetic.


class Diversity(NamedTuple):
    """Mean pairwise cosine distance within one class; None below two samples.

    Synthetic samples far below the given ones are a generator that repeats itself.
    """

    given: float | None
    synthetic: float | None


def diversity(
    pooled: NDArray[np.float32],  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,)
    n_classes: int,
) -> list[Diversity]:
    """The figure of each class. A vector of zeros has no direction and counts as no sample.

    Args:
        pooled: vectors of all samples.
        class_index: the class of each.
        given: whether it was given; the others are synthetic.
        n_classes: how many classes there are, with or without samples.

    Example:
        >>> x = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
        >>> diversity(x, np.array([0, 0, 0]), np.array([True, True, False]), 1)
        [Diversity(given=1.0, synthetic=None)]
    """
    return [
        Diversity(
            given=mean_distance(pooled[(class_index == c) & given]),
            synthetic=mean_distance(pooled[(class_index == c) & ~given]),
        )
        for c in range(n_classes)
    ]


def mean_distance(vectors: NDArray[np.float32]) -> float | None:  # (n, d)
    """1 - (|Σu|² - n) / (n (n - 1)) with the unit vectors u: all pairs in O(nd), since |Σu|² is their sum."""
    exact = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", exact, exact))
    units = exact[lengths > 0] / lengths[lengths > 0, None]
    n = len(units)
    if n < 2:
        return None
    total = units.sum(axis=0)
    cosine = (float(total @ total) - n) / (n * (n - 1))
    return min(max(1.0 - cosine, 0.0), 2.0)  # rounding
