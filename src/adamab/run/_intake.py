"""Where synthetic samples come from: batches of a class pass the quality gate and enter the training set."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adamab.errors import BudgetError
from adamab.providers.embedders.base import Embedded
from adamab.providers.generators.base import Batch
from adamab.run.gate import Gate, Reason
from adamab.run.prefetch import BatchPrefetcher
from adamab.run.resume import ResumeState, RoundOutcome
from adamab.run.samples import TrainingSet
from adamab.task.spec import ClassSpec

Floats = NDArray[np.float32]
REFILLS = 2  # further batches in a round that was not filled
Embed = Callable[[Sequence[str]], dict[str, Floats]]
Scores = Callable[[dict[str, Floats], Sequence[str]], NDArray[np.floating]]


class Clock:
    """Seconds by activity; a lap ends where the next begins."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """The time since the last lap was spent on `name`."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


@dataclass
class RoundIntake:
    """What a round brought."""

    accepted: int = 0
    texts: list[str] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    turned_away: list[tuple[str, str]] = field(default_factory=list)  # texts of the rejected, and why
    refused: bool = False
    closed: str | None = None  # why this class can give no more
    ended: str | None = None  # why generation ended
    departed: bool = False  # the gate decided differently from the record, which was followed


@dataclass
class PendingSamples:
    """What a class has delivered and no round has looked at yet, and what is known of its generator."""

    texts: list[str] = field(default_factory=list)
    rows: list[dict[str, Floats]] = field(default_factory=list)  # of each text, by view; empty if not known
    vectors: list[Floats] = field(default_factory=list)  # (d,) each, of a generator of vectors
    batches: int = 0  # taken so far
    refusals: int = 0
    closing: str | None = None  # takes effect when no sample is left

    def __len__(self) -> int:
        return len(self.texts) + len(self.vectors)

    def put(self, batch: Batch, embedded: Embedded | None = None) -> None:
        """Append a batch, with the vectors of its texts where they were fetched ahead."""
        self.batches += 1
        self.texts += batch.texts
        self.vectors += () if batch.vectors is None else list(batch.vectors)
        views = {} if embedded is None else embedded.views
        self.rows += [{name: matrix[i] for name, matrix in views.items()} for i in range(len(batch.texts))]
        self.closing = self.closing or batch.closed

    def drop(self, count: int) -> None:
        """Remove the first samples."""
        del self.texts[:count], self.rows[:count], self.vectors[:count]

    def join(self, other: PendingSamples) -> None:
        """Append the samples of another class, which may not be closed any more."""
        self.texts += other.texts
        self.rows += other.rows
        self.vectors += other.vectors
        self.refusals, self.closing = 0, None


@dataclass
class Stock:
    """What a class has got from its generator so far."""

    texts: list[str] = field(default_factory=list)  # of all its batches, as they came
    pending: PendingSamples = field(default_factory=PendingSamples)
    round: int = 0  # the last one that chose it
    closed: str | None = None  # why it can give no more


class Bought:
    """What the rounds of a run took of each class; one that is renamed or merged takes it along."""

    def __init__(self, state: ResumeState) -> None:
        self.stocks: dict[str, Stock] = {}
        self.next_batch: Counter[str] = Counter()  # by the name that it is kept under
        self.vectors: dict[int, list[Floats]] = {}  # by round: those that it took
        self._moves = list(state.moves)
        counts: Counter[str] = Counter()
        for outcome in (*state.before, *state.skipped):
            name = outcome.record.chosen or ""
            counts[name] = max(counts[name], outcome.batches)
        for move in state.moves:
            counts |= Counter(move.freed)
        self._batches = {name: state.batches(name, count) for name, count in counts.items()}

    def follow(self, outcome: RoundOutcome) -> None:
        """Take what a round took; rounds come in their order."""
        record = outcome.record
        self.move_until(record.round)
        if record.chosen is None:
            return
        stock = self.stocks.setdefault(record.chosen, Stock())
        self._take(stock, record.chosen, outcome.batches)
        used = len(stock.pending) - outcome.left
        self.vectors[record.round] = stock.pending.vectors[:used]
        stock.pending.drop(used)
        stock.pending.refusals, stock.pending.closing = outcome.refusals, outcome.closing
        stock.round, stock.closed = record.round, record.closed

    def move_until(self, round_: int | None) -> None:
        """Apply the moves that come before a round; all that are left without one."""
        while self._moves and (round_ is None or self._moves[0].after < round_):
            move = self._moves.pop(0)
            leaving = {name: self.stocks.pop(name, Stock()) for name in move.to}
            for name, stock in leaving.items():
                self._take(stock, name, move.freed[name])  # what was fetched and never looked at
                target = self.stocks.setdefault(move.owner(name), Stock())
                target.texts += stock.texts
                target.pending.join(stock.pending)
                target.round, target.closed = max(target.round, stock.round), None

    def _take(self, stock: Stock, name: str, until: int) -> None:
        for number in range(self.next_batch[name], until):
            if (batch := self._batches[name].get(number)) is not None:  # or its answers never came
                stock.texts += batch.texts
                stock.pending.put(batch)
        self.next_batch[name] = max(until, self.next_batch[name])


