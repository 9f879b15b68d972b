"""What embedders behind an API share: packing, overlapping, splitting, and distrust of the answer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import ApiError, EmbedderError
from adamab.providers.embedders.base import Embedded, Embedder, Keep, Kind, Part, TextError
from adamab.providers.http import ApiClient, BadAnswerError, Call
from adamab.providers.services import Service, connection
from adamab.providers.usage import Usage, estimated_tokens
from adamab.task.messages import short

_BYTES_A_TOKEN = 3  # fewer than real texts have, so that a request seldom turns out too large
_SHORTEST_CUT = 64  # bytes; a text that is too large even so is refused for another reason
# Services refuse empty texts, some of them white space too.
_NOTHING = "."


@dataclass(frozen=True)
class Room:
    """How much a service takes: texts and tokens a request, tokens a text."""

    items: int
    tokens: int
    text_tokens: int


# Servers of other people are often set to little: text-embeddings-inference takes 32 texts.
_OTHERS_ITEMS = 32


@dataclass(frozen=True)
class _Pack:
    """The numbers of some texts, and what is sent of them."""

    rows: tuple[int, ...]
    texts: tuple[str, ...]
    cut: bool = False

    def halves(self) -> list[_Pack]:
        middle = len(self.rows) // 2
        return [_Pack(self.rows[s], self.texts[s]) for s in (slice(middle), slice(middle, None))]


_Outcome = Part | list[_Pack]  # the vectors of a pack, or the packs to send instead of it


class ApiEmbedder(Embedder):
    """Texts to vectors over HTTP. A service says how it is asked (`_body`) and answers (`_vectors`).

    Options are those of a spec: `dimensions`, `batch` (texts a request), and those of the connection,
    `base_url`, `key_env`, `rpm`, `tpm`, `concurrency`, `retries` and `timeout`.
    """

    name: str  # of the service, in specs and messages
    path: str
    room: Room
    added_tokens: int  # that a service may bill for a text beside its own; by guess, and generous
    views = ("pooled",)

    def __init__(
        self,
        model: str,
        *,
        dimensions: int | None = None,
        batch: int | None = None,
        **options: str | float | None,
    ) -> None:
        _check(self.name, model, dimensions=dimensions, batch=batch)
        service, limits = connection(self.name, options)
        self.model = model
        self.dimensions = dimensions
        self.api: ApiClient = ApiClient(service, model, limits)
        items = self.room.items if service.needs_key else min(_OTHERS_ITEMS, self.room.items)
        self.room = replace(self.room, items=min(batch, self.room.items) if batch else items)
        self.fingerprint = _fingerprint(service, model, dimensions)
        self._width = dimensions

    def __str__(self) -> str:
        return f"{self.name}:{self.model}"

    def requests_for(self, texts: Sequence[str]) -> list[tuple[Usage, Usage]]:
        """The requests that distinct texts make: the tokens to expect of each, and the most it may have."""
        packs = (pack.texts for pack in self._packs(texts))
        return [(Usage(sum(map(estimated_tokens, sent))), self._bound(sent)) for sent in packs]

    @abstractmethod
    def _body(self, texts: Sequence[str], kind: Kind) -> dict[str, Any]:
        """The request."""

    @abstractmethod
    def _vectors(self, answer: Any) -> Sequence[Any]:
        """The vectors in the answer, in the order of the texts; any error means a wrong answer."""

    @abstractmethod
    def _usage(self, answer: Any) -> Usage | None:
        """The tokens that the answer says were counted."""

    def _without(self, body: Mapping[str, Any]) -> bool:
        """Leave out a parameter that the service does not know; False where nothing can be left out."""
        return False

    async def _embed(self, texts: Sequence[str], *, kind: Kind, views: Sequence[str]) -> Embedded:
        return await self._assembled(self._parts(texts, kind=kind, views=views), len(texts), views)

    async def _parts(
        self, texts: Sequence[str], *, kind: Kind, views: Sequence[str], keep: Keep | None = None
    ) -> AsyncGenerator[Part]:
        """Each request as it comes back.

        When one fails, or whoever takes the parts leaves, those under way are waited for and kept: they
        cost money. Only a cancelled task gives them up.
        """
        waiting = deque(self._packs(texts))
        running: set[asyncio.Task[_Outcome]] = set()
        trouble: BaseException | None = None
        try:
            while running or (waiting and trouble is None):
                while waiting and trouble is None and len(running) < self.api.limits.concurrency:
                    running.add(asyncio.create_task(self._ask(waiting.popleft(), kind, keep)))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for outcome in _outcomes(done):
                    if isinstance(outcome, BaseException):
                        trouble = trouble or outcome
                    elif isinstance(outcome, list):
                        waiting.extendleft(reversed(outcome))
                    else:
                        yield outcome
        except asyncio.CancelledError:
            for task in running:
                task.cancel()
            raise
        finally:
            await asyncio.gather(*running, return_exceptions=True)
        if trouble is not None:
            raise trouble

    def _packs(self, texts: Sequence[str]) -> Iterator[_Pack]:
        """Texts in order, as many a request as it takes; one that may be too long travels alone."""
        rows: list[int] = []
        total = 0
        for row, text in enumerate(texts):
            size = _estimated(text)
            alone = size > self.room.text_tokens
            if rows and (alone or len(rows) == self.room.items or total + size > self.room.tokens):
                yield self._pack(rows, texts)
                rows, total = [], 0
            rows.append(row)
            total += self.room.tokens if alone else size
        if rows:
            yield self._pack(rows, texts)

    def _pack(self, rows: Sequence[int], texts: Sequence[str]) -> _Pack:
        return _Pack(tuple(rows), tuple(_sendable(texts[row]) for row in rows))

    async def _ask(self, pack: _Pack, kind: Kind, keep: Keep | None) -> _Outcome:
        """The vectors of a pack, or the packs to send instead of it."""
        found: list[Embedded] = []

        def store(answer: Any) -> None:
            found.append(self._read(answer, pack))
            if keep is not None:
                keep(pack.rows, found[-1])

        call = self._call(pack, kind)
        try:
            await self.api.post(call, usage=self._usage, keep=store)
        except ApiError as error:
            if error.too_large:
                return pack.halves() if len(pack.rows) > 1 else [self._shorter(pack)]
            if error.unsupported and self._without(call.body):
                return [pack]
            if error.unsupported and self.dimensions is not None:
                raise EmbedderError(f"{error}; leave out dimensions={self.dimensions}") from None
            raise
        return pack.rows, found[-1]

    def _call(self, pack: _Pack, kind: Kind) -> Call:
        body = self._body(pack.texts, kind)
        # The same texts asked for again after a crash: a service that knows the header bills them once.
        asked = json.dumps([self.fingerprint, body], sort_keys=True).encode()
        return Call(
            self.path,
            body,
            self._bound(pack.texts),
            "embed",
            idempotency_key=hashlib.sha256(asked).hexdigest(),
        )

    def _bound(self, texts: Sequence[str]) -> Usage:
        """No tokenizer makes more tokens of a text than it has bytes."""
        return Usage(sum(len(text.encode()) + self.added_tokens for text in texts))

    def _shorter(self, pack: _Pack) -> _Pack:
        """A text that is too long for the model, cut to what should fit or, failing that, by half."""
        raw = pack.texts[0].encode()
        fits = self.room.text_tokens * _BYTES_A_TOKEN
        length = fits if len(raw) > fits else len(raw) // 2
        if length < _SHORTEST_CUT:
            raise TextError(str(self), pack.rows[0], "is refused as too large; shorten it or leave it out")
        return _Pack(pack.rows, (raw[:length].decode("utf-8", "ignore"),), cut=True)

    def _read(self, answer: Any, pack: _Pack) -> Embedded:
        flags = np.full(len(pack.rows), pack.cut, np.bool_)
        return Embedded({"pooled": self._matrix(answer, len(pack.rows))}, flags)

    def _matrix(self, answer: Any, rows: int) -> NDArray[np.float32]:
        vectors = self._vectors(answer)
        if len(vectors) != rows:
            raise BadAnswerError(f"{len(vectors)} vectors for {rows} texts")
        try:
            with np.errstate(over="ignore"):
                matrix = np.array(vectors, np.float32)
        except (TypeError, ValueError):
            raise BadAnswerError("vectors that are not numbers of one width") from None
        if matrix.ndim != 2 or matrix.shape[1] != (self._width or matrix.shape[1] or -1):
            raise BadAnswerError(f"vectors of another width than {self._width or 'one or more'}")
        if not np.isfinite(matrix).all():
            raise BadAnswerError("a vector that is not finite")
        self._width = matrix.shape[1]
        return matrix


def indexed(data: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The vectors of a list whose entries carry their index, in order."""
    places = {entry.get("index", place): entry["embedding"] for place, entry in enumerate(data)}
    if len(places) < len(data) or sorted(places) != list(range(len(data))):
        raise BadAnswerError("vectors whose numbers do not add up")
    return [_decoded(places[place]) for place in range(len(data))]


