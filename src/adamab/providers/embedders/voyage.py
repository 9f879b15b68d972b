"""`voyage:MODEL`: Voyage AI's embeddings of texts and, by its multimodal models, of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adamab.providers.embedders.api import ApiEmbedder, Room, Sent, count, indexed
from adamab.providers.embedders.base import Kind
from adamab.providers.usage import Usage

# Texts are matched with the wordings of classes, as questions are with the documents that answer
# them, which is what Voyage's two input types are trained for.
_INPUT_TYPES = {"query": "query", "class": "document"}
# Multimodal models were made for search in which a text finds pages and photographs. So here it is the
# other way round: the wording of a class is what searches, and a picture what is found.
_MULTIMODAL_TYPES = {"query": "document", "class": "query"}
# The service shrinks a picture of more than 2 000 000 pixels to that, and bills one of less than 50 000 as
# of that many. It is shrunk here instead, which saves the way. The bytes bound the memory, not the service.
_MULTIMODAL_ROOM = Room(
    items=1000,
    tokens=320_000,
    text_tokens=32_000,
    bytes=2_000_000,
    pixels=2_000_000,
    pixels_a_token=560,
    least_pixels=50_000,
)


class VoyageEmbedder(ApiEmbedder):
    """Texts as queries, classes as documents; with a multimodal model the other way round.

    A model is multimodal if its name says so. The service is told not to cut long texts by itself: they
    are cut here, where it can be told.
    """

    name = "voyage"
    path = "/embeddings"
    # The tokens a request differ by model, from 120 000 to 1 000 000; the least suits all of them.
    room = Room(items=1000, tokens=120_000, text_tokens=32_000)
    added_tokens = 32  # an input type puts a sentence before each text; a generous guess

    def __init__(
        self,
        model: str,
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
        super().__init__(model, dimensions=dimensions, batch=batch, **options)

    def _body(self, sent: Sequence[Sent], kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model}
        if self.multimodal:
            body["inputs"] = [{"content": [_piece(one)]} for one in sent]
            body["input_type"] = _MULTIMODAL_TYPES[kind]
        else:
            body["input"] = list(sent)
            body["input_type"] = _INPUT_TYPES[kind]
        body["truncation"] = False
        body["output_encoding" if self.multimodal else "encoding_format"] = "base64"
        if self.dimensions is not None:
            body["output_dimension"] = self.dimensions
        return body

    def _vectors(self, answer: Any) -> Sequence[Any]:
        return indexed(answer["data"])

    def _usage(self, answer: Any) -> Usage | None:
        tokens = count(answer["usage"]["total_tokens"])
        return None if tokens is None else Usage(tokens)


def _piece(one: Sent) -> dict[str, str]:
    if isinstance(one, str):
        return {"type": "text", "text": one}
    return {"type": "image_base64", "image_base64": one.data_url()}
