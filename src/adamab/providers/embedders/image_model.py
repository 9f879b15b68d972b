"""What the local embedders of pictures share: the model is loaded once, late, and used in a thread."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind


class ImageModelEmbedder(Embedder):
    """An embedder whose model comes from a file or a directory and takes pictures in batches."""

    scheme: ClassVar[str]  # what stands before the colon; the extra has the same name
    packages: ClassVar[tuple[str, ...]]  # what that extra brings

    def __init__(self, name: str, *, batch_size: int, device: str) -> None:
        if batch_size < 1:
            raise EmbedderError(f"batch_size is {batch_size}; use 1 or more")
        for package in (*self.packages, "PIL"):
            if importlib.util.find_spec(package) is None:
                raise MissingExtraError("Pillow" if package == "PIL" else package, self.scheme)
        self.name = name
        self.batch_size = batch_size
        self.device = device
        self._lock = threading.Lock()
        self._loaded: Any = None

    def __str__(self) -> str:
        return f"{self.scheme}:{self.name}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process loads the model itself.
        return {**self.__dict__, "_lock": None, "_loaded": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @abstractmethod
    def _load(self) -> Any:
        """The model, checked and ready."""

    @abstractmethod
    def _embed_with(self, model: Any, items: Sequence[Item]) -> Embedded:
        """Embed with the loaded model; called by one thread at a time."""

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        return await asyncio.to_thread(self._embed_now, items)

    def _embed_now(self, items: Sequence[Item]) -> Embedded:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._embed_with(self._loaded, items)

    def _cannot_load(self, error: Exception) -> EmbedderError:
        """Whatever a damaged file makes a library raise, in one line."""
        reason = " ".join(str(error).split())[:160]
        return EmbedderError(f"{self}: the model cannot be loaded ({type(error).__name__}: {reason})")
