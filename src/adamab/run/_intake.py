"""Where synthetic samples come from: batches of a class pass the quality gate and enter the training set."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adamab.errors import BudgetError
from adamab.providers.embedders.base import Embedded
from adamab.providers.generators.base import Batch
from adamab.run.gate import Gate, Reason
from adamab.run.prefetch import BatchPrefetcher, FetchedBatch
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
    ended: str | None = None  # why no class can be asked any more
    departed: bool = False  # a verdict differed from the recorded one, which was followed

    @property
    def idle(self) -> bool:
        """Whether the budget ended before anything came."""
        return self.ended is not None and not (self.accepted or self.rejected.total() or self.refused)


@dataclass
class PendingSamples:
    """What a class has delivered and nobody has looked at yet, and what is known of its generator."""

    texts: list[str] = field(default_factory=list)
    vectors: Floats | None = None  # of batches that are vectors
    known: dict[str, dict[str, Floats]] = field(default_factory=dict)  # text -> its row in every view
    overlong: set[str] = field(default_factory=set)  # those of them that were too long for the embedder
    batches: int = 0  # taken so far
    refusals: int = 0
    closing: str | None = None  # takes effect when the shelf is empty

    def __len__(self) -> int:
        return len(self.texts) if self.vectors is None else len(self.vectors)

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> PendingSamples:
        """All of these at once: one by one, vectors would be copied as often as there are batches."""
        texts = [text for batch in batches for text in batch.texts]
        vectors = [batch.vectors for batch in batches if batch.vectors is not None]
        return cls(texts, np.concatenate(vectors) if vectors else None, batches=len(batches))

    def put(self, fetched: FetchedBatch) -> None:
        """Take in a batch."""
        batch = fetched.batch
        self.batches += 1
        self.texts += batch.texts
        if batch.vectors is not None:
            old = self.vectors
            self.vectors = (
                batch.vectors if old is None or not len(old) else np.concatenate([old, batch.vectors])
            )
        if fetched.embedded is not None:
            self.known |= _rows(batch.texts, fetched.embedded)
            too_long = np.flatnonzero(fetched.embedded.overlong)
            self.overlong |= {batch.texts[i] for i in too_long}
        self.closing = self.closing or batch.closed

    def drop(self, count: int) -> None:
        """Take the first samples away."""
        if self.vectors is None:
            self.texts = self.texts[count:]
        else:
            self.vectors = self.vectors[count:].copy()  # a part of it would keep all of it in memory

    def forget(self, texts: Iterable[str]) -> None:
        """Drop the vectors of texts that will not enter."""
        for text in texts:
            self.known.pop(text, None)
            self.overlong.discard(text)


@dataclass
class SampleSource:
    """Where synthetic samples come from, and which classes have run dry."""

    batches: BatchPrefetcher
    classes: Sequence[ClassSpec]
    gate: Gate
    embed: Embed | None  # None where samples are vectors
    batch: int
    budget: int | None = None  # samples in all
    max_refusals: int = 3
    plan: Callable[[int], None] = lambda rounds: None  # told how many rounds are to come
    spent: int = 0
    overlong: int = 0  # texts that were embedded ahead, judged, and too long for the embedder
    closed: dict[int, str] = field(default_factory=dict)
    ended: str | None = None
    shelves: dict[int, PendingSamples] = field(default_factory=dict)
    _bought: dict[int, Floats] = field(default_factory=dict)  # by class: vectors that no round adopted yet

    def open(self) -> NDArray[np.bool_]:
        """(K,) classes that can still be asked for."""
        return np.array([c not in self.closed for c in range(len(self.classes))])

    def closed_classes(self) -> dict[str, str]:
        """By name, why they could give no more."""
        return {self.classes[c].name: why for c, why in self.closed.items()}

    def size(self) -> int:
        """Samples to ask for in a round; 0 when the budget is spent or every class is closed."""
        if self.ended is not None or len(self.closed) == len(self.classes):
            return 0
        return self.batch if self.budget is None else min(self.batch, self.budget - self.spent)

    def sets_rounds(self, planned: int) -> bool:
        """Whether so many rounds are what the budget of samples asks for."""
        return self.budget is not None and planned == self.rounds_for(0)

    def rounds_for(self, spent: int) -> int:
        """Rounds that the budget of samples still needs when so many are there."""
        return 0 if self.budget is None else -(-max(self.budget - spent, 0) // self.batch)

    def fetch_ahead(self, chosen: int, likely: Sequence[int], limit: int) -> None:
        """Fetch for the chosen class and, while that is on its way, for the likely next ones."""
        self.batches.ahead(likely, limit, wanted=chosen if self._is_short(chosen) else None)

    def is_waiting(self, chosen: int) -> bool:
        """Whether the round has to wait for the chosen class's batch."""
        return self._is_short(chosen) and self.batches.is_awaited(chosen)

    def _is_short(self, chosen: int) -> bool:
        shelf = self.shelves.get(chosen, PendingSamples())
        return len(shelf) < self.size() and shelf.closing is None

    def resume(self, state: ResumeState) -> None:
        """Say what was taken of every class before, and how much of that is unused."""
        rounds = (*state.before, *state.skipped)
        self.spent = sum(outcome.record.accepted for outcome in rounds)
        self.ended = next((r.record.ended for r in state.skipped if r.record.ended), None)
        for c, spec in enumerate(self.classes):
            outcome = state.last_by_class.get(spec.name)
            if outcome is None:
                continue
            batches = state.batches(spec.name, outcome.batches)
            self.batches.taken(c, batches)
            shelf = PendingSamples.of(batches)
            shelf.drop(len(shelf) - outcome.left)
            self.shelves[c] = shelf
            if outcome.record.round > state.reopened.get(spec.name, 0):
                shelf.refusals, shelf.closing = outcome.refusals, outcome.closing
                if outcome.record.closed is not None:
                    self.closed[c] = outcome.record.closed

    def adopt(self, samples: TrainingSet, outcome: RoundOutcome, state: ResumeState) -> None:
        """Put the samples of a round that will not run again into the training set."""
        name = outcome.record.chosen
        if name is None:
            return
        class_index = next(c for c, spec in enumerate(self.classes) if spec.name == name)
        texts = state.entering(outcome, samples.keys)
        if self.embed is not None:
            if texts:
                samples.add([class_index] * len(texts), self.embed(texts), given=False, texts=texts)
        elif outcome.record.accepted:
            vectors = self._bought.get(class_index)
            if vectors is None:  # a class is read once: read round by round it would be quadratic
                batches = state.batches(name, state.last_by_class[name].batches)
                vectors = np.concatenate([b.vectors for b in batches if b.vectors is not None])
            count = outcome.record.accepted
            self._bought[class_index] = vectors[count:]
            samples.add([class_index] * count, {samples.pooled: vectors[:count]}, given=False)

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
        added, shelf = RoundIntake(), self.shelves.setdefault(class_index, PendingSamples())
        verdicts = GateSession(self, samples, class_index, scores, known, added)
        for pulls in range(2 + REFILLS):
            while len(shelf) and added.accepted < size:
                verdicts.judge(shelf, size - added.accepted)
            clock.lap("embedding")
            full = added.accepted == size or added.refused or shelf.closing is not None
            if full or pulls > REFILLS or not self._take(class_index, shelf, added, known):
                break
            clock.lap("generating")
        self._close(class_index, shelf, added)
        self.spent += added.accepted
        return added

    def _take(
        self, class_index: int, shelf: PendingSamples, added: RoundIntake, known: RoundOutcome | None
    ) -> bool:
        """Take the next batch of a class; False if the budget ends, or ended there when it was recorded."""
        if known is not None and shelf.batches >= known.batches:
            self.ended = added.ended = known.record.ended
            return False
        try:
            fetched = self.batches.take(class_index)
        except BudgetError as error:
            self.ended = added.ended = str(error)
            return False
        shelf.put(fetched)
        added.rejected.update(fetched.batch.rejected)
        if fetched.batch.refused:
            added.refused = True
            shelf.refusals += 1
            if shelf.refusals >= self.max_refusals:
                shelf.closing = f"refused {shelf.refusals} times by the generator"
        return True

    def _close(self, class_index: int, shelf: PendingSamples, added: RoundIntake) -> None:
        nothing = not (added.accepted or added.refused or added.ended)
        if not len(shelf):
            added.closed = shelf.closing or ("the generator gave nothing new" if nothing else None)
        if added.closed is not None:
            self.closed[class_index] = added.closed


