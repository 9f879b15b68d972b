"""What goes over the wire to an OpenAI-compatible image server, and how its answers are read."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from adamab.providers.http import BadAnswerError
from adamab.providers.replies import Reply
from adamab.providers.usage import Usage
from adamab.task.images import is_reference

MOST_PICTURES = 10  # that one request may ask for
OMITTED = "none"  # as a size or a quality: left to the server
_QUALITIES = ("low", "medium", "high")
# Tokens of one picture by quality. OpenAI documents those of gpt-image-1; those of gpt-image-1-mini follow
# from what it documents a picture to cost, rounded up.
_TOKENS = {
    "1024x1024": (272, 1056, 4160),
    "1024x1536": (408, 1584, 6240),
    "1536x1024": (400, 1568, 6208),
}
_MINI_TOKENS = {
    "1024x1024": (688, 1438, 4563),
    "1024x1536": (813, 1938, 6563),
    "1536x1024": (813, 1938, 6563),
}
_KNOWN_TOKENS = {"gpt-image-1": _TOKENS, "gpt-image-1-mini": _MINI_TOKENS}
_UNKNOWN = 2  # times the tokens of those, for models of which nothing is known
_LARGEST = 1536 * 1024  # pixels of the sizes above
_AROUND = 64  # input tokens around a prompt, generously


@dataclass(frozen=True)
class Dialect:
    """What a server takes; learned from its errors, kept for the session."""

    response_format: bool = True  # OpenAI's new models refuse it and send pictures anyway; others need it
    quality: bool = True
    size: bool = True
    count: bool = True  # the parameter `n`
    most: int = MOST_PICTURES  # pictures a request

    @classmethod
    def of(cls, model: str) -> Dialect:
        """What is documented of a model; a server with names of its own may have it behind a prefix."""
        name = model.rpartition("/")[2]
        if name.startswith(("gpt-image", "chatgpt-image")):
            return cls(response_format=False)
        if name == "dall-e-3":
            return cls(quality=False, most=1)
        return cls(quality=name != "dall-e-2")

    def others(self) -> Iterator[Dialect]:
        """What to try after an error that does not say which parameter is unknown, most likely first."""
        starts = (self, replace(self, response_format=not self.response_format))
        tried = [
            starts[1],
            *(replace(start, quality=False) for start in starts),
            *(replace(start, size=False) for start in starts),
            *(replace(start, quality=False, size=False) for start in starts),
            *(replace(start, quality=False, size=False, count=False, most=1) for start in starts),
        ]
        yield from (dialect for dialect in dict.fromkeys(tried) if dialect != self)

    def asked(self, missing: int) -> int:
        """How many pictures a request asks for."""
        return min(missing, self.most)


@dataclass(frozen=True)
class Question:
    """What is asked of a model, whatever dialect it speaks."""

    model: str
    prompt: str
    size: str
    quality: str

    def body(self, dialect: Dialect, count: int) -> dict[str, Any]:
        """The request for `count` pictures."""
        body: dict[str, Any] = {"model": self.model, "prompt": self.prompt}
        if dialect.count:
            body["n"] = count
        if dialect.size and self.size != OMITTED:
            body["size"] = self.size
        if dialect.quality and self.quality != OMITTED:
            body["quality"] = self.quality
        if dialect.response_format:
            body["response_format"] = "b64_json"
        return body


def bound_of(body: Mapping[str, Any], count: int) -> Usage:
    """The most that a request for `count` pictures may use.

    A token of a byte-level tokenizer covers at least one byte, so the bytes are a strict upper bound. A
    size or a quality that is left to the server counts as the largest.
    """
    made = picture_tokens(body["model"], body.get("size", "auto"), body.get("quality", "auto"))
    if body["model"] not in _KNOWN_TOKENS:
        made *= _UNKNOWN
    return Usage(len(_utf8(body["prompt"])) + _AROUND, count * made, count)


def picture_tokens(model: str, size: str, quality: str) -> int:
    """The tokens of one picture, by what is known of OpenAI's models.

    Example:
        >>> picture_tokens("gpt-image-1", "1024x1024", "low"), picture_tokens("gpt-image-1", "auto", "auto")
        (272, 6240)
    """
    known = _KNOWN_TOKENS.get(model, _TOKENS)
    column = _QUALITIES.index(quality) if quality in _QUALITIES else len(_QUALITIES) - 1
    if size in known:
        return known[size][column]
    width, _, height = size.partition("x")
    pixels = int(width) * int(height) if width.isdecimal() and height.isdecimal() else 0
    return math.ceil(max(row[column] for row in known.values()) * max(1.0, pixels / _LARGEST))


def usage_of(answer: Any, asked_for: int) -> Usage | None:
    """The tokens that the server counted; None where it does not say.

    Pictures that were asked for and did not come count as made: some services may bill them.
    """
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return None
    asked, made = usage.get("input_tokens"), usage.get("output_tokens")
    # No picture is made of no tokens: a server that says so does not count them.
    if not (_is_count(asked) and _is_count(made) and made):
        return None
    return Usage(asked, made, max(asked_for, len(answer["data"])))


def pictures_of(answer: Any) -> tuple[list[bytes | None], bool]:
    """What an answer holds in place of each picture, None where that is no base64; and whether all are URLs.

    Raises `BadAnswerError` if it is no answer of an image server.
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
        raise BadAnswerError("an answer without pictures")
    entries = [entry if isinstance(entry, dict) else {} for entry in answer["data"]]
    written = [_written(entry) for entry in entries]
    urls = [isinstance(entry.get("url"), str) for entry in entries]
    only_urls = bool(entries) and all(u and w is None for u, w in zip(urls, written, strict=True))
    return [None if text is None else _bytes(text) for text in written], only_urls


@dataclass(frozen=True)
class Made:
    """What an answer gave: references of pictures that were stored, and why others were not."""

    asked: int  # pictures
    images: tuple[str, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)

    def reply(self) -> Reply:
        """As it is kept: it names the pictures, which lie elsewhere."""
        values = {"images": self.images, "asked": self.asked, "rejected": dict(self.rejected)}
        return Reply(json.dumps(values))

    @classmethod
    def read(cls, reply: Reply) -> Made | None:
        """Take back what `reply` gave; None where it is something else."""
        try:
            values = json.loads(reply.content)
            images, asked, rejected = values["images"], values["asked"], values["rejected"]
            counts = [asked, *rejected.values()]
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
        fine = isinstance(images, list) and all(isinstance(i, str) and is_reference(i) for i in images)
        return cls(asked, tuple(images), rejected) if fine and all(map(_is_count, counts)) else None


def _written(entry: Mapping[str, Any]) -> str | None:
    """The base64 of a picture; some servers write it as a URL that holds the data."""
    for value in (entry.get("b64_json"), entry.get("url")):
        if isinstance(value, str) and (value.startswith("data:") or value is entry.get("b64_json")):
            return value.partition(",")[2] if value.startswith("data:") else value
    return None


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
