"""Models that `compare` asks: chat models, rerankers behind APIs, and cross-encoders on this machine.

A chat model is asked one question at a time, which may come with an image: it leaves the machine re-encoded,
without anything but its pixels. `rerank:cohere:MODEL`, `rerank:jina:MODEL` and `rerank:voyage:MODEL` share
the asking, the reading of the scores, and distrust of the answer.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.errors import ApiError, EmbedderError, MissingExtraError, ProviderError, TaskError, short
from adamab.providers.cache import Reply
from adamab.providers.embedders.api import ABOUT_CONTENT, SentImage, count, sendable, sent_image
from adamab.providers.embedders.local_models import check_name, find_model, quiet
from adamab.providers.embedders.sentence_transformers import open_model
from adamab.providers.generators.chat_protocol import (
    Dialect,
    LearnedDialect,
    digest,
    number_option,
    protocol_of,
)
from adamab.providers.http import ApiClient, BadAnswerError, Call, connection
from adamab.providers.metering import Usage, estimated_tokens
from adamab.task.images import Image

MAX_TOKENS = 512  # of an answer; a number needs few, and chatter is let in
PIXELS = 768 * 768  # of an image that is sent; a larger one is shrunk
_PER_MESSAGE = 64  # tokens that a chat template puts around a message and its image, generously
# The dearest way of counting an image that is known, gpt-4o-mini's: so many tokens, and so many a tile,
# after it was fitted into a square and scaled to a shorter side. Others count a few hundred.
_IMAGE, _TILE = 2833, 5667
_SQUARE, _SHORTER, _TILE_SIDE = 2048, 768, 512
_COUNTED_IN_TILES = "gpt-4o-mini"
_PIXELS_PER_TOKEN = 750  # about, of the other models
SCHEME = "cross-encoder"  # of a model of this machine
Query: TypeAlias = str | Image
Keep: TypeAlias = Callable[[Reply], None]
# Cohere bills searches, not tokens: one query with up to 100 documents. A search is entered in the book as
# a thousand tokens, so that a price in usd per million tokens is that of a thousand searches.
SEARCH = 1000
_DOCUMENTS_PER_SEARCH = 100
_CHUNK = 500  # tokens of query and document; a longer pair counts as several documents
MULTIMODAL = "-m0"  # how the name of Jina's model ends that takes images
_QUERY_PIXELS = 768 * 28 * 28  # that it looks at; a larger image is shrunk here, which saves the way
_PATCH = 28 * 28
_CONTEXT = 10_240  # tokens of a query with a document; how an image is billed is not documented


class ChatModel:
    """Questions and answers; the answer to a question is handed to `keep` before it is returned.

    Which optional parameters the server takes is learned from its errors.
    """

    def __init__(
        self,
        model: str,
        service: str = "openai",
        *,
        temperature: str | float = 0.0,
        max_tokens: str | int = MAX_TOKENS,
        pixels: str | int = PIXELS,
        **options: str | float | None,
    ) -> None:
        if not model.strip() or not model.isprintable() or "?" in model:
            raise ProviderError(f"chat: {short(model)} is no model's name; write chat:MODEL?option=value&…")
        place, limits = connection(service, options)
        self.model = model.strip()
        plain = service == "openai" and ":" not in self.model  # what is before a colon may be a service
        self.name = self.model if plain else f"{service}:{self.model}"
        self.api = ApiClient(place, self.model, limits)
        self._protocol = protocol_of(place)
        self.temperature = number_option("chat: option temperature", temperature, 0, 2)
        self.max_tokens = int(number_option("chat: option max_tokens", max_tokens, 1, 10**6))
        self.pixels = int(number_option("chat: option pixels", pixels, 1024, 10**8))
        parameters = {**place.dialect, "schema": False, "schema_count": False, "seed": False}
        self._spoken = LearnedDialect(Dialect(**parameters))

    @property
    def fingerprint(self) -> str:
        """What the answers depend on beside the question."""
        numbers = f"temperature={self.temperature:g}:max_tokens={self.max_tokens}:pixels={self.pixels}"
        service = self.api.service
        return f"chat:{service.name}:{self.model}{service.at}:{numbers}"

    def digest(self, prompt: str, image: Image | None = None) -> str:
        """The name of a question under which its answer is kept."""
        return digest(self.fingerprint, prompt, None if image is None else image.digest)

    def usage(self, prompt: str, image: Image | None = None) -> tuple[Usage, Usage]:
        """The tokens of a question.

        Args:
            prompt: the question.
            image: an image that it is about.

        Returns:
            What to expect, and the most that it may have.
        """
        sent = None if image is None else sent_image(image, self.pixels)
        expected = estimated_tokens(prompt)
        if sent is not None:
            known = self.model.startswith(_COUNTED_IN_TILES)
            expected += _tiled(sent) if known else -(-sent.pixels // _PIXELS_PER_TOKEN)
        return Usage(expected, 2), self._bound(prompt, sent)

    async def ask(self, prompt: str, image: Image | None = None, *, keep: Callable[[Reply], None]) -> Reply:
        """Ask one question.

        Args:
            prompt: the question.
            image: an image that it is about.
            keep: stores the answer before it is returned.

        Returns:
            The answer, marked as refused where the service declines to give one.
        """
        sent = None if image is None else sent_image(image, self.pixels)
        content: str | list[dict[str, Any]] = prompt
        if sent is not None:
            url = await asyncio.to_thread(sent.data_url)  # decoding takes a while; others may go on
            content = [
                {"type": "text", "text": prompt},
                {"type": "image_url", "image_url": {"url": url}},
            ]
        name, bound = self.digest(prompt, image), self._bound(prompt, sent)

        def send(body: dict[str, Any]) -> Awaitable[Any]:
            call = Call(self._protocol.path, body, bound, "classify", None, digest(name, sorted(body)))
            return self.api.post(
                call, usage=self._protocol.usage, keep=lambda answer: keep(self._protocol.reply(answer))
            )

        try:  # in whatever dialect the server turns out to speak
            answer = await self._spoken.ask(lambda dialect: self._body(content, dialect), send)
            return self._protocol.reply(answer)
        except ApiError as error:
            other = error.unsupported or error.too_large or error.refused
            if sent is not None and error.status in ABOUT_CONTENT and not other:
                raise ProviderError(f"{sent.name}: {error}; replace it or leave it out") from None
            if not error.refused:
                raise
        declined = Reply("", refused=True)
        keep(declined)
        return declined

    def _body(self, content: object, dialect: Dialect) -> dict[str, Any]:
        # One message of the user's: some models' chat templates know no system message.
        body: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": content}]}
        body["max_completion_tokens" if dialect.new_limit else "max_tokens"] = self.max_tokens
        if dialect.temperature:
            body["temperature"] = self.temperature
        return self._protocol.request(body)

    def _bound(self, prompt: str, sent: SentImage | None) -> Usage:
        # No tokenizer makes more tokens of a text than it has bytes.
        image_tokens = 0 if sent is None else _tiled(sent)
        text_tokens = len(prompt.encode("utf-8", "replace"))
        return Usage(text_tokens + _PER_MESSAGE + image_tokens, self.max_tokens)


def _tiled(sent: SentImage) -> int:
    longer, shorter = max(sent.width, sent.height), min(sent.width, sent.height)
    scale = min(_SHORTER / shorter, _SQUARE / longer)
    tiles = math.ceil(scale * longer / _TILE_SIDE) * math.ceil(scale * shorter / _TILE_SIDE)
    return _IMAGE + _TILE * tiles


class Reranker(ABC):
    """Scores of documents for one query. A service defines its requests and what they cost.

    Options are `batch` (documents per request) and those of the connection.
    """

    name: ClassVar[str]  # of the service
    path: ClassVar[str]
    results: ClassVar[str] = "results"  # the field of the answer that has the scores
    most_documents: ClassVar[int]
    added_tokens: ClassVar[int] = 0  # that a model may put around a pair; generous guesses
    pixels: ClassVar[int] = 0  # of an image that is sent; 0 where the service takes none

    def __init__(self, model: str, *, batch: str | int | None = None, **options: str | float | None) -> None:
        if not model.strip() or not model.isprintable() or "?" in model:
            raise ProviderError(
                f"{self.name}: {short(model)} is no model's name; write rerank:{self.name}:MODEL, "
                "and options after a question mark"
            )
        service, limits = connection(self.name, options)
        self.model = model.strip()
        self.api = ApiClient(service, self.model, limits)
        most = self.most_documents
        given = most if batch is None else batch
        self.batch = int(number_option(f"{self.name}: option batch", given, 1, most, whole=True))

    @property
    def fingerprint(self) -> str:
        """What the scores depend on beside query and documents."""
        service = self.api.service
        return f"rerank:{service.name}:{self.model}{service.at}"

    @property
    def takes_images(self) -> bool:
        """Whether a query may be an image."""
        return self.pixels > 0

    def digest(self, query: Query, documents: Sequence[str]) -> str:
        """The name of a question under which its answer is kept."""
        name = query if isinstance(query, str) else [query.digest]
        return digest(self.fingerprint, name, list(documents))

    def usage(self, query: Query, documents: Sequence[str]) -> tuple[Usage, Usage]:
        """The tokens to expect of a question, and the most that it may have."""
        sent = self._sent(query)
        tokens = estimated_tokens(sent) if isinstance(sent, str) else -(-sent.pixels // _PATCH)
        expected = self._billed(tokens, [estimated_tokens(text) for text in documents])
        return expected, self._bound(sent, documents)

    async def ask(self, query: Query, documents: Sequence[str], *, keep: Keep) -> Reply:
        """A score for each document, in their order; `scores_of` reads them from the reply.

        Args:
            query: the text or image that the documents are compared with.
            documents: at most `batch` texts.
            keep: stores the reply before this returns, since it is paid for.
        """
        sent = self._sent(query)
        documents = [sendable(document) for document in documents]
        if isinstance(sent, str):
            body = self._body(sent, documents)
        else:  # decoding takes a while, in which others may go on
            body = await asyncio.to_thread(self._body, sent, documents)
        call = Call(
            self.path,
            body,
            self._bound(sent, documents),
            "rerank",
            idempotency_key=self.digest(query, documents),  # the same after a crash
        )
        replies: list[Reply] = []

        def store(answer: Any) -> None:
            replies.append(Reply(json.dumps(self._read(answer, len(documents)))))
            keep(replies[-1])

        await self.api.post(call, usage=self._usage, keep=store)
        return replies[-1]

    @abstractmethod
    def _body(self, query: str | SentImage, documents: Sequence[str]) -> dict[str, Any]:
        """The request."""

    def _usage(self, answer: Any) -> Usage | None:
        """The tokens that the answer says were counted."""
        tokens = count(answer["usage"]["total_tokens"])
        return None if tokens is None else Usage(tokens)

    def _billed(self, query: int, documents: Sequence[int]) -> Usage:
        """What a request costs whose texts have so many tokens: the query counts once per document."""
        return Usage(sum(query + document for document in documents))

    def _bound(self, query: str | SentImage, documents: Sequence[str]) -> Usage:
        """More than a request can cost."""
        longest = _utf8(query) if isinstance(query, str) else _CONTEXT
        return self._billed(longest, [_utf8(text) + self.added_tokens for text in documents])

    def _sent(self, query: Query) -> str | SentImage:
        if isinstance(query, str):
            return sendable(query)
        if not self.takes_images:
            raise ProviderError(
                f"{self.name}: {short(self.model)} takes no images; use rerank:jina:jina-reranker-m0"
            )
        return sent_image(query, self.pixels)

    def _read(self, answer: Any, n_documents: int) -> list[float]:
        entries = answer[self.results]
        if len(entries) != n_documents:
            raise BadAnswerError(f"{len(entries)} scores for {n_documents} documents")
        scores = {entry["index"]: entry["relevance_score"] for entry in entries}
        if set(scores) != set(range(n_documents)) or any(isinstance(index, bool) for index in scores):
            raise BadAnswerError("scores whose numbers do not add up")
        ordered = [scores[index] for index in range(n_documents)]
        if any(isinstance(score, bool) or not math.isfinite(score) for score in ordered):
            raise BadAnswerError("a score that is not a finite number")
        return [float(score) for score in ordered]


class CohereReranker(Reranker):
    """Texts only. What is longer than the model reads is cut by the service."""

    name = "cohere"
    path = "/v2/rerank"
    most_documents = 1000  # more are advised against

    def _body(self, query: str | SentImage, documents: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "query": query, "documents": list(documents), "top_n": len(documents)}

    def _usage(self, answer: Any) -> Usage | None:
        searches = answer["meta"]["billed_units"]["search_units"]
        whole = int(searches) if isinstance(searches, float) and searches.is_integer() else searches
        return None if count(whole) is None else Usage(SEARCH * whole)

    def _billed(self, query: int, documents: Sequence[int]) -> Usage:
        chunks = sum(-(-(query + document) // _CHUNK) for document in documents)
        return Usage(SEARCH * -(-chunks // _DOCUMENTS_PER_SEARCH))


class JinaReranker(Reranker):
    """Texts and, by the model whose name says so, images. What is too long is cut by the service.

    The documentation calls an image that is the query "an image (URL or base64-encoded string)". It is
    sent as `{"image": base64}`, which cannot be mistaken for a text.
    """

    name = "jina"
    path = "/rerank"
    most_documents = 500  # no number is documented; a request that is too large is halved
    pixels = _QUERY_PIXELS
    added_tokens = 64

    @property
    def takes_images(self) -> bool:
        """Whether a query may be an image."""
        return self.model.endswith(MULTIMODAL)

    def _body(self, query: str | SentImage, documents: Sequence[str]) -> dict[str, Any]:
        image = "" if isinstance(query, str) else base64.b64encode(query.encoded()[1]).decode()
        # The multimodal model has to know what a document is.
        listed = [{"text": text} for text in documents] if self.takes_images else list(documents)
        return {
            "model": self.model,
            "query": {"image": image} if image else query,
            "documents": listed,
            "top_n": len(documents),
            "return_documents": False,
        }


class VoyageReranker(Reranker):
    """Texts only. The query is counted once per document. What is too long is cut by the service."""

    name = "voyage"
    path = "/rerank"
    results = "data"
    most_documents = 1000
    added_tokens = 16

    def _body(self, query: str | SentImage, documents: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "query": query, "documents": list(documents), "truncation": True}


def scores_of(reply: Reply) -> list[float]:
    """The scores that were kept."""
    return [float(score) for score in json.loads(reply.content)]


def joined(replies: Sequence[Reply]) -> Reply:
    """The scores of several questions as those of one."""
    return Reply(json.dumps([score for reply in replies for score in scores_of(reply)]))


def _utf8(text: str) -> int:
    """The bytes of a text, of which no tokenizer makes more tokens."""
    return len(text.encode("utf-8", "replace"))


class CrossEncoder:
    """A model of this machine that reads two texts together and scores how well they fit.

    It is by sentence-transformers; its weights are safetensors, and no code of a model's is run.

    Args:
        path_or_id: a directory, or an id that is on this machine or on the Hub.
        batch_size: pairs that go through it together.
        device: where torch runs it; "auto" is a graphics card if there is one.
    """

    def __init__(self, path_or_id: str, *, batch_size: int = 32, device: str = "auto") -> None:
        if batch_size < 1:
            raise TaskError(f"{SCHEME}: batch_size is {batch_size}; use 1 or more")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingExtraError("sentence-transformers", "st")
        check_name(path_or_id, scheme=SCHEME)
        self.path_or_id, self.batch_size, self.device = path_or_id, batch_size, device
        self._model: Any = None

    def __str__(self) -> str:
        return f"{SCHEME}:{self.path_or_id}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process loads the model itself.
        return {**self.__dict__, "_model": None}

    @property
    def fingerprint(self) -> str:
        """The model's files, or the revision of an id that is on this machine."""
        if Path(self.path_or_id).expanduser().is_dir():
            return find_model(self.path_or_id, scheme=SCHEME).identity
        hub: Any = import_module("huggingface_hub")  # comes with sentence-transformers
        config = hub.try_to_load_from_cache(self.path_or_id, "config.json")
        return f"{self.path_or_id}@{Path(config).parent.name if isinstance(config, str) else 'none'}"

    @property
    def n_parameters(self) -> int:
        """The model's own numbers."""
        return sum(numbers.numel() for numbers in self._loaded().model.parameters())

    def scores(self, pairs: list[tuple[str, str]]) -> NDArray[np.float64]:
        """(n,) logits: squashed to probabilities, many would be equal where the model is sure."""
        import torch

        model = self._loaded()
        with quiet():
            scores = model.predict(
                pairs,
                batch_size=self.batch_size,
                show_progress_bar=False,
                activation_fn=torch.nn.Identity(),
            )
        if not np.isfinite(scores).all():
            raise EmbedderError(f"{self}: a score is not finite; the model is damaged")
        return np.asarray(scores, dtype=np.float64)

    def _loaded(self) -> Any:
        if self._model is None:
            files = find_model(self.path_or_id, scheme=SCHEME)
            files.check()
            model = open_model("CrossEncoder", files, self.device, str(self))
            if model.num_labels != 1:
                raise EmbedderError(
                    f"{self}: gives {model.num_labels} scores per pair, so it is no reranker; use a model "
                    "with one"
                )
            model.eval()
            self._model = model
        return self._model
