"""A run's journal and its log: what was bought, decided and changed, in the order in which it happened.

Nothing in it is ever changed or deleted. Answers that were paid for are on the disk before they
are used. A run that starts again reads its journal and goes on; readers may look at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from adamab.errors import ImageError, RunError, TaskError, os_errors, place, short, storable
from adamab.model.storage import JOURNAL
from adamab.providers.cache import Ask, Reply
from adamab.providers.generators.base import Batch
from adamab.providers.metering import Budget, Ledger, Price, Spend, spent_in
from adamab.providers.sqlite_file import TROUBLE, SqliteFile, WriterLock
from adamab.run.directory import ASIDE, has_journal, has_set_aside, read_edits, read_task, versions
from adamab.run.resume import (
    Changes,
    Checkpoint,
    Inputs,
    Move,
    ResumeState,
    RoundOutcome,
    budget_from_json,
    load_checkpoint,
    outcome_from_json,
    outcome_to_json,
    save_checkpoint,
)
from adamab.run.reviews import REVIEWS, ReviewChanges, Reviews, decided
from adamab.task.image_folders import image_at
from adamab.task.images import references_in
from adamab.task.spec import Task
from adamab.task.words import normalised_text

_VERSION = 4
_TIMEOUT = 60.0  # seconds; writers of one process share the file with its ledger
_SCHEMA = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL,
    data TEXT NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE replies (
    class TEXT NOT NULL, batch INTEGER NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL,
    data TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (class, batch, number)
);
CREATE TABLE batches (
    class TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL,
    data TEXT NOT NULL, vectors BLOB, crc INTEGER NOT NULL, PRIMARY KEY (class, number)
);
"""
_TRIGGERS = "".join(
    f"CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;"
    for table in ("events", "replies", "batches")
    for verb in ("UPDATE", "DELETE")
)
_KEYS = {"events": ("kind",), "replies": ("class", "batch", "number"), "batches": ("class", "number")}
_SELECT = {
    table: f"SELECT rowid, at, data, crc, {'vectors' if table == 'batches' else 'NULL'}, {', '.join(keys)} "
    f"FROM {table}"
    for table, keys in _KEYS.items()
}


SEGMENT, CHOICE, ROUND, STOPPED, FINISHED = "segment", "choice", "round", "stopped", "finished"
STARTED = "started"  # with which settings, to resume without naming them
_AT_ONCE = 500  # events in memory, however long the run is


@dataclass(frozen=True)
class Event:
    """One row of the journal."""

    seq: int  # its number in its table
    at: float  # seconds since 1970
    kind: str  # of an event; the class of an answer or a batch
    data: dict[str, Any]
    blob: bytes | None = None


