"""The contract of an embedder: one abstract method; checks and deduplication live here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.task.images import Image
from adamab.task.spec import Modality as Modality

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient

Kind = Literal["query", "class"]
Item: TypeAlias = str | Image  # what can be embedded


@dataclass(frozen=True)
class Embedded:
    """What an embedder answers: one matrix per view, rows in the order of the items."""

    views: dict[str, NDArray[np.float32]]
    overlong: NDArray[np.bool_]  # (n,) the text was longer than the embedder takes


Part = tuple[Sequence[int], Embedded]  # the numbers of the items, and their rows
Keep = Callable[[Sequence[int], Embedded], None]  # stores a part


def only_texts(items: Sequence[Item]) -> list[str]:
    """The items of an embedder that takes nothing but texts."""
    return [item for item in items if isinstance(item, str)]


def only_images(items: Sequence[Item]) -> list[Image]:
    """The items of an embedder that takes nothing but images."""
    return [item for item in items if isinstance(item, Image)]


class TextError(EmbedderError):
    """One text cannot be embedded; it is named by its number, never quoted."""

    def __init__(self, embedder: str, number: int, problem: str) -> None:
        super().__init__(f"{embedder}: text {number} {problem}")
        self.embedder, self.number, self.problem = embedder, number, problem

    def __reduce__(self) -> tuple[type[TextError], tuple[str, int, str]]:
        return type(self), (self.embedder, self.number, self.problem)

    def at(self, number: int) -> TextError:
        """The same error for who counts otherwise."""
        return TextError(self.embedder, number, self.problem)


class Embedder(ABC):
    """Turns texts, images or both into vectors, in one or more named views; the first is the pooled one.

    An implementation sets `fingerprint` (the model's identity: two embedders with the same
    fingerprint give the same vectors) and `views`, and writes `_embed`. Callers use `embed`.
    `modalities` says what it takes: one that takes only images has no vectors of the classes' wordings,
    and class means stand in for them. `str(embedder)` is its name in error messages.

    One that asks an API shows its client as `api` and writes `_parts` as well, which hands what a request
    has brought to `keep` before the request is settled in the ledger: whatever fails later, it is stored.
    """

    fingerprint: str
    views: tuple[str, ...] = ("pooled",)
    modalities: frozenset[Modality] = frozenset({"text"})
    code: str = ""  # of a function: changes when that is edited, under the same name
    cacheable: bool = True  # False where a text does not determine its vector
    vectors_version: str = ""  # where a text does not determine its vector: changes with the vectors
    api: ApiClient | None = None  # None where nothing leaves the machine

    @abstractmethod
    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        """Embed non-empty, distinct `items`; `kind` says which side of the match they are on."""

    async def _parts(
        self, items: Sequence[Item], *, kind: Kind, views: Sequence[str], keep: Keep | None = None
    ) -> AsyncGenerator[Part]:
        """The same piece by piece, each as soon as it is there, in any order.

        What is not given to `keep` here is kept when it is handed over.
        """
        yield range(len(items)), await self._embed(items, kind=kind, views=views)

    async def embed(
        self, items: Sequence[Item], *, kind: Kind = "query", views: Sequence[str] | None = None
    ) -> Embedded:
        """Embed items and check the answer: every row there, finite, of one width per view.

        Args:
            items: texts or images; equal ones are embedded once.
            kind: which side of the match they are on.
            views: the names of the views; None means all.

        Returns:
            One matrix per view, rows in the order of the items; of shape (0, 0) without items.

        Example:
            >>> from adamab.providers.async_bridge import run_sync
            >>> from adamab.testing import HashEmbedder
            >>> run_sync(HashEmbedder(width=8).embed(["hello", "world"])).views["pooled"].shape
            (2, 8)
        """
        wanted = self._check_request(items, kind, views)
        if len(items) == 0:
            empty = np.zeros((0, 0), np.float32)
            return Embedded({view: empty.copy() for view in wanted}, np.zeros(0, np.bool_))
        position = {item: row for row, item in enumerate(dict.fromkeys(items))}
        distinct = list(position)
        try:
            answer = await self._assembled(
                self.parts(distinct, kind=kind, views=wanted), len(distinct), wanted
            )
        except TextError as error:
            raise error.at(list(items).index(distinct[error.number])) from None
        if len(position) == len(items):
            return answer
        rows = np.fromiter((position[item] for item in items), np.int64, len(items))
        return Embedded({view: x[rows] for view, x in answer.views.items()}, answer.overlong[rows])

    async def parts(
        self, items: Sequence[Item], *, kind: Kind, views: Sequence[str], keep: Keep | None = None
    ) -> AsyncGenerator[Part]:
        """What `embed` answers for distinct items, checked piece by piece.

        Args:
            items: distinct texts or images.
            kind: which side of the match they are on.
            views: the names of the views.
            keep: stores each piece once: of a paid request before it is settled, at the latest before
                the piece is handed over. Its errors end the call.

        Returns:
            The pieces: numbers of items, and their rows.
        """
        kept: set[int] = set()

        def keep_checked(rows: Sequence[int], answer: Embedded) -> None:
            if keep is not None:
                keep(rows, self._checked(answer, len(rows), views))
                kept.update(rows)

        async with aclosing(self._parts(items, kind=kind, views=views, keep=keep_checked)) as parts:
            async for rows, answer in parts:
                if not kept.issuperset(rows):
                    keep_checked(rows, answer)
                yield rows, self._checked(answer, len(rows), views)

    def has(self, items: Sequence[Item]) -> NDArray[np.bool_]:
        """Which items it can embed: all of its modalities, unless its vectors were computed elsewhere."""
        modalities = ("image" if isinstance(item, Image) else "text" for item in items)
        return np.fromiter((each in self.modalities for each in modalities), np.bool_, len(items))

    def __str__(self) -> str:
        return type(self).__name__

    async def _assembled(self, parts: AsyncGenerator[Part], rows: int, wanted: Sequence[str]) -> Embedded:
        async with aclosing(parts):
            answered = [part async for part in parts]
        numbers = np.array([number for numbers, _ in answered for number in numbers], np.int64)
        if not np.array_equal(np.sort(numbers), np.arange(rows)):
            raise EmbedderError(f"{self} answered for {len(numbers)} texts, not for each of {rows} once")
        order = np.argsort(numbers)
        views = {view: self._joined(view, [answer.views[view] for _, answer in answered]) for view in wanted}
        overlong = np.concatenate([answer.overlong for _, answer in answered])
        if len(answered) == 1 and np.array_equal(order, np.arange(rows)):
            return Embedded(views, overlong)  # nothing to move: a matrix may be large
        return Embedded({view: x[order] for view, x in views.items()}, overlong[order])

    def _joined(self, view: str, parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        if len({part.shape[1] for part in parts}) > 1:
            raise EmbedderError(
                f"{self}: the vectors of view {view!r} differ in width; if stored ones are of another model, "
                "run: adamab cache purge, and start over with --overwrite"
            )
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _check_request(
        self, items: Sequence[Item], kind: str, views: Sequence[str] | None
    ) -> tuple[str, ...]:
        """Refuse what cannot be embedded, and return the views that are wanted."""
        if "words" in self.views:
            raise EmbedderError(
                f"{self} has a view named 'words', which is the lexical view's name; rename it"
            )
        wanted = self.views if views is None else tuple(dict.fromkeys(views))
        unknown = [view for view in wanted if view not in self.views]
        if unknown:
            raise EmbedderError(f"{self} has no view {unknown[0]!r}; it has: {', '.join(self.views)}")
        if kind not in get_args(Kind):
            raise EmbedderError(f"{self}: kind {kind!r} is unknown; use 'query' or 'class'")
        if isinstance(items, str):
            raise EmbedderError(f"{self}: one text given where a list of texts belongs; write [text]")
        for number, item in enumerate(items):
            if not isinstance(item, str | Image):
                raise EmbedderError(
                    f"{self}: text {number} is of type {type(item).__name__}; only str and Image are embedded"
                )
            modality = "image" if isinstance(item, Image) else "text"
            if modality not in self.modalities:
                raise EmbedderError(f"{self} embeds no {modality}s; use an embedder that does")
        return wanted

    def _checked(self, answer: Embedded, rows: int, wanted: Sequence[str]) -> Embedded:
        missing = [view for view in wanted if view not in answer.views]
        if missing:
            raise EmbedderError(f"{self} did not answer with view {missing[0]!r}, which it offers")
        if np.shape(answer.overlong) != (rows,):
            raise EmbedderError(f"{self} flagged {np.shape(answer.overlong)} texts for length, not {rows}")
        views = {}
        for view in wanted:
            try:
                # Ragged rows fail here; a value too large for float32 is caught as infinite below.
                with np.errstate(over="ignore"):
                    matrix = np.asarray(answer.views[view], np.float32)
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
            views[view] = matrix
        return Embedded(views, np.asarray(answer.overlong, np.bool_))
