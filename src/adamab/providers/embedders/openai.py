"""`openai:MODEL`: OpenAI's embeddings, and every server that speaks its protocol through `base_url`.

vLLM, Ollama, LM Studio, llama.cpp, text-embeddings-inference, Mistral and Gemini's compatible endpoint do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adamab.providers.embedders.api import ApiEmbedder, Room, count, indexed
from adamab.providers.embedders.base import Kind
from adamab.providers.usage import Usage


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

    def _vectors(self, answer: Any) -> Sequence[Any]:
        return indexed(answer["data"])

    def _usage(self, answer: Any) -> Usage | None:
        tokens = count(answer["usage"].get("prompt_tokens", answer["usage"].get("total_tokens")))
        return None if tokens is None else Usage(tokens)

    def _without(self, body: Mapping[str, Any]) -> bool:
        self._packed = False
        return "encoding_format" in body
