"""Reranking, and pictures shown to a chat model, at the provider server over real sockets."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec
from adamab.testing import Fault, ProviderServer
from adamab.testing.provider_looks import in_words, picture_tokens
from adamab.testing.provider_pictures import png

COHERE, JINA, VOYAGE = "/cohere/v2/rerank", "/jina/v1/rerank", "/voyage/v1/rerank"
DOCUMENTS = ["bread and butter", "rain and sun", "nothing at all"]
QUERY = "will the sun come after the rain"
RED = png(bytes([200, 40, 40]) * 64, 8, 8)
SPECS = [ClassSpec("green"), ClassSpec("red")]


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer() as running:
        yield running


def post(server: ProviderServer, path: str, body: Any, **headers: str) -> httpx.Response:
    with httpx.Client(timeout=10, verify=False) as client:  # loading certificates takes longer than all else
        return client.post(server.url + path, json=body, headers=headers)


def rerank(server: ProviderServer, path: str, **more: Any) -> httpx.Response:
    return post(server, path, {"model": "m", "query": QUERY, "documents": DOCUMENTS, **more})


def listed(response: httpx.Response) -> list[dict[str, Any]]:
    answer = response.json()
    found: list[dict[str, Any]] = answer.get("results", answer.get("data"))
    return found


def letters(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shown(*urls: str) -> dict[str, Any]:
    prompt = Prompts().classify_text(SPECS, None, {})
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [{"type": "text", "text": prompt}, *parts]
    return {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize("path", [COHERE, JINA, VOYAGE])
def test_the_best_comes_first_and_all_carry_their_index(server, path):
    results = listed(rerank(server, path))
    assert results[0]["index"] == 1
    assert sorted(entry["index"] for entry in results) == [0, 1, 2]
    scores = [entry["relevance_score"] for entry in results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score < 1 for score in scores)
    assert server.billed(path) == 1


def test_each_counts_in_its_own_way(server):
    cohere, jina, voyage = (rerank(server, path).json() for path in (COHERE, JINA, VOYAGE))
    assert cohere["meta"]["billed_units"] == {"search_units": 1}
    many = rerank(server, COHERE, documents=["x"] * 101).json()
    assert many["meta"]["billed_units"] == {"search_units": 2}
    long = rerank(server, COHERE, documents=["word " * 1000] * 60).json()
    assert long["meta"]["billed_units"]["search_units"] == 2  # each counts as three
    assert jina["usage"] == voyage["usage"] == {"total_tokens": 3 * 8 + 4 + 3 + 4}


def test_tops_and_documents_are_given_on_request(server):
    assert len(listed(rerank(server, COHERE, top_n=1))) == 1
    assert len(listed(rerank(server, VOYAGE, top_k=2))) == 2
    assert listed(rerank(server, JINA))[0]["document"] == {"text": DOCUMENTS[1]}
    assert "document" not in listed(rerank(server, JINA, return_documents=False))[0]


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        (COHERE, {"return_documents": True}, 400),
        (COHERE, {"query": ""}, 400),
        (COHERE, {"query": {"image": letters(RED)}}, 400),
        (COHERE, {"documents": []}, 400),
        (COHERE, {"documents": [{"text": "x"}]}, 400),
        (COHERE, {"top_n": 0}, 400),
        (COHERE, {"model": "no-such-model"}, 404),
        (VOYAGE, {"top_n": 1}, 400),
        (VOYAGE, {"documents": ["x"] * 1001}, 400),
        (VOYAGE, {"documents": ["word " * 8000] * 70}, 400),
        (JINA, {"top_k": 1}, 400),
        (JINA, {"documents": [{"text": "x"}]}, 400),
        (JINA, {"query": {"image": letters(RED)}}, 422),
        (JINA, {"model": "x-m0", "query": {"image": "no base64!"}}, 400),
        (JINA, {"model": "x-m0", "query": {"image": letters(b"no picture")}}, 400),
    ],
)
def test_what_the_services_refuse(server, path, more, status):
    response = rerank(server, path, **more)
    assert response.status_code == status
    assert set(response.json()) == ({"id", "message"} if path == COHERE else {"detail"})
    assert server.billed() == 0


def test_keys_and_repeats(server):
    server.key = "secret-key"
    assert rerank(server, JINA).status_code == 401
    server.key = None
    body = {"model": "m", "query": QUERY, "documents": DOCUMENTS}
    for _ in range(2):
        post(server, JINA, body, **{"Idempotency-Key": "k"})
    assert (server.count(JINA), server.billed(JINA)) == (3, 1)


@pytest.mark.parametrize(
    ("fault", "scores"),
    [
        (Fault("few_vectors"), 2),
        (Fault("many_vectors"), 4),
        (Fault("empty"), 0),
        (Fault("wrong_index"), 3),
        (Fault("nan", how="null"), 3),
    ],
)
def test_scores_are_spoiled_on_demand(server, fault, scores):
    server.add_fault(fault)
    results = listed(rerank(server, VOYAGE))
    assert len(results) == scores
    assert [entry["relevance_score"] is None for entry in results[-1:]] == [fault.kind == "nan"] * min(
        scores, 1
    )
    if fault.kind == "wrong_index":
        assert results[-1]["index"] == results[0]["index"]


def test_too_many_documents_can_be_made_a_matter_of_size(server):
    server.add_fault(Fault("too_large", items=2, times=None))
    assert rerank(server, COHERE).status_code == 413
    assert rerank(server, COHERE, documents=DOCUMENTS[:2]).status_code == 200


def test_a_picture_is_looked_at(server):
    body = {"model": "jina-reranker-m0", "query": {"image": letters(RED)}}
    documents = [{"text": "a green thing"}, {"text": "a red thing"}]
    assert listed(post(server, JINA, {**body, "documents": documents}))[0]["index"] == 1
    url = f"data:image/png;base64,{letters(RED)}"
    answer = post(server, "/v1/chat/completions", shown(url)).json()
    assert answer["choices"][0]["message"]["content"] == "2"
    assert answer["usage"]["prompt_tokens"] > picture_tokens(RED) == 2833 + 5667
    assert server.pictures() == 2
    assert in_words(RED) == "red"
    assert in_words(b"nothing") == ""


@pytest.mark.parametrize(
    "url",
    ["https://example.org/a.png", "data:image/png;base64,???", f"data:image/png;base64,{letters(b'no')}"],
)
def test_other_pictures_are_refused(server, url):
    assert post(server, "/v1/chat/completions", shown(url)).status_code == 400
    part = {"type": "input_audio", "input_audio": {}}
    body = shown()
    body["messages"][0]["content"].append(part)
    assert post(server, "/v1/chat/completions", body).status_code == 400


def test_a_server_that_runs_for_long_keeps_no_pictures():
    url = f"data:image/png;base64,{letters(RED)}"
    with ProviderServer(keep=10) as server:
        post(server, "/v1/chat/completions", shown(url))
        body = {"model": "jina-reranker-m0", "query": {"image": letters(RED)}, "documents": [{"text": "red"}]}
        post(server, JINA, body)
        kept = [str(seen.body) for seen in server.seen]
    assert all("sha256:" in text and letters(RED) not in text for text in kept)


@pytest.mark.parametrize(
    ("how", "content"),
    [("none", "-1"), ("json", '{"class": 2}'), ("think", "</think>\n\n2"), ("two", "either 2 or 3")],
)
def test_numbers_of_classes_are_written_in_many_ways(server, how, content):
    server.add_fault(Fault.parse(f"answer:how={how}"))
    answer = post(server, "/v1/chat/completions", shown(f"data:image/png;base64,{letters(RED)}")).json()
    assert content in answer["choices"][0]["message"]["content"]
