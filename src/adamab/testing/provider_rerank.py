"""The rerank endpoints of Cohere, Jina and Voyage: a document is relevant by the words it shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adamab.testing.provider_errors import Refused, check_known, checked_int, checked_model
from adamab.testing.provider_faults import Fault, charged
from adamab.testing.provider_looks import base64_picture, in_words
from adamab.testing.provider_model import Options, digest, overlap, tokens

_COHERE = "model query documents top_n max_tokens_per_doc priority"
_JINA = "model query documents top_n return_documents truncation"
_VOYAGE = "model query documents top_k return_documents truncation"
_MOST = {"cohere": 10_000, "jina": 2048, "voyage": 1000}
_CHUNK, _DOCUMENTS_A_SEARCH = 500, 100
_PICTURE_TOKENS = 768


def cohere_rerank(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /cohere/v2/rerank."""
    check_known(body, _COHERE.split(), "unknown field: parameter '{}' is not a valid field")
    checked_model(body)
    query, documents = _query(body), _documents(body, "cohere")
    chunks = sum(-(-(tokens(query) + tokens(document)) // _CHUNK) for document in documents)
    billed = charged({"search_units": -(-chunks // _DOCUMENTS_A_SEARCH)}, fault)
    results = _results(query, documents, checked_int(body, "top_n", len(documents)), fault)
    meta: dict[str, Any] = {"api_version": {"version": "2"}}
    return {
        "id": digest(body)[:32],
        "results": results,
        "meta": {**meta, "billed_units": billed} if billed else meta,
    }


def voyage_rerank(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /voyage/v1/rerank."""
    check_known(body, _VOYAGE.split(), "Argument '{}' is not supported by our API")
    model = checked_model(body)
    query, documents = _query(body), _documents(body, "voyage")
    total = tokens(query) * len(documents) + sum(tokens(document) for document in documents)
    if total > 600_000:
        message = f"The max allowed tokens per submitted batch is 600000. Your batch has {total} tokens."
        raise Refused(400, f"Request to model '{model}' failed. {message} Please lower the number of tokens.")
    results = _results(query, documents, checked_int(body, "top_k", len(documents)), fault)
    reply: dict[str, Any] = {"object": "list", "data": results, "model": model}
    usage = charged({"total_tokens": total}, fault)
    return {**reply, "usage": usage} if usage else reply


def jina_rerank(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /jina/v1/rerank."""
    check_known(body, _JINA.split(), "Extra inputs are not permitted: {}")
    model = checked_model(body)
    multimodal = model.endswith("-m0")
    documents = _documents(body, "jina", objects=multimodal)
    query, size = _jina_query(body, multimodal)
    total = size * len(documents) + sum(tokens(document) for document in documents)
    results = _results(query, documents, checked_int(body, "top_n", len(documents)), fault)
    if body.get("return_documents", True):
        for result in results:
            result["document"] = {"text": documents[result["index"]]}
    usage = charged({"total_tokens": total}, fault)
    reply: dict[str, Any] = {"model": model, "object": "list", "results": results}
    return {**reply, "usage": usage} if usage else reply


def _jina_query(body: dict[str, Any], multimodal: bool) -> tuple[str, int]:
    query = body.get("query")
    if isinstance(query, dict) and set(query) == {"image"}:
        if not multimodal:
            raise Refused(422, "This model takes no images; use jina-reranker-m0.")
        return in_words(base64_picture(query["image"])), _PICTURE_TOKENS
    text = query.get("text") if isinstance(query, dict) else query
    found = _query({"query": text})
    return found, tokens(found)


def _query(body: dict[str, Any]) -> str:
    query = body.get("query")
    if not isinstance(query, str) or not query:
        raise Refused(400, "invalid request: query must be a text that is not empty", param="query")
    return query


def _documents(body: dict[str, Any], service: str, *, objects: bool = False) -> list[str]:
    given = body.get("documents")
    listed = given if isinstance(given, list) else []
    if objects:
        listed = [part.get("text") if isinstance(part, dict) else part for part in listed]
    if not listed or not all(isinstance(text, str) and text for text in listed):
        raise Refused(400, "invalid request: documents must be a list of texts", param="documents")
    if len(listed) > _MOST[service]:
        message = f"too many documents: maximum number of documents is {_MOST[service]}, got {len(listed)}"
        raise Refused(400, message, param="documents")
    return listed


def _results(
    query: str, documents: Sequence[str], top: int | None, fault: Fault | None
) -> list[dict[str, Any]]:
    """The best first, as the services sort them; of equals the first."""
    scores = [overlap(query, document) / (1 + overlap(query, query)) for document in documents]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[:top]
    results: list[dict[str, Any]] = [{"index": n, "relevance_score": scores[n]} for n in order]
    return _spoiled(results, fault)


def _spoiled(results: list[dict[str, Any]], fault: Fault | None) -> list[dict[str, Any]]:
    kind = None if fault is None else fault.kind
    if kind == "empty":
        return []
    if kind == "few_vectors":
        return results[:-1]
    if kind == "many_vectors":
        return [*results, dict(results[-1])]
    if kind == "nan":
        results[-1]["relevance_score"] = None if fault is not None and fault.how == "null" else math.nan
    if kind == "wrong_index":
        results[-1]["index"] = results[0]["index"]
    return results
