"""Error answers as the providers word them, each in its own shape."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from adamab.testing.provider_faults import Fault, input_count, output_limit
from adamab.testing.provider_model import read_prompt

# Status -> type, code and words of OpenAI's error.
_OPENAI: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "Bad request."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Country not supported."),
    404: (
        "invalid_request_error",
        "model_not_found",
        "The model does not exist, or not for you.",
    ),
    408: ("timeout", None, "Request timed out."),
    409: ("conflict", None, "The request conflicts with another one."),
    413: ("invalid_request_error", None, "Request entity too large."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests. Please try again later."),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}


@dataclass(frozen=True)
class Answer:
    """A status and a JSON body, or bytes that are none."""

    status: int
    payload: Any
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):  # noqa: N818  # an answer, not an error of ours
    """A request that the provider turns down; becomes an `Answer` of its protocol."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.headers = headers or {}

    def answer(self, protocol: str, body: Any) -> Answer:
        """In the protocol's shape; as real providers do, it quotes the request."""
        message = self.message
        if self.status in (400, 413, 422) and (quoted := _excerpt(body)):
            message += f" Your request says: {quoted!r}"
        return Answer(self.status, _shape(protocol, self, message), self.headers)


def _shape(protocol: str, refused: Refused, message: str) -> dict[str, Any]:
    if protocol in ("voyage", "jina"):
        return {"detail": message}
    if protocol == "cohere":
        return {"id": "00000000-0000-4000-8000-000000000000", "message": message}
    error = {"message": message, "type": refused.type, "param": refused.param, "code": refused.code}
    return {"error": error}


def wrong_key(sent: str | None) -> Refused:
    """401, with as much of the key as OpenAI shows."""
    if not sent:
        return Refused(401, "You didn't provide an API key. Use an Authorization header with Bearer auth.")
    shown = f"{sent[:8]}{'*' * 8}{sent[-4:]}"
    return Refused(401, f"Incorrect API key provided: {shown}.", code="invalid_api_key")


def from_fault(fault: Fault, body: Any, raw: bytes) -> Refused | None:
    """The error that the fault answers with, if it does."""
    if fault.kind == "status":
        return _status(fault)
    if fault.kind == "refusal_status":
        message = "Your request was rejected as a result of our safety system."
        image = isinstance(body, dict) and "prompt" in body
        kind = "image_generation_user_error" if image else "invalid_request_error"
        return Refused(fault.status_code, message, type=kind, code="content_policy_violation")
    if fault.kind == "no_schema":
        message = "Invalid parameter: 'response_format' of this type is not supported with this model."
        return Refused(fault.status_code, message, param="response_format", code=None)
    return _too_large(fault, body, raw) if fault.kind == "too_large" else None


def _status(fault: Fault) -> Refused:
    status = fault.status_code
    near = 500 if status >= 500 else 400
    kind, code, message = _OPENAI.get(status, _OPENAI[near])
    if fault.how == "quota":
        kind = code = "insufficient_quota"
        message = "You exceeded your current quota, please check your plan and billing details."
    wait = fault.retry_after
    headers = {} if wait is None else {"Retry-After": wait if isinstance(wait, str) else f"{wait:g}"}
    return Refused(status, message, type=kind, code=code, headers=headers)


def _too_large(fault: Fault, body: Any, raw: bytes) -> Refused:
    if fault.items is not None and input_count(body) > fault.items:
        return too_many(input_count(body), fault.items, fault.status_code)
    if fault.tokens is not None and output_limit(body) > fault.tokens:
        message = (
            f"max_tokens is too large: {output_limit(body)}. This model supports at most {fault.tokens} "
            f"completion tokens, whereas you provided {output_limit(body)}."
        )
        return Refused(fault.status_code, message, param="max_tokens", code="invalid_value")
    if fault.status_code == 413:
        return Refused(413, "Request entity too large.")
    message = f"Requested {len(raw)} tokens, max {fault.bytes or 0} tokens per request"
    kind = "max_tokens_per_request"
    return Refused(fault.status_code, message, type=kind, code=kind)


def too_many(count: int, limit: int, status: int = 400) -> Refused:
    """More inputs than a request may carry."""
    message = (
        f"Invalid 'input': array too long. Expected an array with maximum length {limit}, "
        f"but got an array with length {count} instead."
    )
    return Refused(status, message, param="input", code="array_above_max_length")


def check_known(body: dict[str, Any], known: Container[str], message: str) -> None:
    """Turn a request down that has a field the provider does not know."""
    unknown = sorted(key for key in body if key not in known)
    if unknown:
        raise Refused(400, message.format(unknown[0]))


def checked_model(body: dict[str, Any]) -> str:
    """The model asked for; any will do but those whose names begin with `no-such`."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused(400, "you must provide a model parameter", param="model")
    if model.startswith("no-such"):
        message = f"The model `{model}` does not exist or you do not have access to it."
        raise Refused(404, message, code="model_not_found")
    return model


def checked_int(body: dict[str, Any], key: str, most: int) -> int | None:
    """A whole number from 1 to `most`, if the field is there."""
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise Refused(400, f"Invalid value for '{key}'. Must be an integer from 1 to {most}.", param=key)
    return value


def prompt_of(body: Any) -> str:
    """The texts of all messages, of the inputs, or of a query and its documents."""
    if not isinstance(body, dict):
        return ""
    inputs = body.get("input", body.get("texts", ()))
    texts = [inputs] if isinstance(inputs, str) else [text for text in inputs or () if isinstance(text, str)]
    texts += content_texts(body.get("prompt")) + content_texts(body.get("query"))
    texts += _documents(body.get("documents"))
    for message in (*(body.get("messages") or ()), *_entries(body.get("inputs"))):
        texts += content_texts(message.get("content") if isinstance(message, dict) else None)
    return "\n".join(texts)


def _documents(documents: Any) -> list[str]:
    return [text for document in _entries(documents) for text in content_texts(document)]


def _entries(inputs: Any) -> list[Any]:
    return inputs if isinstance(inputs, list) else []


def content_texts(content: Any) -> list[str]:
    """The texts of a message, which may come as one or in parts, or of a document."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        content = [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _excerpt(body: Any) -> str:
    text = prompt_of(body)
    material = [str(value) for block in read_prompt(text).blocks for value in block]
    return " | ".join([text[:60], *(value[:120] for value in material[:3])])[:300].strip()
