"""The endpoints of OpenAI, Voyage, Cohere and Jina that embed and rerank: all of it by shared words."""

from __future__ import annotations

import base64
import hashlib
import math
import random
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from adamab.testing._provider_protocol import (
    WORD,
    Fault,
    Options,
    Refused,
    base64_image,
    checked_int,
    checked_model,
    in_words,
    mean_colour,
    overlap,
    tokens,
)

if TYPE_CHECKING:
    import PIL.Image

_WIDEST = 4096
_OPENAI = "model input encoding_format dimensions user"
_VOYAGE = "model input input_type truncation output_dimension output_dtype encoding_format"
_VOYAGE_IMAGES = "model inputs input_type truncation output_encoding output_dimension"
_COHERE = "model texts images inputs input_type embedding_types truncate output_dimension max_tokens priority"
_COHERE_TYPES = ("search_document", "search_query", "classification", "clustering", "image")
_RERANK = "model query documents top_k top_n return_documents truncation max_tokens_per_doc priority"

_MOST_INPUTS, _INPUT_TOKENS, _BATCH_TOKENS, _RERANK_TOKENS = 1000, 32_000, 320_000, 600_000
_PIXELS_PER_TOKEN = 560
_LEAST_PIXELS, _MOST_PIXELS = 50_000, 2_000_000  # that an image is billed as
_OWN = 0.5  # how much of an image's vector is its own, beside what it shares with those of its colour
_CHUNK, _DOCUMENTS_PER_SEARCH = 500, 100
_RERANKED_IMAGE = 768  # tokens


