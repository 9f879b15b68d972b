"""What a run has behind it when a process takes it up: rounds that ended, and a checkpoint of the model."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
        return [outcome.record for outcome in (*self.before, *self._skipped())]

    def _skipped(self) -> tuple[RoundOutcome, ...]:
        if self.checkpoint is None:
            return ()
        return tuple(r for r in self.rounds if r.record.round <= self.checkpoint.round)

    def rebuild(self, loop: Loop) -> None:
        """Put the samples, the classes' positions, the model and the random numbers where they were."""
        bought = _Bought(self.batches)
        for outcome in self.before:
            self._adopt(loop, outcome, bought)
        for outcome in self._skipped():
            self._make_model(loop)
            self._adopt(loop, outcome, bought)
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

    def _adopt(self, loop: Loop, outcome: RoundOutcome, bought: _Bought) -> None:
        source, name = loop.source, outcome.record.chosen
        if source is None or name is None:
            return
        texts = self._entering(outcome, loop.samples.keys)
        index = [spec.name for spec in source.classes].index(name)
        if source.embed is None:
            if outcome.record.accepted:
                vectors = bought.vectors(name, outcome)
                loop.samples.add([index] * len(vectors), {loop.samples.pooled: vectors}, given=False)
        elif texts:
            loop.samples.add([index] * len(texts), source.embed(texts), given=False, texts=texts)

    def _entering(self, outcome: RoundOutcome, present: Container[str]) -> list[str]:
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
        for outcome in (*self.before, *self._skipped()):
            if outcome.record.chosen is not None:
                last[outcome.record.chosen] = outcome
            source.spent += outcome.record.accepted
        for c, spec in enumerate(source.classes):
            if spec.name in last:
                self._position(source, c, last[spec.name])
        source.ended = next((r.record.ended for r in self._skipped() if r.record.ended), None)

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


class _Bought:
    """Vectors that came from a generator; all of them entered, in the order in which they came."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._used: dict[str, int] = {}

    def vectors(self, name: str, outcome: RoundOutcome) -> Floats:
        """Those that entered in a round."""
        start = self._used.get(name, 0)
        end = self._used[name] = start + outcome.record.accepted
        parts = [batch.vectors for batch in self._batches(name, outcome.batches) if batch.vectors is not None]
        return np.concatenate(parts)[start:end]


def rng_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of a generator of random numbers as plain data."""
    return dict(rng.bit_generator.state)
