"""A content-addressed cache of vectors in SQLite files; several processes may share them.

What was paid for is kept for ever. Vectors of free embedders have a file of their own with a cap on its size,
where those that were used longest ago go first.

A row is looked up by sha256 of (fingerprint, kind, text or an image's digest) and the view's
name. Texts and images themselves are not stored. A vector that float16 holds exactly is
stored as float16, so what comes out is what went in. The file can be read by its owner only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
import warnings
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import platformdirs
from numpy.typing import NDArray

from adamab.errors import CacheError, one_line, os_errors
from adamab.providers.embedders.base import Embedded, Embedder, Item, Keep, Kind, Part, TextError
from adamab.providers.sqlite_file import TROUBLE, SqliteFile, is_damage, remedy

T = TypeVar("T")

FILE_NAME = "vectors.sqlite"
CAP = "ADAMAB_CACHE_GB"  # the environment variable with the gigabytes that free vectors may take
_MAGIC = b"SQLite format 3\0"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    id INTEGER PRIMARY KEY, fingerprint TEXT UNIQUE NOT NULL, last_used REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB NOT NULL, view TEXT NOT NULL, model INTEGER NOT NULL REFERENCES models (id),
    dtype TEXT NOT NULL, width INTEGER NOT NULL, overlong INTEGER NOT NULL,
    crc INTEGER NOT NULL, data BLOB NOT NULL, used REAL NOT NULL DEFAULT 0
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


class CacheFile(SqliteFile):
    """The cache's file. Each operation opens and closes it, so threads and forks need no care.

    `path` defaults to the environment's `ADAMAB_CACHE`, else to the user's cache directory. `strict` is
    for what was paid for: what cannot be stored is a `CacheError`, not a warning. Beyond `cap` bytes the
    vectors that were used longest ago are deleted, a tenth at a time; None keeps all.
    """

    application_id = 0x41444D42  # "ADMB"

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        timeout: float = 30.0,
        strict: bool = False,
        cap: int | None = None,
    ) -> None:
        super().__init__(default_path() if path is None else Path(path).expanduser(), timeout)
        self.strict, self.cap = strict, cap
        self._warned = False
        self._checked = not strict  # whether damage would have been seen before the first write

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
        with self._readable_errors(), contextlib.closing(self._open_existing("rw")) as db:
            return action(db) if self._is_initialised(db) else default

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
                self._check_whole(db)
                if not self._is_initialised(db):
                    db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # what is deleted gives its room back
                    self._create_tables(db, f"PRAGMA application_id = {self.application_id}; {_SCHEMA}")
                self._use_write_ahead_log(db)
                # What cost money is on the disk when it is stored, not merely with the system.
                db.execute(f"PRAGMA synchronous = {'FULL' if self.strict else 'NORMAL'}")
                db.execute("BEGIN IMMEDIATE")
                for statement, rows in statements:
                    db.executemany(statement, rows)
                if self.cap is not None:
                    _delete_oldest(db, self.cap)
                    db.execute("COMMIT")
                    db.executescript("PRAGMA incremental_vacuum")
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

    def _check_whole(self, db: sqlite3.Connection) -> None:
        """Refuse to add to a damaged file of paid vectors: what can be rescued from it is left as it is."""
        if not self._checked:
            (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(state)  # without SQLite's own code it counts as damage
            self._checked = True

    def remove(self) -> None:
        """Delete a damaged file, unless it may be something else than a cache."""
        with os_errors(self.path, "cannot be deleted", CacheError):
            if not self._is_ours():
                raise self._foreign()
            for file in self._files():
                file.unlink(missing_ok=True)

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
            return CacheError(f"{self.path}: {remedy(error)}")
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


def free_vectors() -> VectorCache:
    """The vectors of embedders that cost nothing; beside those that were paid for, and capped."""
    path, text = default_path(), os.environ.get(CAP, "").strip() or "1"
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < 1e6:
        raise CacheError(f"{CAP}={one_line(text)[:40]}: give a number of gigabytes, such as 0.5 or 4")
    # A folder by mistake is named as such, and nothing is put beside it.
    own = path if path.is_dir() else path.with_name(f"{path.stem}.free{path.suffix}")
    return VectorCache(own, cap=int(gigabytes * 10**9))


# Answers of a generator's API, kept before they are used, so that another run need not ask for them again.


@dataclass(frozen=True)
class Ask:
    """A question: its class, the number of its batch, and its number within that batch.

    `digest` is the sha256 of the question, so that another run with the same question can be answered.
    """

    class_name: str
    batch: int
    number: int
    digest: str


@dataclass(frozen=True)
class Reply:
    """What came back: the text of the answer, or that there was none and why."""

    content: str
    refused: bool = False
    cut: bool = False  # the answer ended because it grew too long


class Replies(Protocol):
    """Where answers are kept: in memory, in a run's journal, in the cache that runs share."""

    def get(self, ask: Ask) -> Reply | None:
        """The answer, if it is there."""

    def put(self, ask: Ask, reply: Reply) -> None:
        """Keep an answer; returns when it is safe."""


