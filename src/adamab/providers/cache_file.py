"""The file under the vector cache: opening, creating, and turning SQLite's troubles into one line."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import platformdirs

from adamab.errors import CacheError
from adamab.task.messages import one_line

T = TypeVar("T")

FILE_NAME = "vectors.sqlite"
_APPLICATION_ID = 0x41444D42  # "ADMB", how SQLite files say whose they are
_MAGIC = b"SQLite format 3\0"
_TROUBLE = (sqlite3.Error, UnicodeError)  # the latter where what SQLite quotes of a damaged file is no text
# A missing table or column, too, is damage: the schema is created in one piece.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_NO_ROOM_FOR_LOCKS = (
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL
)  # fmt: skip
_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    id INTEGER PRIMARY KEY, fingerprint TEXT UNIQUE NOT NULL, last_used REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB NOT NULL, view TEXT NOT NULL, model INTEGER NOT NULL REFERENCES models (id),
    dtype TEXT NOT NULL, width INTEGER NOT NULL, overlong INTEGER NOT NULL,
    crc INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS vectors_key ON vectors (key, view);
CREATE INDEX IF NOT EXISTS vectors_model ON vectors (model, view);
"""


class DamagedError(CacheError):
    """The file's contents are no database; deleting it is a remedy."""


class PlaceError(CacheError):
    """There can be no file of that name; nothing is stored and nothing can be."""