class Journal(SqliteFile, contextlib.AbstractContextManager["Journal", None]):
    """The journal of the run in `directory`; with `writing` it is made if it is not there.

    Append-only tables of JSON rows, each with a checksum. Safe to use from several threads.
    """

    application_id = 0x41444D4A  # "ADMJ"
    contents = "the journal"

    def __init__(self, directory: Path, *, writing: bool = False) -> None:
        super().__init__(directory / JOURNAL, _TIMEOUT)
        if not writing and not self.path.is_file():
            raise RunError(f"{place(directory)}: holds no journal; is this a run?")
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        try:
            fresh = not self.exists()
            if not fresh:
                # Reading only: closing a connection that can write may empty SQLite's log
                # into a file that turns out to be damaged or not ours.
                self._db = self._open_existing("ro", whole=True)
                fresh = self._check_ours(self._db)
            if writing or fresh:
                self.close()
                with contextlib.suppress(OSError):  # SQLite says better what is wrong
                    if writing:
                        self._create_private()
                # Who only reads what a run killed in its first moments left sees an empty journal.
                self._db = self._connect("mode=rw" if writing else "mode=memory")
                if fresh:
                    self._db.execute("PRAGMA journal_mode = WAL")
                    schema = f"PRAGMA user_version = {_VERSION}; {_SCHEMA} {_TRIGGERS}"
                    self._create_tables(self._db, f"PRAGMA application_id = {self.application_id}; {schema}")
        except BaseException as error:
            self.close()
            if isinstance(error, TROUBLE):
                raise self._readable(error) from None
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._db is not None:
                self._db.close()
            self._db = None

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """For one thread at a time."""
        with self._lock, self._readable_errors():
            if self._db is None:
                raise RunError(f"{place(self.path)}: the journal was closed already")
            yield self._db

    def _check_ours(self, db: sqlite3.Connection) -> bool:
        """Raise `RunError` for a file that is no good; True for one without any table, to be filled."""
        (owner,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        if pages == 0:  # SQLite takes a few bytes of anything for an empty database
            raise self._damaged("a few bytes only")
        if tables == 0 and owner in (0, self.application_id):
            return True
        if owner != self.application_id:
            raise RunError(f"{place(self.path)}: is not a journal of a run; name another directory")
        if version != _VERSION:
            raise RunError(f"{place(self.path)}: was written by another version of adamab (format {version})")
        ((verdict,),) = db.execute("PRAGMA integrity_check(1)").fetchall()
        if verdict != "ok":
            raise self._damaged(verdict)
        for select in _SELECT.values():  # a row under another key would not be found, and bought again
            for _, at, data, crc, blob, *keys in db.execute(select):
                self._check_row(keys, at, data, crc, blob)
        return False

    def _check_row(self, keys: Sequence[Any], at: float, data: str, crc: int, blob: bytes | None) -> None:
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            if crc == _crc(keys, at, data, blob):
                return
        raise self._damaged("a row was changed")  # or a column has another type, which is the same

    def _append(
        self, table: str, keys: Mapping[str, Any], data: Any, *, blob: bytes | None = None, durable: bool
    ) -> None:
        """Add a row; `durable` returns when it is on the disk, not merely with the system.

        A row that is not durable costs nothing but a repeated computation when the power fails.
        """
        at, text = time.time(), json.dumps(data, separators=(",", ":"), allow_nan=False)
        values = [keys[name] for name in _KEYS[table]]
        row = {**keys, "at": at, "data": text, "crc": _crc(values, at, text, blob)}
        if blob is not None:
            row["vectors"] = blob
        marks = ", ".join("?" * len(row))
        with self._database() as db:
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))

    def rows(self, table: str, where: str = "", values: Sequence[Any] = ()) -> Iterator[Event]:
        """Rows, each checked against its checksum.

        Args:
            table: `events`, `replies` or `batches`.
            where: SQL that follows the table's name, such as a condition or an order.
            values: for the question marks in it.
        """
        with self._database() as db:
            rows = db.execute(f"{_SELECT[table]} {where}", tuple(values)).fetchall()
        for number, at, data, crc, blob, *keys in rows:
            self._check_row(keys, at, data, crc, blob)
            try:
                content = json.loads(data)
            except ValueError:
                raise self._damaged("a row was changed") from None
            yield Event(number, at, keys[0], content, blob)

    def note(self, kind: str, data: dict[str, Any], *, durable: bool = False) -> None:
        """Add an event.

        Args:
            kind: what happened, such as `ROUND`.
            data: the rest of it, as JSON has it.
            durable: return only when it is on the disk; otherwise a power failure may lose it.
        """
        self._append("events", {"kind": kind}, data, durable=durable)

    def events(self, *kinds: str, after: int = 0) -> Iterator[Event]:
        """Events in their order, of some kinds only if any are named, read in blocks."""
        while block := list(self._events(kinds, after, _AT_ONCE)):
            yield from block
            after = block[-1].seq

    def last(self, *kinds: str) -> Event | None:
        """The latest event, of some kinds only if any are named."""
        return next(self._events(kinds, 0, 1, "seq DESC"), None)

    def _events(self, kinds: Sequence[str], after: int, most: int, order: str = "seq") -> Iterator[Event]:
        marks = ", ".join("?" * len(kinds))
        where = "WHERE seq > ?" + (f" AND kind IN ({marks})" if kinds else "") + f" ORDER BY {order} LIMIT ?"
        return self.rows("events", where, (after, *kinds, most))

    def is_blank(self) -> bool:
        """Whether nothing has been generated or finished yet."""
        return self.last(ROUND, FINISHED) is None and not self.has_bought()

    def has_bought(self) -> bool:
        """Whether a generator has answered anything."""
        return any(True for table in ("replies", "batches") for _ in self.rows(table, "LIMIT 1"))

    def spent(self) -> tuple[dict[tuple[str, str | None], Spend], int]:
        """What was spent so far by purpose and class, and the part that calls on their way may cost."""
        with self._database() as db:
            return spent_in(db)

    # Answers of the generator's API, one by one (adamab.providers.cache.Replies)

    def get(self, ask: Ask) -> Reply | None:
        """The answer to a question; found by its place, so that it counts even if its wording changed."""
        where = "WHERE class = ? AND batch = ? AND number = ?"
        values = (storable(ask.class_name), ask.batch, ask.number)
        for row in self.rows("replies", where, values):
            return Reply(row.data["content"], row.data["refused"], row.data["cut"])
        return None

    def put(self, ask: Ask, reply: Reply) -> None:
        """Write an answer down; returns when it is on the disk."""
        if self.get(ask) is None:
            keys = {"class": storable(ask.class_name), "batch": ask.batch, "number": ask.number}
            self._append("replies", keys, {"digest": ask.digest, **asdict(reply)}, durable=True)

    # Whole batches (adamab.run.prefetch.BatchLog)

    def batch(self, class_name: str, number: int) -> Batch | None:
        """Batch `number` of a class, if it has arrived."""
        where = "WHERE class = ? AND number = ?"
        for row in self.rows("batches", where, (storable(class_name), number)):
            return _batch(row)
        return None

    def put_batch(self, class_name: str, number: int, batch: Batch) -> None:
        """Write a batch down; returns when it is on the disk."""
        data = {
            "texts": batch.texts,
            "closed": batch.closed,
            "refused": batch.refused,
            "rejected": dict(batch.rejected),
        }
        blob = None
        if batch.vectors is not None:
            data["shape"], blob = batch.vectors.shape, batch.vectors.astype("<f4").tobytes()
        self._append(
            "batches", {"class": storable(class_name), "number": number}, data, blob=blob, durable=True
        )

    def references(self) -> set[str]:
        """The images that batches and answers name."""
        rows = (json.dumps(row.data) for table in ("batches", "replies") for row in self.rows(table))
        return {reference for row in rows for reference in references_in(row)}

    def first_batches(self, class_name: str, count: int) -> Mapping[int, Batch]:
        """The first batches of a class by number, those that have arrived."""
        where = "WHERE class = ? AND number < ? ORDER BY number"
        with self._database() as db:
            values = (storable(class_name), count)
            numbers = db.execute(f"SELECT number FROM batches {where}", values).fetchall()
        rows = self.rows("batches", where, values)
        return {number: _batch(row) for (number,), row in zip(numbers, rows, strict=True)}

    def next_batch(self, class_name: str) -> int:
        """The number of the first batch of a class for which nothing has arrived, nor for a later one."""
        numbers = [0]
        with self._database() as db:
            for last in ("SELECT MAX(number) + 1 FROM batches", "SELECT MAX(batch) + 1 FROM replies"):
                ((number,),) = db.execute(f"{last} WHERE class = ?", (storable(class_name),)).fetchall()
                numbers.append(number or 0)
        return max(numbers)


