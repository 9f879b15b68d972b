"""How good predictions are, with intervals, and whether their probabilities can be relied on.

Accuracy, macro-F1, calibration and confusions; inputs that belong to no class, and prediction sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from adamab.method.stacking import wilson
from adamab.model import Answerer, Confidence, PredictOptions
from adamab.model.confidence import softmax, strangeness

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Logits: TypeAlias = NDArray[np.float32]  # (n, K)

BINS = 15
BINNING = f"{BINS} equal-width bins"
RESAMPLES = 1000
_BLOCK = 2**22  # numbers at a time in a bootstrap
_LEAST = 1e-15  # probability that the log loss sees for a class that was ruled out


@dataclass(frozen=True)
class Figure:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ClassFigures:
    """One class; precision is None where it was never predicted, recall where it never occurred."""

    name: str
    n: int
    predicted: int
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class Confusion:
    """How often samples of one class were taken for another."""

    true: str
    predicted: str
    count: int
    share: float  # of the samples of the true class


@dataclass(frozen=True)
class Evaluation:
    """Everything `adamab evaluate` tells."""

    n: int
    accuracy: Figure  # Wilson's interval
    macro_f1: Figure  # bootstrap interval
    calibration_error: float
    classes: tuple[ClassFigures, ...]
    confusions: tuple[Confusion, ...]  # the most frequent first


def evaluate(
    probabilities: NDArray[np.floating],
    class_index: Ints,
    class_names: Sequence[str],
    *,
    rng: np.random.Generator | None = None,
) -> Evaluation:
    """Judge probabilities by the true classes.

    Args:
        probabilities: (n, K).
        class_index: (n,) the true classes.
        class_names: K names.
        rng: of the bootstrap; a fixed seed without it.

    Example:
        >>> p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
        >>> result = evaluate(p, np.array([0, 1, 1]), ("no", "yes"))
        >>> round(result.accuracy.value, 2), result.confusions[0].predicted
        (0.67, 'no')
    """
    if len(probabilities) == 0 or len(probabilities) != len(class_index):
        raise ValueError(f"{len(probabilities)} predictions for {len(class_index)} samples; give one each")
    predicted = np.argmax(probabilities, axis=1)
    confusion = confusion_matrix(class_index, predicted, len(class_names))
    correct = predicted == class_index
    n, hits = len(correct), int(correct.sum())
    return Evaluation(
        n=n,
        accuracy=Figure(hits / n, *wilson(hits / n, n)),
        macro_f1=bootstrap_macro_f1(confusion, rng or np.random.default_rng(0)),
        calibration_error=calibration_error(probabilities.max(axis=1), correct),
        classes=tuple(_class_figures(confusion, class_names)),
        confusions=tuple(_confusions(confusion, class_names)),
    )


def confusion_matrix(class_index: Ints, predicted: Ints, n_classes: int) -> Ints:
    """(K, K) counts, a row per true class and a column per predicted one.

    Args:
        class_index: (n,) the true classes.
        predicted: (n,) the predicted ones.
        n_classes: K.
    """
    cells = np.bincount(class_index * n_classes + predicted, minlength=n_classes * n_classes)
    return cells.reshape(n_classes, n_classes).astype(np.int64)


def macro_f1(confusion: Ints) -> float:
    """Mean F1 = 2 hits / (true + predicted) over the classes that occur or are predicted."""
    return float(_mean_f1(np.diagonal(confusion), confusion.sum(axis=1) + confusion.sum(axis=0)))


def bootstrap_macro_f1(confusion: Ints, rng: np.random.Generator) -> Figure:
    """Macro-F1 with the percentile interval of a bootstrap over the samples.

    Drawing n samples with replacement is drawing the counts of the confusion's cells from a multinomial.

    Args:
        confusion: (K, K) counts, a row per true class.
        rng: draws the samples.
    """
    n_classes = len(confusion)
    true, predicted = np.nonzero(confusion)
    counts = confusion[true, predicted]
    cells = np.arange(len(counts))
    members = np.zeros((len(counts), n_classes))  # how much a cell adds to true + predicted of a class
    np.add.at(members, (cells, true), 1)
    np.add.at(members, (cells, predicted), 1)
    hits = np.zeros((len(counts), n_classes))
    hits[cells, true] = true == predicted
    values = []
    step = max(1, _BLOCK // (len(counts) + n_classes))
    for start in range(0, RESAMPLES, step):
        size = min(step, RESAMPLES - start)
        drawn = rng.multinomial(counts.sum(), counts / counts.sum(), size).astype(np.float64)
        values.append(_mean_f1(drawn @ hits, drawn @ members))
    low, high = np.quantile(np.concatenate(values), [0.025, 0.975])
    return Figure(macro_f1(confusion), float(low), float(high))


def calibration_error(confidence: NDArray[np.floating], correct: NDArray[np.bool_]) -> float:
    """Expected calibration error (Naeini et al., Obtaining well calibrated probabilities using Bayesian
    binning, AAAI 2015): Σ over bins of share x |accuracy - mean confidence|.

    Bin b of B holds confidences in (b/B, (b+1)/B].

    Args:
        confidence: (n,) probability of the predicted class.
        correct: (n,) whether it was right.
    """
    bin_ = np.clip(np.ceil(confidence.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(bin_, correct.astype(np.float64) - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def _mean_f1(hits: NDArray[Any], members: NDArray[Any]) -> Floats:  # (..., K) both
    there = members > 0
    f1 = np.where(there, 2 * hits / np.maximum(members, 1), 0.0)
    mean: Floats = f1.sum(axis=-1) / np.maximum(there.sum(axis=-1), 1)
    return mean


def _class_figures(confusion: Ints, names: Sequence[str]) -> Iterator[ClassFigures]:
    hits, n, predicted = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    for c, name in enumerate(names):
        precision = float(hits[c] / predicted[c]) if predicted[c] else None
        recall = float(hits[c] / n[c]) if n[c] else None
        yield ClassFigures(name, int(n[c]), int(predicted[c]), precision, recall)


def _confusions(confusion: Ints, names: Sequence[str]) -> Iterator[Confusion]:
    wrong = confusion - np.diag(np.diagonal(confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[: np.count_nonzero(wrong)]
    for true, predicted in zip(*np.unravel_index(order, wrong.shape), strict=True):
        count = int(wrong[true, predicted])
        yield Confusion(names[true], names[predicted], count, count / int(confusion[true].sum()))


@dataclass(frozen=True)
class ProbabilityFigures:
    """How well probabilities fit what happened; smaller is better."""

    calibration_error: float  # of the most probable class, in BINS bins of equal width
    log_loss: float
    brier: float  # mean squared distance to the true class as a corner, from 0 to 2


@dataclass(frozen=True)
class UnknownFigures:
    """What `unknown` does to inputs of known classes, and to others."""

    asked: float  # share of known inputs that was to be kept
    kept: float  # share of known inputs that are answered
    n_out_of_scope: int = 0
    caught: float | None = None  # share of the others that are not
    auroc: float | None = None  # probability that an other is stranger than a known one


@dataclass(frozen=True)
class SetFigures:
    """How often prediction sets hold the true class, and how many others."""

    asked: float
    covered: float
    covered_by_class: float  # the same as the mean over classes
    mean_size: float


def judge_probabilities(logits: Logits, class_index: Ints) -> ProbabilityFigures:
    """Figures of the softmax of logits (n, K), by the true classes (n,).

    Args:
        logits: (n, K).
        class_index: (n,) the true classes.
    """
    p = softmax(logits.copy())
    rows = np.arange(len(p))
    error = p.astype(np.float64)
    error[rows, class_index] -= 1
    true = np.maximum(p[rows, class_index].astype(np.float64), _LEAST)
    return ProbabilityFigures(
        calibration_error(p.max(axis=1), p.argmax(axis=1) == class_index),
        float(-np.log(true).mean()),
        float((error**2).sum(axis=1).mean()),
    )


def judge_unknown(
    known: Logits, others: Logits | None, confidence: Confidence | None, share: float
) -> UnknownFigures:
    """Figures of the threshold for `unknown`.

    Args:
        known: (n, K) logits of inputs of known classes.
        others: (m, K) logits of inputs of no class; None leaves their figures out.
        confidence: the classifier's.
        share: of known inputs that are to be kept.
    """
    kept = 1 - _unknown_share(known, confidence, share)
    if others is None:
        return UnknownFigures(share, kept)
    separated = auroc(strangeness(known), strangeness(others))
    return UnknownFigures(share, kept, len(others), _unknown_share(others, confidence, share), separated)


def judge_sets(
    logits: Logits, class_index: Ints, confidence: Confidence | None, coverage: float
) -> SetFigures:
    """Figures of prediction sets.

    Args:
        logits: (n, K).
        class_index: (n,) the true classes.
        confidence: the classifier's.
        coverage: probability with which a set is to hold the true class.
    """
    sets = _answerer(logits, confidence, PredictOptions(coverage=coverage))(logits.copy()).sets or []
    covered = np.array([true in one for true, one in zip(class_index.tolist(), sets, strict=True)])
    by_class = [covered[class_index == c].mean() for c in np.unique(class_index)]
    size = float(np.mean([len(one) for one in sets]))
    return SetFigures(coverage, float(covered.mean()), float(np.mean(by_class)), size)


def auroc(known: NDArray[np.floating], others: NDArray[np.floating]) -> float:
    """Probability that one of the others scores higher than a known one; ties count half.

    Args:
        known: (n,) scores of inputs of known classes.
        others: (m,) scores of the others.

    Example:
        >>> auroc(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
        0.875
    """
    ranks = rankdata(np.concatenate([known, others]))[len(known) :]
    n = len(others)
    return float((ranks.sum() - n * (n + 1) / 2) / (len(known) * n))


def _unknown_share(logits: Logits, confidence: Confidence | None, share: float) -> float:
    unknown = _answerer(logits, confidence, PredictOptions(unknown=share))(logits.copy()).unknown
    return 0.0 if unknown is None else float(unknown.mean())


def _answerer(logits: Logits, confidence: Confidence | None, asked: PredictOptions) -> Answerer:
    return Answerer([str(c) for c in range(logits.shape[1])], confidence, asked)
