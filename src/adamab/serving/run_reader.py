"""A run as somebody sees who looks at it: while it is fitted, after it was stopped, when it is done.

Nothing here writes into the run but verdicts, or holds it up. A reader may be kept open: it sees what a fit
adds, and follows a run that is started over in the same directory.

The page follows runs of thousands of rounds and classes, so every round is boiled down once: the loss, the
chosen class, and the few scores that explain the choice.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

from adamab.model.storage import JOURNAL
from adamab.providers.image_store import FOLDER as IMAGES
from adamab.providers.image_store import named_like
from adamab.providers.metering import NANO
from adamab.providers.sqlite_file import is_being_written
from adamab.run import directory as folder
from adamab.run.directory import HELD_OUT, SUMMARY, TASK, HeldOutAnswer
from adamab.run.records import ClassScores, RoundRecord
from adamab.run.resume import OVERRULED, Move, class_digests, sample_digest
from adamab.run.reviews import REVIEWS, Review, Reviews, decided
from adamab.run.run_log import FINISHED, ROUND, SEGMENT, STARTED, STOPPED, Event, Journal, classes_now
from adamab.task.images import is_reference
from adamab.task.spec import ClassSpec, Source, Task
from adamab.task.words import normalised_text

T = TypeVar("T")
RUNNERS_UP = 4
POINTS = 200  # of a line in a figure
State = Literal["running", "finished", "stopped", "broken off", "model only"]
_ENDS: dict[str, State] = {FINISHED: "finished", STOPPED: "stopped"}
_LOG = JOURNAL + "-wal"


@dataclass(frozen=True)
class RunSample:
    """A sample with everything that was decided about it."""

    id: str  # the same whenever it is asked for
    text: str
    class_name: str
    source: Source
    round: int | None = None  # of a synthetic one
    used: bool = True  # in training, as far as decided; a given one since a fit has begun with it
    reason: str | None = None  # why the gate kept it out
    verdict: Review | None = None  # what a person said last; counts from the next fit on
    image: Path | None = None

    @property
    def can_enter(self) -> bool:
        """Whether accepting it makes a difference or confirms what is."""
        return self.source == "synthetic" and (self.reason is None or self.reason in OVERRULED)

    @property
    def waits(self) -> bool:
        """Whether the next fit, which follows the verdict, will deal with it otherwise than the last one."""
        match self.verdict:
            case "reject":
                return self.used
            case "accept":
                return not self.used and self.can_enter
            case "none":  # a verdict was taken back
                return self.used != (self.reason is None)
        return self.source == "given" and not self.used  # since the last fit an example, or of this class


@dataclass(frozen=True)
class Score:
    """What the policy knew of a class when it chose: score = bonus − δ², and the highest score wins.

    δ² is how far one more batch of this class would leave the training gradient from that of a balanced
    training set, in units of the round's own scale where the recipe says so. The bonus is large for classes
    with few samples and for those that the folds find hard. All three are None where the policy computes no
    scores or the class had no sample yet. Where `exact` is False, the score is an upper bound and δ² a lower
    one: the class could not win any more.
    """

    class_name: str
    count: int  # its samples before the round
    score: float | None = None
    bonus: float | None = None
    shift: float | None = None  # δ²
    exact: bool | None = None


@dataclass(frozen=True)
class Round:
    """A round in short."""

    seq: int  # its place in the journal
    at: float  # seconds since 1970
    segment: int  # from 1
    round: int
    loss: float | None
    n_samples: int  # after the round
    chosen: str | None
    owner: str | None  # the class that its samples belong to now; the task may lack it
    asked: int
    accepted: int
    rejected: Mapping[str, int]  # the gate's reason -> samples
    refused: bool
    closed: str | None
    ended: str | None
    why: Score | None  # of the chosen class
    runners_up: tuple[Score, ...]  # the best others, the best first


@dataclass
class ClassSources:
    """Where the samples of a class come from; `kept_out` and `rejected` are not trained on."""

    given: int = 0
    synthetic: int = 0
    kept_out: int = 0  # by the gate
    rejected: int = 0  # by a person, and followed by a fit

    @property
    def in_training(self) -> int:
        """Samples that are trained on."""
        return self.given + self.synthetic


@dataclass
class _JournalContent:
    """What the journal holds so far; events never change, so each is read once."""

    to: int = 0  # the last event
    started: dict[str, Any] = field(default_factory=dict)
    segments: list[Event] = field(default_factory=list)
    starts: list[dict[str, int]] = field(default_factory=list)  # counts before the rounds of each segment
    rounds: list[Round] = field(default_factory=list)
    synthetic: list[RunSample] = field(default_factory=list)


def _while_unchanged(*files: str) -> Callable[[Callable[[RunReader], T]], Callable[[RunReader], T]]:
    """Keeps what a method returned until one of these files of the run changes."""

    def decorate(method: Callable[[RunReader], T]) -> Callable[[RunReader], T]:
        @wraps(method)
        def kept(self: RunReader) -> T:
            with self._lock:
                stamp = tuple(_stamp(self.directory / file) for file in files)
                if method not in self._kept or self._kept[method][0] != stamp:
                    self._kept[method] = stamp, method(self)
                value: T = self._kept[method][1]
                return value

        return kept

    return decorate


class RunReader(AbstractContextManager["RunReader", None]):
    """Looks into the run in `directory`; there is little to see where a model was saved without its run.

    May be asked by several threads: one at a time reads, the others wait.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.is_run = folder.has_journal(directory)
        self._lock = threading.RLock()
        self._kept: dict[Any, tuple[Any, Any]] = {}
        self._journal: Journal | None = None
        self._inode = 0
        self._content = _JournalContent()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        if self._journal is not None:
            self._journal.close()
        self._journal = None

    def state(self) -> State:
        """What the run is doing, or how it ended."""
        if not self.is_run:
            return "model only"
        if is_being_written(self.directory):
            return "running"
        last = self._last()
        return "broken off" if last is None else _ENDS.get(last.kind, "broken off")

    def last_change(self) -> float | None:
        """When a round or the run began or ended for the last time, in seconds since 1970."""
        last = self._last()
        return None if last is None else last.at

    @_while_unchanged(SUMMARY)
    def summary(self) -> dict[str, Any]:
        """The contents of `fit.json`; empty before the first fit has ended."""
        return folder.read_summary(self.directory) if (self.directory / SUMMARY).exists() else {}

    @_while_unchanged(TASK)
    def task(self) -> Task | None:
        """The kept task; None in the first moments of a run."""
        return folder.read_task(self.directory) if (self.directory / TASK).exists() else None

    def classes(self) -> tuple[ClassSpec, ...]:
        """The task's classes, in its order."""
        task = self.task()
        return () if task is None else task.classes

    @_while_unchanged(HELD_OUT)
    def held_out(self) -> list[HeldOutAnswer]:
        """Given samples with what folds that did not see them say; empty where nothing was held out."""
        return folder.read_held_out(self.directory)

    @_while_unchanged(JOURNAL, _LOG)
    def spending(self) -> dict[str, Any]:
        """What was spent so far, in all, by purpose and class; calls on their way may cost `held` of it."""
        journal = self._open()
        spent, held = ({}, 0) if journal is None else journal.spent()
        totals = folder.spending(spent, classes_now(self.segments()))
        return {**totals, "held": min(held / NANO, totals["usd"])}

    def segments(self) -> list[Event]:
        """What the run was started with, and what changed since, in order."""
        return list(self._follow().segments)

    def started(self) -> dict[str, Any]:
        """How the run was started last (embedder, generator, options); empty where nothing says it."""
        return dict(self._follow().started)

    def rounds(self) -> list[Round]:
        """The rounds that have ended."""
        return list(self._follow().rounds)

    def growth(self) -> tuple[list[int], dict[str, list[int]]]:
        """Some of the rounds, and samples per class after each of them; the last round is always there."""
        content = self._follow()
        counted, shown = list(content.rounds), set(_spread(len(content.rounds)))
        names = list(dict.fromkeys(name for start in content.starts for name in start))
        rounds: list[int] = []
        lines: dict[str, list[int]] = {name: [] for name in names}
        counts: Counter[str] = Counter()
        segment = 0
        for index, ended in enumerate(counted):
            if ended.segment != segment:
                segment, counts = ended.segment, Counter(content.starts[ended.segment - 1])
            if ended.owner is not None:
                counts[ended.owner] += ended.accepted
            if index in shown:
                rounds.append(ended.round)
                for name in names:
                    lines[name].append(counts[name])
        return rounds, lines

    def losses(self) -> list[tuple[int, float]]:
        """Rounds and the training loss after them."""
        losses = [(r.round, r.loss) for r in self.rounds() if r.loss is not None]
        return [losses[index] for index in _spread(len(losses))]

    def chosen(self) -> dict[str, int]:
        """How often each class was chosen, the most frequent first."""
        return dict(Counter(r.owner for r in self.rounds() if r.owner is not None).most_common())

    def gate_reasons(self) -> dict[str, dict[str, int]]:
        """Samples that the quality gate kept out, by class and reason; the worst class first."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for ended in self.rounds():
            if ended.owner is not None and ended.rejected:
                counts[ended.owner].update(ended.rejected)
        ordered = sorted(counts.items(), key=lambda item: -item[1].total())
        return {name: dict(reasons) for name, reasons in ordered}

    @_while_unchanged(JOURNAL, _LOG, REVIEWS, TASK)
    def samples(self) -> list[RunSample]:
        """Given ones in the task's order, then synthetic ones in the order in which they came."""
        task, fitted = self.task(), self._fitted()
        owner = {digest: name for name, each in fitted["given"].items() for digest in each} if fitted else {}
        samples = []
        for given in () if task is None else task.samples:
            image = None if given.image is None else given.image.path
            name, text = given.class_name, given.text
            before = owner.get(sample_digest(given))
            # A class that is gone was renamed or merged: that is one change, not one of each example.
            renamed = before is not None and task is not None and before not in task.class_names
            used = fitted is None or before == name or renamed
            samples.append(RunSample(sample_id(name, text), text, name, "given", used=used, image=image))
        content, verdicts = self._follow(), Reviews(self.directory).latest()
        out, overruled = decided(content.segments)
        classes = content.segments[-1].data["inputs"]["classes"] if content.segments else ()
        for sample in content.synthetic:
            key = normalised_text(sample.text)
            used = key not in out if sample.reason is None else key in overruled
            used = used and sample.class_name in classes
            samples.append(replace(sample, used=used, verdict=verdicts.get(key)))
        return samples

    def _fitted(self) -> dict[str, Any] | None:
        """What the last fit began with; None before the first one."""
        segments = self.segments()
        inputs: dict[str, Any] | None = segments[-1].data["inputs"] if segments else None
        return inputs if inputs and "given" in inputs else None

    @_while_unchanged(JOURNAL, _LOG, REVIEWS, TASK)
    def waiting(self) -> int:
        """Changes that the next fit will follow: of samples, examples and classes."""
        task, fitted = self.task(), self._fitted()
        waiting: int = sum(sample.waits for sample in self.samples())
        if task is None or fitted is None:
            return waiting
        present = {sample_digest(sample) for sample in task.samples}
        waiting += sum(digest not in present for digests in fitted["given"].values() for digest in digests)
        now, then = class_digests(task), fitted["classes"]
        waiting += max(len(now.keys() - then.keys()), len(then.keys() - now.keys()))  # a renamed one is both
        waiting += sum(now[name] != then[name] for name in now.keys() & then.keys())
        return waiting

    def sample(self, id_: str) -> RunSample | None:
        """The first sample with that id: a text that was written twice has one."""
        return next((sample for sample in self.samples() if sample.id == id_), None)

    def review(self, samples: Sequence[RunSample], verdict: Review) -> None:
        """Write a verdict on samples down."""
        Reviews(self.directory).add_all([(sample.text, sample.class_name) for sample in samples], verdict)

    @_while_unchanged(JOURNAL, _LOG, REVIEWS, TASK)
    def sources(self) -> dict[str, ClassSources]:
        """Samples by class and source; the task's classes come first and are there without samples too."""
        samples, rounds = self.samples(), self.rounds()
        sources = defaultdict(ClassSources, {spec.name: ClassSources() for spec in self.classes()})
        overruled: Counter[str] = Counter()
        for sample in samples:
            counts = sources[sample.class_name]
            if sample.source == "given":
                counts.given += 1
            elif sample.used:
                counts.synthetic += 1
                overruled[sample.class_name] += sample.reason is not None
            elif sample.reason is not None:
                counts.kept_out += 1
            else:
                counts.rejected += 1
        # Texts that the gate kept out are not all in the journal, and vectors have no texts.
        for name, reasons in self.gate_reasons().items():
            sources[name].kept_out = max(sources[name].kept_out, sum(reasons.values()) - overruled[name])
        if not any(sample.source == "synthetic" for sample in samples):
            for ended in rounds:
                if ended.owner is not None:
                    sources[ended.owner].synthetic += ended.accepted
        names = [spec.name for spec in self.classes()] or list(sources)
        return {name: sources[name] for name in names}

    def _follow(self) -> _JournalContent:
        """What the journal holds by now."""
        with self._lock:
            journal = self._open()
            content = self._content
            for event in () if journal is None else journal.events(SEGMENT, STARTED, ROUND, after=content.to):
                content.to = event.seq
                if event.kind == STARTED:
                    content.started = event.data
                elif event.kind == SEGMENT:
                    self._add_segment(content, event)
                else:
                    self._add_round(content, event)
            return content

    def _add_segment(self, content: _JournalContent, event: Event) -> None:
        content.segments.append(event)
        content.starts.append({})
        if event.data["fresh"]:  # nothing of the rounds before it is of use
            content.rounds, content.synthetic = [], []
        move = Move.of(event.data, after=len(content.rounds))
        if move.to:
            for start in content.starts:
                counts: Counter[str] = Counter()
                for name, count in start.items():
                    counts[move.owner(name)] += count
                start.clear()
                start.update(counts)
            content.rounds = [replace(r, owner=r.owner and move.owner(r.owner)) for r in content.rounds]
            content.synthetic = [
                replace(sample, class_name=name, id=sample_id(name, sample.text))
                for sample in content.synthetic
                for name in [move.owner(sample.class_name)]
            ]

    def _add_round(self, content: _JournalContent, event: Event) -> None:
        record = RoundRecord.from_json(event.data["record"])
        classes = list(content.segments[-1].data["inputs"]["classes"])
        content.starts[-1] = content.starts[-1] or dict(zip(classes, record.scores.count, strict=True))
        content.rounds.append(_round(event, len(content.segments), record, classes))
        name = record.chosen or ""
        texts = [(text, None) for text in event.data["texts"]] + event.data.get("turned_away", [])
        for text, reason in texts:
            sample = RunSample(sample_id(name, text), text, name, "synthetic", record.round, reason=reason)
            content.synthetic.append(replace(sample, image=self._image(text)))

    def _image(self, text: str) -> Path | None:
        """The generated image that a text stands for; its content is not looked at."""
        if not is_reference(text):
            return None
        images = named_like(self.directory / IMAGES, text)
        return next((image.path for image in images if image.path.is_file()), None)

    def _last(self) -> Event | None:
        with self._lock:
            journal = self._open()
            return None if journal is None else journal.last(SEGMENT, ROUND, STOPPED, FINISHED)

    def _open(self) -> Journal | None:
        """The journal, opened again where another one has taken its place."""
        try:
            inode = os.stat(self.directory / JOURNAL).st_ino
        except FileNotFoundError:
            self.close()
            self._content = _JournalContent()
            return None
        if self._journal is None or inode != self._inode:
            self.close()
            self._journal, self._inode = Journal(self.directory), inode
            self._content = _JournalContent()
        return self._journal


