"""A class that comes after the fit: a classifier with one more class, without training.

The rows that the heads give to the class come from the formulas of the fit, which gave the other classes
theirs. The other classes' logits stay as they are.

Write q for a prepared sample of a view (centred, of length one, in the head's coordinates; see `Head`), m for
the mean of the class's examples prepared in that way, zero without examples, and t for its wording's vector:
centred on the mean of the wordings of the fit, of length one, in the same coordinates.

A closed-form head (`Stacked`) has the logit a z(q) + u q . t, where z is the two-covariance discriminant
(`TwoCovariance`) of n examples with the mean m, and a and u are the weights of the fit; coordinates are added
for what m and t have outside the span of the samples of the fit. A head that matches
samples with classes (`Matching`) has the logit

    w s (q + W h) . (p + P(p) + f)         h: last hidden units of q

with the class input p (`class_inputs`), the trained class tower P, the last layer W of the query tower, and
f the mean of the vectors that training gave to single classes. The row is `linear` = v and `hidden` = Wᵀ v
with v = w s (p + P(p) + f) (`matching_rows`).

What cannot be had without training: centre, span, vocabulary, covariance and towers have not seen the class.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from adamab.errors import AdamabError, ModelFileError, TaskError, one_line, place, short
from adamab.method.discriminant import TwoCovariance
from adamab.method.views import ViewTransform, class_inputs
from adamab.model.classifier import WORDS
from adamab.model.heads import ArrayParts, through
from adamab.model.storage import CLASSES, read_file, replace_file, tensors_of, weights_of, writing
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adamab.model.classifier import Classifier
    from adamab.model.heads import Array, Head, Rows


_NEGLIGIBLE = 1e-3  # length that a unit row has outside a span by rounding, and less
ClassInput: TypeAlias = Literal["description", "mean", "both"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Matching(ArrayParts):
    """How a head that matches samples with classes makes a class's row."""

    DIMENSIONS: ClassVar = {"described_centre": 1, "free": 1, "last": 2}

    class_input: ClassInput
    described: bool  # whether wordings have vectors in this view
    scale: float  # w s: weight of the calibrator times the scale of its logits
    described_centre: Array | None = None  # (d,)
    tower: tuple[Array, ...]  # of the classes, (out, in) each
    free: Array | None = None  # (r,)
    last: Array  # (r, h) the query tower's last layer

    def extended(self, head: Head, described: Rows | None, examples: Rows | None) -> Head:
        """The head with the row of a class with that wording (1, d) and those examples (n, d)."""
        queries = (
            np.zeros((0, head.linear.shape[1]), np.float32) if examples is None else head.prepared(examples)
        )
        wording = None
        if described is not None:
            wording = ViewTransform(self.described_centre, head.normalise, head.basis)(described)  # (1, r)
        mean = queries.mean(axis=0, keepdims=True) if len(queries) else np.zeros((1, queries.shape[1]))
        x = class_inputs(mean.astype(np.float32), wording, self.class_input)
        vectors = through(self.tower[:-1], x, head.activation) @ self.tower[-1].T + x
        vectors = np.float32(self.scale) * (vectors if self.free is None else vectors + self.free)
        linear, hidden = matching_rows(vectors, self.last, bool(head.tower))
        linear = np.concatenate([head.linear, linear.astype(np.float32)])
        if head.hidden is not None and hidden is not None:
            hidden = np.concatenate([head.hidden, hidden.astype(np.float32)])
        return replace(head, linear=linear, hidden=hidden)


