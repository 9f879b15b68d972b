"""A run's journal: what was bought, decided and changed, in the order in which it happened.

Nothing in it is ever changed or deleted. Answers that were paid for are on the disk before anybody
looks at them. A run that starts again reads its journal and goes on; readers may look at any time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from adamab.errors import RunError
from adamab.providers.budget import Spend
from adamab.providers.generators.base import Batch
from adamab.providers.ledger import spent_in
from adamab.providers.replies import Ask, Reply
from adamab.run.journal_file import FILE_NAME, JournalFile, Row
from adamab.run.past import RoundOutcome
from adamab.run.records import RoundRecord
from adamab.task.images import references_in
from adamab.task.messages import place, storable

SEGMENT, CHOICE, ROUND, STOPPED, FINISHED = "segment", "choice", "round", "stopped", "finished"
STARTED = "started"  # how, for whoever goes on with the run
_AT_ONCE = 500  # events in memory, however long the run is


@dataclass(frozen=True)
class Event:
    """One line of the journal."""

    seq: int
    at: float  # seconds since 1970
    kind: str
    data: dict[str, Any]


class Journal:
    """The journal of the run in `directory`; with `writing` it is made if it is not there."""

    def __init__(self, directory: Path, *, writing: bool = False) -> None:
        self.path = directory / FILE_NAME
        if not writing and not self.path.is_file():
            raise RunError(f"{place(directory)}: holds no journal; is this a run?")
        self._file = JournalFile(self.path, writing=writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def note(self, kind: str, data: dict[str, Any], *, durable: bool = False) -> None:
        """Add an event."""
        self._file.append("events", {"kind": kind}, data, durable=durable)

    def events(self, *kinds: str, after: int = 0, most: int = -1) -> Iterator[Event]:
        """Events in their order, of some kinds only if any are named; the first `most` unless negative."""
        left = most if most >= 0 else sys.maxsize
        while left:
            wanted, found = min(left, _AT_ONCE), 0
            for event in self._read(kinds, after, wanted):
                after, found = event.seq, found + 1
                yield event
            left = left - found if found == wanted else 0

    def last(self, *kinds: str) -> Event | None:
        """The latest event, of some kinds only if any are named."""
        return next(self._read(kinds, 0, 1, "seq DESC"), None)

    def _read(self, kinds: Sequence[str], after: int, most: int, order: str = "seq") -> Iterator[Event]:
        marks = ", ".join("?" * len(kinds))
        where = "WHERE seq > ?" + (f" AND kind IN ({marks})" if kinds else "") + f" ORDER BY {order} LIMIT ?"
        for row in self._file.rows("events", where, (after, *kinds, most)):
            yield Event(row.number, row.at, row.keys[0], row.data)

    def is_blank(self) -> bool:
        """Whether nothing has been generated or finished yet."""
        tables = ("replies", "batches")
        return not any(True for _ in self.events(ROUND, FINISHED, most=1)) and not any(
            True for table in tables for _ in self._file.rows(table, "LIMIT 1")
        )

    def spent(self) -> tuple[dict[tuple[str, str | None], Spend], int]:
        """What was spent so far by purpose and class, and the part that calls on their way may cost."""
        return self._file.read(spent_in)

    # Answers of the generator's API, one by one (adamab.providers.replies.Replies)

    def get(self, ask: Ask) -> Reply | None:
        """The answer to a question; found by its place, so that it counts even if its wording changed."""
        where = "WHERE class = ? AND batch = ? AND number = ?"
        values = (storable(ask.class_name), ask.batch, ask.number)
        for row in self._file.rows("replies", where, values):
            return Reply(row.data["content"], row.data["refused"], row.data["cut"])
        return None

    def put(self, ask: Ask, reply: Reply) -> None:
        """Write an answer down; returns when it is on the disk."""
        if self.get(ask) is None:
            keys = {"class": storable(ask.class_name), "batch": ask.batch, "number": ask.number}
            self._file.append("replies", keys, {"digest": ask.digest, **asdict(reply)}, durable=True)

    # Whole batches (adamab.run.streams.BatchLog)

    def batch(self, class_name: str, number: int) -> Batch | None:
        """Batch `number` of a class, if it has arrived."""
        where = "WHERE class = ? AND number = ?"
        for row in self._file.rows("batches", where, (storable(class_name), number)):
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
        self._file.append(
            "batches", {"class": storable(class_name), "number": number}, data, blob=blob, durable=True
        )

    def references(self) -> set[str]:
        """The pictures that batches and answers name."""
        rows = (json.dumps(row.data) for table in ("batches", "replies") for row in self._file.rows(table))
        return {reference for row in rows for reference in references_in(row)}

    def first_batches(self, class_name: str, count: int) -> Sequence[Batch]:
        """The first batches of a class."""
        where = "WHERE class = ? AND number < ? ORDER BY number"
        rows = self._file.rows("batches", where, (storable(class_name), count))
        return [_batch(row) for row in rows]


def outcome_to_json(outcome: RoundOutcome) -> dict[str, Any]:
    """Plain data."""
    return {**vars(outcome), "record": outcome.record.to_json()}


def outcome_from_json(data: dict[str, Any]) -> RoundOutcome:
    """Take back what `outcome_to_json` gave."""
    return RoundOutcome(
        **{
            **data,
            "record": RoundRecord.from_json(data["record"]),
            "texts": tuple(data["texts"]),
            "turned_away": tuple((text, reason) for text, reason in data.get("turned_away", ())),
        }
    )


def _batch(row: Row) -> Batch:
    vectors, data = None, row.data
    if row.blob is not None:
        vectors = np.frombuffer(row.blob, "<f4").reshape(data["shape"]).astype(np.float32)
    return Batch(tuple(data["texts"]), vectors, data["closed"], data["refused"], data["rejected"])