class MemoryReplies:
    """Kept as long as the process lives."""

    def __init__(self) -> None:
        self._replies: dict[Ask, Reply] = {}

    def get(self, ask: Ask) -> Reply | None:
        """The answer, if it is there."""
        return self._replies.get(ask)

    def put(self, ask: Ask, reply: Reply) -> None:
        """Keep an answer."""
        self._replies[ask] = reply


# Answers lie in the same file as the vectors. Unlike vectors, they are texts: they can be private, and
# whoever purges the cache deletes them too.
_STORE = "INSERT OR REPLACE INTO replies (key, content, refused, cut, crc, stored) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class StoredReplies:
    """What the cache holds of answers."""

    rows: int = 0
    bytes: int = 0
    last_stored: float = 0.0  # seconds since 1970


class CachedReplies:
    """Answers in the cache's file; where one cannot be stored, a warning says so once.

    `file` is that of a `VectorCache`, or the user's cache where none is given.
    """

    def __init__(self, file: CacheFile | None = None) -> None:
        self.file = CacheFile() if file is None else file

    def get(self, ask: Ask) -> Reply | None:
        """The answer, if it is there; a damaged row counts as missing."""
        query = "SELECT content, refused, cut, crc FROM replies WHERE key = ?"
        rows: list[Any] = self.file.read(
            lambda db: db.execute(query, [_ask_key(ask)]).fetchall(), [], lenient=True
        )
        if not rows or not isinstance(rows[0][0], str):
            return None
        content, refused, cut, crc = rows[0]
        intact = crc == _crc(content.encode(), refused, cut)
        return Reply(content, bool(refused), bool(cut)) if intact else None

    def put(self, ask: Ask, reply: Reply) -> None:
        """Keep an answer."""
        # SQLite holds no halves of surrogate pairs; no sample does either.
        content = reply.content.encode("utf-8", "replace").decode()
        flags = int(reply.refused), int(reply.cut)
        row = [_ask_key(ask), content, *flags, _crc(content.encode(), *flags), time.time()]
        self.file.write((_STORE, [row]))

    def stored(self) -> StoredReplies:
        """How many answers there are, and how much room they take."""
        query = (
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(CAST(content AS BLOB))), 0), COALESCE(MAX(stored), 0) "
            "FROM replies"
        )
        return self.file.read(lambda db: StoredReplies(*db.execute(query).fetchone()), StoredReplies())


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


def _ask_key(ask: Ask) -> bytes:
    return _hashed(ask.digest, ask.class_name, str(ask.batch), str(ask.number))


SLICE = 256  # texts embedded before they are stored: what a killed process loses at most
_NOTE_USE = (
    "INSERT INTO models (fingerprint, last_used) VALUES (?, ?) "
    "ON CONFLICT (fingerprint) DO UPDATE SET last_used = excluded.last_used"
)
_STORE_VECTOR = (
    "INSERT OR REPLACE INTO vectors (model, key, view, dtype, width, overlong, crc, data) "
    "VALUES ((SELECT id FROM models WHERE fingerprint = ?), ?, ?, ?, ?, ?, ?, ?)"
)
_NOTE_VECTOR = "UPDATE vectors SET used = ? WHERE key = ?"
_DTYPES: dict[str, np.dtype[Any]] = {"f2": np.dtype("<f2"), "f4": np.dtype("<f4")}


@dataclass(frozen=True)
class CacheEntry:
    """What the cache holds of one view of one embedder."""

    fingerprint: str
    view: str
    rows: int
    bytes: int
    last_used: float  # seconds since 1970