@dataclass
class SampleSource:
    """Where synthetic samples come from, and which classes can give no more."""

    batches: BatchPrefetcher
    classes: Sequence[ClassSpec]
    gate: Gate
    embed: Embed | None  # None where samples are vectors
    batch: int
    budget: int | None = None  # samples in all
    max_refusals: int = 3
    plan: Callable[[int], None] = lambda rounds: None  # called with the number of rounds to come
    spent: int = 0
    closed: dict[int, str] = field(default_factory=dict)
    ended: str | None = None
    pending: dict[int, PendingSamples] = field(default_factory=dict)  # by class
    reused: Counter[str] = field(default_factory=Counter)  # by class: samples of earlier segments
    set_aside: Counter[str] = field(default_factory=Counter)  # those of classes that the task has no more
    _bought: dict[int, list[Floats]] = field(default_factory=dict)  # by round: vectors to adopt

    def open(self) -> NDArray[np.bool_]:
        """(K,) classes that can still give samples."""
        return np.array([c not in self.closed for c in range(len(self.classes))])

    def closed_classes(self) -> dict[str, str]:
        """By name, why they can give no more."""
        return {self.classes[c].name: why for c, why in self.closed.items()}

    def size(self) -> int:
        """Samples to ask for in a round; 0 when the budget is spent or every class is closed."""
        if self.ended is not None or len(self.closed) == len(self.classes):
            return 0
        return self.batch if self.budget is None else min(self.batch, self.budget - self.spent)

    def fetch_ahead(self, chosen: int, likely: Sequence[int], limit: int) -> None:
        """Fetch for the chosen class and, while that is on its way, for the likely next ones."""
        self.batches.ahead(likely, limit, wanted=chosen if self._is_short(chosen) else None)

    def is_waiting(self, chosen: int) -> bool:
        """Whether the round has to wait for the chosen class's batch."""
        return self._is_short(chosen) and self.batches.is_awaited(chosen)

    def _is_short(self, chosen: int) -> bool:
        pending = self.pending.get(chosen, PendingSamples())
        return len(pending) < self.size() and pending.closing is None

    def resume(self, state: ResumeState) -> None:
        """Start from what earlier rounds took of every class, and how much of that is unused."""
        rounds = (*state.before, *state.skipped)
        self.spent = sum(outcome.record.accepted for outcome in rounds)
        self.ended = next((r.record.ended for r in state.skipped if r.record.ended), None)
        bought = Bought(state)
        for outcome in rounds:
            bought.follow(outcome)
        bought.move_until(None)
        for c, spec in enumerate(self.classes):
            stock = bought.stocks.get(spec.name, Stock())
            stock.pending.batches = bought.next_batch.get(spec.name, 0)
            self.batches.resume(c, stock.pending.batches, stock.texts)
            self.pending[c] = stock.pending
            if stock.round <= state.reopened.get(spec.name, 0):
                stock.pending.refusals, stock.pending.closing = 0, None
            elif stock.closed is not None:
                self.closed[c] = stock.closed
        self._bought = bought.vectors

    def adopt(self, samples: TrainingSet, outcome: RoundOutcome, state: ResumeState) -> None:
        """Put the samples of a round that will not run again into the training set.

        Those of a class that the task has no more are counted and left out.
        """
        name, accepted = state.owner(outcome), outcome.record.accepted
        if name is None:
            return
        names = [spec.name for spec in self.classes]
        if name not in names:
            self.set_aside[name] += accepted
            return
        class_index, before = names.index(name), len(samples)
        if self.embed is None:
            if accepted:
                views = {samples.pooled: np.stack(self._bought[outcome.record.round])}
                samples.add([class_index] * accepted, views, given=False)
        elif texts := state.entering(outcome, samples.keys):
            samples.add([class_index] * len(texts), self.embed(texts), given=False, texts=texts)
        if outcome.record.round <= state.last_before:
            self.reused[name] += len(samples) - before

    def fill(
        self,
        samples: TrainingSet,
        class_index: int,
        size: int,
        clock: Clock,
        *,
        scores: Scores | None = None,
        known: RoundOutcome | None = None,
    ) -> RoundIntake:
        """One batch and a bounded number of further ones, until `size` samples are accepted.

        Where a round is replayed, `known` says which texts were accepted then and how many batches
        were taken for it, and that counts.
        """
        added, pending = RoundIntake(), self.pending.setdefault(class_index, PendingSamples())
        recorded = None if known is None else set(known.texts)
        session = GateSession(self, samples, class_index, scores, added, recorded)
        for pulls in range(2 + REFILLS):
            while len(pending) and added.accepted < size:
                session.judge(pending, size - added.accepted)
            clock.lap("embedding")
            full = added.accepted == size or added.refused or pending.closing is not None
            if full or pulls > REFILLS or not self._take(class_index, pending, added, known):
                break
            clock.lap("generating")
        if not len(pending):
            nothing = not (added.accepted or added.refused or added.ended)
            added.closed = pending.closing or ("the generator gave nothing new" if nothing else None)
        if added.closed is not None:
            self.closed[class_index] = added.closed
        self.spent += added.accepted
        return added

    def _take(
        self, class_index: int, pending: PendingSamples, added: RoundIntake, known: RoundOutcome | None
    ) -> bool:
        """Take the next batch of a class; False if the budget ends, or ended there when it was recorded."""
        if known is not None and pending.batches >= known.batches:
            self.ended = added.ended = known.record.ended
            return False
        try:
            fetched = self.batches.take(class_index)
        except BudgetError as error:
            self.ended = added.ended = str(error)
            return False
        pending.put(fetched.batch, fetched.embedded)
        added.rejected.update(fetched.batch.rejected)
        if fetched.batch.refused:
            added.refused = True
            pending.refusals += 1
            if pending.refusals >= self.max_refusals:
                pending.closing = f"refused {pending.refusals} times by the generator"
        return True


