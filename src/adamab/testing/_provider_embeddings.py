"""The endpoints of OpenAI, Voyage, Cohere and Jina that embed and rerank: all of it by shared words."""

from __future__ import annotations

import base64
import hashlib
import math
import random
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from adamab.testing._provider_protocol import (
    WORD,
    Fault,
    Options,
    Refused,
    base64_image,
    charged,
    checked_int,
    checked_model,
    digest,
    image_size,
    in_words,
    mean_colour,
    overlap,
    tokens,
)

_WIDEST = 4096
_OPENAI_WORDS = "Unrecognized request argument supplied: {}"
_VOYAGE_WORDS = "Argument '{}' is not supported by our API"
_COHERE_WORDS = "unknown field: parameter '{}' is not a valid field"
_OPENAI = "model input encoding_format dimensions user"
_VOYAGE = "model input input_type truncation output_dimension output_dtype encoding_format"
_VOYAGE_IMAGES = "model inputs input_type truncation output_encoding output_dimension"
_COHERE = "model texts images inputs input_type embedding_types truncate output_dimension max_tokens priority"
_COHERE_TYPES = ("search_document", "search_query", "classification", "clustering", "image")
_VOYAGE_RERANK = "model query documents top_k return_documents truncation"
_COHERE_RERANK = "model query documents top_n max_tokens_per_doc priority"
_JINA_RERANK = "model query documents top_n return_documents truncation"

_MOST_INPUTS, _INPUT_TOKENS, _BATCH_TOKENS, _RERANK_TOKENS = 1000, 32_000, 320_000, 600_000
_PIXELS_A_TOKEN = 560
_BILLED = (50_000, 2_000_000)  # a smaller image is billed as one of the first, a larger as of the second
_OWN = 0.5  # how much of an image's vector is its own, beside what it shares with those of its colour
_CHUNK, _DOCUMENTS_A_SEARCH = 500, 100
_RERANKED_IMAGE = 768  # tokens


