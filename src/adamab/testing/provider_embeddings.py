"""The embedding endpoints of OpenAI, Voyage and Cohere."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from typing import Any

from adamab.testing.provider_errors import Refused, check_known, checked_int, checked_model, too_many
from adamab.testing.provider_faults import Fault, charged
from adamab.testing.provider_model import Options, digest, tokens, vector

_WIDEST = 4096
_OPENAI = ("model", "input", "encoding_format", "dimensions", "user")
_VOYAGE = "model input input_type truncation output_dimension output_dtype encoding_format"
_COHERE = "model texts images inputs input_type embedding_types truncate output_dimension max_tokens priority"
_COHERE_TYPES = ("search_document", "search_query", "classification", "clustering", "image")


def openai_embeddings(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /v1/embeddings."""
    check_known(body, _OPENAI, "Unrecognized request argument supplied: {}")
    model = checked_model(body)
    texts = _texts(body, "input", 2048)
    if "" in texts:
        raise Refused(400, "'$.input' is invalid: an input cannot be an empty string.", param="input")
    total = _openai_tokens(texts)
    rows = _vectors(texts, width_of(body, "dimensions", options), "", fault)
    usage = charged({"prompt_tokens": total, "total_tokens": total}, fault)
    return listed(indexed(rows, body.get("encoding_format"), fault), model, usage)


def voyage_embeddings(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /voyage/v1/embeddings."""
    check_known(body, _VOYAGE.split(), "Argument '{}' is not supported by our API")
    model = checked_model(body)
    texts = _texts(body, "input", 1000)
    kind = body.get("input_type")
    if kind not in (None, "query", "document"):
        raise Refused(400, f"Value '{kind}' provided for argument 'input_type' is not supported.")
    total = sum(tokens(text) for text in texts)
    if total > 320_000:
        message = f"The max allowed tokens per submitted batch is 320000. Your batch has {total} tokens."
        raise Refused(400, f"Request to model '{model}' failed. {message} Please lower the number of tokens.")
    rows = _vectors(texts, width_of(body, "output_dimension", options), kind or "", fault)
    return listed(
        indexed(rows, body.get("encoding_format"), fault), model, charged({"total_tokens": total}, fault)
    )


def cohere_embed(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /cohere/v2/embed."""
    check_known(body, _COHERE.split(), "unknown field: parameter '{}' is not a valid field")
    checked_model(body)
    texts = _texts(body, "texts", 96)
    kind = body.get("input_type")
    if kind not in _COHERE_TYPES:
        known = ", ".join(_COHERE_TYPES)
        raise Refused(400, f"invalid request: valid input_type must be provided, one of {known}")
    types = body.get("embedding_types") or ["float"]
    if types != ["float"]:
        raise Refused(400, f"invalid request: this server makes embedding_types ['float'], not {types}")
    rows = _vectors(texts, width_of(body, "output_dimension", options), kind, fault)
    billed = charged({"input_tokens": sum(tokens(text) for text in texts)}, fault)
    meta = {"meta": {"api_version": {"version": "2"}, "billed_units": billed}} if billed else {}
    reply = {"id": digest(body)[:32], "embeddings": {"float": rows}, "texts": texts}
    return {**reply, "response_type": "embeddings_by_type", **meta}


def listed(data: list[dict[str, Any]], model: str, usage: dict[str, int]) -> dict[str, Any]:
    """The answer of OpenAI and Voyage."""
    reply: dict[str, Any] = {"object": "list", "data": data, "model": model}
    return {**reply, "usage": usage} if usage else reply


def _openai_tokens(texts: Sequence[str]) -> int:
    sizes = [tokens(text) for text in texts]
    if max(sizes) > 8192:
        asked = (
            f"however you requested {max(sizes)} tokens ({max(sizes)} in your prompt; 0 for the completion)."
        )
        raise Refused(400, f"This model's maximum context length is 8192 tokens, {asked}")
    if sum(sizes) > 300_000:
        kind = "max_tokens_per_request"
        message = f"Requested {sum(sizes)} tokens, max 300000 tokens per request"
        raise Refused(400, message, type=kind, code=kind)
    return sum(sizes)


def _texts(body: dict[str, Any], key: str, limit: int) -> list[str]:
    given = body.get(key)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"'$.{key}' is invalid: a list of texts is needed.", param=key)
    if len(texts) > limit:
        raise too_many(len(texts), limit)
    return texts


def width_of(body: dict[str, Any], key: str, options: Options) -> int:
    """The width that a request asks for, or the server's."""
    return checked_int(body, key, _WIDEST) or options.width


def _vectors(texts: Sequence[str], width: int, kind: str, fault: Fault | None) -> list[list[Any]]:
    return with_faults([vector(text, width, kind) for text in texts], width, fault)


def with_faults(rows: list[list[Any]], width: int, fault: Fault | None) -> list[list[Any]]:
    """The vectors as the fault leaves them."""
    if fault is None:
        return rows
    if fault.kind in ("few_vectors", "empty"):
        return rows[:-1] if fault.kind == "few_vectors" else []
    if fault.kind == "many_vectors":
        return [*rows, rows[-1]]
    if fault.kind == "wrong_width":
        kept = rows[:-1] if fault.how == "last" else []
        return [*kept, *(row[: width // 2] for row in rows[len(kept) :])]
    if fault.kind == "nan":
        rows[-1][width // 2] = None if fault.how == "null" else math.nan
    return rows


def indexed(rows: Sequence[list[Any]], encoding: Any, fault: Fault | None) -> list[dict[str, Any]]:
    """The entries of the answer, each with its number."""
    wanted = encoding or "float"
    if wanted not in ("float", "base64"):
        raise Refused(400, "Invalid value for 'encoding_format'.", param="encoding_format")
    data = [
        {"object": "embedding", "index": n, "embedding": _packed(row) if wanted == "base64" else row}
        for n, row in enumerate(rows)
    ]
    return data[::-1] if fault is not None and fault.kind == "shuffled" else data


def _packed(row: Sequence[Any]) -> str:
    numbers = [math.nan if x is None else x for x in row]
    return base64.b64encode(struct.pack(f"<{len(row)}f", *numbers)).decode()