def sample_id(class_name: str, text: str) -> str:
    """A short name for a sample, the same in every process."""
    key = f"{class_name}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(key).hexdigest()[:16]


def _round(event: Event, segment: int, record: RoundRecord, classes: Sequence[str]) -> Round:
    scores = record.scores
    best = sorted(zip(scores.score, scores.place, strict=True), key=lambda scored: -scored[0])
    others = [place for _, place in best if classes[place] != record.chosen][:RUNNERS_UP]
    why = None
    if record.chosen is not None and record.chosen in classes:
        why = _score(record.chosen, scores, classes.index(record.chosen))
    runners_up = tuple(_score(classes[place], scores, place) for place in others)
    kept = {name: value for name, value in vars(record).items() if name in Round.__annotations__}
    return Round(
        **kept,
        owner=record.chosen,
        seq=event.seq,
        at=event.at,
        segment=segment,
        why=why,
        runners_up=runners_up,
    )


def _score(name: str, scores: ClassScores, place: int) -> Score:
    if place not in scores.place:
        return Score(name, scores.count[place])
    at = scores.place.index(place)
    score, shift = scores.score[at], scores.shift[at]
    # δ² is a square; rounding may take it below zero.
    return Score(name, scores.count[place], score, score + shift, max(0.0, shift), scores.exact[at])


def _spread(count: int) -> list[int]:
    """At most `POINTS` places out of `count`, evenly spread, with the first and the last."""
    if count <= POINTS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (POINTS - 1)) for i in range(POINTS)})


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
