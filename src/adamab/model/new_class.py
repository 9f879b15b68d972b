"""A class that comes after the fit: a classifier with one more class, without training.

The rows that the heads give to the class come from the formulas of the fit. They are as good as those of a
trained class in kind, not in strength: nothing has ever held them against samples of the other classes. With
a few examples they are far too strong, without any too weak. So they are settled against held-out samples of
the fit, whose logits z (one per class of the fit) are kept. Write d for the new class's logit less the mean
of z. It becomes

    d' = c d + b        and it has the probability p = exp(d') / (exp(d') + Σ exp(z)).

A bias that training has settled is where the probabilities of a class sum to the number of its samples: what
it takes from samples of others is what its own samples lack. So b is where

    mean of p over the held-out samples  =  (mean lack of the class's own samples) / (K - 1)

as it is for a class of the fit on the held-out samples of the K - 1 others. An own sample's lack is 1 - p
with the rows that the other examples give. What held-out samples of the fit lack on average counts as one
more; with one example or none it is all there is. The factor c is
`Recipe.added_class_scale`. Where nothing was held out,
logits of training samples stand in, and where there were no samples nothing is settled.

The other classes' logits stay as they are.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from adamab.errors import AdamabError, ModelFileError, TaskError, one_line, place, short
from adamab.method.discriminant import MeanLengthCorrection, discriminant_rows
from adamab.method.views import ViewTransform, class_inputs, evenly_spread, unit
from adamab.model.classifier import WORDS
from adamab.model.confidence import softmax
from adamab.model.heads import ArrayParts, check_array, through
from adamab.model.storage import CLASSES, read_file, replace_file, tensors_of, weights_of, writing
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from adamab.model.classifier import Classifier
    from adamab.model.heads import Array, Head, Rows


# The rows of a class in a classifier's heads, from its wording and its examples, without training.
#
# Write q for a prepared sample of a view (centred, of length one, in the head's coordinates; see `Head`), m
# for the mean of the class's examples prepared in that way, zero without examples, and t for its wording's
# vector: centred on the mean of the wordings of the fit, of length one, in the same coordinates. The
# classes of the fit got their rows from the same formulas.
#
# A head that matches samples with classes (`Matching`) has the logit
#
#     w s (q + W a) . (p + P(p) + f)  +  u q . t         a: last hidden units of q
#
# with the class input p (`class_inputs`), the trained class tower P, the last layer W of the query tower, and
# f the mean of the vectors that training gave to single classes. The row is `linear` = v + u t and
# `hidden` = Wᵀ v with v = w s (p + P(p) + f) (`matching_rows`).
#
# A discriminant (`Scatter`) has c times the row of `discriminant_rows` or, where all directions count alike,
# c m / ‖m‖ without a bias.
#
# A class without examples has the mean row of the others: nothing is said of it.
#
# What cannot be had without training: centre, span, vocabulary, scatter and towers have not seen the class.

ClassInput: TypeAlias = Literal["description", "mean", "both"]


@dataclass(frozen=True)
class Row:
    """A class's share of one head."""

    linear: Array  # (r,)
    hidden: Array | None = None  # (h,)
    bias: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Matching(ArrayParts):
    """How a head that matches samples with classes makes a class's row."""

    DIMENSIONS: ClassVar = {"described_centre": 1, "free": 1, "last": 2}

    class_input: ClassInput
    described: bool  # whether wordings have vectors in this view
    similarity: float = 0.0  # u: weight of the untrained similarity, its scale included
    scale: float = 0.0  # w s: weight of the calibrator times the scale of its logits
    described_centre: Array | None = None  # (d,)
    tower: tuple[Array, ...] = ()  # of the classes, (out, in) each; none without a calibrator
    free: Array | None = None  # (R,) with R >= r: a trained tower may be wider than the view
    last: Array | None = None  # (R, h) the query tower's last layer

    def row(self, head: Head, described: Rows | None, examples: Array) -> Row:
        """The row of a class with that wording (1, d) and those prepared examples (n, r)."""
        wording, vectors = None, None
        if described is not None:
            transform = ViewTransform(self.described_centre, head.normalise, head.basis)
            wording = transform(described)  # (1, r)
        if self.last is not None:
            x = class_inputs(_mean(examples), wording, self.class_input)
            vectors = through(self.tower[:-1], x, head.activation) @ self.tower[-1].T
            vectors[:, : x.shape[1]] += x
            vectors = np.float32(self.scale) * (vectors if self.free is None else vectors + self.free)
        matched = None if wording is None else np.float32(self.similarity) * wording
        linear, hidden = matching_rows(vectors, self.last, matched, head.linear.shape[1], bool(head.tower))
        return Row(linear[0], None if hidden is None else hidden[0])


