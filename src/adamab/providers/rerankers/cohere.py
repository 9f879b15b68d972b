"""`rerank:cohere:MODEL`: Cohere's rerankers, version 2 of its API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adamab.providers.embedders.api import count
from adamab.providers.embedders.sent_pictures import SentPicture
from adamab.providers.rerankers.base import Reranker, utf8
from adamab.providers.usage import Usage, estimated_tokens

# Cohere bills searches, not tokens: one query with up to 100 documents. A search is entered in the book as
# a thousand tokens, so that a price in usd a million tokens is that of a thousand searches.
SEARCH = 1000
_DOCUMENTS_A_SEARCH = 100
_CHUNK = 500  # tokens of query and document; a longer pair counts as several documents


class CohereReranker(Reranker):
    """Texts only. What is longer than the model reads is cut by the service."""

    name = "cohere"
    path = "/v2/rerank"
    most_documents = 1000  # more are advised against

    def _body(self, query: str | SentPicture, documents: Sequence[str]) -> dict[str, Any]:
        return {"model": self.model, "query": query, "documents": list(documents), "top_n": len(documents)}

    def _results(self, answer: Any) -> Sequence[Mapping[str, Any]]:
        results: Sequence[Mapping[str, Any]] = answer["results"]
        return results

    def _usage(self, answer: Any) -> Usage | None:
        searches = answer["meta"]["billed_units"]["search_units"]
        whole = int(searches) if isinstance(searches, float) and searches.is_integer() else searches
        return None if count(whole) is None else Usage(SEARCH * whole)

    def _expected(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        return _searches(estimated_tokens(str(query)), [estimated_tokens(text) for text in documents])

    def _bound(self, query: str | SentPicture, documents: Sequence[str]) -> Usage:
        return _searches(utf8(str(query)), [utf8(text) for text in documents])


def _searches(query: int, documents: Sequence[int]) -> Usage:
    chunks = sum(-(-(query + document) // _CHUNK) for document in documents)
    return Usage(SEARCH * -(-chunks // _DOCUMENTS_A_SEARCH))
