"""The image endpoint of OpenAI, as its own models, its older ones and compatible servers speak it."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

from adamab.testing.provider_chat import CREATED
from adamab.testing.provider_errors import Refused, check_known, checked_model
from adamab.testing.provider_faults import Fault, charged
from adamab.testing.provider_model import Options, digest, tokens
from adamab.testing.provider_pictures import picture

MOST_PICTURES = 10
_KNOWN = """model prompt n size quality output_format output_compression background moderation stream
partial_images response_format style user"""
# Tokens of one picture: size -> low, medium, high.
PICTURE_TOKENS = {
    "1024x1024": (272, 1056, 4160),
    "1024x1536": (408, 1584, 6240),
    "1536x1024": (400, 1568, 6208),
}
_QUALITIES = ("low", "medium", "high")
_OLDER_SIZES = {
    "dall-e-2": ("256x256", "512x512", "1024x1024"),
    "dall-e-3": ("1024x1024", "1792x1024", "1024x1792"),
}
_LONGEST_PROMPT = {"dall-e-2": 1000, "dall-e-3": 4000}
_ANY_SIZE = re.compile(r"[1-9]\d{1,3}x[1-9]\d{1,3}")


def openai_images(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /v1/images/generations. `gpt-image` models answer in base64; others with a URL unless told."""
    check_known(body, _KNOWN.split(), "Unknown parameter: '{}'.")
    model = checked_model(body)
    prompt = _prompt(body, model)
    count = _count(body, model)
    size, quality = _size(body, model), _quality(body, model)
    as_url = _as_url(body, model)
    _check_rest(body)
    if fault is not None and fault.kind == "refusal":
        raise blocked("moderation_blocked")
    data = _data(prompt, count, size, options, fault, as_url=as_url)
    answer: dict[str, Any] = {"created": CREATED, "data": data}
    if not _is_own(model):
        return answer
    said = {"background": "opaque", "output_format": "png", "quality": quality, "size": size}
    return {**answer, **said, **_usage(prompt, count, size, quality, fault)}


def blocked(code: str) -> Refused:
    """What the safety system says of a prompt, or of what came of it."""
    message = (
        "Your request was rejected by the safety system. If you believe this is an error, contact us at "
        "help.openai.com and include the request ID req_0. safety_violations=[violence]."
    )
    return Refused(400, message, type="image_generation_user_error", code=code)


def wanted(body: Any) -> tuple[str, int]:
    """The prompt of a request and how many pictures it asks for; none where it is malformed."""
    asked = body if isinstance(body, dict) else {}
    prompt, count = asked.get("prompt"), asked.get("n") or 1
    fine = isinstance(prompt, str) and isinstance(count, int) and 1 <= count <= MOST_PICTURES
    return (prompt, count) if fine and isinstance(prompt, str) else ("", 0)


def _is_own(model: str) -> bool:
    return "gpt-image" in model


def _data(
    prompt: str, count: int, size: str, options: Options, fault: Fault | None, *, as_url: bool
) -> list[dict[str, str]]:
    kind, how = ("", "") if fault is None else (fault.kind, fault.how)
    if kind == "empty" and how == "content":
        return []
    numbers: Sequence[int] = range(options.before, options.before + count)
    if kind == "duplicates":
        numbers = [0] * count
    width, _, height = size.partition("x")
    made = [picture(prompt, number, (int(width), int(height))) for number in numbers]
    if kind == "few_pictures":
        made.pop()
    if as_url or kind == "picture_url":
        return [
            {"url": f"https://images.invalid/{digest([prompt, number])}.png"}
            for number in numbers[: len(made)]
        ]
    return [{"b64_json": _written(data, fault)} for data in made]


def _written(data: bytes, fault: Fault | None) -> str:
    if fault is not None and fault.kind == "empty":
        return ""
    if fault is not None and fault.kind == "no_picture":
        if fault.how == "base64":
            return "%% this is no base64 %%"
        data = b"<html><body>a page where a picture belongs</body></html>"
    if fault is not None and fault.kind == "cut_picture":
        data = data[: int(len(data) * (0.5 if fault.sent is None else fault.sent))]
    return base64.b64encode(data).decode()


