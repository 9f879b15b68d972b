"""What a run has behind it when a process takes it up: rounds that ended, and a checkpoint of the model."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamab.providers.generators.base import Batch
from adamab.run.records import RoundRecord
from adamab.task.words import folded

if TYPE_CHECKING:
    from torch import Tensor

    from adamab.run.loop import Loop
    from adamab.run.source import Source

Floats = NDArray[np.float32]
REJECTED_BEFORE = "rejected before"
# Reasons of the gate that a person may overrule.
OVERRULED = ("refusal", "near duplicate", "inconsistent", REJECTED_BEFORE)
Batches = Callable[[str, int], Sequence[Batch]]  # class, how many -> its first batches


@dataclass(frozen=True)
class RoundOutcome:
    """A finished round as it is written down: its record, what entered, and how far its class has got."""

    record: RoundRecord
    texts: tuple[str, ...] = ()
    batches: int = 0  # of the chosen class, taken so far
    left: int = 0  # texts of them that nobody has looked at yet
    refusals: int = 0
    closing: str | None = None  # why it will be closed once nothing is left
    turned_away: tuple[tuple[str, str], ...] = ()  # texts that the gate kept out, and its reasons


@dataclass(frozen=True)
class Checkpoint:
    """The state of the model and of the random numbers after a round."""

    round: int
    n_model: int  # samples that the model was made from; 0 if there was none yet
    tensors: Mapping[str, Tensor]
    rng: Mapping[str, Any]


class Behind(NamedTuple):
    """The rounds of earlier segments in three numbers."""

    last: int = 0  # the number of the last of them
    accepted: int = 0  # samples that entered
    chosen: int = 0  # rounds that chose a class


@dataclass(frozen=True)
class Past:
    """Nothing, for a run that begins.

    `before` are the rounds of earlier segments: their samples are taken as they are. `rounds` are
    those of this segment: they are replayed, from the checkpoint on if there is one.
    """

    before: tuple[RoundOutcome, ...] = ()
    rounds: tuple[RoundOutcome, ...] = ()
    checkpoint: Checkpoint | None = None
    dropped: frozenset[str] = frozenset()  # folded texts that somebody rejected
    wanted: frozenset[str] = frozenset()  # folded texts that somebody accepted whatever the gate says
    reopened: Mapping[str, int] = field(default_factory=dict)  # classes with new given samples: after round
    batches: Batches = lambda name, count: ()

    @property
    def records(self) -> list[RoundRecord]:
        """Of all rounds that will not run again."""
        return [outcome.record for outcome in (*self.before, *self.skipped)]

    @cached_property
    def behind(self) -> Behind:
        """What the rounds of earlier segments come to; every round asks."""
        records = [outcome.record for outcome in self.before]
        return Behind(
            max((record.round for record in records), default=0),
            sum(record.accepted for record in records),
            sum(record.chosen is not None for record in records),
        )

    @cached_property
    def skipped(self) -> tuple[RoundOutcome, ...]:
        """Rounds of this segment that a checkpoint stands for."""
        if self.checkpoint is None:
            return ()
        return tuple(r for r in self.rounds if r.record.round <= self.checkpoint.round)

    def rebuild(self, loop: Loop) -> None:
        """Put the samples, the classes' positions, the model and the random numbers where they were."""
        adopted = _Adopted(self, loop)
        for outcome in self.before:
            adopted.add(outcome)
        for outcome in self.skipped:
            self._make_model(loop)
            adopted.add(outcome)
            if loop.model is not None:
                loop.model.follow()  # round by round, as then: other shapes round differently
        loop.done = max((r.round for r in self.records), default=0)
        if loop.source is not None:
            self._positions(loop.source)
        if self.checkpoint is not None:
            self._make_model(loop)
            loop.rng.bit_generator.state = dict(self.checkpoint.rng)
            if loop.model is not None:
                loop.model.restore(self.checkpoint.tensors)

    def _make_model(self, loop: Loop) -> None:
        made = self.checkpoint is not None and self.checkpoint.n_model
        if loop.model is None and made and len(loop.samples) == made:
            loop.model, loop.n_model = loop.make_model(), made

    def entering(self, outcome: RoundOutcome, present: Container[str]) -> list[str]:
        """What people and the gate let in, of a round of an earlier segment."""
        texts = [text for text in outcome.texts if folded(text) not in self.dropped]
        overruled = {
            folded(text): text
            for text, reason in outcome.turned_away
            if reason in OVERRULED and folded(text) in self.wanted
        }
        return texts + [text for key, text in overruled.items() if key not in present]

    def _positions(self, source: Source) -> None:
        last: dict[str, RoundOutcome] = {}
        for outcome in (*self.before, *self.skipped):
            if outcome.record.chosen is not None:
                last[outcome.record.chosen] = outcome
            source.spent += outcome.record.accepted
        for c, spec in enumerate(source.classes):
            if spec.name in last:
                self._position(source, c, last[spec.name])
        source.ended = next((r.record.ended for r in self.skipped if r.record.ended), None)

    def _position(self, source: Source, c: int, outcome: RoundOutcome) -> None:
        name = source.classes[c].name
        stands = outcome.record.round > self.reopened.get(name, 0)
        source.restore(
            c,
            self.batches(name, outcome.batches),
            outcome.left,
            refusals=outcome.refusals if stands else 0,
            closing=outcome.closing if stands else None,
        )
        if outcome.record.closed is not None and stands:
            source.closed[c] = outcome.record.closed


class _Adopted:
    """Puts the samples of earlier rounds into the training set, in the order in which they came."""

    def __init__(self, past: Past, loop: Loop) -> None:
        self._past, self._samples, self._source = past, loop.samples, loop.source
        classes = () if loop.source is None else loop.source.classes
        self._index = {spec.name: c for c, spec in enumerate(classes)}
        self._bought = _Bought(past)

    def add(self, outcome: RoundOutcome) -> None:
        """Those of the next round."""
        source, name = self._source, outcome.record.chosen
        if source is None or name is None:
            return
        texts = self._past.entering(outcome, self._samples.keys)
        if source.embed is None:
            if outcome.record.accepted:
                vectors = self._bought.vectors(name, outcome.record.accepted)
                self._add(name, {self._samples.pooled: vectors})
        elif texts:
            self._add(name, source.embed(texts), texts)

    def _add(self, name: str, views: Mapping[str, Floats], texts: Sequence[str] = ()) -> None:
        count = len(next(iter(views.values())))
        self._samples.add([self._index[name]] * count, views, given=False, texts=texts)


class _Bought:
    """Vectors that came from a generator; all of them entered, in the order in which they came."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._left: dict[str, Floats] = {}  # (n, d) of every class that was asked for

    @cached_property
    def _taken(self) -> dict[str, int]:
        """Batches of every class that the rounds took."""
        rounds = (*self._past.before, *self._past.skipped)
        return {r.record.chosen: r.batches for r in rounds if r.record.chosen is not None}

    def vectors(self, name: str, count: int) -> Floats:
        """The next ones of a class. A class is read once: read round by round it would be quadratic."""
        if name not in self._left:
            batches = self._past.batches(name, self._taken[name])
            self._left[name] = np.concatenate([b.vectors for b in batches if b.vectors is not None])
        rows = self._left[name]
        self._left[name] = rows[count:]
        return rows[:count]


def rng_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of a generator of random numbers as plain data."""
    return dict(rng.bit_generator.state)
