"""`rerank:voyage:MODEL`: Voyage AI's rerankers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adamab.providers.embedders.api import count
from adamab.providers.embedders.sent_pictures import SentPicture
from adamab.providers.rerankers.base import Reranker, utf8
from adamab.providers.usage import Usage, estimated_tokens

_ADDED = 16  # tokens a document that a model may put around a pair; a generous guess


class VoyageReranker(Reranker):
    """Texts only. The query is counted once a document. What is too long is cut by the service."""

    name = "voyage"
    path = "/rerank"
    most_documents = 1000

    def _body(self, query: str | SentPicture, documents: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "query": query, "documents": list(documents), "truncation": True}

    def _results(self, answer: Any) -> Sequence[Mapping[str, Any]]:
        results: Sequence[Mapping[str, Any]] = answer["data"]
        return results

    def _usage(self, answer: Any) -> Usage | None:
        tokens = count(answer["usage"]["total_tokens"])
        return None if tokens is None else Usage(tokens)

    def _expected(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        return Usage(sum(estimated_tokens(text) + estimated_tokens(str(query)) for text in documents))

    def _bound(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        return Usage(sum(utf8(text) + utf8(str(query)) + _ADDED for text in documents))
