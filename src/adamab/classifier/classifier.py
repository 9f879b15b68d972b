"""The result of a fit: views in, logits, probabilities and class names out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from adamab.classifier.answers import UNKNOWN, Answerer, Asked, joined, prior_offsets, warn_of_too_few
from adamab.classifier.checks import check_classes, check_metadata, check_text, check_width
from adamab.classifier.confidence import Confidence, softmax
from adamab.errors import EmbedderError, FingerprintError, TaskError
from adamab.task import html
from adamab.task.messages import one_line, short

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.classifier.answers import Answers
    from adamab.classifier.checks import Json
    from adamab.classifier.heads import Array, Head, Rows
    from adamab.task.words import Vocabulary

WORDS = "words"  # the view that is made from the texts, not by the embedder
_CHUNK = 4096  # rows at a time: intermediate results stay small, matrix products stay large
_MOST_LOGITS = 12_500_000  # of these rows; fewer rows where there are very many classes


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """Everything a prediction needs, as plain data; the logits are the sum of the heads'.

    Views map a view's name to its matrix, one row a sample. `texts` are the samples
    themselves, unprompted, and needed only where there is a vocabulary.

    Example:
        >>> from adamab.classifier import Head
        >>> head = Head(view="pooled", linear=np.eye(2, dtype=np.float32))
        >>> model = Classifier(classes=("no", "yes"), heads=(head,))
        >>> model
        Classifier(2 classes, views: pooled)
        >>> model.predict({"pooled": [[0.1, 0.9], [2, 1]]})
        ['yes', 'no']
    """

    classes: tuple[str, ...]
    heads: tuple[Head, ...]
    vocabulary: Vocabulary | None = None
    embedder_spec: str = ""
    fingerprint: str = ""  # the embedder's
    query_prompt: str = "{text}"  # how a sample is worded for the embedder
    metadata: Mapping[str, Json] = field(default_factory=dict)  # recipe, versions, estimate
    confidence: Confidence | None = None  # what held-out samples say; None in files of earlier versions

    def __post_init__(self) -> None:
        check_classes(self.classes)
        for name in ("embedder_spec", "fingerprint", "query_prompt"):
            check_text(getattr(self, name), name, empty=True)
        check_metadata(self.metadata)
        if not isinstance(self.heads, tuple) or not self.heads:
            raise ValueError("one or more heads are needed")
        for head in self.heads:
            if head.classes != len(self.classes):
                raise ValueError(
                    f"head {short(head.view)} is made for {head.classes} classes, not {len(self.classes)}"
                )
        if not isinstance(self.confidence, Confidence | None):
            raise ValueError(f"confidence is of type {type(self.confidence).__name__}")
        if self.confidence is not None and len(self.confidence.seen) != len(self.classes):
            raise ValueError(f"'seen' is of {len(self.confidence.seen)} classes, not {len(self.classes)}")
        self._check_vocabulary()

    def _check_vocabulary(self) -> None:
        lexical = [head for head in self.heads if head.view == WORDS]
        if bool(lexical) != (self.vocabulary is not None):
            raise ValueError("a vocabulary and a head for the words go together")
        if self.vocabulary is not None:
            check_text("".join(self.vocabulary.terms), "the vocabulary", empty=True)
            for head in lexical:
                check_width("the words' head", head.width, len(self.vocabulary.terms))

    @property
    def views(self) -> tuple[str, ...]:
        """The views that the embedder must deliver."""
        return tuple(dict.fromkeys(head.view for head in self.heads if head.view != WORDS))

    def logits(self, views: Mapping[str, object], texts: Sequence[str] | None = None) -> Array:
        """One row of K logits a sample."""
        batch = self._batch(views, texts)
        out = np.empty((batch.size, len(self.classes)), np.float32)
        for rows, block in self._blocks(batch):
            out[rows] = block
        return out

    def features(self, views: Mapping[str, object], texts: Sequence[str] | None = None) -> Array:
        """(n, D) of each sample what the heads' matrices are multiplied with, head after head, then 1."""
        batch = self._batch(views, texts)
        width = 1 + sum(head.feature_width for head in self.heads)
        out = np.ones((batch.size, width), np.float32)
        for start in range(0, batch.size, _CHUNK):
            rows = slice(start, min(start + _CHUNK, batch.size))
            with np.errstate(over="ignore", invalid="ignore"):
                inputs = self._inputs(batch, rows)
                parts = [head.features(inputs[head.view]) for head in self.heads]
            out[rows, :-1] = np.concatenate(parts, axis=1)
            if not np.isfinite(out[rows]).all():
                raise _not_finite(inputs, out[rows], start)
        return out

    def predict_proba(
        self,
        views: Mapping[str, object],
        texts: Sequence[str] | None = None,
        *,
        priors: Mapping[str, float] | None = None,
    ) -> Array:
        """One row of K probabilities a sample, in the order of `classes`.

        `priors` are the classes' shares where the classifier is used, in place of those that it assumes:
        see `Confidence.assumed`. Classes that it does not name share the rest.
        """
        offsets = None if priors is None else prior_offsets(priors, self.classes, self.confidence)
        batch = self._batch(views, texts)
        out = np.empty((batch.size, len(self.classes)), np.float32)
        for rows, block in self._blocks(batch):
            if offsets is not None:
                block += offsets
            out[rows] = softmax(block)
        return out

    def predict(
        self,
        views: Mapping[str, object],
        texts: Sequence[str] | None = None,
        *,
        priors: Mapping[str, float] | None = None,
        unknown: float | None = None,
    ) -> list[str]:
        """The most probable class of each sample; of equals, the first.

        With `unknown` the answer is "unknown" where a sample is stranger than that share of the held-out
        given samples.
        """
        told = self._told(views, texts, Asked(priors=priors, unknown=unknown))
        names = [self.classes[index] for index in told.indices[:, 0]]
        if told.unknown is not None:
            names = [UNKNOWN if odd else name for name, odd in zip(names, told.unknown, strict=True)]
        return names

    def predict_sets(
        self, views: Mapping[str, object], texts: Sequence[str] | None = None, *, coverage: float = 0.9
    ) -> list[tuple[str, ...]]:
        """Classes of each sample, the most probable first, of which one is right with that probability.

        True of samples drawn like the given ones. All classes where too few were held out for `coverage`.
        """
        sets = self._told(views, texts, Asked.for_sets(coverage)).sets or ()
        return [tuple(self.classes[index] for index in one) for one in sets]

    def _told(self, views: Mapping[str, object], texts: Sequence[str] | None, asked: Asked) -> Answers:
        answers = self.answers(views, texts, asked)
        warn_of_too_few(self.confidence, asked)
        return answers

    def top_k(
        self, views: Mapping[str, object], k: int, texts: Sequence[str] | None = None
    ) -> tuple[NDArray[np.int64], Array]:
        """The k most probable classes of each sample, best first: indices (n, k), probabilities (n, k).

        Equals keep the order of `classes`; a k above K means K.
        """
        told = self.answers(views, texts, Asked(k))
        return told.indices, told.probabilities

    def answers(self, views: Mapping[str, object], texts: Sequence[str] | None, asked: Asked) -> Answers:
        """Everything that is asked for, in one pass."""
        answerer = Answerer(self.classes, self.confidence, asked)
        parts = [answerer(block) for _, block in self._blocks(self._batch(views, texts))]
        return joined(parts or [answerer(np.empty((0, len(self.classes)), np.float32))])

    def check_fingerprint(self, fingerprint: str) -> None:
        """Refuse an embedder other than the one this classifier was fitted with."""
        if fingerprint != self.fingerprint:
            fitted, given = _told_apart(self.fingerprint, fingerprint)
            raise FingerprintError(
                f"the model was fitted with embedder {short(self.embedder_spec)} (fingerprint {fitted}), "
                f"this one has fingerprint {given}; {_remedy(self.fingerprint, fingerprint)}"
            )

    def __repr__(self) -> str:
        views = ", ".join(one_line(view) for view in dict.fromkeys(head.view for head in self.heads))
        return f"Classifier({len(self.classes)} classes, views: {views})"

    def _repr_html_(self) -> str:
        """What a notebook shows: where it comes from, what can be expected of it, the first classes."""
        views = dict.fromkeys(head.view for head in self.heads)
        known = {
            "classes": len(self.classes),
            "embedder": self.embedder_spec or None,
            "views that count": ", ".join(views),
            "words": None if self.vocabulary is None else len(self.vocabulary.terms),
            "expected accuracy": _expected(self.metadata.get("out_of_fold")),
        }
        rows = list(enumerate(self.classes[: html.MOST_ROWS]))
        return (
            html.facts("Classifier", known)
            + html.table(("index", "class"), rows)
            + html.and_more(len(self.classes) - len(rows), "classes")
        )

    def _batch(self, views: Mapping[str, object], texts: Sequence[str] | None) -> _Batch:
        if self.vocabulary is None:
            texts = None
        elif texts is None or isinstance(texts, str):
            raise TaskError("this model has a view of the words; pass a list of the texts beside the vectors")
        matrices = {head.view: _matrix(head, views) for head in self.heads if head.view != WORDS}
        sizes = {f"view {short(view)}": len(matrix) for view, matrix in matrices.items()}
        if texts is not None:
            sizes["texts"] = len(texts)
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"{what}: {size}" for what, size in sizes.items())
            raise EmbedderError(f"the numbers of rows differ ({counts}); pass one row a sample everywhere")
        return _Batch(matrices, texts, next(iter(sizes.values())))

    def _blocks(self, batch: _Batch) -> Iterator[tuple[slice, Array]]:
        chunk = max(1, min(_CHUNK, _MOST_LOGITS // len(self.classes)))
        for start in range(0, batch.size, chunk):
            rows = slice(start, min(start + chunk, batch.size))
            block = np.zeros((rows.stop - start, len(self.classes)), np.float32)
            # What is not finite in a vector is not finite in its logits, which are fewer to look at.
            with np.errstate(over="ignore", invalid="ignore"):
                inputs = self._inputs(batch, rows)
                for head in self.heads:
                    head.add_logits(inputs[head.view], block)
            if not np.isfinite(block).all():
                raise _not_finite(inputs, block, start)
            yield rows, block

    def _inputs(self, batch: _Batch, rows: slice) -> dict[str, Rows]:
        inputs: dict[str, Rows] = {}
        for view, matrix in batch.matrices.items():
            inputs[view] = matrix[rows].astype(np.float32, copy=False)
        if self.vocabulary is not None and batch.texts is not None:
            inputs[WORDS] = self.vocabulary.transform(_texts(batch.texts[rows], rows.start))
        return inputs


def _expected(estimate: Json) -> str | None:
    """The estimate in words, if there is one."""
    if not isinstance(estimate, dict):
        return None
    shares = [estimate.get(key) for key in ("accuracy", "low", "high")]
    accuracy, low, high = (f"{100 * s:.1f} %" if isinstance(s, int | float) else "unknown" for s in shares)
    return f"{accuracy} (95 % interval {low} to {high}, out of fold, on {estimate.get('n')} given samples)"


@dataclass(frozen=True)
class _Batch:
    """Checked input: every matrix has `size` rows."""

    matrices: dict[str, NDArray[np.number]]
    texts: Sequence[str] | None
    size: int


def _matrix(head: Head, views: Mapping[str, object]) -> NDArray[np.number]:
    view = short(head.view)
    if head.view not in views:
        has = ", ".join(one_line(name) for name in views) or "none"
        raise EmbedderError(f"the model needs view {view}, which is missing; given: {has}")
    try:
        matrix = np.asarray(views[head.view])
    except (TypeError, ValueError):  # ragged rows
        raise EmbedderError(f"view {view}: the vectors are not numbers of one width") from None
    if len(matrix.shape) > 0 and len(matrix) == 0:
        return np.zeros((0, head.width), np.float32)  # no samples have no width either
    if matrix.dtype.kind not in "fiu" or matrix.ndim != 2:
        raise EmbedderError(
            f"view {view} is of type {matrix.dtype} and shape {matrix.shape}; a matrix of numbers is needed"
        )
    if matrix.shape[1] != head.width:
        raise EmbedderError(
            f"view {view} is {matrix.shape[1]} wide, the model was fitted on {head.width}; "
            "use the embedder it was fitted with"
        )
    return matrix


def _texts(texts: Sequence[str], start: int) -> Sequence[str]:
    for number, text in enumerate(texts, start):
        if not isinstance(text, str):
            raise TaskError(f"text {number} is of type {type(text).__name__}; only str has words")
    return texts


def _not_finite(inputs: Mapping[str, Rows], block: Array, start: int) -> EmbedderError:
    row = int(np.argmin(np.isfinite(block).all(axis=1)))
    for view, x in inputs.items():
        if isinstance(x, np.ndarray) and not np.isfinite(x[row]).all():
            return EmbedderError(f"vector {start + row} of view {short(view)} is not finite; embed it again")
    return EmbedderError(f"the logits of row {start + row} overflow; are its vectors the embedder's own?")


def _remedy(fitted: str, given: str) -> str:
    if "@" in fitted and "@" not in given:  # the address that it came from may have stood in a variable
        return "its server was at another address: set OPENAI_BASE_URL as then, or name it with ?base_url="
    return "use that embedder or fit again"


def _told_apart(first: str, second: str) -> tuple[str, str]:
    """Both; a long one is cut to where they differ, since fingerprints of one kind begin alike."""
    shorter = min(len(first), len(second))
    alike = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), shorter)
    return _cut(first, alike), _cut(second, alike)


def _cut(text: str, at: int, width: int = 48) -> str:
    """`text` quoted, whole if it is short, else its beginning and what stands around `at`."""
    if len(text) <= width:
        return short(text, width)
    start = max(12, min(at - 4, len(text) - 24))
    before, after = "…" if start > 12 else "", "…" if start + 24 < len(text) else ""
    return short(f"{text[:12]}{before}{text[start : start + 24]}{after}", width)
