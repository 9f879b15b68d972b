"""What rerankers behind an API share: asking, reading the scores, and distrust of the answer."""

from __future__ import annotations

import asyncio
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from adamab.errors import ProviderError
from adamab.providers.embedders.sent_pictures import SentPicture, sent_picture
from adamab.providers.generators.chat_protocol import digest
from adamab.providers.http import ApiClient, BadAnswerError, Call, connection
from adamab.providers.replies import Reply
from adamab.providers.usage import Usage
from adamab.task.images import Image
from adamab.task.messages import short

Query: TypeAlias = str | Image
Keep: TypeAlias = Callable[[Reply], None]
_NOTHING = "."  # services refuse empty texts


class Reranker(ABC):
    """Scores of documents for one query. A service says how it is asked and how it counts.

    Options are `batch` (documents a request) and those of the connection.
    """

    name: ClassVar[str]  # of the service
    path: ClassVar[str]
    most_documents: ClassVar[int]
    pixels: ClassVar[int] = 0  # of a picture that is sent; 0 where the service takes none

    def __init__(self, model: str, *, batch: str | int | None = None, **options: str | float | None) -> None:
        if not model.strip() or not model.isprintable() or "?" in model:
            raise ProviderError(
                f"{self.name}: {short(model)} is no model's name; write rerank:{self.name}:MODEL, "
                "and options after a question mark"
            )
        service, limits = connection(self.name, options)
        self.model = model.strip()
        self.api = ApiClient(service, self.model, limits)
        self.batch = self.most_documents if batch is None else _batch(self.name, batch, self.most_documents)

    @property
    def fingerprint(self) -> str:
        """What the scores depend on beside query and documents."""
        service = self.api.service
        place = "" if service.needs_key else f"@{service.place}"
        return f"rerank:{service.name}:{self.model}{place}"

    @property
    def takes_images(self) -> bool:
        """Whether a query may be a picture."""
        return self.pixels > 0

    def digest(self, query: Query, documents: Sequence[str]) -> str:
        """The name of a question under which its answer is kept."""
        asked = query if isinstance(query, str) else [query.digest]
        return digest(self.fingerprint, asked, list(documents))

    def usage(self, query: Query, documents: Sequence[str]) -> tuple[Usage, Usage]:
        """The tokens to expect of a question, and the most that it may have."""
        sent = self._sent(query)
        return self._expected(sent, documents), self._bound(sent, documents)

    async def ask(self, query: Query, documents: Sequence[str], *, keep: Keep) -> Reply:
        """A score for each document, in their order; `scores_of` reads them from the reply."""
        sent = self._sent(query)
        documents = [_sendable(document) for document in documents]
        if isinstance(sent, str):
            body = self._body(sent, documents)
        else:  # decoding takes a while, in which others may go on
            body = await asyncio.to_thread(self._body, sent, documents)
        call = Call(
            self.path,
            body,
            self._bound(sent, documents),
            "rerank",
            idempotency_key=self.digest(query, documents),  # the same asked again after a crash
        )
        found: list[Reply] = []

        def store(answer: Any) -> None:
            found.append(Reply(json.dumps(self._read(answer, len(documents)))))
            keep(found[-1])

        await self.api.post(call, usage=self._usage, keep=store)
        return found[-1]

    @abstractmethod
    def _body(self, query: str | SentPicture, documents: Sequence[str]) -> dict[str, Any]:
        """The request."""

    @abstractmethod
    def _results(self, answer: Any) -> Sequence[Mapping[str, Any]]:
        """The entries of the answer."""

    @abstractmethod
    def _usage(self, answer: Any) -> Usage | None:
        """The tokens that the answer says were counted."""

    @abstractmethod
    def _expected(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        """The tokens that a request will probably have."""

    @abstractmethod
    def _bound(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        """More tokens than a request can have."""

    def _sent(self, query: Query) -> str | SentPicture:
        if isinstance(query, str):
            return _sendable(query)
        if not self.takes_images:
            raise ProviderError(
                f"{self.name}: {short(self.model)} takes no pictures; use rerank:jina:jina-reranker-m0"
            )
        return sent_picture(query, self.pixels)

    def _read(self, answer: Any, count: int) -> list[float]:
        entries = self._results(answer)
        if len(entries) != count:
            raise BadAnswerError(f"{len(entries)} scores for {count} documents")
        scores = {entry["index"]: entry["relevance_score"] for entry in entries}
        if set(scores) != set(range(count)) or any(isinstance(index, bool) for index in scores):
            raise BadAnswerError("scores whose numbers do not add up")
        ordered = [scores[index] for index in range(count)]
        if not all(_is_finite(score) for score in ordered):
            raise BadAnswerError("a score that is not a finite number")
        return [float(score) for score in ordered]


def scores_of(reply: Reply) -> list[float]:
    """The scores that were kept."""
    return [float(score) for score in json.loads(reply.content)]


def joined(replies: Sequence[Reply]) -> Reply:
    """The scores of several questions as those of one."""
    return Reply(json.dumps([score for reply in replies for score in scores_of(reply)]))


def utf8(text: str) -> int:
    """The bytes of a text, of which no tokenizer makes more tokens."""
    return len(text.encode("utf-8", "replace"))


def _is_finite(score: object) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)


def _sendable(text: str) -> str:
    if not text.strip():
        return _NOTHING
    return text.encode("utf-8", "replace").decode()  # half a character cannot be sent


def _batch(name: str, given: str | int, most: int) -> int:
    try:
        number = int(given)
    except ValueError:
        number = 0
    if not 1 <= number <= most:
        raise ProviderError(f"{name}: option batch={short(given)}: give a whole number from 1 to {most}")
    return number
