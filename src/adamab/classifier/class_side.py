"""A class that comes after the fit: a classifier with one more class, without training.

`class_rows` says which rows the heads give to the class. These are as good as those of a trained class in
kind, not in strength: nothing has ever held them against samples of the other classes. With a few examples
they are far too strong, without any too weak. So they are settled against held-out samples of the fit, whose
logits z (one a class of the fit) are kept. Write d for the new class's logit less the mean of z. It becomes

    d' = 2 d + b        and it has the probability p = exp(d') / (exp(d') + Σ exp(z)).

A bias that training has settled is where the probabilities of a class sum to the number of its samples: what
it takes from samples of others is what its own samples lack. So b is where

    mean of p over the held-out samples  =  (mean lack of the class's own samples) / (K - 1)

as it is for a class of the fit on the held-out samples of the K - 1 others. An own sample's lack is 1 - p
with the rows that the other examples give. What held-out samples of the fit lack on average counts as one
more; with one example or none it is all there is. The factor 2 was measured (docs/add-a-class.md):
probability that a class takes should fall on few samples, not a little on each. Where nothing was held out,
logits of training samples stand in, and where there were no samples nothing is settled.

The other classes' logits stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from adamab.classifier.checks import check_array, check_text, check_width
from adamab.classifier.class_rows import ClassHead, Matching, Row
from adamab.classifier.classifier import WORDS
from adamab.classifier.confidence import softmax
from adamab.classifier.heads import through
from adamab.errors import TaskError
from adamab.task.messages import short
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from adamab.classifier.classifier import Classifier
    from adamab.classifier.heads import Array, Head, Rows

MOST = 256  # samples that a class is settled against; of more, evenly spread ones
_MOST_OWN = 32  # the same of its own examples
_STEEPER = 2.0  # see above
_HALVINGS = 60
_FAR = 50.0  # logits beyond which a probability is none


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """Samples of the fit against which a class that comes later is settled."""

    queries: tuple[Array, ...]  # (m, r) prepared, one matrix a head
    logits: Array  # (m, K) less their mean, by heads that did not see the sample
    lack: float  # mean probability that these samples lack for their own class

    def __post_init__(self) -> None:
        for number, queries in enumerate(self.queries):
            check_array(queries, f"queries {number}", 2)
            check_width(f"queries {number}: number of samples", len(queries), len(self.logits))
        check_array(self.logits, "logits", 2)
        if not isinstance(self.lack, float) or not 0 < self.lack < 1:
            raise ValueError("the lack of probability is none")

    @classmethod
    def of(
        cls,
        heads: Sequence[Head],
        queries: Sequence[Array],  # (n, r) of all samples, one matrix a head
        class_index: NDArray[np.int64],  # (n,)
        held_out: tuple[NDArray[np.int64], Array] | None,  # which samples, and their logits (.., K)
    ) -> Reference | None:
        """Of held-out samples, or of all where none is; None without samples."""
        rows = np.arange(len(class_index)) if held_out is None else held_out[0]
        if not len(rows):
            return None
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), MOST)).astype(np.intp)
        rows = rows[chosen]
        parts = tuple(np.ascontiguousarray(q[rows], np.float32) for q in queries)
        logits = _logits(heads, parts) if held_out is None else held_out[1][chosen]
        logits = _centred(logits)
        return cls(queries=parts, logits=logits, lack=_lack(logits, class_index[rows]))

    def shift(self, new: Array, own: tuple[Array, Array]) -> float:
        """b of a class with logits d' `new` (m,) here and `own` (j,), (j, K): d' and z of its own samples."""
        room = _log_sum(self.logits) - new  # (m,) p is one half where b is this
        own_room = _log_sum(own[1]) - own[0]  # (j,)
        per_class = len(room) / (self.logits.shape[1] - 1)
        rooms = np.concatenate([room, own_room])
        low, high = float(rooms.min()) - _FAR, float(rooms.max()) + _FAR
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            lacking = (_probability(own_room - middle).sum() + self.lack) / (len(own_room) + 1)
            enough = _probability(middle - room).sum() >= per_class * lacking
            low, high = (low, middle) if enough else (middle, high)
        return middle


@dataclass(frozen=True, eq=False, kw_only=True)
class NewClass:
    """A class that is to be added: vectors of its wording (1, d) and of its examples (n, d) by view."""

    name: str
    described: Mapping[str, Rows]
    examples: Mapping[str, Rows]
    n: int  # examples


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassSide:
    """What makes the rows of a class that comes later; one part a head, in the classifier's order."""

    heads: tuple[ClassHead, ...]
    reference: Reference | None = None
    wording: str = Prompts.described  # the template of the classes' wordings
    with_examples: bool = False  # whether a wording quotes examples

    def __post_init__(self) -> None:
        check_text(self.wording, "the wording of the classes")
        if self.reference is not None and len(self.reference.queries) != len(self.heads):
            raise ValueError("there are not as many matrices of queries as heads")

    def class_text(self, name: str, description: str | None, examples: Sequence[str]) -> str:
        """What the embedder is asked for, as for the classes of the fit."""
        prompts = Prompts(described=self.wording, with_examples=self.with_examples)
        return prompts.class_text(ClassSpec(name, description), examples)

    def described_views(self, classifier: Classifier) -> tuple[str, ...]:
        """Views of the embedder in which the wording of a class needs a vector."""
        parts = zip(classifier.heads, self.heads, strict=True)
        found = (head.view for head, part in parts if isinstance(part, Matching) and part.described)
        return tuple(dict.fromkeys(view for view in found if view != WORDS))

    def check(self, classifier: Classifier) -> None:
        """Refuse a classifier that this was not made for, with a `ValueError`."""
        if len(self.heads) != len(classifier.heads):
            raise ValueError(f"{len(self.heads)} heads where the classifier has {len(classifier.heads)}")
        for head, part in zip(classifier.heads, self.heads, strict=True):
            part.check(head)
        if self.reference is None:
            return
        for head, queries in zip(classifier.heads, self.reference.queries, strict=True):
            check_width("queries", queries.shape[1], head.linear.shape[1])
        if self.reference.logits.shape[1] > len(classifier.classes):
            raise ValueError("it is of more classes than the classifier has")

    def extended(self, classifier: Classifier, new: NewClass) -> Classifier:
        """The classifier with one more class, the last.

        This class side is as good for the new classifier as for the old one.
        """
        if new.name in classifier.classes:
            raise TaskError(f"class {short(new.name)} is there already; name another")
        examples = _prepared(classifier.heads, new.examples)
        rows = self.rows(classifier, new, examples)
        if self.reference is not None:
            rows = self._settled(classifier, new, rows, examples, self.reference)
        heads = tuple(_grown(head, row) for head, row in zip(classifier.heads, rows, strict=True))
        confidence = classifier.confidence
        if confidence is not None:
            # As in a fit, a class of which nothing was seen counts as one sample.
            confidence = replace(confidence, seen=(*confidence.seen, float(new.n) or 1.0))
        classes = (*classifier.classes, new.name)
        return replace(classifier, classes=classes, heads=heads, confidence=confidence)

    def rows(self, classifier: Classifier, new: NewClass, examples: Sequence[Array]) -> list[Row]:
        """The rows of a class by the formulas of the fit, one a head; of prepared examples (n, r)."""
        return [
            part.row(head, new.described.get(head.view), queries)
            for head, part, queries in zip(classifier.heads, self.heads, examples, strict=True)
        ]

    def _settled(
        self,
        classifier: Classifier,
        new: NewClass,
        rows: Sequence[Row],
        examples: Sequence[Array],
        reference: Reference,
    ) -> list[Row]:
        heads, n_classes = classifier.heads, reference.logits.shape[1]
        others = [_mean_row(head, n_classes) for head in heads]
        own = [self._left_out(classifier, new, examples, others, i) for i in self._judged(new)]
        steeper = [_steeper(row, other) for row, other in zip(rows, others, strict=True)]
        shift = reference.shift(
            _apart(heads, steeper, others, reference.queries),
            (np.array([d for d, _ in own]), np.array([z for _, z in own]).reshape(len(own), n_classes)),
        )
        return [replace(steeper[0], bias=steeper[0].bias + shift), *steeper[1:]]

    def _judged(self, new: NewClass) -> NDArray[np.intp]:
        """Examples to leave out in turn; none where there is one, or where the wording gives them away."""
        most = 0 if new.n < 2 or self.with_examples else min(new.n, _MOST_OWN)
        return np.linspace(0, new.n - 1, most).astype(np.intp)

    def _left_out(
        self,
        classifier: Classifier,
        new: NewClass,
        examples: Sequence[Array],
        others: Sequence[Row],
        i: np.intp,
    ) -> tuple[float, Array]:
        """d' of an example by the rows of the other examples, and z (K,)."""
        heads, n_classes = classifier.heads, len(classifier.classes)
        rows = self.rows(classifier, new, [np.delete(queries, i, axis=0) for queries in examples])
        steeper = [_steeper(row, other) for row, other in zip(rows, others, strict=True)]
        queries = [q[i : i + 1] for q in examples]
        fitted = n_classes if self.reference is None else self.reference.logits.shape[1]
        z = _centred(_logits(heads, queries)[:, :fitted])
        return float(_apart(heads, steeper, others, queries)[0]), z[0]