def matching_rows(
    vectors: Array | None,  # (K, R) calibrated class vectors, with R >= r
    last: Array | None,  # (R, h) the query tower's last layer
    matched: Array | None,  # (K, r) class wordings times the weight of the untrained similarity
    width: int,  # r
    has_tower: bool,  # whether other layers come before the last
) -> tuple[Array, Array | None]:
    """Rows of classes: (q + W a) . v + q . t is one product with q and one with the last hidden units a.

    Returns:
        `linear` (K, r) and `hidden` (K, h) of a head.
    """
    if vectors is None or last is None:
        return (np.zeros((1, width), np.float32) if matched is None else matched), None
    linear = vectors[:, :width] if matched is None else matched + vectors[:, :width]
    pulled = vectors @ last
    return (linear, pulled) if has_tower else (linear + pulled[:, :width], None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter(ArrayParts):
    """How a discriminant makes a class's row."""

    DIMENSIONS: ClassVar = {"inverse": 2}

    scale: float  # c: weight of the head times what brings all its rows to one length
    inverse: Array | None = None  # (r, r) S⁻¹; None where all directions count alike
    lengths: MeanLengthCorrection | None = None  # None where counts were alike

    def row(self, head: Head, described: Rows | None, examples: Array) -> Row:
        """The row of a class with those prepared examples (n, r); its wording has no part in it."""
        if not len(examples):
            others = 0.0 if head.bias is None else float(head.bias.mean())
            return Row(head.linear.mean(axis=0), bias=others)
        mean = _mean(examples)
        if self.inverse is None:
            return Row(self.scale * unit(mean)[0])
        turned = mean @ self.inverse
        squares, inverses = (turned * mean).sum(axis=1), np.array([1 / len(examples)])
        vectors, bias = discriminant_rows(turned, squares, inverses, self.lengths)
        return Row(np.asarray(self.scale * vectors[0], np.float32), bias=self.scale * float(bias[0]))


ClassHead: TypeAlias = Matching | Scatter


def _mean(examples: Array) -> Array:  # (n, r) -> (1, r)
    if not len(examples):
        return np.zeros((1, examples.shape[1]), np.float32)
    return np.asarray(examples.mean(axis=0, keepdims=True), np.float32)


MOST = 256  # samples that a class is settled against; of more, evenly spread ones
_MOST_OWN = 32  # the same of its own examples
_FAR = 50.0  # logits beyond which a probability is none


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """Samples of the fit against which a class that comes later is settled."""

    queries: tuple[Array, ...]  # (m, r) prepared, one matrix per head
    logits: Array  # (m, K) less their mean, by heads that did not see the sample
    lack: float  # mean probability that these samples lack for their own class

    @classmethod
    def of(
        cls,
        heads: Sequence[Head],
        queries: Sequence[Array],  # (n, r) of all samples, one matrix per head
        class_index: NDArray[np.int64],  # (n,)
        held_out: tuple[NDArray[np.int64], Array] | None,  # which samples, and their logits (.., K)
    ) -> Reference | None:
        """Of held-out samples, or of all where none is; None without samples.

        Args:
            heads: of the classifier.
            queries: (n, r) of all samples, one matrix per head.
            class_index: (n,) class of each sample.
            held_out: which samples were held out, and their logits.
        """
        rows = np.arange(len(class_index)) if held_out is None else held_out[0]
        if not len(rows):
            return None
        chosen = evenly_spread(len(rows), MOST)
        rows = rows[chosen]
        parts = tuple(np.ascontiguousarray(q[rows], np.float32) for q in queries)
        logits = _logits(heads, parts) if held_out is None else held_out[1][chosen]
        logits = (logits - logits.mean(axis=1, keepdims=True)).astype(np.float32)
        own = softmax(logits.copy())[np.arange(len(rows)), class_index[rows]]
        # By the rule of succession: of a few samples without an error one cannot tell that there are none.
        return cls(queries=parts, logits=logits, lack=(float((1 - own).sum()) + 1) / (len(rows) + 2))

    def shift(self, new: Array, own: tuple[Array, Array]) -> float:
        """b of a class with logits d' `new` (m,) here and `own` (j,), (j, K): d' and z of its own samples."""
        room = logsumexp(self.logits.astype(np.float64), axis=1) - new  # (m,) p is one half where b is this
        own_room = logsumexp(own[1].astype(np.float64), axis=1) - own[0]  # (j,)
        per_class = len(room) / (self.logits.shape[1] - 1)
        rooms = np.concatenate([room, own_room])

        def excess(b: float) -> float:
            lacking = (expit(own_room - b).sum() + self.lack) / (len(own_room) + 1)
            return float(expit(b - room).sum() - per_class * lacking)

        return float(brentq(excess, rooms.min() - _FAR, rooms.max() + _FAR))


@dataclass(frozen=True, eq=False, kw_only=True)
class NewClass:
    """A class that is to be added: vectors of its wording (1, d) and of its examples (n, d) by view."""

    name: str
    described: Mapping[str, Rows]
    examples: Mapping[str, Rows]
    n: int  # examples


@dataclass(frozen=True, eq=False, kw_only=True)
class NewClassModel:
    """What makes the rows of a class that comes later; one part per head, in the classifier's order."""

    heads: tuple[ClassHead, ...]
    reference: Reference | None = None
    wording: str = Prompts.described  # the template of the classes' wordings
    with_examples: bool = False  # whether a wording quotes examples
    scale: float = 2.0  # factor of a new class's logits around the mean of the others'

    def class_text(self, name: str, description: str | None, examples: Sequence[str]) -> str:
        """What the embedder is asked for, as for the classes of the fit.

        Args:
            name: of the class.
            description: a sentence about it.
            examples: texts of the class, quoted if the wording does so.
        """
        prompts = Prompts(described=self.wording, with_examples=self.with_examples)
        return prompts.class_text(ClassSpec(name, description), examples)

    def described_views(self, classifier: Classifier) -> tuple[str, ...]:
        """Views of the embedder in which the wording of a class needs a vector."""
        parts = zip(classifier.heads, self.heads, strict=True)
        views = [head.view for head, part in parts if isinstance(part, Matching) and part.described]
        return tuple(dict.fromkeys(view for view in views if view != WORDS))

    def check(self, classifier: Classifier) -> None:
        """Refuse, with some exception, what no class could be added with: by adding one on trial."""
        for part in self.heads:
            part.check_arrays()
        if self.reference is not None:
            for array in (self.reference.logits, *self.reference.queries):
                check_array(array, "the reference", 2)
            if self.reference.logits.shape[1] > len(classifier.classes):
                raise ValueError("made for more classes than the classifier has")
        trial = max(classifier.classes, key=len) + "+"
        vectors = {head.view: np.eye(2, head.width, dtype=np.float32) for head in classifier.heads}
        described = {view: rows[:1] for view, rows in vectors.items()}
        self.class_text(trial, None, [trial])
        self.extended(classifier, NewClass(name=trial, described=described, examples=vectors, n=2))

    def extended(self, classifier: Classifier, new: NewClass) -> Classifier:
        """The classifier with one more class, the last.

        It serves the new classifier as well as the old one.

        Args:
            classifier: the one that this was made for, or one that it has extended.
            new: the class.
        """
        if new.name in classifier.classes:
            raise TaskError(f"class {short(new.name)} is there already; name another")
        examples = [
            head.prepared(new.examples[head.view])
            if head.view in new.examples and new.examples[head.view].shape[0]
            else np.zeros((0, head.linear.shape[1]), np.float32)
            for head in classifier.heads
        ]
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
        """The rows of a class by the formulas of the fit, one per head; of prepared examples (n, r)."""
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

        def apart(rows: Sequence[Row], queries: Sequence[Array]) -> tuple[Array, Array]:
            """c d (m,) and z less its mean (m, K) of prepared samples, with these rows for the class."""
            logits = _logits([_grown(head, row) for head, row in zip(heads, rows, strict=True)], queries)
            logits = logits - logits[:, :n_classes].mean(axis=1, keepdims=True)
            return self.scale * logits[:, -1], logits[:, :n_classes]

        # Of examples, each left out in turn: not where there is one, or where the wording gives them away.
        n_judged = 0 if new.n < 2 or self.with_examples else min(new.n, _MOST_OWN)
        own, own_others = np.zeros(n_judged, np.float32), np.zeros((n_judged, n_classes), np.float32)
        for number, i in enumerate(evenly_spread(new.n, n_judged)):
            by_rest = self.rows(classifier, new, [np.delete(queries, i, axis=0) for queries in examples])
            own[number : number + 1], own_others[number] = apart(by_rest, [q[i : i + 1] for q in examples])
        shift = reference.shift(apart(rows, reference.queries)[0], (own, own_others))
        first, *rest = (
            _scaled(row, head, n_classes, self.scale) for row, head in zip(rows, heads, strict=True)
        )
        return [replace(first, bias=first.bias + shift), *rest]


def _logits(heads: Sequence[Head], queries: Sequence[Array]) -> Array:  # (m, K)
    """Of samples that are prepared already."""
    bare = [replace(head, centre=None, normalise=False, basis=None) for head in heads]
    return np.asarray(np.sum([head.logits(q) for head, q in zip(bare, queries, strict=True)], axis=0))


def _scaled(row: Row, head: Head, n_classes: int, scale: float) -> Row:
    """The mean row of the classes of the fit, plus `scale` times what the row adds to it."""
    linear, hidden = head.linear[:n_classes].mean(axis=0), None
    if head.hidden is not None and row.hidden is not None:
        hidden = head.hidden[:n_classes].mean(axis=0)
        hidden = hidden + scale * (row.hidden - hidden)
    bias = 0.0 if head.bias is None else float(head.bias[:n_classes].mean())
    return Row(linear + scale * (row.linear - linear), hidden, bias + scale * (row.bias - bias))


def _grown(head: Head, row: Row) -> Head:
    """The head with the row as its last."""
    bias, hidden = head.bias, head.hidden
    if bias is None and row.bias:
        bias = np.zeros(len(head.linear), np.float32)
    if bias is not None:
        bias = np.append(bias, np.float32(row.bias))
    if hidden is not None and row.hidden is not None:
        hidden = np.concatenate([hidden, row.hidden[None].astype(np.float32)])
    linear = np.concatenate([head.linear, row.linear[None].astype(np.float32)])
    return replace(head, linear=linear, hidden=hidden, bias=bias)


# What makes the rows of later classes, on disk: `classes.safetensors` beside the model. Never a pickle.
#
# The file's metadata say of which weights it is, by their sha256. A class that is added changes the weights
# and not what this file is good for, so it may name two: those before and those after. It is written before
# the model is replaced; killed at any point, a directory holds a model and a file that fits it.

FORMAT, VERSION = "adamab-classes", 1
_MATCHING_SETTINGS = ("scale", "similarity", "class_input", "described")
_KEY = "adamab"  # of the metadata, which safetensors wants to be texts


def save_new_class_model(side: NewClassModel, directory: str | PathLike[str], *models: Classifier) -> None:
    """Write `side` into `directory`, good for these classifiers.

    Args:
        side: what to write.
        directory: that of the model.
        models: the classifiers that it serves.
    """
    folder, tensors = Path(directory), tensors_of(side.heads)
    if side.reference is not None:
        tensors["logits"] = np.ascontiguousarray(side.reference.logits)
        for number, queries in enumerate(side.reference.queries):
            tensors[f"{number}.queries"] = np.ascontiguousarray(queries)
    heads: list[dict[str, Any]] = []
    for head in side.heads:
        if isinstance(head, Scatter):
            lengths = None if head.lengths is None else asdict(head.lengths)
            heads.append({"kind": "scatter", "scale": head.scale, "lengths": lengths})
        else:
            settings = {name: getattr(head, name) for name in _MATCHING_SETTINGS}
            heads.append({"kind": "matching", **settings, "layers": len(head.tower)})
    document = {
        "format": FORMAT,
        "version": VERSION,
        "models": [hashlib.sha256(weights_of(model.heads)).hexdigest() for model in models],
        "wording": side.wording,
        "with_examples": side.with_examples,
        "scale": side.scale,
        "lack": None if side.reference is None else side.reference.lack,
        "heads": heads,
        "arrays": _digest(tensors),
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    metadata = {_KEY: text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    content = safetensors.numpy.save(tensors, metadata)
    with writing(folder, {CLASSES: content}):
        replace_file(folder / CLASSES, content)


def load_new_class_model(directory: str | PathLike[str], classifier: Classifier) -> NewClassModel:
    """What `save_new_class_model` wrote for the classifier in `directory`, or a `ModelFileError`.

    Args:
        directory: that of the model.
        classifier: the model in it.
    """
    folder = Path(directory)
    if not (folder / CLASSES).exists():
        raise ModelFileError(
            f"{place(folder)}: has no {CLASSES}, so only a part of the model was copied; "
            "fit again to add classes"
        )
    content = read_file(folder / CLASSES)
    try:
        document, tensors = _parsed(content)
        if hashlib.sha256(weights_of(classifier.heads)).hexdigest() not in document["models"]:
            raise ValueError("belongs to another model")
        side = _new_class_model(document, tensors)
        side.check(classifier)
    except (
        ValueError, LookupError, TypeError, AttributeError, RecursionError, AdamabError,
        safetensors.SafetensorError,
    ) as error:  # fmt: skip
        why = one_line(error) if isinstance(error, ValueError) else "damaged"
        raise ModelFileError(f"{place(folder / CLASSES)}: {why}; fit again to add classes") from None
    return side


def _digest(tensors: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, array.shape]).encode() + array.astype("<f4", copy=False).tobytes())
    return digest.hexdigest()


def _parsed(content: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    text = metadata[_KEY]
    if hashlib.sha256(text.encode()).hexdigest() != metadata["sha256"]:
        raise ValueError("damaged or edited")
    document = json.loads(text)
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise ValueError("was written by another version of adamab")
    tensors: dict[str, Array] = safetensors.numpy.load(content)
    if _digest(tensors) != document["arrays"]:
        raise ValueError("damaged or edited")
    return document, tensors


def _new_class_model(document: Mapping[str, Any], tensors: Mapping[str, Array]) -> NewClassModel:
    heads: list[ClassHead] = []
    for number, head in enumerate(document["heads"]):
        if head["kind"] == "scatter":
            lengths = None if head["lengths"] is None else MeanLengthCorrection(**head["lengths"])
            inverse = tensors.get(f"{number}.inverse")
            heads.append(Scatter(scale=head["scale"], inverse=inverse, lengths=lengths))
        else:
            settings: dict[str, Any] = {name: head[name] for name in _MATCHING_SETTINGS}
            settings |= {name: tensors.get(f"{number}.{name}") for name in Matching.DIMENSIONS}
            tower = tuple(tensors[f"{number}.tower.{layer}"] for layer in range(head["layers"]))
            heads.append(Matching(**settings, tower=tower))
    reference = None
    if document["lack"] is not None:
        queries = tuple(tensors[f"{number}.queries"] for number in range(len(heads)))
        reference = Reference(queries=queries, logits=tensors["logits"], lack=document["lack"])
    more = {name: document[name] for name in ("wording", "with_examples", "scale")}
    return NewClassModel(heads=tuple(heads), reference=reference, **more)
