"""The contract of an embedder: one abstract method; checks and deduplication live here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError

Kind = Literal["query", "class"]
Views = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Embedded:
    """What an embedder answers: one matrix a view, rows in the order of the texts."""

    views: dict[str, NDArray[np.float32]]
    overlong: NDArray[np.bool_]  # (n,) the text was longer than the embedder takes


class Embedder(ABC):
    """Turns texts into vectors, in one or more named views; the first view is the pooled embedding.

    An implementation sets `fingerprint` (the model's identity: two embedders with the same
    fingerprint give the same vectors) and `views`, and writes `_embed`. Callers use `embed`.
    `str(embedder)` is its name in error messages.
    """

    fingerprint: str
    views: tuple[str, ...] = ("pooled",)
    cacheable: bool = True  # False where a text does not determine its vector

    @abstractmethod
    async def _embed(self, texts: Sequence[str], *, kind: Kind, views: Sequence[str]) -> Embedded:
        """Embed non-empty, distinct `texts`; `kind` says which side of the match they are on."""

    async def embed(
        self, texts: Sequence[str], *, kind: Kind = "query", views: Sequence[str] | None = None
    ) -> Embedded:
        """Embed `texts` and check the answer: every row there, finite, of one width a view.

        Equal texts are embedded once. No texts give matrices of shape (0, 0).

        Example:
            >>> from adamab.providers.sync import run_sync
            >>> from adamab.testing import HashEmbedder
            >>> run_sync(HashEmbedder(width=8).embed(["hello", "world"])).views["pooled"].shape
            (2, 8)
        """
        wanted = self._wanted(views)
        self._check_input(texts, kind)
        if len(texts) == 0:
            empty = np.zeros((0, 0), np.float32)
            return Embedded({view: empty.copy() for view in wanted}, np.zeros(0, np.bool_))
        position = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        answer = self._checked(
            await self._embed(list(position), kind=kind, views=wanted), len(position), wanted
        )
        if len(position) == len(texts):
            return answer
        rows = np.fromiter((position[text] for text in texts), np.int64, len(texts))
        return Embedded({view: x[rows] for view, x in answer.views.items()}, answer.overlong[rows])

    def has(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts it can embed: all, unless its vectors were computed elsewhere."""
        return np.ones(len(texts), np.bool_)

    def __str__(self) -> str:
        return type(self).__name__

    def _wanted(self, views: Sequence[str] | None) -> tuple[str, ...]:
        if "words" in self.views:
            raise EmbedderError(
                f"{self} has a view named 'words', which is the lexical view's name; rename it"
            )
        if views is None:
            return self.views
        unknown = [view for view in views if view not in self.views]
        if unknown:
            raise EmbedderError(f"{self} has no view {unknown[0]!r}; it has: {', '.join(self.views)}")
        return tuple(dict.fromkeys(views))

    def _check_input(self, texts: Sequence[str], kind: str) -> None:
        if kind not in get_args(Kind):
            raise EmbedderError(f"{self}: kind {kind!r} is unknown; use 'query' or 'class'")
        if isinstance(texts, str):
            raise EmbedderError(f"{self}: one text given where a list of texts belongs; write [text]")
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise EmbedderError(
                    f"{self}: text {number} is of type {type(text).__name__}; only str can be embedded"
                )

    def _checked(self, answer: Embedded, rows: int, wanted: Sequence[str]) -> Embedded:
        missing = [view for view in wanted if view not in answer.views]
        if missing:
            raise EmbedderError(f"{self} did not answer with view {missing[0]!r}, which it offers")
        if np.shape(answer.overlong) != (rows,):
            raise EmbedderError(f"{self} flagged {np.shape(answer.overlong)} texts for length, not {rows}")
        views = {view: self._checked_view(view, answer.views[view], rows) for view in wanted}
        return Embedded(views, np.asarray(answer.overlong, np.bool_))

    def _checked_view(self, view: str, vectors: object, rows: int) -> NDArray[np.float32]:
        try:
            # Ragged rows fail here; a value too large for float32 is caught as infinite below.
            with np.errstate(over="ignore"):
                matrix = np.asarray(vectors, np.float32)
        except (TypeError, ValueError):
            raise EmbedderError(
                f"{self}: the vectors of view {view!r} are not numbers of one width"
            ) from None
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise EmbedderError(f"{self}: view {view!r} has shape {matrix.shape}; a matrix is needed")
        if len(matrix) != rows:
            raise EmbedderError(f"{self}: view {view!r} has {len(matrix)} vectors for {rows} texts")
        finite = np.isfinite(matrix).all(axis=1)
        if not finite.all():
            raise EmbedderError(f"{self}: vector {int(np.argmin(finite))} of view {view!r} is not finite")
        return matrix