def openai_embeddings(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /v1/embeddings."""
    checked_model(body, _OPENAI)
    texts = _texts(body, "input", 2048)
    if "" in texts:
        raise Refused(400, "'$.input' is invalid: an input cannot be an empty string.")
    sizes = [tokens(text) for text in texts]
    _check_tokens(max(sizes), 8192)
    _check_tokens(sum(sizes), 300_000)
    width = checked_int(body, "dimensions", _WIDEST, options.width)
    rows = [vector(text, width) for text in texts]
    return _embeddings(rows, body, {"prompt_tokens": sum(sizes), "total_tokens": sum(sizes)}, fault)


def voyage_embeddings(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/embeddings."""
    checked_model(body, _VOYAGE)
    texts = _texts(body, "input", _MOST_INPUTS)
    kind = _voyage_kind(body)
    total = sum(map(tokens, texts))
    _check_tokens(total, _BATCH_TOKENS)
    width = checked_int(body, "output_dimension", _WIDEST, options.width)
    return _embeddings([vector(text, width, kind) for text in texts], body, {"total_tokens": total}, fault)


def voyage_multimodal(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/multimodalembeddings: texts and images in one space."""
    checked_model(body, _VOYAGE_IMAGES)
    kind = _voyage_kind(body)
    try:
        parts = [entry["content"][0] for entry in body["inputs"]]  # one text or one image each
        items = [p["text"] if "text" in p else base64_image(p[p["type"]], data_url=True) for p in parts]
    except (LookupError, TypeError):
        message = "Argument 'inputs' is invalid: objects with a list 'content' are needed."
        raise Refused(400, message) from None
    if not 0 < len(items) <= _MOST_INPUTS:
        raise Refused(400, f"The batch size limit is {_MOST_INPUTS}. Your batch size is {len(items)}.")
    sizes = [tokens(item) for item in items if isinstance(item, str)]
    if not body.get("truncation", True):
        _check_tokens(max(sizes, default=0), _INPUT_TOKENS)
    text_tokens = sum(min(size, _INPUT_TOKENS) for size in sizes)
    images = [item.width * item.height for item in items if not isinstance(item, str)]
    pixels = sum(min(max(size, _LEAST_PIXELS), _MOST_PIXELS) for size in images)
    total = text_tokens + -(-pixels // _PIXELS_PER_TOKEN)
    _check_tokens(total, _BATCH_TOKENS)
    width = checked_int(body, "output_dimension", _WIDEST, options.width)
    rows = [
        vector(item[: 4 * _INPUT_TOKENS], width, kind)
        if isinstance(item, str)
        else _image_vector(item, width, kind)
        for item in items
    ]
    usage = {"text_tokens": text_tokens, "image_pixels": pixels, "total_tokens": total}
    return _embeddings(rows, body, usage, fault)


def cohere_embed(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /cohere/v2/embed."""
    checked_model(body, _COHERE)
    texts = _texts(body, "texts", 96)
    kind = body.get("input_type")
    if kind not in _COHERE_TYPES:
        known = ", ".join(_COHERE_TYPES)
        raise Refused(400, f"invalid request: valid input_type must be provided, one of {known}")
    width = checked_int(body, "output_dimension", _WIDEST, options.width)
    rows = _with_faults([vector(text, width, kind) for text in texts], fault)
    billed = {"input_tokens": sum(map(tokens, texts))}
    return {"embeddings": {"float": rows}, "texts": texts, "meta": {"billed_units": billed}}


def cohere_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /cohere/v2/rerank."""
    checked_model(body, _RERANK)
    query, documents = _query(body), _texts(body, "documents", 10_000)
    chunks = sum(-(-(tokens(query) + tokens(document)) // _CHUNK) for document in documents)
    billed = {"search_units": -(-chunks // _DOCUMENTS_PER_SEARCH)}
    return {"results": _results(query, documents, fault), "meta": {"billed_units": billed}}


def voyage_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /voyage/v1/rerank."""
    checked_model(body, _RERANK)
    query, documents = _query(body), _texts(body, "documents", 1000)
    total = tokens(query) * len(documents) + sum(map(tokens, documents))
    _check_tokens(total, _RERANK_TOKENS)
    return {"data": _results(query, documents, fault), "usage": {"total_tokens": total}}


def jina_rerank(body: dict[str, Any], options: Options, fault: Fault) -> dict[str, Any]:
    """POST /jina/v1/rerank: the query may be an image where the model's name ends in -m0."""
    model = checked_model(body, _RERANK)
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
    return {"results": _results(text, documents, fault), "usage": {"total_tokens": total}}


def vector(text: str, width: int, kind: str = "") -> list[float]:
    """A unit vector by the words of the text; `kind` (query, document) moves it a little."""
    rows = [_direction(word, width) for word in WORD.findall(text.casefold()) or [text.strip()]]
    if kind:
        rows.append([0.1 * x for x in _direction(f"\0{kind}", width)])
    return _unit(rows)


def _image_vector(image: PIL.Image.Image, width: int, kind: str) -> list[float]:
    """By the mean colour, and by the pixels: near to others of its colour, but not the same."""
    own = _unit([_direction(hashlib.blake2s(image.tobytes()).hexdigest(), width)])
    axes = [_direction(f"\0{name}", width) for name in ("red", "green", "blue")]
    means = zip(mean_colour(image), axes, strict=True)
    rows = [_unit([[(value - 128) * x for x in axis] for value, axis in means]), [_OWN * x for x in own]]
    if kind:
        rows.append([0.1 * x for x in _unit([_direction(f"\0{kind}", width)])])
    return _unit(rows)


def _unit(rows: Sequence[Sequence[float]]) -> list[float]:
    total = [sum(column) for column in zip(*rows, strict=True)]
    length = sum(x * x for x in total) ** 0.5 or 1.0
    return [x / length for x in total]


@lru_cache(maxsize=65536)
def _direction(word: str, width: int) -> list[float]:
    draw = random.Random(word.encode("utf-8", "replace")).gauss
    return [draw(0.0, 1.0) for _ in range(width)]


def _texts(body: dict[str, Any], key: str, limit: int) -> list[str]:
    given = body.get(key)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"'$.{key}' is invalid: a list of texts is needed.")
    if len(texts) > limit:
        message = f"Invalid '{key}': array too long. At most {limit} are allowed, not {len(texts)}."
        raise Refused(400, message, code="array_above_max_length")
    return texts


def _voyage_kind(body: dict[str, Any]) -> str:
    kind = body.get("input_type")
    if kind not in (None, "query", "document"):
        raise Refused(400, f"Value '{kind}' provided for argument 'input_type' is not supported.")
    return kind or ""


def _check_tokens(count: int, most: int) -> None:
    if count > most:
        raise Refused(400, f"The maximum context length is {most} tokens, however you requested {count}.")


def _query(body: dict[str, Any]) -> str:
    query = body.get("query")
    if not isinstance(query, str) or not query:
        raise Refused(400, "invalid request: query must be a text that is not empty")
    return query


def _embeddings(
    rows: list[list[Any]], body: dict[str, Any], usage: dict[str, int], fault: Fault
) -> dict[str, Any]:
    """The answer of OpenAI and Voyage."""
    vectors: list[Any] = _with_faults(rows, fault)
    if "base64" in (body.get("encoding_format"), body.get("output_encoding")):
        packed = [
            struct.pack(f"<{len(row)}f", *(math.nan if x is None else x for x in row)) for row in vectors
        ]
        vectors = [base64.b64encode(data).decode() for data in packed]
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(vectors)]
    if fault.kind == "shuffled":
        data.reverse()
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _packed(row: Sequence[float | None]) -> str:
    numbers = [math.nan if x is None else x for x in row]
    return base64.b64encode(struct.pack(f"<{len(row)}f", *numbers)).decode()


def _results(query: str, documents: Sequence[str], fault: Fault) -> list[dict[str, Any]]:
    """The best first, as the services sort them; of equals the first."""
    scores = [overlap(query, document) / (1 + overlap(query, query)) for document in documents]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    rows = _with_faults([[index, scores[index]] for index in order], fault)
    if fault.kind == "wrong_index":
        rows[-1][0] = rows[0][0]
    return [{"index": row[0], "relevance_score": row[-1]} for row in rows]


def _with_faults(rows: list[list[Any]], fault: Fault) -> list[list[Any]]:
    """Vectors, or pairs of an index and a score, as the fault leaves them."""
    if fault.kind == "empty":
        return []
    if fault.kind == "few_vectors":
        return rows[:-1]
    if fault.kind == "many_vectors":
        return [*rows, rows[-1]]
    if fault.kind == "wrong_width":
        kept = rows[:-1] if fault.how == "last" else []
        return [*kept, *(row[: len(row) // 2] for row in rows[len(kept) :])]
    if fault.kind == "nan":
        rows[-1][len(rows[-1]) // 2] = None if fault.how == "null" else math.nan
    return rows
