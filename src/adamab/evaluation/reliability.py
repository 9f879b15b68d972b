"""Whether probabilities can be relied on: calibration, inputs that belong to no class, prediction sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from adamab.evaluation.metrics import BINS, calibration_error
from adamab.model import Answerer, Confidence, PredictOptions
from adamab.model.confidence import softmax, strangeness

Logits: TypeAlias = NDArray[np.float32]  # (n, K)
Ints: TypeAlias = NDArray[np.int64]
BINNING = f"{BINS} equal-width bins"
_LEAST = 1e-15  # probability that the log loss sees for a class that was ruled out


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