@dataclass
class GateSession:
    """The gate at work for one class in one round."""

    source: SampleSource
    samples: TrainingSet
    class_index: int
    scores: Scores | None
    added: RoundIntake
    recorded: set[str] | None  # what the replayed round accepted and is still to come; None in a new round

    def judge(self, pending: PendingSamples, room: int) -> None:
        """Look at the next `room` of the pending samples."""
        vectors, candidates, rows = pending.vectors[:room], pending.texts[:room], pending.rows[:room]
        pending.drop(room)
        if vectors:
            self._add({self.samples.pooled: np.stack(vectors)}, len(vectors))
            return
        passed, rejected = self.source.gate.texts(
            candidates, self.samples.keys, given=self.samples.given_texts(self.class_index)
        )
        for text, reason in rejected:
            self._turn_away(text, reason)
        if self.recorded is not None:  # what was accepted then must pass now, whatever the texts alone say
            lost = self.recorded.intersection(candidates).difference(passed)
            self.added.departed |= bool(lost)
            passed = [text for text in dict.fromkeys(candidates) if text in lost or text in passed]
        if passed:
            known = dict(zip(candidates, rows, strict=True))
            self._admit(passed, [known[text] for text in passed])

    def _admit(self, texts: list[str], rows: list[dict[str, Floats]]) -> None:
        if all(rows):
            views = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        else:
            assert self.source.embed is not None
            views = self.source.embed(texts)
        pooled = self.samples.pooled
        accepted = self.source.gate.vectors(views[pooled], self.samples.views[pooled])
        for i in np.flatnonzero(~accepted):
            self._turn_away(texts[i], "near duplicate")
        if self.scores is not None:
            consistent = self.source.gate.consistent(self.scores(views, texts), self.class_index)
            for i in np.flatnonzero(accepted & ~consistent):
                self._turn_away(texts[i], "inconsistent")
            accepted &= consistent
        if self.recorded is not None:
            then = np.array([text in self.recorded for text in texts])
            self.added.departed |= bool((then != accepted).any())
            accepted = then
            self.recorded -= set(texts)
        entering = list(itertools.compress(texts, accepted))
        if entering:
            self._add({name: matrix[accepted] for name, matrix in views.items()}, len(entering), entering)

    def _add(self, views: dict[str, Floats], count: int, texts: Sequence[str] = ()) -> None:
        self.samples.add([self.class_index] * count, views, given=False, texts=texts)
        self.added.texts += texts
        self.added.accepted += count

    def _turn_away(self, text: str, reason: Reason) -> None:
        self.added.rejected[reason] += 1
        self.added.turned_away.append((text, reason))
