"""The multimodal endpoint of Voyage: texts and pictures in one space."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from adamab.testing.provider_embeddings import indexed, listed, width_of, with_faults
from adamab.testing.provider_errors import Refused, check_known, checked_model
from adamab.testing.provider_faults import Fault, charged
from adamab.testing.provider_model import Options, direction, tokens, unit, vector
from adamab.testing.provider_pictures import mean_colour, size_of

PIXELS_A_TOKEN = 560
_KNOWN = "model inputs input_type truncation output_encoding output_dimension"
_MOST_INPUTS, _MOST_BYTES, _MOST_PIXELS = 1000, 20 * 2**20, 16_000_000
_INPUT_TOKENS, _BATCH_TOKENS = 32_000, 320_000
_BILLED = (50_000, 2_000_000)  # a smaller picture is billed as one of the first, a larger as of the second
_OWN = 0.5  # how much of a picture's vector is its own, beside what it shares with those of its colour
_DATA_URL = re.compile(r"data:image/(png|jpeg|webp|gif);base64,")


def voyage_multimodal(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /voyage/v1/multimodalembeddings."""
    check_known(body, _KNOWN.split(), "Argument '{}' is not supported by our API")
    model = checked_model(body)
    kind = body.get("input_type")
    if kind not in (None, "query", "document"):
        raise Refused(400, f"Value '{kind}' provided for argument 'input_type' is not supported.")
    read = [_read(content, body) for content in _contents(body)]
    _check_tokens([_tokens(parts) for parts in read], model)
    width = width_of(body, "output_dimension", options)
    rows = with_faults([_vector(parts, width, kind or "") for parts in read], width, fault)
    encoding = body.get("output_encoding")
    if encoding not in (None, "base64"):
        raise Refused(400, f"Value '{encoding}' provided for argument 'output_encoding' is not supported.")
    return listed(indexed(rows, encoding, fault), model, _usage(read, fault))


def pictures_sent(body: Any) -> int:
    """How many pictures a request carries."""
    return sum(1 for part in _parts(body) if "image_base64" in part)


def without_pictures(body: Any) -> Any:
    """The request with each picture's digest in its place: a server that runs for long has no room."""
    if not pictures_sent(body):
        return body
    return {
        **body,
        "inputs": [{"content": [_slim(part) for part in _list(entry)]} for entry in body["inputs"]],
    }


def _slim(part: Any) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("image_base64"), str):
        return part
    return {**part, "image_base64": f"sha256:{hashlib.sha256(part['image_base64'].encode()).hexdigest()}"}


def _list(entry: Any) -> list[Any]:
    content = entry.get("content") if isinstance(entry, dict) else None
    return content if isinstance(content, list) else []


def _parts(body: Any) -> Iterator[dict[str, Any]]:
    inputs = body.get("inputs") if isinstance(body, dict) else None
    for entry in inputs if isinstance(inputs, list) else ():
        yield from (part for part in _list(entry) if isinstance(part, dict))


def _contents(body: dict[str, Any]) -> list[list[Any]]:
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or not inputs or not all(_list(entry) for entry in inputs):
        raise Refused(400, "Argument 'inputs' is invalid: a list of objects with a list 'content' is needed.")
    if len(inputs) > _MOST_INPUTS:
        raise Refused(400, f"The batch size limit is {_MOST_INPUTS}. Your batch size is {len(inputs)}.")
    return [_list(entry) for entry in inputs]


def _read(content: list[Any], body: dict[str, Any]) -> list[str | bytes]:
    parts = [_part(part) for part in content]
    words = sum(tokens(part) for part in parts if isinstance(part, str))
    if words > _INPUT_TOKENS and not body.get("truncation", True):
        message = f"an input has {words} tokens, which is too long for the context length of {_INPUT_TOKENS}."
        raise Refused(400, f"Request to model '{body['model']}' failed: {message}")
    return [part[: 4 * _INPUT_TOKENS] if isinstance(part, str) else part for part in parts]


def _part(part: Any) -> str | bytes:
    kind = part.get("type") if isinstance(part, dict) else None
    value = part.get(kind) if kind in ("text", "image_base64", "image_url") else None
    if not isinstance(value, str):
        raise Refused(
            400, "Argument 'inputs' is invalid: each piece has a 'type' and the field of that name."
        )
    if kind == "image_url":
        raise Refused(400, "This server fetches no pictures; send image_base64.")
    return value if kind == "text" else _picture(value)


def _picture(url: str) -> bytes:
    head = _DATA_URL.match(url)
    if head is None:
        raise Refused(400, "The image is no data URL of image/png, image/jpeg, image/webp or image/gif.")
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (ValueError, binascii.Error):
        raise Refused(400, "The image is not valid base64.") from None
    if len(data) > _MOST_BYTES:
        raise Refused(400, f"The image is too large: {len(data)} bytes, at most {_MOST_BYTES} are allowed.")
    size = size_of(data)
    if size is None:
        raise Refused(400, "An image could not be decoded; PNG, JPEG, WEBP and GIF are supported.")
    if size[0] * size[1] > _MOST_PIXELS:
        raise Refused(400, f"The image is too large: {size[0]}x{size[1]}, at most {_MOST_PIXELS} pixels.")
    return data


def _pixels(data: bytes) -> int:
    width, height = size_of(data) or (0, 0)
    return min(max(width * height, _BILLED[0]), _BILLED[1])


def _tokens(parts: list[str | bytes]) -> int:
    return sum(tokens(p) if isinstance(p, str) else -(-_pixels(p) // PIXELS_A_TOKEN) for p in parts)


def _check_tokens(sizes: list[int], model: str) -> None:
    if max(sizes) > _INPUT_TOKENS or sum(sizes) > _BATCH_TOKENS:
        message = (
            f"The max allowed tokens per submitted batch is {_BATCH_TOKENS}, and per input {_INPUT_TOKENS}. "
            f"Your batch has {sum(sizes)} tokens."
        )
        raise Refused(400, f"Request to model '{model}' failed. {message} Please lower the number of tokens.")


def _usage(read: list[list[str | bytes]], fault: Fault | None) -> dict[str, int]:
    words = sum(tokens(part) for parts in read for part in parts if isinstance(part, str))
    pixels = sum(_pixels(part) for parts in read for part in parts if isinstance(part, bytes))
    total = words + -(-pixels // PIXELS_A_TOKEN)
    return charged({"text_tokens": words, "image_pixels": pixels, "total_tokens": total}, fault)


def _vector(parts: list[str | bytes], width: int, kind: str) -> list[Any]:
    rows = [vector(p, width, kind) if isinstance(p, str) else _seen(p, width, kind) for p in parts]
    return unit(rows)


def _seen(data: bytes, width: int, kind: str) -> list[float]:
    """A picture's vector: by its mean colour where that is easily read, and by its bytes."""
    own = direction(hashlib.sha256(data).hexdigest(), width)
    colour = mean_colour(data)
    rows = [own]
    if colour is not None:
        parts = zip(("red", "green", "blue"), colour, strict=True)
        alike = unit([[(value - 128) * x for x in direction(f"\0{part}", width)] for part, value in parts])
        # Near to others of its colour, but not so near that it passes for the same picture.
        rows = [alike, [_OWN * x for x in unit([own])]]
    if kind:
        rows.append([0.1 * x for x in unit([direction(f"\0{kind}", width)])])
    return unit(rows)
