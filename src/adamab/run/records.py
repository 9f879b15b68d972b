"""What a run tells about each round."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.run.class_scores import ClassScores
from adamab.task import html

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        plain = {
            "scores": self.scores.to_json(),
            "seconds": {**vars(self.seconds)},
            "rejected": {**self.rejected},
        }
        return {**vars(self), **plain}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RoundRecord:
        """Take back what `to_json` gave."""
        scores = ClassScores.from_json(data["scores"])
        return cls(**{**data, "scores": scores, "seconds": Seconds(**data["seconds"])})


class History(tuple[RoundRecord, ...]):
    """The records of a run, in order."""

    __slots__ = ()

    def write(self, path: Path) -> None:
        """One JSON object a line."""
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(r.to_json(), allow_nan=False) + "\n" for r in self)

    def rejected_by_class(self) -> dict[str, dict[str, int]]:
        """How many samples the quality gate kept out, by class and reason."""
        counts: dict[str, Counter[str]] = {}
        for record in self:
            if record.chosen is not None and record.rejected:
                counts.setdefault(record.chosen, Counter()).update(record.rejected)
        return {name: dict(reasons) for name, reasons in counts.items()}

    def refused_by_class(self) -> dict[str, int]:
        """How often the generator declined to write for a class."""
        return dict(Counter(r.chosen for r in self if r.refused and r.chosen is not None))

    def plot(self) -> Figure:
        """Loss by round, who was chosen when, and how many samples each class got, as one figure.

        Needs `adamab[plots]`. Nothing global is touched: show or save the figure yourself; a notebook
        shows it as the value of a cell.
        """
        from adamab.run.history_figure import draw_history

        return draw_history(self)

    def __repr__(self) -> str:
        entered = sum(record.accepted for record in self)
        return f"History({len(self)} rounds, {entered} synthetic samples that entered)"

    def _repr_html_(self) -> str:
        """What a notebook shows: the last rounds."""
        shown = self[-html.MOST_ROWS :]
        known = {
            "rounds": len(self),
            "synthetic samples that entered": sum(record.accepted for record in self),
            "kept out by the gate": sum(sum(record.rejected.values()) for record in self),
            "last loss": next((r.loss for r in reversed(self) if r.loss is not None), None),
        }
        rows = [(r.round, r.chosen, r.asked, r.accepted, sum(r.rejected.values()), r.loss) for r in shown]
        columns = ("round", "chosen class", "asked", "entered", "kept out", "loss")
        return (
            html.facts("History", known)
            + (html.table(columns, rows) if rows else "")
            + html.and_more(len(self) - len(shown), "rounds before these")
        )
