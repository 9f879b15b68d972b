"""What embedders behind an API share: packing, overlapping, splitting, and distrust of the answer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import math
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from adamab.errors import ApiError, EmbedderError, one_line, short
from adamab.providers.embedders.base import Embedded, Embedder, Item, Keep, Kind, Part, TextError
from adamab.providers.http import ApiClient, BadAnswerError, Call, connection
from adamab.providers.metering import Usage, estimated_tokens
from adamab.task.images import Image, decoded, header

# Images on their way to a service: small enough, upright, and nothing in them but pixels.
#
# What leaves the machine is encoded again from the decoded pixels. Where an image was taken, with what and
# by whom (EXIF, XMP, comments, thumbnails, whatever a file carries) stays here. Until an image is sent
# only its header is read; its pixels and bytes live as long as its request.

JPEG_QUALITY = 95  # without subsampling of colours: what it loses cannot be seen
_LONGEST_SIDE = 65_500  # pixels; a JPEG has no more
_LEAST_SIDE = 64  # an image that is too large even so is refused for another reason
_LOSSY = ("JPEG", "WEBP", "AVIF")
# Bytes per pixel, generous for photographs; noise may have more, and a request is split if it is too large.
_JPEG_BYTES, _PNG_BYTES = 1, 3


@dataclass(frozen=True)
class SentImage:
    """An image as it will be sent: its size by then, and as PNG or as JPEG."""

    image: Image
    width: int
    height: int
    lossless: bool

    @property
    def name(self) -> str:
        """The file, for messages."""
        return one_line(self.image.path)

    @property
    def pixels(self) -> int:
        """How many it has when it is sent."""
        return self.width * self.height

    @property
    def length(self) -> int:
        """About how many letters it takes in a request."""
        return self.pixels * (_PNG_BYTES if self.lossless else _JPEG_BYTES) * 4 // 3

    def smaller(self, embedder: str) -> SentImage:
        """The same at half the width and height; raises `EmbedderError` where that would be too little."""
        if max(self.width, self.height) // 2 < _LEAST_SIDE:
            raise EmbedderError(
                f"{embedder}: {self.name}: is refused as too large even at {self.width}x{self.height} "
                "pixels; leave it out"
            )
        width, height = (max(1, side // 2) for side in (self.width, self.height))
        return replace(self, width=width, height=height, lossless=False)

    def data_url(self) -> str:
        """The image itself; raises `ImageError` where it cannot be decoded."""
        kind, data = self.encoded()
        return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"

    def encoded(self) -> tuple[str, bytes]:
        """`png` or `jpeg`, and the bytes."""
        from PIL.Image import Resampling

        pixels = decoded(self.image, least_side=min(self.width, self.height))
        # The header knows the sides as they lie in the file; decoding turns some images.
        turned = (pixels.width < pixels.height) != (self.width < self.height)
        size = (self.height, self.width) if turned else (self.width, self.height)
        if pixels.size != size:
            pixels = pixels.resize(size, Resampling.LANCZOS)
        pixels.info.clear()  # Pillow writes some of it to the file: a comment, a profile of colours
        stream = io.BytesIO()
        if self.lossless:
            pixels.save(stream, "PNG")
        else:
            pixels.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        return "png" if self.lossless else "jpeg", stream.getvalue()


def sent_image(image: Image, most_pixels: int) -> SentImage:
    """How an image is sent; only its header is read.

    Args:
        image: the image.
        most_pixels: a larger one is shrunk to this many pixels.

    Returns:
        The image with its size when it is sent.
    """
    width, height, kind = header(image)
    scale = min(1.0, math.sqrt(most_pixels / (width * height)), _LONGEST_SIDE / max(width, height))
    if scale == 1.0:
        return SentImage(image, width, height, lossless=kind not in _LOSSY)
    width, height = (max(1, math.floor(side * scale)) for side in (width, height))
    return SentImage(image, width, height, lossless=False)


_BYTES_PER_TOKEN = 3  # fewer than real texts have, so that a request seldom turns out too large
_SHORTEST_CUT = 64  # bytes; a text that is too large even so is refused for another reason
ABOUT_CONTENT = (400, 415, 422)  # statuses that may be about one of the images in a request


@dataclass(frozen=True)
class Room:
    """How much a service takes: items and tokens per request, tokens per text; of images, more."""

    items: int
    tokens: int
    text_tokens: int
    bytes: int = sys.maxsize  # that images may take up in a request
    pixels: int = 0  # of an image; a larger one is shrunk
    pixels_per_token: int = 1
    least_pixels: int = 0  # a smaller image is counted as one of these


Sent: TypeAlias = str | SentImage  # what is sent of an item


@dataclass(frozen=True)
class _Pack:
    """The numbers of some items, and what is sent of them."""

    rows: tuple[int, ...]
    sent: tuple[Sent, ...]
    cut: bool = False

    @property
    def images(self) -> bool:
        return any(isinstance(one, SentImage) for one in self.sent)

    def halves(self) -> list[_Pack]:
        middle = len(self.rows) // 2
        return [_Pack(self.rows[s], self.sent[s]) for s in (slice(middle), slice(middle, None))]


_Outcome = Part | list[_Pack]  # the vectors of a pack, or the packs to send instead of it


class ApiEmbedder(Embedder):
    """Texts to vectors over HTTP. A service defines its requests (`_body`) and answers (`_vectors`).

    One that takes images says so in its `modalities` and `room`. They are read from their files when
    their request is sent, and forgotten after it: only the requests under way hold images.

    Options are those of a spec: `dimensions`, `batch` (items per request), and those of the connection,
    `base_url`, `key_env`, `rpm`, `tpm`, `concurrency`, `retries` and `timeout`.

    Args:
        model: The model's name at its service.
        service: Who has it, a name in `PROVIDERS`; the class's own if None.
    """

    name: str  # of the service, in specs and messages
    path: str
    room: Room
    added_tokens: int  # that a service may bill for a text beside its own; by guess, and generous
    views = ("pooled",)

    def __init__(
        self,
        model: str,
        service: str | None = None,
        *,
        dimensions: int | None = None,
        batch: int | None = None,
        **options: str | float | None,
    ) -> None:
        self.name = service or self.name
        if not model.isprintable() or not model.strip() or "?" in model:
            options_form = f"{self.name}:MODEL?option=value&…"
            raise EmbedderError(
                f"{self.name}: {short(model)} is no model's name; options are written {options_form}"
            )
        for option, number in (("dimensions", dimensions), ("batch", batch)):
            if number is not None and number < 1:
                raise EmbedderError(f"{self.name}: {option} is {number}; use 1 or more")
        place, limits = connection(self.name, options)
        self.model = model
        self.dimensions = dimensions
        self.api: ApiClient = ApiClient(place, model, limits)
        self.room = replace(self.room, items=min(batch or place.items, self.room.items))
        width = "" if dimensions is None else f":{dimensions}"
        self.fingerprint = f"{self.name}:{model}{width}{place.at}"
        self._width = dimensions

    def __str__(self) -> str:
        return f"{self.name}:{self.model}"

    def requests_for(self, items: Sequence[Item]) -> list[tuple[Usage, Usage]]:
        """The requests that distinct items make: the tokens to expect of each, and the most it may have."""
        packs = (pack.sent for pack in self._packs(items))
        return [(Usage(sum(map(self._expected, sent))), self._bound(sent)) for sent in packs]

    @abstractmethod
    def _body(self, sent: Sequence[Any], kind: Kind) -> dict[str, Any]:
        """The request: of texts, or of `Sent` where the modalities hold images."""

    def _vectors(self, answer: Any) -> Sequence[Any]:
        """The vectors in the answer, in the order of what was sent; any error means a wrong answer."""
        data = answer["data"]
        places = {entry.get("index", place): entry["embedding"] for place, entry in enumerate(data)}
        if len(places) < len(data) or sorted(places) != list(range(len(data))):
            raise BadAnswerError("vectors whose numbers do not add up")
        return [
            # Base64 of little-endian float32; many servers send numbers although base64 was asked for.
            np.frombuffer(base64.b64decode(vector, validate=True), "<f4")
            if isinstance(vector, str)
            else vector
            for _, vector in sorted(places.items())
        ]

    def _usage(self, answer: Any) -> Usage | None:
        """The tokens that the answer says were counted."""
        tokens = count(answer["usage"].get("prompt_tokens", answer["usage"].get("total_tokens")))
        return None if tokens is None else Usage(tokens)

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
                for outcome in [task.exception() or task.result() for task in done]:
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
        """What is sent of an item, its tokens by a careful guess, and an image's bytes."""
        if isinstance(item, str):
            text = sendable(item)
            return text, len(text.encode()) // _BYTES_PER_TOKEN + 1, 0
        image = sent_image(item, self.room.pixels)
        return image, self._expected(image), image.length

    async def _ask(self, pack: _Pack, kind: Kind, keep: Keep | None) -> _Outcome:
        """The vectors of a pack, or the packs to send instead of it."""
        answers: list[Embedded] = []

        def store(answer: Any) -> None:
            answers.append(self._read(answer, pack))
            if keep is not None:
                keep(pack.rows, answers[-1])

        if pack.images:  # decoding takes a while, in which others may go on
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
            if pack.images and not error.unsupported and (error.refused or error.status in ABOUT_CONTENT):
                first = pack.sent[0]
                if len(pack.rows) > 1 or isinstance(first, str):
                    return pack.halves()  # until the image that the service does not take can be named
                raise EmbedderError(f"{self}: {first.name}: {error}; replace it or leave it out") from None
            raise
        return pack.rows, answers[-1]

    def _call(self, pack: _Pack, kind: Kind) -> Call:
        body = self._body(pack.sent, kind)
        # The same request again after a crash: a service that knows the header bills it once.
        digest = hashlib.sha256()
        for part in json.JSONEncoder(sort_keys=True).iterencode([self.fingerprint, body]):
            digest.update(part.encode())  # piece by piece: images are long
        bound = self._bound(pack.sent)
        return Call(self.path, body, bound, "embed", idempotency_key=digest.hexdigest())

    def _bound(self, sent: Sequence[Sent]) -> Usage:
        """No tokenizer makes more tokens of a text than it has bytes; an image's are known."""
        sizes = (len(one.encode()) if isinstance(one, str) else self._expected(one) for one in sent)
        return Usage(sum(size + self.added_tokens for size in sizes))

    def _expected(self, one: Sent) -> int:
        """The tokens that it will probably have."""
        if isinstance(one, str):
            return estimated_tokens(one)
        return -(-max(one.pixels, self.room.least_pixels) // self.room.pixels_per_token)

    def _shorter(self, pack: _Pack) -> _Pack:
        """What is too large by itself: an image at half its sides, or a text cut.

        A text is cut to what should fit or, failing that, by half.
        """
        one = pack.sent[0]
        if isinstance(one, SentImage):
            return _Pack(pack.rows, (one.smaller(str(self)),), cut=True)
        raw = one.encode()
        fits = self.room.text_tokens * _BYTES_PER_TOKEN
        length = fits if len(raw) > fits else len(raw) // 2
        if length < _SHORTEST_CUT:
            raise TextError(str(self), pack.rows[0], "is refused as too large; shorten it or leave it out")
        return _Pack(pack.rows, (raw[:length].decode("utf-8", "ignore"),), cut=True)

    def _read(self, answer: Any, pack: _Pack) -> Embedded:
        vectors = self._vectors(answer)
        if len(vectors) != len(pack.rows):
            what = "images" if pack.images else "texts"
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
        return Embedded({"pooled": matrix}, np.full(len(pack.rows), pack.cut, np.bool_))


def sendable(text: str) -> str:
    """The text without halves of characters; services refuse empty ones, some of them white space too."""
    return text.encode("utf-8", "replace").decode() if text.strip() else "."


def count(value: Any) -> int | None:
    """A number of tokens, or None where it cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# `openai:MODEL`: OpenAI's embeddings, those of the services that speak its protocol, and any other such
# server through `base_url`: vLLM, LM Studio, llama.cpp.


class OpenAIEmbedder(ApiEmbedder):
    """Both sides of the match are embedded alike: the protocol knows no kinds of text."""

    name = "openai"
    path = "/embeddings"
    room = Room(items=2048, tokens=300_000, text_tokens=8192)
    added_tokens = 4  # what begins and ends a text; a guess
    _packed = True  # base64 is a third of the size of numbers in JSON, and exact

    def _body(self, texts: Sequence[str], kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "input": list(texts)}
        if self._packed:
            body["encoding_format"] = "base64"
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return body

    def _without(self, body: Mapping[str, Any]) -> bool:
        self._packed = False
        return "encoding_format" in body


# `jina:MODEL`: Jina AI's text embeddings.

_JINA_TASKS = {"query": "retrieval.query", "class": "retrieval.passage"}


class JinaEmbedder(ApiEmbedder):
    """Texts as queries, classes as passages, for models that know the two; others are told no task.

    The service must not cut long texts by itself: they are cut here, and flagged.
    """

    name = "jina"
    path = "/embeddings"
    room = Room(items=512, tokens=128_000, text_tokens=8192)
    added_tokens = 32  # a task puts a sentence before each text; a generous guess
    _tasks = True

    def _body(self, texts: Sequence[str], kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "input": list(texts),
            "embedding_type": "base64",
            "truncate": False,
        }
        if self._tasks:
            body["task"] = _JINA_TASKS[kind]
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return body

    def _without(self, body: Mapping[str, Any]) -> bool:
        self._tasks = False
        return "task" in body


# `tei:MODEL`: a server of text-embeddings-inference, which has one model; MODEL is its name in messages.


class TeiEmbedder(ApiEmbedder):
    """Both sides of the match are embedded alike. The server must not cut long texts: they are cut here.

    It counts no tokens, so a budget counts what was reserved.
    """

    name = "tei"
    path = "/embed"
    room = Room(items=2048, tokens=16_384, text_tokens=8192)
    added_tokens = 4

    def _body(self, texts: Sequence[str], kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {"inputs": list(texts), "truncate": False}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        return body

    def _vectors(self, answer: Any) -> Sequence[Any]:
        if not isinstance(answer, list):
            raise BadAnswerError("an answer that is no list of vectors")
        return answer


# `cohere:MODEL`: Cohere's text embeddings, version 2 of its API.

# Cohere has a type `classification` as well, for vectors that are fed to a classifier. Here texts are
# also compared with the wordings of classes, which needs two types that are trained to meet.
_INPUT_TYPES = {"query": "search_query", "class": "search_document"}


class CohereEmbedder(ApiEmbedder):
    """Texts as search queries, classes as search documents.

    The service must not cut long texts by itself: they are cut here, and flagged.
    """

    name = "cohere"
    path = "/v2/embed"
    # The tokens per text are those of the models before embed-v4.0, which takes more: a text that may
    # be longer travels alone, and is cut only if the service says that it is too long.
    room = Room(items=96, tokens=128_000, text_tokens=512)
    added_tokens = 16  # the input type, and what begins and ends a text; a generous guess

    def _body(self, texts: Sequence[str], kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "texts": list(texts),
            "input_type": _INPUT_TYPES[kind],
            "embedding_types": ["float"],
            "truncate": "NONE",
        }
        if self.dimensions is not None:
            body["output_dimension"] = self.dimensions
        return body

    def _vectors(self, answer: Any) -> Sequence[Any]:
        vectors: Sequence[Any] = answer["embeddings"]["float"]
        return vectors

    def _usage(self, answer: Any) -> Usage | None:
        tokens = count(answer["meta"]["billed_units"]["input_tokens"])
        return None if tokens is None else Usage(tokens)


# `voyage:MODEL`: Voyage AI's embeddings of texts and, by its multimodal models, of images.

# Texts are matched with the wordings of classes, as questions are with the documents that answer
# them, which is what Voyage's two input types are trained for.
_VOYAGE_INPUT_TYPES = {"query": "query", "class": "document"}
# Multimodal models were made for search in which a text finds pages and photographs. So here it is the
# other way round: the wording of a class is what searches, and an image what is searched for.
_MULTIMODAL_TYPES = {"query": "document", "class": "query"}
# The service shrinks an image of more than 2 000 000 pixels to that, and bills one of less than 50 000 as
# of that many. It is shrunk here instead, which saves the way. The bytes bound the memory, not the service.
_MULTIMODAL_ROOM = Room(
    items=1000,
    tokens=320_000,
    text_tokens=32_000,
    bytes=2_000_000,
    pixels=2_000_000,
    pixels_per_token=560,
    least_pixels=50_000,
)


class VoyageEmbedder(ApiEmbedder):
    """Texts as queries, classes as documents; with a multimodal model the other way round.

    A model is multimodal if its name says so. The service must not cut long texts by itself: they are cut
    here, and flagged.
    """

    name = "voyage"
    path = "/embeddings"
    # The tokens per request differ by model, from 120 000 to 1 000 000; the least suits all of them.
    room = Room(items=1000, tokens=120_000, text_tokens=32_000)
    added_tokens = 32  # an input type puts a sentence before each text; a generous guess

    def __init__(
        self,
        model: str,
        service: str | None = None,
        *,
        dimensions: int | None = None,
        batch: int | None = None,
        **options: str | float | None,
    ) -> None:
        self.multimodal = "multimodal" in model
        if self.multimodal:
            self.path = "/multimodalembeddings"
            self.room = _MULTIMODAL_ROOM
            self.modalities = frozenset({"text", "image"})
        super().__init__(model, service, dimensions=dimensions, batch=batch, **options)

    def _body(self, sent: Sequence[Sent], kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if self.multimodal:
            body["inputs"] = [{"content": [_piece(one)]} for one in sent]
            body["input_type"] = _MULTIMODAL_TYPES[kind]
        else:
            body["input"] = list(sent)
            body["input_type"] = _VOYAGE_INPUT_TYPES[kind]
        body["truncation"] = False
        body["output_encoding" if self.multimodal else "encoding_format"] = "base64"
        if self.dimensions is not None:
            body["output_dimension"] = self.dimensions
        return body


def _piece(one: Sent) -> dict[str, str]:
    if isinstance(one, str):
        return {"type": "text", "text": one}
    return {"type": "image_base64", "image_base64": one.data_url()}
