"""The SQLite file under a run's journal: creating, opening, locking, and its troubles in one line each."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from adamab.errors import RunError
from adamab.task.messages import one_line, place

FILE_NAME, LOCK_NAME = "journal.sqlite", "writer.lock"
T = TypeVar("T")
_APPLICATION_ID = 0x41444D4A  # "ADMJ"
_VERSION = 2
_EARLIER = 1  # the same tables; a round has an object for the score of each class
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
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_NO_ROOM_FOR_LOCKS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


@dataclass(frozen=True)
class Row:
    """One row: its number in its table, when it was written, and what it says."""

    number: int
    at: float  # seconds since 1970
    keys: tuple[Any, ...]
    data: Any
    blob: bytes | None


class JournalFile:
    """Append-only tables of JSON rows, each with a checksum. Safe to use from several threads."""

    def __init__(self, path: Path, *, writing: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        try:
            with self._readable_errors():
                fresh = writing and not self._holds_something()
                if not fresh:
                    # Reading only: whoever closes a connection that can write may empty SQLite's log
                    # into a file that turns out to be damaged or somebody else's.
                    self._db = self._connect_to_read()
                    fresh = self._check_ours(self._db, writing)
                if writing:
                    self.close()
                    self._db = self._connect_to_write()
                    if fresh:
                        self._create(self._db)
                    else:
                        self._lift(self._db)
        except BaseException:
            self.close()
            raise

    def append(
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
        with self._lock, self._readable_errors():
            db = self._open()
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))

    def rows(self, table: str, where: str = "", values: Sequence[Any] = ()) -> Iterator[Row]:
        """Rows, each checked against its checksum."""
        with self._lock, self._readable_errors():
            found = self._open().execute(_select(table, where), tuple(values)).fetchall()
        return (self._row(*row) for row in found)

    def read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """Look at other tables of the file."""
        with self._lock, self._readable_errors():
            return look(self._open())

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._db is not None:
                self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            raise RunError(f"{place(self.path)}: the journal was closed already")
        return self._db

    def _row(self, number: int, at: float, data: str, crc: int, blob: bytes | None, *keys: str | int) -> Row:
        self._check(keys, at, data, crc, blob)
        try:
            return Row(number, at, keys, json.loads(data), blob)
        except ValueError:
            raise self._damaged("a row was changed") from None

    def _check(self, keys: Sequence[Any], at: float, data: str, crc: int, blob: bytes | None) -> None:
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            if crc == _crc(keys, at, data, blob):
                return
        raise self._damaged("a row was changed")  # or a column has another type, which is the same

    def _holds_something(self) -> bool:
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def _connect(self, options: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?{options}"
        return sqlite3.connect(uri, uri=True, timeout=_TIMEOUT, isolation_level=None, check_same_thread=False)

    def _connect_to_read(self) -> sqlite3.Connection:
        db = self._connect("mode=ro")
        try:
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            db.close()
            log = self.path.with_name(self.path.name + "-wal")
            if _code(error) not in _NO_ROOM_FOR_LOCKS or (log.exists() and log.stat().st_size):
                raise
            # In a read-only directory SQLite cannot keep its locks, but nobody can write there either.
            return self._connect("immutable=1")
        return db

    def _connect_to_write(self) -> sqlite3.Connection:
        # Only where it is new: closing a file drops the locks that SQLite holds on it in this process.
        with contextlib.suppress(OSError):  # SQLite says better what is wrong
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # samples may be private
        return self._connect("mode=rw")

    def _check_ours(self, db: sqlite3.Connection, writing: bool) -> bool:
        """Raise `RunError` for a file that is no good; True for one without any table, to be filled."""
        (owner,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        if pages == 0:  # SQLite takes a few bytes of anything for an empty database
            raise self._damaged("a few bytes only")
        if tables == 0 and owner in (0, _APPLICATION_ID) and writing:
            return True
        if owner != _APPLICATION_ID:
            raise RunError(f"{place(self.path)}: is not a journal of a run; name another directory")
        if version not in (_EARLIER, _VERSION):
            raise RunError(f"{place(self.path)}: was written by another version of adamab (format {version})")
        ((verdict,),) = db.execute("PRAGMA integrity_check(1)").fetchall()
        if verdict != "ok":
            raise self._damaged(verdict)
        for table in _KEYS:  # a row under another key would not be found, and bought again
            for _, at, data, crc, blob, *keys in db.execute(_select(table)):
                self._check(keys, at, data, crc, blob)
        return False

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA journal_mode = WAL")
        # One transaction: a process that is killed here leaves an empty file, not half a schema.
        db.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id = {_APPLICATION_ID}; "
            f"PRAGMA user_version = {_VERSION}; {_SCHEMA} {_TRIGGERS} COMMIT;"
        )

    def _lift(self, db: sqlite3.Connection) -> None:
        """Earlier versions would not understand what is written from here on, and must say so."""
        if db.execute("PRAGMA user_version").fetchone() != (_VERSION,):
            db.execute(f"PRAGMA user_version = {_VERSION}")

    def _damaged(self, why: object) -> RunError:
        return RunError(
            f"{place(self.path)}: the journal is damaged ({one_line(why)}); it was left as it is: put back "
            "a copy, or fit into another directory"
        )

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:  # what SQLite quotes of a damaged file may be no text
            code = _code(error)
            if code in _DAMAGE:
                raise self._damaged(error) from None
            if code == sqlite3.SQLITE_FULL:
                raise RunError(
                    f"{place(self.path)}: the disk is full; free some space and start again to go on"
                ) from None
            raise RunError(
                f"{place(self.path)}: cannot be used ({one_line(error)}); see whether the disk is full or "
                "read-only, then start again to go on"
            ) from None


class WriterLock:
    """One writer a run. SQLite's lock works on every system and falls with the process that holds it."""

    def __init__(self, directory: Path, name: str = LOCK_NAME, what: str = "this run") -> None:
        path = directory / name
        db = None
        try:
            db = sqlite3.connect(path, timeout=0.1, isolation_level=None, check_same_thread=False)
            db.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if db is not None:
                db.close()
            if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise RunError(
                    f"{place(directory)}: another process is writing {what}; wait for it or stop it"
                ) from None
            raise RunError(
                f"{place(path)}: cannot be locked ({one_line(error)}); is the disk full or read-only?"
            ) from None
        self._db = db

    def release(self) -> None:
        """Let others write."""
        self._db.close()


def is_being_written(directory: Path) -> bool:
    """Whether a process holds the writer's lock; asking takes it from nobody."""
    path = directory / LOCK_NAME
    if not path.exists():
        return False
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
    try:
        db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    finally:
        db.close()
    return False


def _select(table: str, where: str = "") -> str:
    blob = "vectors" if table == "batches" else "NULL"
    return f"SELECT rowid, at, data, crc, {blob}, {', '.join(_KEYS[table])} FROM {table} {where}"


def _crc(keys: Sequence[Any], at: float, text: str, blob: bytes | None) -> int:
    return zlib.crc32(blob or b"", zlib.crc32(json.dumps([*keys, at, text]).encode()))


def _code(error: Exception) -> int:
    # Errors without a code come from the Python side, over values that cannot be decoded.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
