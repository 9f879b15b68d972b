"""A content-addressed cache of vectors in one SQLite file; several processes may share it.

A row is found by sha256 of (fingerprint, kind, text or a picture's digest) and the view's
name. Texts and pictures themselves are not stored. A vector that float16 holds exactly is
stored as float16, so what comes out is what went in. The file can be read by its owner only.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
import zlib
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.cache_file import CacheFile, DamagedError, PlaceError, default_path
from adamab.providers.embedders.base import Embedded, Embedder, Item, Keep, Kind, Part, TextError
from adamab.providers.reply_cache import delete_replies

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient
    from adamab.task.spec import Modality

SLICE = 256  # texts embedded before they are stored: what a killed process loses at most
_DTYPES: dict[str, np.dtype[Any]] = {"f2": np.dtype("<f2"), "f4": np.dtype("<f4")}


@dataclass(frozen=True)
class CacheEntry:
    """What the cache holds of one view of one embedder."""

    fingerprint: str
    view: str
    rows: int
    bytes: int
    last_used: float  # seconds since 1970


@dataclass(frozen=True)
class CachedVector:
    """One stored vector and whether its text was longer than the embedder takes."""

    vector: NDArray[np.float32]
    overlong: bool


class VectorCache:
    """The cache's file. Each operation opens and closes it, so threads and forks need no care.

    `path` defaults to the environment's `ADAMAB_CACHE`, else to the user's cache directory. `strict` is
    for vectors that were paid for: what cannot be stored is a `CacheError`, not a warning.
    """

    def __init__(
        self, path: str | Path | None = None, *, timeout: float = 30.0, strict: bool = False
    ) -> None:
        where = default_path() if path is None else Path(path).expanduser()
        self.file = CacheFile(where, timeout, strict=strict)

    @property
    def strict(self) -> bool:
        """Whether vectors that cannot be stored are an error."""
        return self.file.strict

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return self.file.path

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.file.size

    def get(
        self, fingerprint: str, kind: Kind, items: Sequence[Item], views: Sequence[str]
    ) -> dict[tuple[int, str], CachedVector]:
        """What is stored of `items`, by (number of the item, view). Damaged rows count as missing."""
        keys = {_key(fingerprint, kind, item): number for number, item in enumerate(items)}
        query = (
            "SELECT key, view, dtype, width, overlong, crc, data FROM vectors "
            f"WHERE key IN ({_marks(keys)}) AND view IN ({_marks(views)})"
        )
        rows: list[Any] = self.file.read(lambda db: db.execute(query, [*keys, *views]).fetchall(), [])
        found = ((keys[key], view, _decode(*rest)) for key, view, *rest in rows)
        return {(number, view): vector for number, view, vector in found if vector is not None}

    def put(self, fingerprint: str, kind: Kind, items: Sequence[Item], embedded: Embedded) -> None:
        """Store vectors; where that fails, warn once and go on, since the vectors are there already.

        A strict cache raises `CacheError` instead.
        """
        keys = [_key(fingerprint, kind, item) for item in items]
        rows = [
            (key, view, *_encode(matrix[number], bool(embedded.overlong[number])))
            for view, matrix in embedded.views.items()
            for number, key in enumerate(keys)
        ]
        statement = (
            "INSERT OR REPLACE INTO vectors (model, key, view, dtype, width, overlong, crc, data) "
            "VALUES ((SELECT id FROM models WHERE fingerprint = ?), ?, ?, ?, ?, ?, ?, ?)"
        )

        def store(db: sqlite3.Connection) -> None:
            _note_use(db, fingerprint)
            db.executemany(statement, [(fingerprint, *row) for row in rows])

        self.file.write(store)

    def touch(self, fingerprint: str) -> None:
        """Note that an embedder's vectors were of use now."""
        if self.file.exists():
            self.file.write(lambda db: _note_use(db, fingerprint))

    def prepare(self, fingerprint: str) -> None:
        """Try a strict cache before vectors for it are paid for; raises `CacheError`."""
        if self.strict:
            self.file.write(lambda db: _note_use(db, fingerprint))

    def entries(self) -> list[CacheEntry]:
        """What is stored, by embedder and view, the most recently used first."""
        query = (
            "SELECT fingerprint, view, COUNT(*), SUM(LENGTH(data)), last_used FROM vectors "
            "JOIN models ON models.id = model GROUP BY model, view ORDER BY last_used DESC, fingerprint, view"
        )
        rows: list[Any] = self.file.read(lambda db: db.execute(query).fetchall(), [])
        return [CacheEntry(*row) for row in rows]

    def purge(self, fingerprint: str | None = None) -> int:
        """Delete everything, or the vectors of one embedder, and return the bytes freed on disk."""
        before = self.size
        try:
            self.file.read(lambda db: _delete(db, fingerprint), None)
        except DamagedError:
            if fingerprint is not None:
                raise
            self.file.remove()
        return max(before - self.size, 0)


