"""SQLite files: opening, creating, locking, and their errors in one line."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from adamab.errors import AdamabError, RunError, one_line, place

LOCK = "writer.lock"
TROUBLE = (sqlite3.Error, UnicodeError)  # the latter where what SQLite quotes of a damaged file is no text
# A missing table or column, too, is damage: the schema is created in one piece.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_NO_ROOM_FOR_LOCKS = (
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL
)  # fmt: skip
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_REMEDIES = {
    sqlite3.SQLITE_FULL: "cannot be written (disk is full); free some space and start again",
    sqlite3.SQLITE_IOERR: "cannot be read or written ({}); see whether the disk is full, then start again",
    sqlite3.SQLITE_READONLY: "cannot be written (read-only); allow writing to it and to its directory",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({}); see whether its directory is there and can be written",
    sqlite3.SQLITE_PERM: "cannot be opened ({}); allow reading and writing it",
    **dict.fromkeys(_HELD, "is in use by another process; wait until that has ended and start again"),
}
_OTHER_REMEDY = "cannot be used ({}); see whether the disk is full or read-only, then start again"


class SqliteFile:
    """A file of SQLite; it may be missing, foreign, damaged, locked or out of reach."""

    contents: ClassVar[str] = "the file"  # as errors name it

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.timeout = timeout  # seconds to wait for another process

    def exists(self) -> bool:
        """Whether there is anything to read."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def _connect(self, options: str) -> sqlite3.Connection:
        """Without transactions of Python's own; `mode=memory` touches no file."""
        file = "file:" if options == "mode=memory" else self.path.absolute().as_uri()
        uri = f"{file}?{options}"
        return sqlite3.connect(
            uri, uri=True, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )

    def _open_existing(self, mode: str, *, whole: bool = False) -> sqlite3.Connection:
        """`whole`: what is still in SQLite's log must not be missed."""
        db = self._connect(f"mode={mode}")
        try:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except sqlite3.Error as error:
            db.close()
            log = self.path.with_name(self.path.name + "-wal")
            if error_code(error) not in _NO_ROOM_FOR_LOCKS or (whole and log.exists() and log.stat().st_size):
                raise
            # In a read-only directory or on a full disk SQLite cannot keep its locks, but
            # nobody can write there either, so it is safe to read without them.
            return self._connect("immutable=1")
        return db

    def _create_private(self) -> None:
        """Only where it is new: closing a file drops the locks that SQLite holds on it in this process."""
        with contextlib.suppress(FileExistsError):
            # The files that SQLite puts beside it copy its mode.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _create_tables(self, db: sqlite3.Connection, schema: str) -> None:
        # One transaction: nobody ever sees half a schema, and a killed process leaves an empty file.
        with db:  # rolls back where anything is raised
            db.executescript(f"BEGIN IMMEDIATE; {schema} COMMIT;")

    def _use_write_ahead_log(self, db: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.OperationalError):  # another process is just doing the same
            db.execute("PRAGMA journal_mode = WAL")

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except TROUBLE as error:
            raise self._readable(error) from None

    def _readable(self, error: Exception) -> AdamabError:
        return self._damaged(error) if is_damage(error) else RunError(f"{place(self.path)}: {remedy(error)}")

    def _damaged(self, why: object) -> RunError:
        return RunError(
            f"{place(self.path)}: {self.contents} is damaged ({one_line(why)}); it was left as it is: "
            "put back a copy, or start over in another directory"
        )


class WriterLock:
    """One writer per directory: SQLite's lock works on every system and falls with its process."""

    def __init__(self, directory: Path, name: str = LOCK, what: str = "this run") -> None:
        path = directory / name
        db = None
        try:
            db = sqlite3.connect(path, timeout=0.1, isolation_level=None, check_same_thread=False)
            db.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if db is not None:
                db.close()
            if error_code(error) in _HELD:
                raise RunError(
                    f"{place(directory)}: another process is writing {what}; wait for it or stop it"
                ) from None
            raise RunError(
                f"{place(path)}: cannot be locked ({one_line(error)}); is the disk full or read-only?"
            ) from None
        self.release = db.close
        """Lets others write."""


def is_being_written(directory: Path) -> bool:
    """Whether a process holds the writer's lock; asking takes it from nobody."""
    path = directory / LOCK
    if not path.exists():
        return False
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
    try:
        db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        return error_code(error) in _HELD
    finally:
        db.close()
    return False


def error_code(error: Exception) -> int:
    """SQLite's; errors without one come from the Python side, over values that cannot be decoded."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def is_damage(error: Exception) -> bool:
    """Whether the file's contents are no database of ours."""
    return error_code(error) in _DAMAGE


def remedy(error: Exception) -> str:
    """What is wrong with a file that is not damaged, and what to do."""
    return _REMEDIES.get(error_code(error), _OTHER_REMEDY).format(one_line(error))