class GateSession:
    """The gate at work for one class in one round."""

    def __init__(
        self,
        source: SampleSource,
        samples: TrainingSet,
        class_index: int,
        scores: Scores | None,
        known: RoundOutcome | None,
        added: RoundIntake,
    ) -> None:
        self._source, self._samples, self._class = source, samples, class_index
        self._scores, self._added = scores, added
        self._recorded = None if known is None else set(known.texts)  # those that are still to come

    def judge(self, shelf: PendingSamples, room: int) -> None:
        """Look at the next `room` of what is on the shelf."""
        if shelf.vectors is not None:
            self._add_vectors(shelf.vectors[:room])
            shelf.drop(room)
            return
        candidates = shelf.texts[:room]
        shelf.drop(room)
        if self._source.embed is None:
            return  # arrays have no place for texts
        passed, rejected = self._source.gate.texts(
            candidates, self._samples.keys, given=self._samples.texts_of(self._class, given=True)
        )
        for text, reason in rejected:
            self._turn_away(text, reason)
        passed = self._followed(passed, candidates)
        shelf.forget(set(candidates).difference(passed, shelf.texts))
        if passed:
            self._admit(passed, self._vectors(passed, shelf))

    def _admit(self, texts: list[str], views: dict[str, Floats]) -> None:
        pooled = next(iter(views)) if self._samples.pooled not in views else self._samples.pooled
        fresh = self._source.gate.vectors(views[pooled], self._samples.views[pooled])
        for i in np.flatnonzero(~fresh):
            self._turn_away(texts[i], "near duplicate")
        if self._scores is not None:
            consistent = self._source.gate.consistent(self._scores(views, texts), self._class)
            for i in np.flatnonzero(fresh & ~consistent):
                self._turn_away(texts[i], "inconsistent")
            fresh &= consistent
        if self._recorded is not None:
            then = np.array([text in self._recorded for text in texts])
            self._added.departed |= bool((then != fresh).any())
            fresh = then
            self._recorded -= set(texts)
        rows = np.flatnonzero(fresh)
        accepted = [texts[i] for i in rows]
        if accepted:
            kept = {name: matrix[rows] for name, matrix in views.items()}
            self._samples.add([self._class] * len(rows), kept, given=False, texts=accepted)
        self._added.texts += accepted
        self._added.accepted += len(accepted)

    def _turn_away(self, text: str, reason: Reason) -> None:
        self._added.rejected[reason] += 1
        self._added.turned_away.append((text, reason))

    def _followed(self, passed: list[str], candidates: list[str]) -> list[str]:
        """What was accepted then must pass now, whatever the texts alone say."""
        if self._recorded is None:
            return passed
        lost = {text for text in candidates if text in self._recorded and text not in passed}
        self._added.departed |= bool(lost)
        return [text for text in dict.fromkeys(candidates) if text in lost or text in passed]

    def _vectors(self, texts: list[str], shelf: PendingSamples) -> dict[str, Floats]:
        if all(text in shelf.known for text in texts):
            self._source.overlong += sum(text in shelf.overlong for text in texts)
            rows = [shelf.known.pop(text) for text in texts]
            return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        assert self._source.embed is not None
        return self._source.embed(texts)

    def _add_vectors(self, vectors: Floats) -> None:
        self._samples.add([self._class] * len(vectors), {self._samples.pooled: vectors}, given=False)
        self._added.accepted += len(vectors)


def _rows(texts: Sequence[str], embedded: Embedded) -> dict[str, dict[str, Floats]]:
    return {
        text: {name: matrix[i] for name, matrix in embedded.views.items()} for i, text in enumerate(texts)
    }