def _lack(logits: Array, class_index: NDArray[np.int64]) -> float:
    """By the rule of succession: of a few samples without an error one cannot tell that there are none."""
    own = softmax(logits.copy())[np.arange(len(logits)), class_index]
    return (float((1 - own).sum()) + 1) / (len(own) + 2)


def _centred(logits: Array) -> Array:
    found: Array = (logits - logits.mean(axis=1, keepdims=True)).astype(np.float32)
    return found


def _log_sum(logits: Array) -> NDArray[np.float64]:  # (m, K) -> (m,)
    wide = logits.astype(np.float64)
    highest = wide.max(axis=1, initial=-np.inf)
    found: NDArray[np.float64] = highest + np.log(np.exp(wide - highest[:, None]).sum(axis=1))
    return found


def _probability(x: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = 0.5 * (1 + np.tanh(0.5 * x))  # 1 / (1 + exp(-x)), without an overflow
    return found


def _prepared(heads: Sequence[Head], examples: Mapping[str, Rows]) -> list[Array]:
    """(n, r) of each head; without examples (0, r)."""
    return [
        head.prepared(examples[head.view])
        if head.view in examples and examples[head.view].shape[0]
        else np.zeros((0, head.linear.shape[1]), np.float32)
        for head in heads
    ]


def _steeper(row: Row, other: Row) -> Row:
    return _plus(other, _minus(row, other), _STEEPER)


def _apart(
    heads: Sequence[Head], rows: Sequence[Row], others: Sequence[Row], queries: Sequence[Array]
) -> Array:  # (m,)
    """The logits of rows less those of the others' mean."""
    parts = zip(heads, rows, others, queries, strict=True)
    found: Array = np.sum([_logits_of(head, _minus(row, other), q) for head, row, other, q in parts], axis=0)
    return found


def _logits(heads: Sequence[Head], queries: Sequence[Array]) -> Array:  # (m, K)
    of_heads = [head.of_prepared(part) for head, part in zip(heads, queries, strict=True)]
    found: Array = np.sum(of_heads, axis=0)
    return found


def _logits_of(head: Head, row: Row, queries: Array) -> Array:  # (m, r) -> (m,)
    found: Array = queries @ row.linear + np.float32(row.bias)
    if row.hidden is not None:
        found = found + through(head.tower, queries, head.activation) @ row.hidden
    return found


def _mean_row(head: Head, n_classes: int) -> Row:
    """Of the classes of the fit, which come first."""
    bias = 0.0 if head.bias is None else float(head.bias[:n_classes].mean())
    hidden = None if head.hidden is None else head.hidden[:n_classes].mean(axis=0)
    return Row(head.linear[:n_classes].mean(axis=0), hidden, bias)


def _minus(row: Row, other: Row) -> Row:
    return _plus(row, other, -1.0)


def _plus(row: Row, other: Row, factor: float) -> Row:
    """row + factor * other."""
    hidden = None
    if row.hidden is not None and other.hidden is not None:
        hidden = row.hidden + factor * other.hidden
    return Row(row.linear + factor * other.linear, hidden, row.bias + factor * other.bias)


def _grown(head: Head, row: Row) -> Head:
    bias, hidden = head.bias, head.hidden
    if bias is None and row.bias:
        bias = np.zeros(head.classes, np.float32)
    if bias is not None:
        bias = np.append(bias, np.float32(row.bias))
    if hidden is not None and row.hidden is not None:
        hidden = np.concatenate([hidden, row.hidden[None].astype(np.float32)])
    linear = np.concatenate([head.linear, row.linear[None].astype(np.float32)])
    return replace(head, linear=linear, hidden=hidden, bias=bias)
