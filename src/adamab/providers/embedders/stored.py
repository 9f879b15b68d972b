"""Vectors that are there already: `npz:FILE` has them by id, `MemoryEmbedder` by what was embedded."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError, short
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts

_PREFIX = "view/"


@dataclass(frozen=True)
class NpzVectors:
    """The contents of a file: ids, one matrix per view (`pooled` first), who made them."""

    ids: tuple[str, ...]
    views: dict[str, NDArray[np.float32]]
    model: str | None = None

    @property
    def fingerprint(self) -> str:
        """The model's name if the file gives one, else the shape of the views."""
        widths = [f"{view}={x.shape[1]}" for view, x in sorted(self.views.items())]
        return f"npz:{self.model or ','.join(widths)}"


class NpzEmbedder(Embedder):
    """Looks vectors up: the text passed to `embed` is the id under which the file has them.

    The file holds `ids` (n strings), `view/NAME` (n x width) for each view and, optionally,
    `model`, the name of what made the vectors.
    """

    cacheable = False  # the same id means another text in another file

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser()
        self._vectors = read_npz(self._path)
        file = self._path.stat()
        self.vectors_version = f"{file.st_size}:{file.st_mtime_ns}"
        self._row = {key: row for row, key in enumerate(self._vectors.ids)}
        self.views = tuple(self._vectors.views)
        self.fingerprint = self._vectors.fingerprint

    def __str__(self) -> str:
        return f"npz:{self._path}"

    def has(self, items: Sequence[Item]) -> NDArray[np.bool_]:
        """Which ids the file has vectors for."""
        return np.fromiter((key in self._row for key in items), np.bool_, len(items))

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        texts = only_texts(items)
        missing = [key for key in texts if key not in self._row]
        if missing:
            named = ", ".join(short(key) for key in missing[:3])
            more = "" if len(missing) <= 3 else " ..."
            raise EmbedderError(
                f"{self} has no vector for {len(missing)} of {len(texts)} ids: {named}{more}; "
                "add them to the file"
            )
        rows = [self._row[key] for key in texts]
        return Embedded(
            {view: self._vectors.views[view][rows] for view in views}, np.zeros(len(rows), np.bool_)
        )


def read_npz(path: str | Path) -> NpzVectors:
    """Read and check a file of vectors; every problem is one `EmbedderError`."""
    arrays = _load(Path(path).expanduser())
    if "ids" not in arrays:
        raise EmbedderError(f"{path}: no array 'ids'; add one string per row")
    names = arrays["ids"]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise EmbedderError(
            f"{path}: 'ids' is {names.dtype} of shape {names.shape}; it must be a 1-D array of strings"
        )
    ids = tuple(str(key) for key in names)
    if len(set(ids)) != len(ids):
        twice, _ = Counter(ids).most_common(1)[0]
        raise EmbedderError(f"{path}: id {twice[:40]!r} stands there twice; ids must be distinct")
    views = {
        name[len(_PREFIX) :]: _view(path, name, array, len(ids))
        for name, array in arrays.items()
        if name.startswith(_PREFIX) and len(name) > len(_PREFIX)
    }
    if not views:
        raise EmbedderError(f"{path}: no array named view/NAME, such as view/pooled; add one per view")
    ordered = sorted(views, key=lambda view: view != "pooled")  # stable: the others keep file order
    model = arrays.get("model")
    if model is not None and (model.ndim != 0 or model.dtype.kind != "U" or not str(model)):
        raise EmbedderError(f"{path}: 'model' must be one string, the name of what made the vectors")
    return NpzVectors(ids, {view: views[view] for view in ordered}, None if model is None else str(model))


def _load(path: Path) -> dict[str, NDArray[np.generic]]:
    if not path.is_file():
        raise EmbedderError(f"{path}: no such file; npz:FILE needs a file written by numpy.savez")
    try:
        if not zipfile.is_zipfile(path):
            raise EmbedderError(f"{path}: not an npz file, or cut short; write it with numpy.savez")
        with np.load(path, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise EmbedderError(f"{path}: cannot be read, perhaps cut short ({type(error).__name__})") from None
    except ValueError:
        raise EmbedderError(
            f"{path}: holds Python objects or a damaged array; save plain strings and numbers"
        ) from None


def _view(path: str | Path, name: str, array: NDArray[np.generic], rows: int) -> NDArray[np.float32]:
    if array.dtype.kind != "f" or array.ndim != 2 or array.shape[1] == 0:
        raise EmbedderError(
            f"{path}: {name!r} is {array.dtype} of shape {array.shape}; a float matrix is needed"
        )
    if len(array) != rows:
        raise EmbedderError(f"{path}: {name!r} has {len(array)} rows for {rows} ids")
    with np.errstate(over="ignore"):
        matrix = array.astype(np.float32)
    if not np.isfinite(matrix).all():
        raise EmbedderError(f"{path}: {name!r} holds NaN or infinite values; remove those rows")
    return matrix


# Vectors in memory, so that many fits embed every sample once.


class MemoryEmbedder(Embedder):
    """Vectors of what was `put`; what is lacking comes from the embedder that `reopen` opens, and is kept.

    Without `reopen` they are all there is. A copy in another process opens the embedder when it first needs
    it, so that one which needs none loads no model.
    """

    def __init__(self, embedder: Embedder, reopen: Callable[[], Embedder] | None = None) -> None:
        self.fingerprint, self.views, self.reopen = embedder.fingerprint, embedder.views, reopen
        self.api, self.modalities = embedder.api, embedder.modalities
        self.cacheable = embedder.cacheable  # or samples with ids would be looked up by their texts
        self._opened: Embedder | None = embedder
        self._rows: dict[tuple[Kind, Item], dict[str, NDArray[np.float32]]] = {}
        self._overlong: set[tuple[Kind, Item]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None, "api": None}  # models and clients stay where they are

    def has(self, items: Sequence[Item]) -> NDArray[np.bool_]:
        """What is known, and what the embedder behind has."""
        known = np.array([("query", item) in self._rows or ("class", item) in self._rows for item in items])
        if known.all() or self.reopen is None or not super().has(items).any():
            return known
        return known | self._rest().has(items)

    def put(self, items: Sequence[Item], kind: Kind, embedded: Embedded) -> None:
        """Remember the vectors of `items`."""
        for row, item in enumerate(items):
            self._rows[kind, item] = {view: matrix[row] for view, matrix in embedded.views.items()}
            if embedded.overlong[row]:
                self._overlong.add((kind, item))

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        lacking = [item for item in items if (kind, item) not in self._rows]
        if lacking:
            self.put(lacking, kind, await self._rest().embed(lacking, kind=kind, views=self.views))
        rows = [self._rows[kind, item] for item in items]
        overlong = np.array([(kind, item) in self._overlong for item in items], dtype=np.bool_)
        return Embedded({view: np.stack([row[view] for row in rows]) for view in views}, overlong)

    def _rest(self) -> Embedder:
        if self.reopen is None:
            raise KeyError("a sample without a vector")
        self._opened = self._opened or self.reopen()
        return self._opened
