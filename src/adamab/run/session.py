"""A fit that writes its run directory as it goes, and takes up where an earlier one was stopped."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from adamab.errors import RunError
from adamab.providers.ledger import Ledger
from adamab.run.checkpoint import load_checkpoint, save_checkpoint
from adamab.run.directory import set_aside, versions
from adamab.run.inputs import Inputs, budget_from_json
from adamab.run.journal import (
    CHOICE,
    FINISHED,
    ROUND,
    SEGMENT,
    STOPPED,
    Event,
    Journal,
    outcome_from_json,
    outcome_to_json,
)
from adamab.run.journal_file import WriterLock
from adamab.run.past import Past, RoundOutcome
from adamab.run.reviews import Reviews
from adamab.run.started import note_started
from adamab.run.verdicts import Verdicts, check_known, dropped, wanted
from adamab.task.messages import place
from adamab.task.words import folded

if TYPE_CHECKING:
    from adamab.run.loop import Loop

CHECKPOINT_ROUNDS = 25  # between checkpoints, at least


@dataclass
class JournalTrail:
    """The rounds of this segment as the journal has them, and where new ones go."""

    journal: Journal
    directory: Path
    segment: int
    past: Past
    choices: dict[int, str] = field(default_factory=dict)
    outcomes: dict[int, RoundOutcome] = field(default_factory=dict)
    checkpoint_rounds: int = CHECKPOINT_ROUNDS

    def decided(self, round_: int) -> str | None:
        """The class that the round chose, if that is known."""
        return self.choices.get(round_)

    def decide(self, round_: int, class_name: str) -> None:
        """Write a choice down."""
        self.choices[round_] = class_name
        self.journal.note(CHOICE, {"round": round_, "class": class_name})

    def outcome(self, round_: int) -> RoundOutcome | None:
        """How the round ended, if it ended."""
        return self.outcomes.get(round_)

    def end(self, outcome: RoundOutcome, loop: Loop) -> None:
        """Write a round down, and now and then a checkpoint."""
        self.journal.note(ROUND, outcome_to_json(outcome))
        if outcome.record.round % self.checkpoint_rounds == 0:
            save_checkpoint(self.directory, loop, outcome, self.segment)


class Session:
    """The run in `directory`, held by this process alone until it is closed.

    `replayed` says how many rounds were there already, `changes` what was changed on purpose since,
    and `complete` that there is nothing left to do.
    """

    def __init__(
        self,
        directory: Path,
        inputs: Inputs,
        *,
        reject: Iterable[str] = (),
        anew: bool = False,
        started: Mapping[str, Any] | None = None,  # how somebody can go on with it without being told again
    ) -> None:
        self._made = self._idle = not directory.exists()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{place(directory)}: cannot be made ({error.strerror})") from None
        self.directory = directory
        with ExitStack() as held:
            held.callback(WriterLock(directory).release)
            held.callback(self._tidy)
            if anew:
                _make_room(directory)
            self.journal = held.enter_context(Journal(directory, writing=True))
            segments = list(self.journal.events(SEGMENT))
            fresh = not segments or self._changed_before_anything(segments, inputs)
            rejected = {folded(text): text for text in reject}
            self.changes = self._changes([] if fresh else segments, inputs, rejected)
            if fresh or self.changes:
                self._begin_segment(segments, inputs)
                segments = list(self.journal.events(SEGMENT))
            if started is not None:
                note_started(self.journal, directory, started)
            self.trail = self._trail(segments)
            self.complete = any(True for _ in self.journal.events(FINISHED, after=segments[-1].seq))
            self.ledger = held.enter_context(Ledger(budget_from_json(inputs.budget), self.journal.path))
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def replayed(self) -> int:
        """Rounds that are in the journal already."""
        return len(self.trail.past.before) + len(self.trail.past.rounds)

    def stopped(self) -> None:
        """Note that the run was stopped on purpose."""
        self.journal.note(STOPPED, {})

    def finished(self, summary: dict[str, Any]) -> None:
        """Note that the run is complete."""
        self.journal.note(FINISHED, summary, durable=True)

    def close(self) -> None:
        """Let others write. A new directory in which nothing has happened is removed again."""
        with self._held:
            self._idle = self._made and self.journal.is_blank() and self.ledger.spent().calls == 0

    def _tidy(self) -> None:
        if self._idle:  # and still locked, so that nobody else has begun here
            shutil.rmtree(self.directory, ignore_errors=True)

    def _changed_before_anything(self, segments: Sequence[Event], inputs: Inputs) -> bool:
        """A first try that got nowhere binds nobody: vectors that it bought are kept all the same."""
        return self.journal.is_blank() and Inputs.from_json(segments[-1].data["inputs"]) != inputs

    def _changes(self, segments: Sequence[Event], inputs: Inputs, reject: Mapping[str, str]) -> list[str]:
        changes = Inputs.from_json(segments[-1].data["inputs"]).changes_to(inputs) if segments else []
        outcomes = self._outcomes() if segments else []
        check_known(reject, segments, outcomes)
        reviews = Reviews(self.directory)
        classes = {folded(text): o.record.chosen or "" for o in outcomes for text in o.texts}
        for key, text in reject.items():  # so that there is one place to look for what people think
            reviews.add(text, classes.get(key, ""), "reject")
        self._verdicts = Verdicts.of(segments, outcomes, reviews.verdicts())
        return changes + (self._verdicts.told() if segments else [])

    def _begin_segment(self, segments: Sequence[Event], inputs: Inputs) -> None:
        grown: Iterable[str] = ()
        if segments:
            grown = Inputs.from_json(segments[-1].data["inputs"]).grown(inputs)
        data = {
            "segment": len(segments) + 1,
            "inputs": inputs.to_json(),
            "changes": self.changes,
            **self._verdicts.to_json(),
            "reopened": dict.fromkeys(sorted(grown), len(self._outcomes())),
            "versions": versions(),
        }
        self.journal.note(SEGMENT, data, durable=True)

    @cached_property
    def _rounds(self) -> list[tuple[int, RoundOutcome]]:
        """Those that were there when the run was taken up, each with its place in the journal; read once."""
        return [(event.seq, outcome_from_json(event.data)) for event in self.journal.events(ROUND)]

    def _outcomes(self, after: int = 0) -> list[RoundOutcome]:
        return [outcome for seq, outcome in self._rounds if seq > after]

    def _trail(self, segments: Sequence[Event]) -> JournalTrail:
        start, number = segments[-1].seq, len(segments)
        rounds = self._outcomes(after=start)
        before = self._outcomes()
        before = before[: len(before) - len(rounds)]
        past = Past(
            before=tuple(before),
            rounds=tuple(rounds),
            checkpoint=load_checkpoint(self.directory, number, rounds),
            dropped=frozenset(dropped(segments)),
            wanted=frozenset(wanted(segments)),
            reopened={n: r for segment in segments for n, r in segment.data["reopened"].items()},
            batches=self.journal.first_batches,
        )
        choices = {e.data["round"]: e.data["class"] for e in self.journal.events(CHOICE, after=start)}
        outcomes = {outcome.record.round: outcome for outcome in rounds}
        return JournalTrail(self.journal, self.directory, number, past, choices, outcomes)


def _make_room(directory: Path) -> None:
    try:
        set_aside(directory)
    except OSError as error:
        raise RunError(f"{place(directory)}: cannot be written ({error.strerror})") from None
