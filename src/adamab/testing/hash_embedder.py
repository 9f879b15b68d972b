"""A toy embedder for tests: no model, no dependencies, similar texts get similar vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts


class HashEmbedder(Embedder):
    """The normalised sum of one pseudo-random vector a word; texts that share words are alike.

    `calls` counts the texts that were really embedded, for tests of caches and budgets.
    """

    def __init__(
        self, *, width: int = 64, views: Sequence[str] = ("pooled",), max_words: int | None = None
    ) -> None:
        self.width = width
        self.views = tuple(views)
        self.max_words = max_words
        self.calls = 0
        self.fingerprint = f"hash:{width}:{','.join(views)}:{max_words}"

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        texts = only_texts(items)
        self.calls += len(texts)
        words = [text.casefold().split() or [""] for text in texts]
        overlong = np.array([self.max_words is not None and len(w) > self.max_words for w in words], np.bool_)
        kept = [w[: self.max_words] for w in words]
        return Embedded({v: np.stack([self._vector(w, v) for w in kept]) for v in views}, overlong)

    def _vector(self, words: Sequence[str], view: str) -> NDArray[np.float32]:
        total = np.sum([_word_vector(word, view, self.width) for word in words], axis=0)
        vector: NDArray[np.float32] = (total / max(float(np.linalg.norm(total)), 1e-6)).astype(np.float32)
        return vector if view == "pooled" else vector.astype(np.float16).astype(np.float32)


@lru_cache(maxsize=65536)
def _word_vector(word: str, view: str, width: int) -> NDArray[np.float64]:
    seed = hashlib.sha256(f"{view}\0{word}".encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(int.from_bytes(seed[:8], "little")).standard_normal(width)