class CacheFile:
    """A SQLite file that may be missing, foreign, damaged, locked or out of reach."""

    def __init__(self, path: Path, timeout: float, *, strict: bool = False) -> None:
        self.path = path
        self.timeout = timeout  # seconds to wait for another process
        self.strict = strict  # what cannot be written is an error, not a warning
        self._warned = False

    @property
    def size(self) -> int:
        """Bytes on disk."""
        total = 0
        for file in self._files():
            with contextlib.suppress(OSError):
                total += file.stat().st_size if file.is_file() else 0
        return total

    def exists(self) -> bool:
        """Whether there is anything to read."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def read(self, action: Callable[[sqlite3.Connection], T], default: T) -> T:
        """What `action` makes of the file, or `default` where there is none; raises `CacheError`."""
        self._check_place()
        if not self.exists():
            return default
        try:
            with contextlib.closing(self._open_existing()) as db:
                return action(db) if self._is_initialised(db) else default
        except _TROUBLE as error:
            raise self._readable(error) from None

    def write(self, action: Callable[[sqlite3.Connection], None]) -> None:
        """Do `action` in one transaction; a failure undoes it and is a warning, given once.

        Where the file is strict, it is a `CacheError`.
        """
        try:
            with contextlib.closing(self._open_or_create()) as db, db:
                self._initialise(db)
                action(db)
        except (*_TROUBLE, OSError, CacheError) as error:
            if self.strict:
                raise self._unwritten(error) from None
            self._warn(error)

    def remove(self) -> None:
        """Delete a damaged file, unless it may be something else than a cache."""
        try:
            if not self._is_ours():
                raise self._foreign()
            for file in self._files():
                file.unlink(missing_ok=True)
        except OSError as error:
            raise CacheError(f"{self.path}: cannot be deleted ({error.strerror})") from None

    def _files(self) -> list[Path]:
        return [self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))]

    def _is_ours(self) -> bool:
        """A mistyped ADAMAB_CACHE must not cost a user's own file."""
        with open(self.path, "rb") as stream:
            return self.path.name == FILE_NAME or stream.read(len(_MAGIC)) == _MAGIC

    def _foreign(self) -> CacheError:
        return CacheError(f"{self.path} is not a vector cache; set ADAMAB_CACHE to another file or delete it")

    def _check_place(self) -> None:
        try:
            if not self.path.is_dir():
                self.path.stat()
                return
        except FileNotFoundError:
            return
        except OSError as error:
            raise PlaceError(
                f"{self.path}: cannot be reached ({error.strerror}); set ADAMAB_CACHE to another file"
            ) from None
        raise PlaceError(
            f"{self.path} is a directory, but ADAMAB_CACHE names a file; "
            f"set it to a file, such as {self.path / FILE_NAME}"
        )

    def _open_existing(self) -> sqlite3.Connection:
        db = self._connect("mode=rw")
        try:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except sqlite3.Error as error:
            db.close()
            if _code(error) not in _NO_ROOM_FOR_LOCKS:
                raise
            # In a read-only directory or on a full disk SQLite cannot keep its locks, but
            # nobody can write there either, so it is safe to read without them.
            return self._connect("immutable=1")
        return db

    def _open_or_create(self) -> sqlite3.Connection:
        self._check_place()
        if not self.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite's side files copy its mode
        return self._connect("mode=rw")

    def _connect(self, options: str) -> sqlite3.Connection:
        return sqlite3.connect(f"{self.path.absolute().as_uri()}?{options}", uri=True, timeout=self.timeout)

    def _initialise(self, db: sqlite3.Connection) -> None:
        if not self._is_initialised(db):
            # One transaction, so that no other process ever sees half a schema.
            db.executescript(f"BEGIN IMMEDIATE; PRAGMA application_id = {_APPLICATION_ID}; {_SCHEMA} COMMIT;")
        with contextlib.suppress(sqlite3.OperationalError):  # another process is just doing the same
            db.execute("PRAGMA journal_mode = WAL")
        # What cost money is on the disk when it is stored, not merely with the system.
        db.execute(f"PRAGMA synchronous = {'FULL' if self.strict else 'NORMAL'}")

    def _is_initialised(self, db: sqlite3.Connection) -> bool:
        db.execute("BEGIN")  # one look at both: another process may be creating the file just now
        (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        (owner,) = db.execute("PRAGMA application_id").fetchone()
        db.execute("COMMIT")
        if owner != _APPLICATION_ID and tables > 0:
            raise CacheError(
                f"{self.path}: a database, but not a vector cache; set ADAMAB_CACHE to another file, "
                "or use --no-cache"
            )
        return bool(owner == _APPLICATION_ID)

    def _readable(self, error: Exception) -> CacheError:
        if self.strict:
            return self._of_a_run(error)
        if _code(error) in _DAMAGE:
            with contextlib.suppress(OSError):
                if not self._is_ours():
                    return self._foreign()
            return DamagedError(
                f"{self.path}: the vector cache is damaged ({error}); "
                "run: adamab cache purge, or use --no-cache"
            )
        return CacheError(
            f"{self.path}: the vector cache cannot be used now ({error}); try again, or use --no-cache"
        )

    def _of_a_run(self, error: Exception) -> CacheError:
        """No purge helps here: the file is part of a run, and what it holds was paid for."""
        if _code(error) in _DAMAGE:
            return DamagedError(
                f"{self.path}: the run's vectors are damaged ({one_line(error)}); they were left as they "
                "are: put back a copy, or delete the file to have them made again"
            )
        return CacheError(
            f"{self.path}: cannot be used ({one_line(error)}); see whether the disk is full or read-only, "
            "then start again to go on"
        )

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            message = f"{self._trouble(error)}; going on without storing"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _unwritten(self, error: Exception) -> CacheError:
        if isinstance(error, _TROUBLE) and _code(error) in _DAMAGE:
            return self._of_a_run(error)
        return CacheError(f"{self._trouble(error)}, and it costs money; make room, then start again to go on")

    def _trouble(self, error: Exception) -> str:
        where = "" if isinstance(error, CacheError) else f"{self.path}: "  # a CacheError names it itself
        return f"{where}nothing can be stored ({error})"


def default_path() -> Path:
    """Where the cache is unless a path is given."""
    named = os.environ.get("ADAMAB_CACHE")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("adamab")) / FILE_NAME


def _code(error: Exception) -> int:
    # Errors without a code come from the Python side, over values that cannot be decoded.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
