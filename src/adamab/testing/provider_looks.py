"""Pictures that a chat model or a reranker is shown: how they are sent, counted, and put into words."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from adamab.testing.provider_errors import Refused
from adamab.testing.provider_pictures import mean_colour, size_of

_DATA_URL = re.compile(r"data:image/(png|jpeg|webp|gif);base64,")
_MOST_BYTES = 20 * 2**20
_COLOURS = {
    "red": (200, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 60, 200),
    "yellow": (220, 200, 40),
    "grey": (120, 120, 120),
    "white": (240, 240, 240),
    "black": (15, 15, 15),
}


def chat_pictures(body: dict[str, Any]) -> list[bytes]:
    """The pictures in the messages; raises `Refused` where a part is neither text nor a good picture."""
    return [_from_part(part) for part in _parts(body) if part.get("type") != "text"]


def base64_picture(letters: Any) -> bytes:
    """A picture in base64, bare or as a data URL; raises `Refused`."""
    text = letters if isinstance(letters, str) else ""
    head = _DATA_URL.match(text)
    try:
        data = base64.b64decode(text[head.end() if head else 0 :], validate=True)
    except (ValueError, binascii.Error):
        raise Refused(400, "The image is not valid base64.", code="invalid_base64") from None
    if len(data) > _MOST_BYTES:
        raise Refused(400, f"The image is too large: {len(data)} bytes, at most {_MOST_BYTES} are allowed.")
    if size_of(data) is None:
        raise Refused(400, "You uploaded an unsupported image.", code="invalid_image_format")
    return data


def in_words(data: bytes) -> str:
    """What a model sees in a picture: the name of its colour."""
    colour = mean_colour(data)
    if colour is None:
        return ""
    return min(
        _COLOURS, key=lambda name: sum((a - b) ** 2 for a, b in zip(_COLOURS[name], colour, strict=True))
    )


def picture_tokens(data: bytes) -> int:
    """As many as gpt-4o-mini counts: for a picture, and for each of its tiles."""
    width, height = size_of(data) or (1, 1)
    scale = min(768 / min(width, height), 2048 / max(width, height), 1.0)
    tiles = (-(-int(scale * side) // 512) or 1 for side in (width, height))
    wide, high = tiles
    return 2833 + 5667 * wide * high


def pictures_shown(body: Any) -> int:
    """How many pictures a chat or rerank request carries."""
    query = body.get("query") if isinstance(body, dict) else None
    asked = isinstance(query, dict) and "image" in query
    return int(asked) + sum(1 for part in _parts(body) if part.get("type") == "image_url")


def without_shown(body: Any) -> Any:
    """The request with each picture's digest in its place: a server that runs for long has no room."""
    if not pictures_shown(body):
        return body
    if isinstance(body.get("query"), dict):
        return {**body, "query": {"image": _name(body["query"]["image"])}}
    return {**body, "messages": [_slim(message) for message in body["messages"]]}


def _slim(message: Any) -> Any:
    parts = message.get("content") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        return message
    return {**message, "content": [_slim_part(part) for part in parts]}


def _slim_part(part: Any) -> Any:
    shown = part.get("image_url") if isinstance(part, dict) else None
    return {**part, "image_url": {"url": _name(shown.get("url"))}} if isinstance(shown, dict) else part


def _name(letters: Any) -> str:
    return f"sha256:{hashlib.sha256(str(letters).encode()).hexdigest()}"


def _parts(body: Any) -> Iterator[dict[str, Any]]:
    messages = body.get("messages") if isinstance(body, dict) else None
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        yield from (part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict))


def _from_part(part: dict[str, Any]) -> bytes:
    shown = part.get("image_url") if part.get("type") == "image_url" else None
    url = shown.get("url") if isinstance(shown, dict) else None
    if not isinstance(url, str):
        raise Refused(400, "Invalid value: a part is 'text' or 'image_url' with a 'url'.", param="messages")
    if not _DATA_URL.match(url):
        raise Refused(400, "This server fetches no pictures; send a data URL.", code="invalid_image_url")
    return base64_picture(url)