def openai_embeddings(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /v1/embeddings."""
    model = checked_model(body, _OPENAI.split(), _OPENAI_WORDS)
    texts = _texts(body, "input", 2048)
    if "" in texts:
        raise Refused(400, "'$.input' is invalid: an input cannot be an empty string.", param="input")
    sizes = [tokens(text) for text in texts]
    _check_tokens(max(sizes), 8192)
    _check_tokens(sum(sizes), 300_000)
    width = checked_int(body, "dimensions", _WIDEST) or options.width
    rows = [vector(text, width) for text in texts]
    usage = {"prompt_tokens": sum(sizes), "total_tokens": sum(sizes)}
    return _listed(rows, model, usage, body.get("encoding_format"), fault)


def voyage_embeddings(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/embeddings."""
    model = checked_model(body, _VOYAGE.split(), _VOYAGE_WORDS)
    texts = _texts(body, "input", _MOST_INPUTS)
    kind = _voyage_kind(body)
    total = sum(map(tokens, texts))
    _check_tokens(total, _BATCH_TOKENS)
    width = checked_int(body, "output_dimension", _WIDEST) or options.width
    rows = [vector(text, width, kind) for text in texts]
    return _listed(rows, model, {"total_tokens": total}, body.get("encoding_format"), fault)


def voyage_multimodal(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/multimodalembeddings: texts and images in one space."""
    model = checked_model(body, _VOYAGE_IMAGES.split(), _VOYAGE_WORDS)
    kind = _voyage_kind(body)
    try:
        read: list[list[str | bytes]] = [
            [
                p["text"] if "text" in p else base64_image(p[p["type"]], data_url=True)
                for p in entry["content"]
            ]
            for entry in body["inputs"]
        ]
    except (LookupError, TypeError):
        raise Refused(
            400, "Argument 'inputs' is invalid: objects with a list 'content' are needed."
        ) from None
    if not 0 < len(read) <= _MOST_INPUTS:
        raise Refused(400, f"The batch size limit is {_MOST_INPUTS}. Your batch size is {len(read)}.")
    words = [[tokens(part) for part in parts if isinstance(part, str)] for parts in read]
    if not body.get("truncation", True):
        _check_tokens(max(map(sum, words)), _INPUT_TOKENS)
    text_tokens = sum(min(size, _INPUT_TOKENS) for entry in words for size in entry)
    images = [part for parts in read for part in parts if isinstance(part, bytes)]
    sizes = [math.prod(image_size(data) or (0, 0)) for data in images]
    pixels = sum(min(max(size, _BILLED[0]), _BILLED[1]) for size in sizes)
    total = text_tokens + -(-pixels // _PIXELS_A_TOKEN)
    _check_tokens(total, _BATCH_TOKENS)
    width = checked_int(body, "output_dimension", _WIDEST) or options.width
    rows = [_unit([_any_vector(part, width, kind) for part in parts]) for parts in read]
    usage = {"text_tokens": text_tokens, "image_pixels": pixels, "total_tokens": total}
    return _listed(rows, model, usage, body.get("output_encoding"), fault)


def cohere_embed(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /cohere/v2/embed."""
    checked_model(body, _COHERE.split(), _COHERE_WORDS)
    texts = _texts(body, "texts", 96)
    kind = body.get("input_type")
    if kind not in _COHERE_TYPES:
        known = ", ".join(_COHERE_TYPES)
        raise Refused(400, f"invalid request: valid input_type must be provided, one of {known}")
    width = checked_int(body, "output_dimension", _WIDEST) or options.width
    rows = _with_faults([vector(text, width, kind) for text in texts], fault)
    billed = charged({"input_tokens": sum(map(tokens, texts))}, fault)
    meta = {"meta": {"billed_units": billed}} if billed else {}
    return {"id": digest(body)[:32], "embeddings": {"float": rows}, "texts": texts, **meta}


def cohere_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /cohere/v2/rerank."""
    checked_model(body, _COHERE_RERANK.split(), _COHERE_WORDS)
    query, documents = _query(body), _texts(body, "documents", 10_000)
    chunks = sum(-(-(tokens(query) + tokens(document)) // _CHUNK) for document in documents)
    billed = charged({"search_units": -(-chunks // _DOCUMENTS_A_SEARCH)}, fault)
    results = _results(query, documents, checked_int(body, "top_n", len(documents)), fault)
    return {"id": digest(body)[:32], "results": results, "meta": {"billed_units": billed} if billed else {}}


def voyage_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/rerank."""
    model = checked_model(body, _VOYAGE_RERANK.split(), _VOYAGE_WORDS)
    query, documents = _query(body), _texts(body, "documents", 1000)
    total = tokens(query) * len(documents) + sum(map(tokens, documents))
    _check_tokens(total, _RERANK_TOKENS)
    results = _results(query, documents, checked_int(body, "top_k", len(documents)), fault)
    return _with_usage({"object": "list", "data": results, "model": model}, {"total_tokens": total}, fault)


def jina_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /jina/v1/rerank: the query may be an image where the model's name ends in -m0."""
    model = checked_model(body, _JINA_RERANK.split(), "Extra inputs are not permitted: {}")
    query = body.get("query")
    if isinstance(query, dict):
        if not model.endswith("-m0"):
            raise Refused(422, "This model takes no images; use jina-reranker-m0.")
        text, size = in_words(base64_image(query.get("image"))), _RERANKED_IMAGE
    else:
        text = _query(body)
        size = tokens(text)
    listed = [part["text"] if isinstance(part, dict) else part for part in body.get("documents", ())]
    documents = _texts({"documents": listed}, "documents", 2048)
    total = size * len(documents) + sum(map(tokens, documents))
    results = _results(text, documents, checked_int(body, "top_n", len(documents)), fault)
    return _with_usage({"model": model, "object": "list", "results": results}, {"total_tokens": total}, fault)


def vector(text: str, width: int, kind: str = "") -> list[float]:
    """A unit vector by the words of the text; `kind` (query, document) moves it a little."""
    rows = [_direction(word, width) for word in WORD.findall(text.casefold()) or [text.strip()]]
    if kind:
        rows.append([0.1 * x for x in _direction(f"\0{kind}", width)])
    return _unit(rows)


def _unit(rows: Sequence[Sequence[float]]) -> list[float]:
    total = [sum(column) for column in zip(*rows, strict=True)]
    length = sum(x * x for x in total) ** 0.5 or 1.0
    return [x / length for x in total]


@lru_cache(maxsize=65536)
def _direction(word: str, width: int) -> list[float]:
    draw = random.Random(word.encode("utf-8", "replace")).gauss
    return [draw(0.0, 1.0) for _ in range(width)]


def _any_vector(part: str | bytes, width: int, kind: str) -> list[float]:
    """A text's vector, or an image's: by its mean colour where that is easily read, and by its bytes."""
    if isinstance(part, str):
        return vector(part[: 4 * _INPUT_TOKENS], width, kind)
    own = _direction(hashlib.sha256(part).hexdigest(), width)
    colour = mean_colour(part)
    rows = [own]
    if colour is not None:
        named = zip(("red", "green", "blue"), colour, strict=True)
        alike = _unit([[(value - 128) * x for x in _direction(f"\0{name}", width)] for name, value in named])
        # Near to others of its colour, but not so near that it passes for the same image.
        rows = [alike, [_OWN * x for x in _unit([own])]]
    if kind:
        rows.append([0.1 * x for x in _unit([_direction(f"\0{kind}", width)])])
    return _unit(rows)


def _texts(body: dict[str, Any], key: str, limit: int) -> list[str]:
    given = body.get(key)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"'$.{key}' is invalid: a list of texts is needed.", param=key)
    if len(texts) > limit:
        message = f"Invalid '{key}': array too long. At most {limit} are allowed, not {len(texts)}."
        raise Refused(400, message, param=key, code="array_above_max_length")
    return texts


def _voyage_kind(body: dict[str, Any]) -> str:
    kind = body.get("input_type")
    if kind not in (None, "query", "document"):
        raise Refused(400, f"Value '{kind}' provided for argument 'input_type' is not supported.")
    return kind or ""


def _check_tokens(count: int, most: int) -> None:
    if count > most:
        raise Refused(400, f"The maximum context length is {most} tokens, however you requested {count}.")


def _listed(
    rows: list[list[Any]], model: str, usage: dict[str, int], encoding: Any, fault: Fault
) -> dict[str, Any]:
    """The answer of OpenAI and Voyage."""
    rows = _with_faults(rows, fault)
    data: list[dict[str, Any]]
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
    if encoding == "base64":
        for entry in data:
            numbers = [math.nan if x is None else x for x in entry["embedding"]]
            entry["embedding"] = base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    if fault.kind == "shuffled":
        data.reverse()
    return _with_usage({"object": "list", "data": data, "model": model}, usage, fault)


def _with_usage(reply: dict[str, Any], numbers: dict[str, int], fault: Fault) -> dict[str, Any]:
    usage = charged(numbers, fault)
    return {**reply, "usage": usage} if usage else reply


def _with_faults(rows: list[list[Any]], fault: Fault) -> list[list[Any]]:
    rows = _miscounted(rows, fault)
    if fault.kind == "wrong_width":
        kept = rows[:-1] if fault.how == "last" else []
        return [*kept, *(row[: len(row) // 2] for row in rows[len(kept) :])]
    if fault.kind == "nan":
        rows[-1][len(rows[-1]) // 2] = None if fault.how == "null" else math.nan
    return rows


def _miscounted(entries: list[Any], fault: Fault) -> list[Any]:
    if fault.kind == "empty":
        return []
    if fault.kind == "few_vectors":
        return entries[:-1]
    return [*entries, entries[-1].copy()] if fault.kind == "many_vectors" else entries


def _query(body: dict[str, Any]) -> str:
    query = body.get("query")
    if not isinstance(query, str) or not query:
        raise Refused(400, "invalid request: query must be a text that is not empty", param="query")
    return query


def _results(query: str, documents: Sequence[str], top: int | None, fault: Fault) -> list[dict[str, Any]]:
    """The best first, as the services sort them; of equals the first."""
    scores = [overlap(query, document) / (1 + overlap(query, query)) for document in documents]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[:top]
    results: list[dict[str, Any]] = [{"index": n, "relevance_score": scores[n]} for n in order]
    results = _miscounted(results, fault)
    if fault.kind == "nan":
        results[-1]["relevance_score"] = None if fault.how == "null" else math.nan
    if fault.kind == "wrong_index":
        results[-1]["index"] = results[0]["index"]
    return results