def matching_rows(vectors: Array, last: Array, has_tower: bool) -> tuple[Array, Array | None]:
    """Rows of classes: (q + W h) . v is one product with q and one with the last hidden units h.

    Args:
        vectors: (K, r) calibrated class vectors.
        last: (r, h) the query tower's last layer.
        has_tower: whether other layers come before the last.

    Returns:
        `linear` (K, r) and `hidden` (K, h) of a head.
    """
    pulled = vectors @ last
    return (vectors, pulled) if has_tower else (vectors + pulled, None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Stacked(ArrayParts):
    """How a closed-form head makes a class's row: discriminant and cosine, each with its weight."""

    DIMENSIONS: ClassVar = {"precision": 2, "described_centre": 1}

    precision: Array | None = None  # (r, r) of the two-covariance model; None without samples in the fit
    outside: float = 1.0  # of the same
    ratio: float = 1.0  # of the same
    length: float = 0.0  # of the same
    example_weight: float = 0.0  # a
    description_weight: float = 0.0  # u
    described: bool = False  # whether wordings have vectors in this view
    described_centre: Array | None = None  # (d,)

    def extended(self, head: Head, described: Rows | None, examples: Rows | None) -> Head:
        """The head with the row of a class with that wording (1, d) and those examples (n, d).

        The samples of the fit do not span the class: its mean and its wording get directions of their own,
        in which the other classes have nothing.
        """
        n = 0 if examples is None else examples.shape[0]
        rows = np.zeros((2, head.width), np.float32)  # the mean and the wording
        if examples is not None and n:
            rows[0] = ViewTransform(head.centre, head.normalise, None)(examples).mean(axis=0)
        if described is not None and self.description_weight:
            rows[1] = ViewTransform(self.described_centre, head.normalise, None)(described)[0]
        basis, new = _spanning(head.basis, rows)
        mean, wording = rows if basis is None else rows @ basis
        linear, bias = self.description_weight * wording, 0.0
        if self.precision is not None:
            precision = np.diag(np.full(len(mean), self.outside))
            precision[: len(self.precision), : len(self.precision)] = self.precision
            shared = TwoCovariance(precision, self.outside, self.ratio, self.length)
            vectors, biases = shared.class_rows(mean[None], np.array([float(n)]))
            linear = linear + self.example_weight * vectors[0]
            bias = self.example_weight * float(biases[0])
        others = np.pad(head.linear, ((0, 0), (0, new)))
        all_biases = np.zeros(len(others), np.float32) if head.bias is None else head.bias
        return replace(
            head,
            basis=basis,
            linear=np.concatenate([others, linear[None].astype(np.float32)]),
            bias=np.append(all_biases, np.float32(bias)),
        )


def _spanning(basis: Array | None, rows: Array) -> tuple[Array | None, int]:
    """The basis (d, r) with the directions of rows (m, d) that it lacks, and how many these are."""
    if basis is None:
        return None, 0
    lacking = rows.astype(np.float64)
    for _ in range(2):  # once more for what rounding left
        lacking = lacking - (lacking @ basis) @ basis.T
    _, values, directions = np.linalg.svd(lacking, full_matrices=False)
    directions = directions[values > _NEGLIGIBLE]
    return np.hstack([basis, directions.T.astype(np.float32)]), len(directions)


ClassHead: TypeAlias = Matching | Stacked


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
    wording: str = Prompts.described  # the template of the classes' wordings
    with_examples: bool = False  # whether a wording quotes examples

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
        views = [head.view for head, part in parts if part.described]
        return tuple(dict.fromkeys(view for view in views if view != WORDS))

    def check(self, classifier: Classifier) -> None:
        """Refuse, with some exception, what no class could be added with: by adding one on trial."""
        for part in self.heads:
            part.check_arrays()
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
        heads = tuple(
            part.extended(head, new.described.get(head.view), new.examples.get(head.view))
            for head, part in zip(classifier.heads, self.heads, strict=True)
        )
        confidence = classifier.confidence
        if confidence is not None:
            # As in a fit, a class of which nothing was seen counts as one sample.
            confidence = replace(confidence, seen=(*confidence.seen, float(new.n) or 1.0))
        classes = (*classifier.classes, new.name)
        return replace(classifier, classes=classes, heads=heads, confidence=confidence)


# What makes the rows of later classes, on disk: `classes.safetensors` beside the model. Never a pickle.
#
# The file's metadata say of which weights it is, by their sha256. A class that is added changes the weights
# and not what this file is good for, so it may name two: those before and those after. It is written before
# the model is replaced; killed at any point, a directory holds a model and a file that fits it.

FORMAT, VERSION = "adamab-classes", 2
_KINDS: dict[str, type[ClassHead]] = {"matching": Matching, "stacked": Stacked}
_KEY = "adamab"  # of the metadata, which safetensors wants to be texts


def save_new_class_model(side: NewClassModel, directory: str | PathLike[str], *models: Classifier) -> None:
    """Write `side` into `directory`, good for these classifiers.

    Args:
        side: what to write.
        directory: that of the model.
        models: the classifiers that it serves.
    """
    folder, tensors = Path(directory), tensors_of(side.heads)
    heads = [
        {
            "kind": "matching" if isinstance(head, Matching) else "stacked",
            "settings": _settings(head),
            "layers": len(head.tower),
        }
        for head in side.heads
    ]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "models": [hashlib.sha256(weights_of(model.heads)).hexdigest() for model in models],
        "wording": side.wording,
        "with_examples": side.with_examples,
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


def _settings(head: ClassHead) -> dict[str, Any]:
    """All fields but the arrays."""
    names = {field.name for field in fields(head)} - set(head.DIMENSIONS) - {"tower"}
    return {name: getattr(head, name) for name in sorted(names)}


def _new_class_model(document: Mapping[str, Any], tensors: Mapping[str, Array]) -> NewClassModel:
    heads: list[ClassHead] = []
    for number, head in enumerate(document["heads"]):
        kind, parts = _KINDS[head["kind"]], dict(head["settings"])
        parts |= {name: tensors.get(f"{number}.{name}") for name in kind.DIMENSIONS}
        if kind is Matching:
            parts["tower"] = tuple(tensors[f"{number}.tower.{layer}"] for layer in range(head["layers"]))
        heads.append(kind(**parts))
    return NewClassModel(
        heads=tuple(heads), wording=document["wording"], with_examples=document["with_examples"]
    )