CachedVector = tuple[NDArray[np.float32], bool]  # and whether its text was longer than the embedder takes


class VectorCache(CacheFile):
    """Vectors by fingerprint, kind and item."""

    def get(
        self, fingerprint: str, kind: Kind, items: Sequence[Item], views: Sequence[str]
    ) -> dict[tuple[int, str], CachedVector]:
        """What is stored of some items; damaged rows count as missing.

        Args:
            fingerprint: the embedder's.
            kind: which side of the match the items are on.
            items: texts or images.
            views: the names of the views.

        Returns:
            The vectors by (number of the item, view).
        """
        keys = {_hashed(fingerprint, kind, item): number for number, item in enumerate(items)}
        key_marks, view_marks = (", ".join("?" * count) for count in (len(keys), len(views)))
        query = (
            "SELECT key, view, dtype, width, overlong, crc, data FROM vectors "
            f"WHERE key IN ({key_marks}) AND view IN ({view_marks})"
        )
        rows: list[Any] = self.read(
            lambda db: db.execute(query, [*keys, *views]).fetchall(), [], lenient=True
        )
        vectors = ((keys[key], view, _decode(*rest)) for key, view, *rest in rows)
        return {(number, view): vector for number, view, vector in vectors if vector is not None}

    def put(self, fingerprint: str, kind: Kind, items: Sequence[Item], embedded: Embedded) -> None:
        """Store vectors; where that fails, warn once, or raise `CacheError` if the cache is strict.

        Args:
            fingerprint: the embedder's.
            kind: which side of the match the items are on.
            items: texts or images.
            embedded: their vectors, in the same order.
        """
        rows = []
        for view, matrix in embedded.views.items():
            with np.errstate(over="ignore"):
                half = matrix.astype("<f2")
            exact = (half.astype(np.float32) == matrix).all(axis=1)
            for item, vector, fits, overlong in zip(items, matrix, exact, embedded.overlong, strict=True):
                dtype = "f2" if fits else "f4"
                data = vector.astype(_DTYPES[dtype]).tobytes()
                crc = _crc(data, dtype, len(vector), bool(overlong))
                key = _hashed(fingerprint, kind, item)
                rows.append((fingerprint, key, view, dtype, len(vector), int(overlong), crc, data))
        model, vectors = self._use(fingerprint, kind, items)
        self.write(model, (_STORE_VECTOR, rows), vectors)

    def touch(self, fingerprint: str, kind: Kind = "query", items: Sequence[Item] = ()) -> None:
        """Note that an embedder's vectors were of use now.

        Args:
            fingerprint: the embedder's.
            kind: which side of the match the items are on.
            items: whose vectors they were, which matters where there is a cap.
        """
        self.write(*self._use(fingerprint, kind, items))

    def _use(self, fingerprint: str, kind: Kind, items: Sequence[Item]) -> list[Any]:
        now = time.time()
        noted = [(now, _hashed(fingerprint, kind, item)) for item in items if self.cap is not None]
        return [(_NOTE_USE, [(fingerprint, now)]), (_NOTE_VECTOR, noted)]

    def entries(self) -> list[CacheEntry]:
        """What is stored, by embedder and view, the most recently used first."""
        query = (
            "SELECT fingerprint, view, COUNT(*), SUM(LENGTH(data)), last_used FROM vectors "
            "JOIN models ON models.id = model GROUP BY model, view ORDER BY last_used DESC, fingerprint, view"
        )
        rows: list[Any] = self.read(lambda db: db.execute(query).fetchall(), [])
        return [CacheEntry(*row) for row in rows]

    def purge(self, fingerprint: str | None = None) -> int:
        """Delete everything, or the vectors of one embedder, and return the bytes freed on disk."""
        before = self.size
        try:
            self.read(lambda db: _delete(db, fingerprint), None)
        except DamagedError:
            if fingerprint is not None:
                raise
            self.remove()
        return max(before - self.size, 0)


