"""What `adamab evaluate` says about probabilities, `unknown` and prediction sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.classifier import Answerer, Asked, Classifier, Confidence
from adamab.classifier.answers import prior_offsets
from adamab.cli.console import counted, percent
from adamab.study.reliability import (
    BINNING,
    ProbabilityFigures,
    SetFigures,
    UnknownFigures,
    judge_probabilities,
    judge_sets,
    judge_unknown,
)

Logits: TypeAlias = NDArray[np.float32]
_NEXT = " " * 19  # where a line goes on


@dataclass(frozen=True)
class Reliability:
    """The figures; None where something was not asked for or cannot be told."""

    after: ProbabilityFigures
    before: ProbabilityFigures | None  # the temperature
    temperature: float | None
    unknown: UnknownFigures | None
    sets: SetFigures | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        found = asdict(self)
        of_probabilities = {name: found[name] for name in ("temperature", "before", "after")}
        return {
            "probabilities": {"binning": BINNING, **of_probabilities},
            "unknown": found["unknown"],
            "sets": found["sets"],
        }

    def lines(self, noun: str) -> Iterator[str]:
        """For people, at most 80 characters each."""
        after, before = self.after, self.before
        error = f"calibration error  {percent(after.calibration_error)}"
        scores = f"log loss, Brier    {after.log_loss:.3f}, {after.brier:.3f}"
        if before is None:
            yield f"{error} ({BINNING}; no temperature, see the note)"
            yield scores
        else:
            earlier = f"{before.log_loss:.3f}, {before.brier:.3f} before the temperature"
            yield f"{error} ({percent(before.calibration_error)} before the temperature, {BINNING})"
            yield f"{scores} ({earlier} of {self.temperature:.3f})"
        if self.unknown is not None:
            yield from _unknown_lines(self.unknown, noun)
        if self.sets is not None:
            told = f"{percent(self.sets.covered)} hold the class, asked for {percent(self.sets.asked)}"
            yield f"prediction sets    {told}"
            yield f"{_NEXT}{self.sets.mean_size:.2f} classes in a set on average"


def checked_offsets(classifier: Classifier, asked: Asked) -> Logits:
    """(K,) what stated priors add to the logits; refuses what the model cannot tell before any work."""
    Answerer(classifier.classes, classifier.confidence, asked)
    if asked.priors is None:
        return np.zeros(len(classifier.classes), np.float32)
    return prior_offsets(asked.priors, classifier.classes, classifier.confidence)


def reliability(
    logits: Logits,  # (n, K)
    class_index: NDArray[np.int64],  # (n,)
    others: Logits | None,  # of inputs that belong to no class
    confidence: Confidence | None,
    asked: Asked,
    offsets: Logits,
) -> Reliability:
    """Judge everything that is asked for; the temperature where there is one."""
    before = temperature = None
    if confidence is not None and confidence.n:
        temperature = confidence.temperature
        before = judge_probabilities(logits * np.float32(temperature) + offsets, class_index)
    unknown, coverage = asked.unknown, asked.coverage
    return Reliability(
        judge_probabilities(logits + offsets, class_index),
        before,
        temperature,
        None if unknown is None else judge_unknown(logits, others, confidence, unknown),
        None if coverage is None else judge_sets(logits, class_index, confidence, coverage),
    )


def _unknown_lines(found: UnknownFigures, noun: str) -> Iterator[str]:
    yield f"unknown            {percent(found.kept)} of these are kept, asked for {percent(found.asked)}"
    if found.caught is not None and found.auroc is not None:
        others = f"{counted(found.n_out_of_scope, noun)} of no class"
        yield f"{_NEXT}{percent(found.caught)} of {others} are caught; AUROC {found.auroc:.3f}"
