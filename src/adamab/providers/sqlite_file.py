"""SQLite files: opening, creating, locking; and the one under the vector cache, its troubles in one line."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import platformdirs

from adamab.errors import CacheError, RunError, one_line, place

T = TypeVar("T")

FILE_NAME, LOCK = "vectors.sqlite", "writer.lock"
_MAGIC = b"SQLite format 3\0"
TROUBLE = (sqlite3.Error, UnicodeError)  # the latter where what SQLite quotes of a damaged file is no text
# A missing table or column, too, is damage: the schema is created in one piece.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_NO_ROOM_FOR_LOCKS = (
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL
)  # fmt: skip
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CACHE_SCHEMA = """
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
CREATE TABLE IF NOT EXISTS replies (
    key BLOB PRIMARY KEY, content TEXT NOT NULL, refused INTEGER NOT NULL, cut INTEGER NOT NULL,
    crc INTEGER NOT NULL, stored REAL NOT NULL
) WITHOUT ROWID;
"""


class DamagedError(CacheError):
    """The file's contents are no database; deleting it is a remedy."""


class PlaceError(CacheError):
    """There can be no file of that name; nothing is stored and nothing can be."""


class SqliteFile:
    """A file of SQLite that says whose it is; it may be missing, foreign, damaged, locked or out of reach."""

    application_id: ClassVar[int]  # how SQLite files say whose they are
    connection_options: ClassVar[dict[str, Any]] = {}

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
        uri = f"{self.path.absolute().as_uri()}?{options}"
        db: sqlite3.Connection = sqlite3.connect(
            uri, uri=True, timeout=self.timeout, **self.connection_options
        )
        return db

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
        db.executescript(f"BEGIN IMMEDIATE; PRAGMA application_id = {self.application_id}; {schema} COMMIT;")


class CacheFile(SqliteFile):
    """The cache's file. Each operation opens and closes it, so threads and forks need no care.

    `path` defaults to the environment's `ADAMAB_CACHE`, else to the user's cache directory. `strict` is
    for what was paid for: what cannot be stored is a `CacheError`, not a warning.
    """

    application_id = 0x41444D42  # "ADMB"

    def __init__(
        self, path: str | Path | None = None, *, timeout: float = 30.0, strict: bool = False
    ) -> None:
        super().__init__(default_path() if path is None else Path(path).expanduser(), timeout)
        self.strict = strict
        self._warned = False

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(os.path.getsize(file) for file in self._files() if os.path.isfile(file))

    def read(self, action: Callable[[sqlite3.Connection], T], default: T, *, lenient: bool = False) -> T:
        """What `action` makes of the file; raises `CacheError`.

        Args:
            action: reads from the open file.
            default: the answer where there is no file.
            lenient: the same where no file can be, unless it is strict; storing will warn of it.

        Returns:
            What `action` returns, or `default`.
        """
        try:
            self._check_place()
        except PlaceError:
            if self.strict or not lenient:
                raise
            return default
        if not self.exists():
            return default
        try:
            with contextlib.closing(self._open_existing("rw")) as db:
                return action(db) if self._is_initialised(db) else default
        except TROUBLE as error:
            raise self._readable(error) from None

    def write(self, *statements: tuple[str, Iterable[Sequence[object]]]) -> None:
        """Execute statements for their rows in one transaction; a failure undoes it and is a warning, once.

        Where the file is strict, it is a `CacheError`.
        """
        try:
            self._check_place()
            if not self.exists():
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._create_private()
            with contextlib.closing(self._connect("mode=rw")) as db, db:
                if not self._is_initialised(db):
                    self._create_tables(db, _CACHE_SCHEMA)
                with contextlib.suppress(sqlite3.OperationalError):  # another process is just doing the same
                    db.execute("PRAGMA journal_mode = WAL")
                # What cost money is on the disk when it is stored, not merely with the system.
                db.execute(f"PRAGMA synchronous = {'FULL' if self.strict else 'NORMAL'}")
                for statement, rows in statements:
                    db.executemany(statement, rows)
        except (*TROUBLE, OSError, CacheError) as error:
            where = "" if isinstance(error, CacheError) else f"{self.path}: "  # a CacheError names it itself
            trouble = f"{where}nothing can be stored ({error})"
            if self.strict:
                if isinstance(error, TROUBLE) and is_damage(error):
                    raise self._readable(error) from None
                raise CacheError(
                    f"{trouble}, and it costs money; make room, then start again to go on"
                ) from None
            if not self._warned:
                self._warned = True
                warnings.warn(f"{trouble}; going on without storing", RuntimeWarning, stacklevel=3)

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

    def _is_initialised(self, db: sqlite3.Connection) -> bool:
        db.execute("BEGIN")  # one look at both: another process may be creating the file just now
        (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        (owner,) = db.execute("PRAGMA application_id").fetchone()
        db.execute("COMMIT")
        if owner != self.application_id and tables > 0:
            raise CacheError(
                f"{self.path}: a database, but not a vector cache; set ADAMAB_CACHE to another file, "
                "or use --no-cache"
            )
        return bool(owner == self.application_id)

    def _readable(self, error: Exception) -> CacheError:
        if self.strict and is_damage(error):
            # No purge helps here: the file is part of a run, and what it holds was paid for.
            return DamagedError(
                f"{self.path}: the run's vectors are damaged ({one_line(error)}); they were left as they "
                "are: put back a copy, or delete the file to have them made again"
            )
        if self.strict:
            return CacheError(
                f"{self.path}: cannot be used ({one_line(error)}); see whether the disk is full or "
                "read-only, then start again to go on"
            )
        if is_damage(error):
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


def default_path() -> Path:
    """Where the cache is unless a path is given."""
    named = os.environ.get("ADAMAB_CACHE")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("adamab")) / FILE_NAME


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
