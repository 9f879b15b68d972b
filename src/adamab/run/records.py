"""The records of a run's rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adamab.method.policies import Choice
from adamab.task.spec import MOST_ROWS, notebook_html

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_SCORES = 16  # that are kept of a round, unless all are wanted; the page and the report show five


@dataclass(frozen=True)
class ClassScores:
    """What a policy knew of each class when it chose; the last four are of the classes that have a score.

    A class has none where the policy computes none or it has no sample yet, nor do all but the best classes
    unless a fit was asked for all scores. δ² and not the bonus is kept: the difference of bonus and score
    would lose it where the bonus is large.
    """

    count: list[int]  # (K,) samples of each class
    place: list[int] = field(default_factory=list)  # (m,) of the class, rising
    score: list[float] = field(default_factory=list)  # (m,)
    shift: list[float] = field(default_factory=list)  # (m,) δ² = bonus - score
    exact: list[bool] = field(default_factory=list)  # (m,) False marks an upper bound, where refining stopped

    @classmethod
    def of_choice(cls, counts: NDArray[np.int64], choice: Choice | None, *, all_scores: bool) -> ClassScores:
        """What a policy's arrays (K,) say.

        Args:
            counts: samples of each class when it chose.
            choice: what it chose, and by which scores; None in a round that generates nothing.
            all_scores: keep the scores of all classes, not only of the best ones and the chosen one.
        """
        if choice is None or choice.score is None or choice.bonus is None or choice.exact is None:
            return cls(counts.tolist())
        place = np.flatnonzero(counts > 0)  # a class without samples has NaN for a score
        if not all_scores and len(place) > MOST_SCORES:
            best = place[np.argsort(-choice.score[place], kind="stable")[:MOST_SCORES]]
            place = np.union1d(best, [choice.arm])
        score = choice.score[place]
        return cls(
            counts.tolist(),
            place.tolist(),
            score.tolist(),
            (choice.bonus[place] - score).tolist(),
            choice.exact[place].tolist(),
        )


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
    scores: ClassScores  # by class, before generation
    loss: float | None  # None while no model is there yet
    learning_rate: float | None
    seconds: Seconds
    rejected: Mapping[str, int] = field(default_factory=dict)  # reason -> samples kept out by the gate
    refused: bool = False  # the generator declined to write for this class
    ended: str | None = None  # why generation ended with this round, if so

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = {name: dict(vars(getattr(self, name))) for name in ("scores", "seconds")}
        return {**vars(self), **plain, "rejected": dict(self.rejected)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RoundRecord:
        """Take back what `to_json` gave."""
        scores, seconds = ClassScores(**data["scores"]), Seconds(**data["seconds"])
        return cls(**{**data, "scores": scores, "seconds": seconds})


class History(tuple[RoundRecord, ...]):
    """The records of a run, in order."""

    __slots__ = ()

    def plot(self) -> Figure:
        """Loss by round, who was chosen when, and how many samples each class got, as one figure.

        Needs `adamab[plots]`. Nothing global is touched: show or save the figure yourself; a notebook
        shows it as the value of a cell.
        """
        from adamab.display import draw_history

        return draw_history(self)

    def __repr__(self) -> str:
        entered = sum(record.accepted for record in self)
        return f"History({len(self)} rounds, {entered} synthetic samples that entered)"

    def _repr_html_(self) -> str:
        """What a notebook shows: the last rounds."""
        latest = self[-MOST_ROWS:]
        known = {
            "rounds": len(self),
            "synthetic samples that entered": sum(record.accepted for record in self),
            "kept out by the gate": sum(sum(record.rejected.values()) for record in self),
            "last loss": next((r.loss for r in reversed(self) if r.loss is not None), None),
        }
        rows = [(r.round, r.chosen, r.asked, r.accepted, sum(r.rejected.values()), r.loss) for r in latest]
        columns = ("round", "chosen class", "asked", "entered", "kept out", "loss")
        left_out = len(self) - len(latest)
        return notebook_html("History", known, columns, rows, left_out, "rounds before these")
