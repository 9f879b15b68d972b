"""The result of a fit: views in, logits, probabilities and class names out."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from adamab.errors import EmbedderError, FingerprintError, TaskError, one_line, short, suggestion
from adamab.model.confidence import Confidence, softmax, strangeness, surprise
from adamab.model.heads import check_text, check_width
from adamab.providers.services import PROVIDERS
from adamab.task.spec import MOST_ROWS, notebook_html
from adamab.task.spec import UNKNOWN as UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.model.heads import Array, Head, Json, Rows
    from adamab.task.words import Vocabulary

    _Batch: TypeAlias = dict[str, NDArray[np.number] | Sequence[str]]


# From logits to what was asked for: likely classes, `unknown`, prediction sets, other class priors.

_MANY = 32  # classes for each one asked for from which sorting all of them is a waste
_TOLERANCE = 1e-6  # shares that people write down do not sum to 1 exactly


@dataclass(frozen=True)
class PredictOptions:
    """What is wanted of a prediction beside the most probable class."""

    k: int = 1  # number of classes, the most probable first
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
    def for_sets(cls, coverage: float) -> PredictOptions:
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
    """One row per sample; what was not asked for is None."""

    indices: NDArray[np.int64]  # (n, k) classes, the most probable first
    probabilities: Array  # (n, k)
    unknown: NDArray[np.bool_] | None = None  # (n,)
    sets: list[list[int]] | None = None  # classes, the most probable first


class Answerer:
    """Turns logits of one classifier into answers; refuses what the classifier cannot tell."""

    def __init__(
        self, classes: Sequence[str], confidence: Confidence | None, options: PredictOptions
    ) -> None:
        self._k = min(options.k, len(classes))
        self._offsets = None if options.priors is None else prior_offsets(options.priors, classes, confidence)
        self._strangest = self._most_surprising = math.inf
        self._options = options
        if options.unknown is not None:
            if UNKNOWN in classes:
                raise TaskError("the model has a class 'unknown' of its own; rename it to ask for unknown")
            self._strangest = _held_out(confidence).threshold("strangeness", options.unknown)
        if options.coverage is not None:
            self._most_surprising = _held_out(confidence).threshold("surprise", options.coverage)

    def __call__(self, block: Array) -> Answers:
        """Of logits (n, K), which are overwritten."""
        unknown = None if self._options.unknown is None else strangeness(block) > self._strangest
        sets = None if self._options.coverage is None else self._sets(block)
        if self._offsets is not None:
            block += self._offsets
        softmax(block)
        indices = _best(block, self._k)
        return Answers(indices, np.take_along_axis(block, indices, axis=1), unknown, sets)

    def _sets(self, block: Array) -> list[list[int]]:
        # The most probable class is always in the set: one more class covers no less.
        sizes = np.maximum((surprise(block) <= self._most_surprising).sum(axis=1), 1)
        ordered = _best(block, block.shape[1])
        return [row[:size] for row, size in zip(ordered.tolist(), sizes.tolist(), strict=True)]


def too_few(confidence: Confidence | None, options: PredictOptions) -> Iterator[tuple[float, str]]:
    """Shares that so few held-out samples cannot vouch for, and what is answered then.

    Args:
        confidence: the classifier's.
        options: what is wanted of a prediction.
    """
    shares = ((options.unknown, "no answer is unknown"), (options.coverage, "every set holds all classes"))
    for share, result in shares:
        if (
            share is not None
            and confidence is not None
            and math.isinf(confidence.threshold("surprise", share))
        ):
            yield share, result


def warn_of_too_few(confidence: Confidence | None, options: PredictOptions) -> None:
    """For people who call from Python and would see full sets, or no unknown, without a reason."""
    for share, result in too_few(confidence, options):
        n = confidence.n if confidence else 0
        few = f"the {n} held-out samples cannot vouch for a share of {share:g}"
        warnings.warn(f"{few}, so {result}; add examples", UserWarning, stacklevel=4)


def _joined(parts: Sequence[Answers]) -> Answers:
    unknown = [part.unknown for part in parts if part.unknown is not None]
    sets = [one for part in parts for one in part.sets or ()]
    return Answers(
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.probabilities for part in parts]),
        np.concatenate(unknown) if unknown else None,
        None if parts[0].sets is None else sets,
    )


def prior_offsets(
    priors: Mapping[str, float], classes: Sequence[str], confidence: Confidence | None
) -> Array:
    """(K,) what stated shares of classes add to the logits: log(stated share / share that they assume).

    Prior shift (Saerens et al., Adjusting the outputs of a classifier to new a priori probabilities, Neural
    Computation 2002).

    Args:
        priors: stated shares by class; classes that are not named share the rest as before.
        classes: names of all classes.
        confidence: says what shares the logits assume.
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
            "coverage; fit with two or more examples per class and a recipe with refit"
        )
    return confidence