def _crc(keys: Sequence[Any], at: float, text: str, blob: bytes | None) -> int:
    return zlib.crc32(blob or b"", zlib.crc32(json.dumps([*keys, at, text]).encode()))


def _batch(row: Event) -> Batch:
    vectors, data = None, row.data
    if row.blob is not None:
        vectors = np.frombuffer(row.blob, "<f4").reshape(data["shape"]).astype(np.float32)
    return Batch(tuple(data["texts"]), vectors, data["closed"], data["refused"], data["rejected"])


class RunLog:
    """What lies behind a run (`resume`), and where what happens now is written down.

    This one knows nothing and writes nothing: that of a fit in memory.
    """

    resume = ResumeState()

    def decide(self, round_: int, class_name: str) -> None:
        """Write down which class the round chooses; called before anything is bought for it."""

    def end(self, outcome: RoundOutcome, checkpoint: Callable[[], Checkpoint]) -> None:
        """Write down how a round ended; `checkpoint` gives the state that it leaves."""


IN_MEMORY = RunLog()


class JournalRunLog(RunLog, contextlib.AbstractContextManager["JournalRunLog", None]):
    """The run in `directory`, held by this process alone until the context ends.

    `replayed` says how many rounds were there already, `changes` what was changed on purpose since,
    and `complete` that there is nothing left to do.
    """

    checkpoint_rounds = 25  # between checkpoints, at least

    def __init__(
        self,
        directory: Path,
        inputs: Inputs,
        *,
        reject: Iterable[str] = (),
        start_over: bool = False,
        own_task: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._is_new = self._is_idle = not directory.exists()
        with os_errors(directory, "cannot be made"):
            directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        with ExitStack() as held:
            held.callback(WriterLock(directory).release)
            held.callback(self._tidy)
            check()
            if start_over:
                _set_aside(directory)
            self.journal = held.enter_context(Journal(directory, writing=True))
            texts = {normalised_text(text): text for text in reject}
            self.changes = self._begin(inputs, texts, own_task=own_task)
            self._budget = budget_from_json(inputs.budget)
            self._held = held.pop_all()

    @cached_property
    def ledger(self) -> Ledger:
        """The book of paid calls, opened when it is first needed: most runs pay for none."""
        return self._held.enter_context(Ledger(self._budget, self.journal.path))

    def __exit__(self, *_: object) -> None:
        """Let others write. A new directory in which nothing has happened is removed again."""
        with self._held:
            self._is_idle = self._is_new and self.journal.is_blank() and self.ledger.spent().calls == 0

    def _tidy(self) -> None:
        if self._is_idle:  # and still locked, so that no other run has begun here
            shutil.rmtree(self.directory, ignore_errors=True)

    def decide(self, round_: int, class_name: str) -> None:
        """Write a choice down."""
        self.journal.note(CHOICE, {"round": round_, "class": class_name})

    def end(self, outcome: RoundOutcome, checkpoint: Callable[[], Checkpoint]) -> None:
        """Write a round down, and every so many rounds a checkpoint."""
        self.journal.note(ROUND, outcome_to_json(outcome))
        if outcome.record.round % self.checkpoint_rounds == 0:
            save_checkpoint(self.directory, checkpoint(), outcome, self._segment)

    def _begin(self, inputs: Inputs, reject: Mapping[str, str], *, own_task: bool) -> list[str]:
        """Read what is there, and begin a segment where something was changed; returns the changes."""
        segments = list(self.journal.events(SEGMENT))
        then = Inputs.from_json(segments[-1].data["inputs"]) if segments else None
        if then is not None and then != inputs and self.journal.is_blank():
            then = None  # a first try that got nowhere binds nothing; vectors that it bought are kept
        edits, bought = read_edits(self.directory), self.journal.has_bought()
        moved = edits.moved if edits.segment == len(segments) else {}
        changed = Changes()
        if then is not None:  # all that was moved in the run's own task was said
            changed = then.changes_to(inputs, moved=moved, guess=not own_task, bought=bought)
        fresh = then is None or (bool(changed.words) and not bought)  # then nothing that was is of use
        start = max((s.seq for s in segments if s.data["fresh"]), default=0)
        rounds = [
            (event.seq, outcome_from_json(event.data)) for event in self.journal.events(ROUND, after=start)
        ]
        rounds = [] if fresh else rounds
        outcomes, changes = [outcome for _, outcome in rounds], list(changed.words)
        reviewed = ReviewChanges()
        if reject or (self.directory / REVIEWS).exists():
            began = [] if fresh else segments
            reviews = Reviews(self.directory)
            classes = {normalised_text(text): o.record.chosen or "" for o in outcomes for text in o.texts}
            if set(reject).difference(classes, *decided(began)):
                raise RunError(
                    "a text of --reject is not among the run's synthetic samples; copy it from there"
                )
            for key, text in reject.items():  # so that one file has all that people decided
                reviews.add(text, classes.get(key, ""), "reject")
            reviewed = ReviewChanges.of(began, outcomes, reviews.latest())
        if then is not None:
            changes += reviewed.in_words()
        if then is None or changes:
            data = {
                "segment": len(segments) + 1,
                "inputs": asdict(inputs),
                "changes": changes,
                "fresh": fresh,
                "moved": dict(changed.moved),
                "freed": {name: self.journal.next_batch(name) for name in changed.moved},
                **asdict(reviewed),
                "reopened": dict.fromkeys(changed.reopened, len(rounds)),
                "versions": versions(),
            }
            self.journal.note(SEGMENT, data, durable=True)
            segments = list(self.journal.events(SEGMENT))
        start, self._segment = segments[-1].seq, len(segments)
        since = segments[max(n for n, segment in enumerate(segments) if segment.data["fresh"]) :]
        replayed = tuple(outcome for seq, outcome in rounds if seq > start)
        dropped, wanted = decided(since)
        self.replayed = len(rounds)
        self.resume = ResumeState(
            before=tuple(outcome for seq, outcome in rounds if seq < start),
            rounds=replayed,
            checkpoint=load_checkpoint(self.directory, self._segment, replayed) if replayed else None,
            dropped=frozenset(dropped),
            wanted=frozenset(wanted),
            reopened={name: r for segment in since for name, r in segment.data["reopened"].items()},
            batches=self.journal.first_batches,
            choices={e.data["round"]: e.data["class"] for e in self.journal.events(CHOICE, after=start)},
            moves=tuple(Move.of(s.data, sum(seq < s.seq for seq, _ in rounds)) for s in since),
            classes=classes_now(since),
        )
        finished = self.journal.last(FINISHED)
        self.complete = finished is not None and finished.seq > start
        return changes


def classes_now(segments: Iterable[Event]) -> dict[str, str]:
    """Every class that a run has had -> the one that its samples belong to, even if that was removed."""
    now: dict[str, str] = {}
    for segment in segments:
        move = Move.of(segment.data, 0)
        now = {name: move.owner(owner) for name, owner in now.items()}
        now = {**{name: name for name in segment.data["inputs"]["classes"]}, **now}
    return now


def classes_of_run(path: Path) -> dict[str, str]:
    """Every class that the run in `path` has had -> the one that its samples belong to in its task."""
    edits = read_edits(path)
    with Journal(path) as journal:
        segments = list(journal.events(SEGMENT))
    start = max((n for n, segment in enumerate(segments) if segment.data["fresh"]), default=0)
    moved = edits.moved if edits.segment == len(segments) else {}
    move = Move(0, {name: to for name, to in moved.items() if to}, {})
    return {name: move.owner(owner) for name, owner in classes_now(segments[start:]).items()}


def _set_aside(path: Path) -> None:
    """Put the progress of an earlier run aside, so that a new one can begin; results stay till then.

    A run in which nothing has happened is no reason to give up what was set aside before it.
    """
    worthless = has_set_aside(path) and not has_journal(path)
    if has_set_aside(path) and has_journal(path):
        with contextlib.suppress(RunError), Journal(path) as journal:  # a damaged one is kept
            worthless = journal.is_blank()
    with os_errors(path, "cannot be written"):
        for name, aside in ASIDE.items():
            if worthless:
                (path / name).unlink(missing_ok=True)
            elif (path / name).exists():
                os.replace(path / name, path / aside)
            else:
                (path / aside).unlink(missing_ok=True)


def has_progress(path: Path) -> bool:
    """Whether there is a run in `path` that got somewhere; a first try that did not binds nothing."""
    if not has_journal(path):
        return False
    with Journal(path) as journal:
        return not journal.is_blank()


def budget_of_run(path: Path) -> Budget:
    """The caps that the run in `path` has."""
    with Journal(path) as journal:
        segment = journal.last(SEGMENT)
    return Budget() if segment is None else budget_from_json(segment.data["inputs"]["budget"])


def prices_of_run(path: Path) -> dict[str, Price]:
    """The user's own prices that the run in `path` was started with."""
    with Journal(path) as journal:
        started = journal.last(STARTED)
    prices = {} if started is None else started.data["prices"]
    return dict(Price.parse(f"{model}={price}") for model, price in prices.items())


def task_to_go_on(directory: Path) -> Task:
    """The task that the run keeps; its images must still be what they were."""
    task = read_task(directory)
    for sample in task.samples:
        if sample.image is None:
            continue
        try:
            image = image_at(sample.image.path)
        except ImageError as error:
            raise TaskError(f"{error}; or name the task, which says where the images are now") from None
        if image.digest != sample.image.digest:
            name = short(sample.image.path.name)
            raise TaskError(f"the image {name} has changed since the run began; put it back")
    return task