class CachedEmbedder(Embedder):
    """The same vectors, views and fingerprint as `embedder`, with `cache` in front of it."""

    def __init__(self, embedder: Embedder, cache: VectorCache, *, slice_size: int = SLICE) -> None:
        self.embedder = embedder
        self.cache = cache
        self.slice_size = slice_size
        self.cacheable = embedder.cacheable
        self._touched = False

    def __str__(self) -> str:
        return str(self.embedder)

    # Asked for when needed, not before: for some embedders these read or fetch the model.
    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """That of the embedder."""
        return self.embedder.fingerprint

    @property
    def modalities(self) -> frozenset[Modality]:  # type: ignore[override]
        """Those of the embedder."""
        return self.embedder.modalities

    @cached_property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the embedder."""
        return self.embedder.views

    def has(self, items: Sequence[Item]) -> NDArray[np.bool_]:
        """What the embedder says."""
        return self.embedder.has(items)

    @property
    def api(self) -> ApiClient | None:  # type: ignore[override]
        """The embedder's, through which a run meters its calls."""
        return self.embedder.api

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        return await self._assembled(self._parts(items, kind=kind, views=views), len(items), views)

    async def _parts(
        self, items: Sequence[Item], *, kind: Kind, views: Sequence[str], keep: Keep | None = None
    ) -> AsyncGenerator[Part]:
        if not self.cacheable:
            async with aclosing(self.embedder.parts(items, kind=kind, views=views, keep=keep)) as parts:
                async for part in parts:
                    yield part
            return
        lacking: list[int] = []
        for numbers in _slices(range(len(items)), self.slice_size):
            stored = self._stored(items, numbers, kind, views)
            lacking += [n for n in numbers if any((n, view) not in stored for view in views)]
            held = [n for n in numbers if all((n, view) in stored for view in views)]
            if held:
                yield held, self._held(stored, held, views)
        # An API packs its requests itself and hands them over one by one.
        size = self.slice_size if self.api is None else len(items)
        for numbers in _slices(lacking, size):
            async with aclosing(self._fresh(items, numbers, kind, views, keep)) as parts:
                async for part in parts:
                    yield part

    def _stored(
        self, items: Sequence[Item], numbers: Sequence[int], kind: Kind, views: Sequence[str]
    ) -> dict[tuple[int, str], CachedVector]:
        try:
            rows = self.cache.get(self.fingerprint, kind, [items[n] for n in numbers], views)
        except PlaceError:
            if self.cache.strict:
                raise
            return {}  # storing the vectors will warn of it
        if rows and not self._touched:
            self._touched = True  # once is enough: a date is all that it changes
            self.cache.touch(self.fingerprint)
        return {(numbers[place], view): vector for (place, view), vector in rows.items()}

    def _held(
        self, stored: Mapping[tuple[int, str], CachedVector], numbers: Sequence[int], views: Sequence[str]
    ) -> Embedded:
        return Embedded(
            {v: self._joined(v, [stored[n, v].vector[None] for n in numbers]) for v in views},
            np.array([any(stored[n, v].overlong for v in views) for n in numbers], np.bool_),
        )

    async def _fresh(
        self,
        items: Sequence[Item],
        numbers: Sequence[int],
        kind: Kind,
        views: Sequence[str],
        keep: Keep | None,
    ) -> AsyncGenerator[Part]:
        """Vectors that are not stored; each part is stored here and by whoever asks for it."""
        asked = [items[number] for number in numbers]

        def store(places: Sequence[int], fresh: Embedded) -> None:
            try:
                if keep is not None:
                    keep([numbers[place] for place in places], fresh)
            finally:  # one that cannot store does not keep the other from it
                self.cache.put(self.fingerprint, kind, [asked[place] for place in places], fresh)

        self.cache.prepare(self.fingerprint)
        try:
            async with aclosing(self.embedder.parts(asked, kind=kind, views=views, keep=store)) as parts:
                async for places, fresh in parts:
                    yield [numbers[place] for place in places], fresh
        except TextError as error:
            raise error.at(numbers[error.number]) from None

    def _joined(self, view: str, parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        if len({part.shape[1] for part in parts}) > 1:
            remedy = "fit into another directory" if self.cache.strict else "run: adamab cache purge"
            raise EmbedderError(
                f"{self}: view {view!r} was stored with another width under the same fingerprint; {remedy}"
            )
        return super()._joined(view, parts)


def _slices(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def _note_use(db: sqlite3.Connection, fingerprint: str) -> None:
    db.execute(
        "INSERT INTO models (fingerprint, last_used) VALUES (?, ?) "
        "ON CONFLICT (fingerprint) DO UPDATE SET last_used = excluded.last_used",
        [fingerprint, time.time()],
    )


def _delete(db: sqlite3.Connection, fingerprint: str | None) -> None:
    chosen = "SELECT id FROM models WHERE ?1 IS NULL OR fingerprint = ?1"
    db.execute("PRAGMA secure_delete = ON")  # what is purged may be private
    with db:
        db.execute(f"DELETE FROM vectors WHERE model IN ({chosen})", [fingerprint])
        db.execute(f"DELETE FROM models WHERE id IN ({chosen})", [fingerprint])
        if fingerprint is None:
            delete_replies(db)
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _key(fingerprint: str, kind: Kind, item: Item) -> bytes:
    digest = hashlib.sha256()
    # A picture has a part more, so that no text can be taken for it.
    named = (item,) if isinstance(item, str) else ("", item.digest)
    for part in (fingerprint, kind, *named):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()


def _encode(vector: NDArray[np.float32], overlong: bool) -> tuple[str, int, int, int, bytes]:
    with np.errstate(over="ignore"):
        half = vector.astype("<f2")
    dtype = "f2" if np.array_equal(half.astype(np.float32), vector) else "f4"
    data = vector.astype(_DTYPES[dtype]).tobytes()
    return dtype, len(vector), int(overlong), _crc(dtype, len(vector), overlong, data), data


def _decode(dtype: str, width: int, overlong: int, crc: int, data: bytes) -> CachedVector | None:
    if dtype not in _DTYPES or not isinstance(data, bytes) or crc != _crc(dtype, width, bool(overlong), data):
        return None
    return CachedVector(np.frombuffer(data, _DTYPES[dtype]).astype(np.float32), bool(overlong))


def _crc(dtype: str, width: int, overlong: bool, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{dtype} {width} {overlong}".encode()))


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