def _best(block: Array, k: int) -> NDArray[np.int64]:
    if k == 1:
        return np.asarray(block.argmax(axis=1)[:, None], np.int64)
    if k > block.shape[1] // _MANY:
        return np.argsort(-block, axis=1, kind="stable")[:, :k]
    # Of many classes, sort only those that are not below the k-th best; equals in the order of the classes.
    least = np.partition(block, -k, axis=1)[:, -k]
    best = np.empty((len(block), k), np.int64)
    for number, (row, low) in enumerate(zip(block, least, strict=True)):
        candidates = np.flatnonzero(row >= low)
        best[number] = candidates[np.argsort(-row[candidates], kind="stable")[:k]]
    return best


WORDS = "words"  # the view that is made from the texts, not by the embedder
_CHUNK = 4096  # rows at a time: intermediate results stay small, matrix products stay large
_MOST_LOGITS = 12_500_000  # of these rows; fewer rows where there are very many classes


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """Everything a prediction needs, as plain data; the logits are the sum of the heads'.

    Example:
        >>> from adamab.model import Head
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
    confidence: Confidence | None = None  # what held-out samples say

    def __post_init__(self) -> None:
        if not isinstance(self.classes, tuple) or len(self.classes) < 2:
            raise ValueError("two or more classes are needed")
        for name in self.classes:
            check_text(name, "a class name")
        twice, count = Counter(self.classes).most_common(1)[0]
        if count > 1:
            raise ValueError(f"class {short(twice)} stands there twice")
        for name in ("embedder_spec", "fingerprint", "query_prompt"):
            check_text(getattr(self, name), name, empty=True)
        if not isinstance(self.metadata, dict):
            raise ValueError(f"metadata are of type {type(self.metadata).__name__}, not a dict")
        try:
            json.dumps(self.metadata, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"metadata cannot be written as JSON: {error}") from None
        if not isinstance(self.heads, tuple) or not self.heads:
            raise ValueError("one or more heads are needed")
        for head in self.heads:
            if len(head.linear) != len(self.classes):
                made_for = f"{len(head.linear)} classes, not {len(self.classes)}"
                raise ValueError(f"head {short(head.view)} is made for {made_for}")
        if self.confidence is not None and len(self.confidence.seen) != len(self.classes):
            raise ValueError(f"'seen' is of {len(self.confidence.seen)} classes, not {len(self.classes)}")
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
        """(n, K) logits.

        Args:
            views: (n, d) matrix of each view, by its name.
            texts: the samples themselves, unprompted; needed only where there is a vocabulary.
        """
        batch, size = self._batch(views, texts)
        out = np.empty((size, len(self.classes)), np.float32)
        for rows, block in self._blocks(batch, size):
            out[rows] = block
        return out

    def predict_proba(
        self,
        views: Mapping[str, object],
        texts: Sequence[str] | None = None,
        *,
        priors: Mapping[str, float] | None = None,
    ) -> Array:
        """(n, K) probabilities, in the order of `classes`.

        Args:
            views: (n, d) matrix of each view, by its name.
            texts: the samples themselves, unprompted; needed only where there is a vocabulary.
            priors: shares of the classes where the classifier is used, in place of those that it assumes
                (`Confidence.assumed`). Classes that are not named share the rest.
        """
        logits = self.logits(views, texts)
        if priors is not None:
            logits += prior_offsets(priors, self.classes, self.confidence)
        return softmax(logits)

    def predict(
        self,
        views: Mapping[str, object],
        texts: Sequence[str] | None = None,
        *,
        priors: Mapping[str, float] | None = None,
        unknown: float | None = None,
    ) -> list[str]:
        """The most probable class of each sample; of equals, the first.

        Args:
            views: (n, d) matrix of each view, by its name.
            texts: the samples themselves, unprompted; needed only where there is a vocabulary.
            priors: as in `predict_proba`.
            unknown: answer "unknown" where a sample is stranger than this share of the held-out given ones.
        """
        answers = self._answers_and_warnings(views, texts, PredictOptions(priors=priors, unknown=unknown))
        names = [self.classes[index] for index in answers.indices[:, 0]]
        if answers.unknown is not None:
            names = [UNKNOWN if odd else name for name, odd in zip(names, answers.unknown, strict=True)]
        return names

    def predict_sets(
        self, views: Mapping[str, object], texts: Sequence[str] | None = None, *, coverage: float = 0.9
    ) -> list[tuple[str, ...]]:
        """Prediction sets: classes of each sample, the most probable first.

        Args:
            views: (n, d) matrix of each view, by its name.
            texts: the samples themselves, unprompted; needed only where there is a vocabulary.
            coverage: probability that the true class is in the set, for samples drawn like the given ones.

        Returns:
            One tuple of class names per sample; all classes where too few samples were held out for
            `coverage`.
        """
        sets = self._answers_and_warnings(views, texts, PredictOptions.for_sets(coverage)).sets or ()
        return [tuple(self.classes[index] for index in one) for one in sets]

    def _answers_and_warnings(
        self, views: Mapping[str, object], texts: Sequence[str] | None, options: PredictOptions
    ) -> Answers:
        answers = self.answers(views, texts, options)
        warn_of_too_few(self.confidence, options)
        return answers

    def top_k(
        self, views: Mapping[str, object], k: int, texts: Sequence[str] | None = None
    ) -> tuple[NDArray[np.int64], Array]:
        """The most probable classes of each sample, best first; equals keep the order of `classes`.

        Args:
            views: (n, d) matrix of each view, by its name.
            k: number of classes; more than K means K.
            texts: the samples themselves, unprompted; needed only where there is a vocabulary.

        Returns:
            Indices (n, k) and probabilities (n, k).
        """
        answers = self.answers(views, texts, PredictOptions(k))
        return answers.indices, answers.probabilities

    def answers(
        self, views: Mapping[str, object], texts: Sequence[str] | None, options: PredictOptions
    ) -> Answers:
        """Everything that `options` wants, in one pass.

        Args:
            views: (n, d) matrix of each view, by its name.
            texts: the samples themselves, unprompted; needed only where there is a vocabulary.
            options: number of classes, priors, `unknown`, coverage.
        """
        answerer = Answerer(self.classes, self.confidence, options)
        parts = [answerer(block) for _, block in self._blocks(*self._batch(views, texts))]
        return _joined(parts or [answerer(np.empty((0, len(self.classes)), np.float32))])

    def check_fingerprint(self, fingerprint: str) -> None:
        """Refuse an embedder other than the one this classifier was fitted with."""
        if fingerprint == self.fingerprint:
            return
        remedy = "use that embedder or fit again"
        own, _, address = self.fingerprint.partition("@")
        service = PROVIDERS.get(own.partition(":")[0])
        if address and service is not None and own == fingerprint.partition("@")[0]:
            variable = f"set {service.url_env} as then, or " if service.url_env else ""
            remedy = f"its server was at another address: {variable}name it with ?base_url="
        raise FingerprintError(
            f"the model was fitted with embedder {short(self.embedder_spec or 'passed as an object')} "
            f"(fingerprint {short(self.fingerprint, 160)}), this one has fingerprint "
            f"{short(fingerprint, 160)}; {remedy}"
        )

    def __repr__(self) -> str:
        views = ", ".join(one_line(view) for view in dict.fromkeys(head.view for head in self.heads))
        return f"Classifier({len(self.classes)} classes, views: {views})"

    def _repr_html_(self) -> str:
        """What a notebook shows: where it comes from, what can be expected of it, the first classes."""
        views = dict.fromkeys(head.view for head in self.heads)
        figures = {
            "classes": len(self.classes),
            "embedder": self.embedder_spec or None,
            "views that count": ", ".join(views),
            "words": None if self.vocabulary is None else len(self.vocabulary.terms),
            "expected accuracy": _expected(self.metadata.get("out_of_fold")),
        }
        rows = list(enumerate(self.classes[:MOST_ROWS]))
        left_out = len(self.classes) - len(rows)
        return notebook_html("Classifier", figures, ("index", "class"), rows, left_out, "classes")

    def _batch(self, views: Mapping[str, object], texts: Sequence[str] | None) -> tuple[_Batch, int]:
        """The checked input of each view, the texts for the view of words, and the number of samples."""
        batch: _Batch = {head.view: _matrix(head, views) for head in self.heads if head.view != WORDS}
        if self.vocabulary is not None:
            if texts is None or isinstance(texts, str):
                raise TaskError("this model has a view of words; pass a list of the texts beside the vectors")
            for number, text in enumerate(texts):
                if not isinstance(text, str):
                    raise TaskError(f"text {number} is of type {type(text).__name__}; only str has words")
            batch[WORDS] = texts
        sizes = {view: len(rows) for view, rows in batch.items()}
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"view {short(view)}: {size}" for view, size in sizes.items())
            raise EmbedderError(f"the numbers of rows differ ({counts}); pass one row per sample everywhere")
        return batch, next(iter(sizes.values()))

    def _blocks(self, batch: _Batch, size: int) -> Iterator[tuple[slice, Array]]:
        chunk = max(1, min(_CHUNK, _MOST_LOGITS // len(self.classes)))
        for start in range(0, size, chunk):
            rows = slice(start, min(start + chunk, size))
            block = np.zeros((rows.stop - start, len(self.classes)), np.float32)
            # What is not finite in a vector is not finite in its logits, which are fewer to look at.
            with np.errstate(over="ignore", invalid="ignore"):
                inputs: dict[str, Rows] = {}
                for view, values in batch.items():
                    if isinstance(values, np.ndarray):
                        inputs[view] = values[rows].astype(np.float32, copy=False)
                    elif self.vocabulary is not None:
                        inputs[view] = self.vocabulary.transform(values[rows])
                for head in self.heads:
                    head.add_logits(inputs[head.view], block)
            if not np.isfinite(block).all():
                raise _not_finite(inputs, block, start)
            yield rows, block


def _expected(estimate: Json) -> str | None:
    """The estimate in words, if there is one."""
    if not isinstance(estimate, dict):
        return None
    shares = [estimate.get(key) for key in ("accuracy", "low", "high")]
    accuracy, low, high = (f"{100 * s:.1f} %" if isinstance(s, int | float) else "unknown" for s in shares)
    return f"{accuracy} (95 % interval {low} to {high}, out of fold, on {estimate.get('n')} given samples)"


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


def _not_finite(inputs: Mapping[str, Rows], block: Array, start: int) -> EmbedderError:
    row = int(np.argmin(np.isfinite(block).all(axis=1)))
    for view, x in inputs.items():
        if isinstance(x, np.ndarray) and not np.isfinite(x[row]).all():
            return EmbedderError(f"vector {start + row} of view {short(view)} is not finite; embed it again")
    return EmbedderError(f"the logits of row {start + row} overflow; are its vectors the embedder's own?")
