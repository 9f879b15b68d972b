"""What embedders behind an API share: packing, overlapping, splitting, and distrust of the answer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.errors import ApiError, EmbedderError
from adamab.providers.embedders.base import Embedded, Embedder, Item, Keep, Kind, Part, TextError
from adamab.providers.embedders.sent_pictures import SentPicture, sent_picture
from adamab.providers.http import ApiClient, BadAnswerError, Call
from adamab.providers.services import Service, connection
from adamab.providers.usage import Usage, estimated_tokens
from adamab.task.messages import short

_BYTES_A_TOKEN = 3  # fewer than real texts have, so that a request seldom turns out too large
_SHORTEST_CUT = 64  # bytes; a text that is too large even so is refused for another reason
_ABOUT_CONTENT = (400, 415, 422)  # statuses that may be about one of the pictures in a request
# Services refuse empty texts, some of them white space too.
_NOTHING = "."


@dataclass(frozen=True)
class Room:
    """How much a service takes: items and tokens a request, tokens a text; of pictures, more."""

    items: int
    tokens: int
    text_tokens: int
    bytes: int = sys.maxsize  # that pictures may take up in a request
    pixels: int = 0  # of a picture; a larger one is shrunk
    pixels_a_token: int = 1
    least_pixels: int = 0  # a smaller picture is counted as one of these


# Servers of other people are often set to little: text-embeddings-inference takes 32 texts.
_OTHERS_ITEMS = 32


Sent: TypeAlias = str | SentPicture  # what is sent of an item


@dataclass(frozen=True)
class _Pack:
    """The numbers of some items, and what is sent of them."""

    rows: tuple[int, ...]
    sent: tuple[Sent, ...]
    cut: bool = False

    @property
    def pictures(self) -> bool:
        return any(isinstance(one, SentPicture) for one in self.sent)

    def halves(self) -> list[_Pack]:
        middle = len(self.rows) // 2
        return [_Pack(self.rows[s], self.sent[s]) for s in (slice(middle), slice(middle, None))]


_Outcome = Part | list[_Pack]  # the vectors of a pack, or the packs to send instead of it


class ApiEmbedder(Embedder):
    """Texts to vectors over HTTP. A service says how it is asked (`_body`) and answers (`_vectors`).

    One that takes pictures says so in its `modalities` and `room`. They are read from their files when
    their request is sent, and forgotten after it: only the requests under way hold pictures.

    Options are those of a spec: `dimensions`, `batch` (items a request), and those of the connection,
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

    def requests_for(self, items: Sequence[Item]) -> list[tuple[Usage, Usage]]:
        """The requests that distinct items make: the tokens to expect of each, and the most it may have."""
        packs = (pack.sent for pack in self._packs(items))
        return [(Usage(sum(map(self._expected, sent))), self._bound(sent)) for sent in packs]

    @abstractmethod
    def _body(self, sent: Sequence[Any], kind: Kind) -> dict[str, Any]:
        """The request: of texts, or of `Sent` where the modalities hold pictures."""

    @abstractmethod
    def _vectors(self, answer: Any) -> Sequence[Any]:
        """The vectors in the answer, in the order of what was sent; any error means a wrong answer."""

    @abstractmethod
    def _usage(self, answer: Any) -> Usage | None:
        """The tokens that the answer says were counted."""

    def _without(self, body: Mapping[str, Any]) -> bool:
        """Leave out a parameter that the service does not know; False where nothing can be left out."""
        return False

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        return await self._assembled(self._parts(items, kind=kind, views=views), len(items), views)

    async def _parts(
        self, items: Sequence[Item], *, kind: Kind, views: Sequence[str], keep: Keep | None = None
    ) -> AsyncGenerator[Part]:
        """Each request as it comes back.

        When one fails, or whoever takes the parts leaves, those under way are waited for and kept: they
        cost money. Only a cancelled task gives them up.
        """
        waiting = deque(self._packs(items))
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

    def _packs(self, items: Sequence[Item]) -> Iterator[_Pack]:
        """Items in order, as many a request as it takes; a text that may be too long travels alone."""
        rows: list[int] = []
        sent: list[Sent] = []
        total = length = 0
        for row, item in enumerate(items):
            one, size, more = self._weighed(item)
            alone = size > self.room.text_tokens
            full = len(rows) == self.room.items or total + size > self.room.tokens
            if rows and (alone or full or length + more > self.room.bytes):
                yield _Pack(tuple(rows), tuple(sent))
                rows, sent, total, length = [], [], 0, 0
            rows.append(row)
            sent.append(one)
            total += self.room.tokens if alone else size
            length += more
        if rows:
            yield _Pack(tuple(rows), tuple(sent))

    def _weighed(self, item: Item) -> tuple[Sent, int, int]:
        """What is sent of an item, its tokens by a careful guess, and a picture's bytes."""
        if isinstance(item, str):
            return _sendable(item), _estimated(item), 0
        picture = sent_picture(item, self.room.pixels)
        return picture, self._expected(picture), picture.length

    async def _ask(self, pack: _Pack, kind: Kind, keep: Keep | None) -> _Outcome:
        """The vectors of a pack, or the packs to send instead of it."""
        found: list[Embedded] = []

        def store(answer: Any) -> None:
            found.append(self._read(answer, pack))
            if keep is not None:
                keep(pack.rows, found[-1])

        if pack.pictures:  # decoding takes a while, in which others may go on
            call = await asyncio.to_thread(self._call, pack, kind)
        else:
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
            if pack.pictures and not error.unsupported and (error.refused or error.status in _ABOUT_CONTENT):
                return self._searched(pack, error)
            raise
        return pack.rows, found[-1]

    def _searched(self, pack: _Pack, error: ApiError) -> list[_Pack]:
        """The halves of a pack with a picture that the service does not take, until it can be named."""
        first = pack.sent[0]
        if len(pack.rows) > 1 or isinstance(first, str):
            return pack.halves()
        raise EmbedderError(f"{self}: {first.name}: {error}; replace it or leave it out") from None

    def _call(self, pack: _Pack, kind: Kind) -> Call:
        body = self._body(pack.sent, kind)
        # The same asked for again after a crash: a service that knows the header bills it once.
        asked = hashlib.sha256()
        for part in json.JSONEncoder(sort_keys=True).iterencode([self.fingerprint, body]):
            asked.update(part.encode())  # piece by piece: pictures are long
        return Call(
            self.path,
            body,
            self._bound(pack.sent),
            "embed",
            idempotency_key=asked.hexdigest(),
        )

    def _bound(self, sent: Sequence[Sent]) -> Usage:
        """No tokenizer makes more tokens of a text than it has bytes; a picture's are known."""
        sizes = (len(one.encode()) if isinstance(one, str) else self._expected(one) for one in sent)
        return Usage(sum(size + self.added_tokens for size in sizes))

    def _expected(self, one: Sent) -> int:
        """The tokens that it will probably have."""
        if isinstance(one, str):
            return estimated_tokens(one)
        return -(-max(one.pixels, self.room.least_pixels) // self.room.pixels_a_token)

    def _shorter(self, pack: _Pack) -> _Pack:
        """What is too large by itself: a picture at half its sides, or a text cut.

        A text is cut to what should fit or, failing that, by half.
        """
        one = pack.sent[0]
        if isinstance(one, SentPicture):
            return _Pack(pack.rows, (one.smaller(str(self)),), cut=True)
        raw = one.encode()
        fits = self.room.text_tokens * _BYTES_A_TOKEN
        length = fits if len(raw) > fits else len(raw) // 2
        if length < _SHORTEST_CUT:
            raise TextError(str(self), pack.rows[0], "is refused as too large; shorten it or leave it out")
        return _Pack(pack.rows, (raw[:length].decode("utf-8", "ignore"),), cut=True)

    def _read(self, answer: Any, pack: _Pack) -> Embedded:
        flags = np.full(len(pack.rows), pack.cut, np.bool_)
        return Embedded({"pooled": self._matrix(answer, pack)}, flags)

    def _matrix(self, answer: Any, pack: _Pack) -> NDArray[np.float32]:
        vectors = self._vectors(answer)
        if len(vectors) != len(pack.rows):
            what = "pictures" if pack.pictures else "texts"
            raise BadAnswerError(f"{len(vectors)} vectors for {len(pack.rows)} {what}")
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