class CachedEmbedder(Embedder):
    """The same vectors, views and fingerprint as `embedder`, with `cache` in front of it."""

    def __init__(self, embedder: Embedder, cache: VectorCache, *, slice_size: int = SLICE) -> None:
        self.embedder = embedder
        self.cache = cache
        self.slice_size = slice_size
        self.api, self.modalities = embedder.api, embedder.modalities
        self._touched = False

    def __str__(self) -> str:
        return str(self.embedder)

    # Read when needed, not before: for some embedders these read or fetch the model.
    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """That of the embedder."""
        return self.embedder.fingerprint

    @cached_property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the embedder."""
        return self.embedder.views

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        return await self._assembled(self._parts(items, kind=kind, views=views), len(items), views)

    async def _parts(
        self, items: Sequence[Item], *, kind: Kind, views: Sequence[str], keep: Keep | None = None
    ) -> AsyncGenerator[Part]:
        lacking: list[int] = []
        for start in range(0, len(items), self.slice_size):
            some = items[start : start + self.slice_size]
            stored = self.cache.get(self.fingerprint, kind, some, views)
            held = [n for n in range(len(some)) if all((n, view) in stored for view in views)]
            lacking += [start + n for n in range(len(some)) if any((n, v) not in stored for v in views)]
            if held and (self.cache.cap is not None or not self._touched):
                self._touched = True  # once is enough where nothing is deleted: it changes a date
                self.cache.touch(self.fingerprint, kind, [some[n] for n in held])
            if held:
                vectors = {v: self._joined(v, [stored[n, v][0][None] for n in held]) for v in views}
                overlong = np.array([any(stored[n, v][1] for v in views) for n in held], np.bool_)
                yield [start + n for n in held], Embedded(vectors, overlong)
        # An API packs its requests itself and hands them over one by one.
        size = self.slice_size if self.api is None else len(items)
        for start in range(0, len(lacking), size):
            numbers = lacking[start : start + size]
            wanted = [items[number] for number in numbers]

            def store(places: Sequence[int], fresh: Embedded, numbers: Sequence[int] = numbers) -> None:
                rows = [numbers[place] for place in places]
                try:
                    if keep is not None:
                        keep(rows, fresh)
                finally:  # one that cannot store does not keep the other from it
                    self.cache.put(self.fingerprint, kind, [items[row] for row in rows], fresh)

            if self.cache.strict:
                self.cache.touch(self.fingerprint)  # what cannot be stored is not bought
            try:
                async with contextlib.aclosing(
                    self.embedder.parts(wanted, kind=kind, views=views, keep=store)
                ) as parts:
                    async for places, fresh in parts:
                        yield [numbers[place] for place in places], fresh
            except TextError as error:
                raise error.at(numbers[error.number]) from None


def _delete(db: sqlite3.Connection, fingerprint: str | None) -> None:
    chosen = "SELECT id FROM models WHERE ?1 IS NULL OR fingerprint = ?1"
    db.execute("PRAGMA secure_delete = ON")  # what is purged may be private
    with db:
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"DELETE FROM vectors WHERE model IN ({chosen})", [fingerprint])
        db.execute(f"DELETE FROM models WHERE id IN ({chosen})", [fingerprint])
        if fingerprint is None:
            db.execute("DELETE FROM replies")
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _delete_oldest(db: sqlite3.Connection, cap: int) -> None:
    """Delete what was used longest ago, a tenth at a time, until the rest fits."""
    size = (
        "SELECT (page_count - freelist_count) * page_size "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    )
    oldest = (
        "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors ORDER BY used, rowid "
        "LIMIT (SELECT COUNT(*) / 10 + 1 FROM vectors))"
    )
    while db.execute(size).fetchone()[0] > cap and db.execute(oldest).rowcount:
        pass


def _decode(dtype: str, width: int, overlong: int, crc: int, data: bytes) -> CachedVector | None:
    if dtype not in _DTYPES or not isinstance(data, bytes) or crc != _crc(data, dtype, width, bool(overlong)):
        return None
    return np.frombuffer(data, _DTYPES[dtype]).astype(np.float32), bool(overlong)


def _hashed(*parts: Item) -> bytes:
    digest = hashlib.sha256()
    # An image has a part more, so that no text can be taken for it.
    for text in (t for part in parts for t in ((part,) if isinstance(part, str) else ("", part.digest))):
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()


def _crc(data: bytes, *fields: object) -> int:
    return zlib.crc32(data, zlib.crc32(" ".join(map(str, fields)).encode()))
