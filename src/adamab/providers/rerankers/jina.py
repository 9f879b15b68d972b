"""`rerank:jina:MODEL`: Jina AI's rerankers; `jina-reranker-m0` takes pictures as queries."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from adamab.errors import ProviderError
from adamab.providers.embedders.api import count
from adamab.providers.embedders.sent_pictures import SentPicture
from adamab.providers.rerankers.base import Reranker, utf8
from adamab.providers.usage import Usage, estimated_tokens
from adamab.task.messages import short

MULTIMODAL = "-m0"
_PIXELS = 768 * 28 * 28  # that the model looks at; a larger picture is shrunk here, which saves the way
_PIXELS_A_TOKEN = 28 * 28
_CONTEXT = 10_240  # tokens of a query with a document; how a picture is billed is not documented
_ADDED = 64  # tokens a document that a model may put around a pair; a generous guess


class JinaReranker(Reranker):
    """Texts and, by the model whose name says so, pictures. What is too long is cut by the service.

    The documentation calls a picture that is the query "an image (URL or base64-encoded string)". It is
    sent as `{"image": base64}`, which cannot be mistaken for a text; `image_as="string"` sends it bare.
    """

    name = "jina"
    path = "/rerank"
    most_documents = 500  # no number is documented; a request that is too large is halved
    pixels = _PIXELS

    def __init__(
        self,
        model: str,
        *,
        batch: str | int | None = None,
        image_as: str = "object",
        **options: str | float | None,
    ) -> None:
        super().__init__(model, batch=batch, **options)
        if image_as not in ("object", "string"):
            raise ProviderError(f"jina: option image_as={short(image_as)}: write object or string")
        self.image_as = image_as

    @property
    def fingerprint(self) -> str:
        """What the scores depend on beside query and documents."""
        return super().fingerprint + ("" if self.image_as == "object" else f":{self.image_as}")

    @property
    def takes_images(self) -> bool:
        """Whether a query may be a picture."""
        return self.model.endswith(MULTIMODAL)

    def _body(self, query: str | SentPicture, documents: Sequence[str]) -> dict[str, Any]:
        # The multimodal model wants to be told what a document is.
        listed = [{"text": text} for text in documents] if self.takes_images else list(documents)
        return {
            "model": self.model,
            "query": query if isinstance(query, str) else self._picture(query),
            "documents": listed,
            "top_n": len(documents),
            "return_documents": False,
        }

    def _results(self, answer: Any) -> Sequence[Mapping[str, Any]]:
        results: Sequence[Mapping[str, Any]] = answer["results"]
        return results

    def _usage(self, answer: Any) -> Usage | None:
        tokens = count(answer["usage"]["total_tokens"])
        return None if tokens is None else Usage(tokens)

    def _expected(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        asked = estimated_tokens(query) if isinstance(query, str) else -(-query.pixels // _PIXELS_A_TOKEN)
        return Usage(sum(asked + estimated_tokens(text) for text in documents))

    def _bound(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        asked = utf8(query) if isinstance(query, str) else _CONTEXT
        return Usage(sum(asked + utf8(text) + _ADDED for text in documents))

    def _picture(self, picture: SentPicture) -> str | dict[str, str]:
        letters = base64.b64encode(picture.encoded()[1]).decode()
        return {"image": letters} if self.image_as == "object" else letters
