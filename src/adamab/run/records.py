"""What a run tells about each round."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adamab.method.policies import Choice


@dataclass(frozen=True)
class ClassScore:
    """What a policy knew of one class when it chose.

    `bonus` and `score` are None where the policy computes none or the class has no sample yet;
    `exact` False marks a score that is an upper bound, where lazy evaluation stopped.
    """

    count: int
    bonus: float | None = None
    score: float | None = None
    exact: bool | None = None


@dataclass(frozen=True)
class Seconds:
    """Where a round's time went."""

    scoring: float = 0.0
    generating: float = 0.0
    embedding: float = 0.0
    training: float = 0.0


@dataclass(frozen=True)
class RoundRecord:
    """One round: the choice and why, what came of it, and the training that followed."""

    round: int
    chosen: str | None  # None in rounds without generation
    asked: int
    accepted: int
    closed: str | None  # why the chosen class can give no more, if so
    n_samples: int
    scores: tuple[ClassScore, ...]  # by class, before generation
    loss: float | None  # None while no model is there yet
    learning_rate: float | None
    seconds: Seconds

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def class_scores(
    counts: np.ndarray[Any, np.dtype[np.int64]], choice: Choice | None
) -> tuple[ClassScore, ...]:
    """The policy's arrays, class by class, without a NaN."""
    if choice is None or choice.score is None or choice.bonus is None or choice.exact is None:
        return tuple(ClassScore(int(n)) for n in counts)
    return tuple(
        ClassScore(int(n), float(bonus), float(score), bool(exact)) if n > 0 else ClassScore(0)
        for n, bonus, score, exact in zip(counts, choice.bonus, choice.score, choice.exact, strict=True)
    )


class History(tuple[RoundRecord, ...]):
    """The records of a run, in order."""

    __slots__ = ()

    def write(self, path: Path) -> None:
        """One JSON object a line."""
        path.write_text(
            "".join(json.dumps(r.to_json(), allow_nan=False) + "\n" for r in self), encoding="utf-8"
        )

    def samples_by_class(self, class_names: Iterable[str]) -> dict[str, int]:
        """Accepted synthetic samples of each class."""
        counts = dict.fromkeys(class_names, 0)
        for record in self:
            if record.chosen is not None:
                counts[record.chosen] += record.accepted
        return counts