def _outcomes(done: Set[asyncio.Task[_Outcome]]) -> list[_Outcome | BaseException]:
    return [task.exception() or task.result() for task in done]


def count(value: Any) -> int | None:
    """A number of tokens, or None where it cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _decoded(vector: Any) -> Any:
    """Base64 of little-endian float32; many servers send numbers although base64 was asked for."""
    if not isinstance(vector, str):
        return vector
    return np.frombuffer(base64.b64decode(vector, validate=True), "<f4")


def _estimated(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_A_TOKEN + 1


def _sendable(text: str) -> str:
    if not text.strip():
        return _NOTHING
    return text.encode("utf-8", "replace").decode()  # half a character cannot be sent


def _fingerprint(service: Service, model: str, dimensions: int | None) -> str:
    width = "" if dimensions is None else f":{dimensions}"
    place = "" if service.needs_key else f"@{service.place}"
    return f"{service.name}:{model}{width}{place}"


def _check(name: str, model: str, **numbers: int | None) -> None:
    if not model.isprintable() or not model.strip() or "?" in model:
        raise EmbedderError(
            f"{name}: {short(model)} is no model's name; options are written {name}:MODEL?option=value&…"
        )
    for option, number in numbers.items():
        if number is not None and number < 1:
            raise EmbedderError(f"{name}: {option} is {number}; use 1 or more")
