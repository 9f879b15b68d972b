"""`cohere:MODEL`: Cohere's text embeddings, version 2 of its API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adamab.providers.embedders.api import ApiEmbedder, Room, count
from adamab.providers.embedders.base import Kind
from adamab.providers.usage import Usage

# Cohere has a type `classification` as well, for vectors that are fed to a classifier. Here texts are
# also compared with the wordings of classes, which needs two types that are trained to meet.
_INPUT_TYPES = {"query": "search_query", "class": "search_document"}


class CohereEmbedder(ApiEmbedder):
    """Texts as search queries, classes as search documents.

    The service is told not to cut long texts by itself: they are cut here, where it can be told.
    """

    name = "cohere"
    path = "/v2/embed"
    # The tokens a text are those of the models before embed-v4.0, which takes more: a text that may
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
