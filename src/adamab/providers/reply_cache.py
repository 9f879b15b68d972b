"""Answers of generators in the cache that runs share, so that the same question is paid for once.

They lie in the same file as the vectors. Unlike vectors, answers are texts: they can be private, and
whoever purges the cache deletes them too (`delete_replies`).
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
import zlib
from dataclasses import dataclass

from adamab.providers.cache_file import CacheFile, PlaceError, default_path
from adamab.providers.replies import Ask, Replies, Reply

# In files of earlier versions the table is not there, so it is created when the first answer is stored.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (
    key BLOB PRIMARY KEY, content TEXT NOT NULL, refused INTEGER NOT NULL, cut INTEGER NOT NULL,
    crc INTEGER NOT NULL, stored REAL NOT NULL
) WITHOUT ROWID
"""
_STORE = "INSERT OR REPLACE INTO replies (key, content, refused, cut, crc, stored) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class StoredReplies:
    """What the cache holds of answers."""

    rows: int = 0
    bytes: int = 0
    last_stored: float = 0.0  # seconds since 1970


class CachedReplies:
    """Answers in the cache's file; where one cannot be stored, a warning says so once.

    `file` is that of a `VectorCache`, or the user's cache where none is given; a strict one raises
    `CacheError` instead of the warning.
    """

    def __init__(self, file: CacheFile | None = None) -> None:
        self.file = CacheFile(default_path(), 30.0) if file is None else file

    def get(self, ask: Ask) -> Reply | None:
        """The answer, if it is there; a damaged row counts as missing."""
        query = "SELECT content, refused, cut, crc FROM replies WHERE key = ?"

        def find(db: sqlite3.Connection) -> Reply | None:
            return _decode(db.execute(query, [_key(ask)]).fetchone()) if _has_table(db) else None

        try:
            return self.file.read(find, None)
        except PlaceError:
            if self.file.strict:
                raise
            return None  # storing the answer will warn of it

    def put(self, ask: Ask, reply: Reply) -> None:
        """Keep an answer."""
        row = (*_fields(reply), _crc(reply), time.time())

        def store(db: sqlite3.Connection) -> None:
            db.execute(_SCHEMA)
            db.execute(_STORE, [_key(ask), *row])

        self.file.write(store)

    def stored(self) -> StoredReplies:
        """How many answers there are, and how much room they take."""
        query = (
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(CAST(content AS BLOB))), 0), COALESCE(MAX(stored), 0) "
            "FROM replies"
        )

        def count(db: sqlite3.Connection) -> StoredReplies:
            return StoredReplies(*db.execute(query).fetchone()) if _has_table(db) else StoredReplies()

        return self.file.read(count, StoredReplies())


class ChainedReplies:
    """Two places: what the first lacks is looked for in the second; what is new goes into both."""

    def __init__(self, first: Replies, second: Replies) -> None:
        self.first, self.second = first, second

    def get(self, ask: Ask) -> Reply | None:
        """The answer, if either has it; the first has it afterwards."""
        reply = self.first.get(ask)
        if reply is None:
            reply = self.second.get(ask)
            if reply is not None:
                self.first.put(ask, reply)
        return reply

    def put(self, ask: Ask, reply: Reply) -> None:
        """Keep an answer, in the first place first."""
        self.first.put(ask, reply)
        self.second.put(ask, reply)


def delete_replies(db: sqlite3.Connection) -> None:
    """Delete all answers, inside the caller's transaction."""
    if _has_table(db):
        db.execute("DELETE FROM replies")


def _has_table(db: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'replies'"
    return db.execute(query).fetchone() is not None


def _key(ask: Ask) -> bytes:
    parts = (ask.digest, ask.class_name, str(ask.batch), str(ask.number))
    hashed = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        hashed.update(len(raw).to_bytes(8, "little") + raw)
    return hashed.digest()


def _fields(reply: Reply) -> tuple[str, int, int]:
    # SQLite holds no halves of surrogate pairs; no sample does either.
    content = reply.content.encode("utf-8", "replace").decode()
    return content, int(reply.refused), int(reply.cut)


def _crc(reply: Reply) -> int:
    content, refused, cut = _fields(reply)
    return zlib.crc32(content.encode(), zlib.crc32(f"{refused} {cut}".encode()))


def _decode(row: tuple[object, ...] | None) -> Reply | None:
    if row is None or not isinstance(row[0], str):
        return None
    content, refused, cut, crc = row
    reply = Reply(str(content), bool(refused), bool(cut))
    return reply if crc == _crc(reply) else None
