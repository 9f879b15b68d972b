"""A chat model at OpenAI or any server that speaks its protocol, one question at a time.

A question may come with an image. It leaves the machine re-encoded, without anything but its pixels.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from adamab.errors import ApiError, ProviderError, short
from adamab.providers.cache import Reply
from adamab.providers.embedders.api import ABOUT_CONTENT, SentImage, sent_image
from adamab.providers.generators.chat_protocol import (
    Dialect,
    LearnedDialect,
    digest,
    number_option,
    reply_of,
    usage_of,
)
from adamab.providers.http import ApiClient, Call, connection
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


class ChatModel:
    """Questions and answers; the answer to a question is handed to `keep` before it is returned.

    Which optional parameters the server takes is learned from its errors.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        temperature: str | float = 0.0,
        max_tokens: str | int = MAX_TOKENS,
        pixels: str | int = PIXELS,
        **limits: str | float | None,
    ) -> None:
        if not model.strip() or not model.isprintable() or "?" in model:
            raise ProviderError(f"chat: {short(model)} is no model's name; write chat:MODEL?option=value&…")
        service, pace = connection("openai", {"base_url": base_url, "key_env": key_env, **limits})
        self.model = model.strip()
        self.api = ApiClient(service, self.model, pace)
        self.temperature = number_option("chat: option temperature", temperature, 0, 2)
        self.max_tokens = int(number_option("chat: option max_tokens", max_tokens, 1, 10**6))
        self.pixels = int(number_option("chat: option pixels", pixels, 1024, 10**8))
        self._spoken = LearnedDialect(Dialect(schema=False, new_limit=service.needs_key, seed=False))

    @property
    def fingerprint(self) -> str:
        """What the answers depend on beside the question."""
        service = self.api.service
        place = "" if service.needs_key else f"@{service.place}"
        numbers = f"temperature={self.temperature:g}:max_tokens={self.max_tokens}:pixels={self.pixels}"
        return f"chat:{self.model}{place}:{numbers}"

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
            call = Call("/chat/completions", body, bound, "classify", None, digest(name, sorted(body)))
            return self.api.post(call, usage=usage_of, keep=lambda answer: keep(reply_of(answer)))

        try:  # in whatever dialect the server turns out to speak
            return reply_of(await self._spoken.ask(lambda dialect: self._body(content, dialect), send))
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
        return body

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
