"""A run as somebody sees who looks at it: while it is fitted, after it was stopped, when it is done.

Nothing here writes into the run or holds it up. A reader may be kept open: it sees what a fit adds, and
follows a run that is begun anew in the same directory.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from adamab.errors import RunError
from adamab.providers.budget import NANO
from adamab.providers.image_store import FOLDER as IMAGES
from adamab.providers.image_store import named_like
from adamab.run import directory as folder
from adamab.run.journal import FINISHED, ROUND, SEGMENT, STARTED, STOPPED, Event, Journal
from adamab.run.journal_file import FILE_NAME as JOURNAL
from adamab.run.journal_file import is_being_written
from adamab.run.kept_task import FILE_NAME as TASK
from adamab.run.kept_task import read_task
from adamab.run.records import RoundRecord
from adamab.run.reviews import Reviews
from adamab.run.sample_files import HeldOutAnswer, SampleVectors, read_held_out, read_vectors
from adamab.run.verdicts import dropped, wanted
from adamab.task.images import is_reference
from adamab.task.messages import place
from adamab.task.spec import Source, Task
from adamab.task.words import folded

State = Literal["running", "finished", "stopped", "broken off"]
_ENDS: dict[str, State] = {FINISHED: "finished", STOPPED: "stopped"}


@dataclass(frozen=True)
class Round:
    """A round with its place in the journal."""

    seq: int
    at: float  # seconds since 1970
    segment: int  # from 1
    record: RoundRecord


@dataclass(frozen=True)
class SampleSeen:
    """A sample with everything that was decided about it."""

    id: str  # the same whenever it is asked for
    text: str
    class_name: str
    source: Source
    round: int | None = None  # of a synthetic one
    used: bool = True  # in training, as far as decided
    reason: str | None = None  # why the gate kept it out
    verdict: str | None = None  # what a person said: accept or reject; counts from the next fit on
    image: Path | None = None


@dataclass(frozen=True, slots=True)
class _Written:
    """A synthetic sample as a round left it."""

    round: int
    class_name: str
    text: str
    reason: str | None


@dataclass
class _Told:
    """What the journal told so far; events never change, so each is read once."""

    to: int = 0  # the last event
    started: dict[str, Any] = field(default_factory=dict)
    segments: list[Event] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    written: list[_Written] = field(default_factory=list)

    def follow(self, journal: Journal) -> None:
        """Read what is new."""
        for event in journal.events(SEGMENT, STARTED, ROUND, after=self.to):
            self.to = event.seq
            if event.kind == STARTED:
                self.started = event.data
            elif event.kind == SEGMENT:
                self.segments.append(event)
            else:
                self._add_round(event)

    def _add_round(self, event: Event) -> None:
        record = RoundRecord.from_json(event.data["record"])
        self.rounds.append(Round(event.seq, event.at, len(self.segments), record))
        self.written += _texts(record, event.data)


class RunReader:
    """Looks into the run in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._journal: Journal | None = None
        self._inode = 0
        self._told = _Told()
        if not (folder.has_journal(directory) or folder.is_run(directory)):
            raise RunError(f"{place(directory)}: holds no run; name the directory of adamab fit --run")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        if self._journal is not None:
            self._journal.close()
        self._journal = None

    def state(self) -> State:
        """What the run is doing, or how it ended."""
        if is_being_written(self.directory):
            return "running"
        last = self._last()
        if last is None:
            return "broken off" if self.summary() is None else "finished"
        return _ENDS.get(last.kind, "broken off")

    def last_change(self) -> float | None:
        """When a round or the run began or ended for the last time, in seconds since 1970."""
        last = self._last()
        return None if last is None else last.at

    def summary(self) -> dict[str, Any] | None:
        """The contents of `fit.json`; None before the first fit has ended."""
        return folder.read_summary(self.directory) if (self.directory / folder.SUMMARY).exists() else None

    def task(self) -> Task | None:
        """The kept task; None in runs of earlier versions."""
        return read_task(self.directory) if (self.directory / TASK).exists() else None

    def segments(self) -> list[Event]:
        """What the run was started with, and what changed since, in order."""
        return list(self._follow().segments)

    def started(self) -> dict[str, Any]:
        """How the run was started last (embedder, generator, options); empty where nothing tells."""
        return dict(self._follow().started)

    def rounds(self, after: int = 0) -> list[Round]:
        """Rounds that ended after an event of the journal; all of them with 0."""
        rounds = self._follow().rounds
        return rounds[bisect_right(rounds, after, key=lambda found: found.seq) :]

    def samples(self) -> list[SampleSeen]:
        """Given ones in the task's order, then synthetic ones in the order in which they came."""
        return [*self._given(), *self._synthetic()]

    def spending(self) -> dict[str, Any]:
        """What was spent so far, in all, by purpose and class; calls on their way may cost `held` of it."""
        journal = self._open()
        spent, held = ({}, 0) if journal is None else journal.spent()
        told = folder.spending(spent)
        return {**told, "held": min(held / NANO, told["usd"])}

    def held_out(self) -> list[HeldOutAnswer]:
        """Given samples with what folds that did not see them say; empty where nothing was held out."""
        return read_held_out(self.directory)

    def vectors(self) -> SampleVectors | None:
        """Of the samples of the last fit that ended; None in runs of earlier versions."""
        return read_vectors(self.directory)

    def _given(self) -> Iterator[SampleSeen]:
        task = self.task()
        for sample in () if task is None else task.samples:
            image = None if sample.image is None else sample.image.path
            name = sample.class_name
            yield SampleSeen(sample_id(name, sample.text), sample.text, name, "given", image=image)

    def _synthetic(self) -> Iterator[SampleSeen]:
        segments, verdicts = self.segments(), Reviews(self.directory).verdicts()
        out, overruled = dropped(segments), wanted(segments)
        for written in self._follow().written:
            key = folded(written.text)
            used = key not in out if written.reason is None else key in overruled
            yield self._seen(written, used, verdicts.get(key))

    def _seen(self, written: _Written, used: bool, verdict: str | None) -> SampleSeen:
        return SampleSeen(
            sample_id(written.class_name, written.text),
            written.text,
            written.class_name,
            "synthetic",
            round=written.round,
            used=used,
            reason=written.reason,
            verdict=None if verdict == "none" else verdict,
            image=self._picture(written.text),
        )

    def _picture(self, text: str) -> Path | None:
        """The generated picture that a text stands for; its content is not looked at."""
        if not is_reference(text):
            return None
        images = named_like(self.directory / IMAGES, text)
        return next((image.path for image in images if image.path.is_file()), None)

    def _follow(self) -> _Told:
        """What the journal tells up to now."""
        journal = self._open()
        if journal is not None:
            self._told.follow(journal)
        return self._told

    def _last(self) -> Event | None:
        journal = self._open()
        return None if journal is None else journal.last(SEGMENT, ROUND, STOPPED, FINISHED)

    def _open(self) -> Journal | None:
        """The journal, opened again where another one has taken its place."""
        path = self.directory / JOURNAL
        try:
            inode = os.stat(path).st_ino
        except FileNotFoundError:
            self.close()
            self._told = _Told()
            return None
        if self._journal is None or inode != self._inode:
            self.close()
            self._journal, self._inode = Journal(self.directory), inode
            self._told = _Told()
        return self._journal


def sample_id(class_name: str, text: str) -> str:
    """A short name for a sample, the same in every process."""
    key = f"{class_name}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(key).hexdigest()[:16]


def _texts(record: RoundRecord, outcome: Mapping[str, Any]) -> Iterator[_Written]:
    """The texts of a round as the journal has it; those that entered have no reason."""
    number, name = record.round, record.chosen or ""
    yield from (_Written(number, name, text, None) for text in outcome["texts"])
    yield from (_Written(number, name, text, reason) for text, reason in outcome.get("turned_away", ()))
