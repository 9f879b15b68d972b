"""`voyage:MODEL`: Voyage AI's text embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adamab.providers.embedders.api import ApiEmbedder, Room, count, indexed
from adamab.providers.embedders.base import Kind
from adamab.providers.usage import Usage

# Texts are matched with the wordings of classes, as questions are with the documents that answer
# them, which is what Voyage's two input types are trained for.
_INPUT_TYPES = {"query": "query", "class": "document"}


class VoyageEmbedder(ApiEmbedder):
    """Texts as queries, classes as documents.

    The service is told not to cut long texts by itself: they are cut here, where it can be told.
    """

    name = "voyage"
    path = "/embeddings"
    # The tokens a request differ by model, from 120 000 to 1 000 000; the least suits all of them.
    room = Room(items=1000, tokens=120_000, text_tokens=32_000)
    added_tokens = 32  # an input type puts a sentence before each text; a generous guess

    def _body(self, texts: Sequence[str], kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "input": list(texts),
            "input_type": _INPUT_TYPES[kind],
            "truncation": False,
            "encoding_format": "base64",
        }
        if self.dimensions is not None:
            body["output_dimension"] = self.dimensions
        return body

    def _vectors(self, answer: Any) -> Sequence[Any]:
        return indexed(answer["data"])

    def _usage(self, answer: Any) -> Usage | None:
        tokens = count(answer["usage"]["total_tokens"])
        return None if tokens is None else Usage(tokens)