def _usage(prompt: str, count: int, size: str, quality: str, fault: Fault | None) -> dict[str, Any]:
    asked, made = tokens(prompt), count * PICTURE_TOKENS[size][_QUALITIES.index(quality)]
    numbers = {"total_tokens": asked + made, "input_tokens": asked, "output_tokens": made}
    usage: dict[str, Any] = dict(charged(numbers, fault))
    if not usage:
        return {}
    usage["input_tokens_details"] = {"text_tokens": usage["input_tokens"], "image_tokens": 0}
    return {"usage": usage}


def _prompt(body: dict[str, Any], model: str) -> str:
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        code = "missing_required_parameter"
        raise Refused(400, "Missing required parameter: 'prompt'.", param="prompt", code=code)
    longest = _LONGEST_PROMPT.get(model, 32_000)
    if len(prompt) > longest:
        message = (
            f"Invalid 'prompt': string too long. Expected a string with maximum length {longest}, "
            f"but got a string with length {len(prompt)} instead."
        )
        raise Refused(400, message, param="prompt", code="string_above_max_length")
    return prompt


def _count(body: dict[str, Any], model: str) -> int:
    count = body.get("n", 1)
    count = 1 if count is None else count
    if not isinstance(count, int) or isinstance(count, bool):
        raise Refused(400, "Invalid type for 'n': expected an integer.", param="n", code="invalid_type")
    most = 1 if model == "dall-e-3" else MOST_PICTURES
    if not 1 <= count <= most:
        above = count > most
        message = (
            f"Invalid 'n': integer {'above maximum' if above else 'below minimum'} value. Expected a value "
            f"{'<=' if above else '>='} {most if above else 1}, but got {count} instead."
        )
        code = f"integer_{'above_max' if above else 'below_min'}_value"
        raise Refused(400, message, param="n", code=code)
    return count


def _size(body: dict[str, Any], model: str) -> str:
    size = body.get("size") or "auto"
    if not _is_own(model) and model not in _OLDER_SIZES:
        if size == "auto" or (isinstance(size, str) and _ANY_SIZE.fullmatch(size)):
            return "1024x1024" if size == "auto" else size
        raise _invalid("size", size, ["WIDTHxHEIGHT"])
    sizes = _OLDER_SIZES.get(model, tuple(PICTURE_TOKENS))
    if size == "auto" and (_is_own(model) or "size" not in body):
        return "1024x1024"
    if size not in sizes:
        raise _invalid("size", size, [*sizes, "auto"] if _is_own(model) else sizes)
    return str(size)


def _quality(body: dict[str, Any], model: str) -> str:
    quality = body.get("quality") or "auto"
    if not _is_own(model):
        known: tuple[str, ...] = ("standard", "hd", "auto", *_QUALITIES)
        known = ("standard", "hd", "auto") if model in _OLDER_SIZES else known
    else:
        known = (*_QUALITIES, "auto")
    if quality not in known:
        raise _invalid("quality", quality, known)
    return "high" if quality == "auto" else str(quality)


def _as_url(body: dict[str, Any], model: str) -> bool:
    wanted = body.get("response_format")
    if _is_own(model):
        if wanted is not None:
            message = "Unknown parameter: 'response_format'."
            raise Refused(400, message, param="response_format", code="unknown_parameter")
        return False
    if wanted not in (None, "url", "b64_json"):
        raise _invalid("response_format", wanted, ["url", "b64_json"])
    return wanted != "b64_json"


def _check_rest(body: dict[str, Any]) -> None:
    if body.get("moderation") not in (None, "low", "auto"):
        raise _invalid("moderation", body["moderation"], ["low", "auto"])
    if body.get("output_format") not in (None, "png"):
        # OpenAI makes jpeg and webp as well; painting those takes a library.
        raise _invalid("output_format", body["output_format"], ["png"])
    if body.get("stream"):
        raise Refused(400, "This server does not stream.", param="stream", code="unsupported_value")


def _invalid(key: str, value: Any, known: Sequence[str]) -> Refused:
    listed = ", ".join(f"'{name}'" for name in known)
    message = f"Invalid value: '{value}'. Supported values are: {listed}."
    return Refused(400, message, param=key, code="invalid_value")
