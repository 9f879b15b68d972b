"""What is answered, and what is refused, over real sockets."""

import json

import httpx
import numpy as np
import pytest

from adamab.errors import ApiError, EmbedderError
from adamab.model import PredictOptions, load
from adamab.model.predictor import Inference
from adamab.serving._questions import Row
from adamab.serving.requests import Access

HEADERS = {"content-type": "application/json"}
TOKEN = "correct horse"


def error_of(answer):
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message"}
    assert "\n" not in answer.json()["error"]["message"]
    return answer.status_code, answer.json()["error"]["code"]


def test_answers_are_those_of_the_classifier(live, text_model, watched):
    texts = ["my money", "please sign me in", "she likes it", "zebra"]
    server = live(text_model, watched)
    options = PredictOptions(k=3, unknown=0.5, coverage=0.8)
    answer = server.post(texts=texts, top_k=3, unknown=0.5, coverage=0.8).json()
    expected = Inference(load(text_model), watched).answers([Row(text) for text in texts], options)
    names = load(text_model).classes
    for number, result in enumerate(answer["results"]):
        assert [one["class"] for one in result["top"]] == [names[i] for i in expected.indices[number]]
        shares = [one["probability"] for one in result["top"]]
        np.testing.assert_allclose(shares, expected.probabilities[number], atol=1e-6)
        assert result["probability"] == shares[0]
        assert result["unknown"] == expected.unknown[number]
        assert result["class"] == ("unknown" if result["unknown"] else result["top"][0]["class"])
        assert result["set"] == [names[i] for i in expected.sets[number]]
    assert {result["unknown"] for result in answer["results"]} == {True, False}
    assert answer["model"] == {"run": "desk", "digest": server.service.model.digest}


def test_what_else_can_be_asked(standing):
    server = standing
    classes = server.get("/v1/classes").json()
    assert classes["classes"] == [{"name": "refund"}, {"name": "login"}, {"name": "praise"}]
    assert (classes["modality"], classes["model"]["run"]) == ("text", "desk")
    health = server.get("/healthz").json()
    assert health["status"] == "ready"
    assert health["model"] == classes["model"]
    assert httpx.head(f"{server.url}/healthz").status_code == 200
    paths = server.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/v1/classify", "/v1/classes", "/healthz", "/metrics"}
    for path in ("/healthz", "/v1/classes"):
        assert "503" in paths[path]["get"]["responses"]


def test_metrics_count_what_happened(live, text_model, watched):
    server = live(text_model, watched)
    watched.error = lambda items: EmbedderError("gone")
    server.post(texts=["lost", "too"])
    watched.error = lambda items: None
    server.post(texts=["a", "b", "c"])
    server.post(texts=[])
    server.get("/never/heard/of")
    page = server.get("/metrics").text
    assert 'adamab_requests_total{path="/v1/classify",status="200"} 1.0' in page
    assert 'adamab_requests_total{path="/v1/classify",status="422"} 1.0' in page
    assert 'adamab_requests_total{path="other",status="404"} 1.0' in page
    assert "adamab_items_total 3.0" in page  # only what was answered
    assert "adamab_batch_items_count 2.0" in page
    assert "adamab_waiting_items 0.0" in page
    assert 'adamab_request_seconds_count{path="/v1/classify"} 3.0' in page


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ({}, 422, "exactly one of"),
        ({"text": "a", "texts": ["b"]}, 422, "exactly one of"),
        ({"texts": []}, 422, "texts: "),
        ({"texts": ["", " \n "]}, 422, "texts.0: is empty"),
        ({"text": "a\0b"}, 422, "text: holds a NUL"),
        ({"text": "a", "topk": 1}, 422, "topk: is no field of a question; did you mean 'top_k'?"),
        ({"text": "a", "top_k": 4}, 422, "top_k: is 4, and the model has 3 classes"),
        ({"text": "a", "coverage": 10**400}, 422, "coverage: "),
        ({"text": "a", "coverage": 0.9, "priors": {"login": 0.5}}, 422, "leave the priors out"),
        ({"text": "a", "priors": {"nobody": 0.5}}, 422, "nobody"),
        ({"text": "a", "priors": {"login": 1.5}}, 422, "priors.login: "),
        ({"text": "a", "priors": {"login": 0.9, "refund": 0.9}}, 422, "sum to 1.8"),
        ({"images": [{"data": "aGVsbG8="}]}, 422, "the model classifies texts; send texts"),
        ([], 422, "object"),
    ],
)
def test_questions_that_cannot_be_answered(standing, question, status, words):
    answer = httpx.post(f"{standing.url}/v1/classify", content=json.dumps(question), headers=HEADERS)
    assert error_of(answer)[0] == status
    assert words in answer.json()["error"]["message"]
    assert standing.log == []


def test_an_item_that_cannot_be_answered_costs_no_other_its_answer(live, text_model, watched):
    server = live(text_model, watched, characters=100)
    watched.error = lambda items: ApiError("/home/me", refused=True) if "bad" in items else None
    texts = ["my money", "", "bad", "please sign me in", "a\0b", "x" * 101, "she likes it"]
    results = server.post(texts=texts).json()["results"]
    assert [result.get("class") for result in results] == [
        "refund", None, None, "login", None, None, "praise",
    ]  # fmt: skip
    assert [result["error"] for result in results if "error" in result] == [
        {"code": "invalid", "message": "texts.1: is empty"},
        {"code": "invalid", "message": "the embedder refuses this item"},
        {"code": "invalid", "message": "texts.4: holds a NUL or half a character"},
        {"code": "text_too_long", "message": "texts.5: has more than 100 characters; send a part of it"},
    ]
    assert (server.post(texts=["bad"]).status_code, server.post(texts=["bad", ""]).status_code) == (422, 422)
    assert server.log == []


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("desk.example", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_a_loopback_server_answers_to_its_own_names(standing, host, allowed):
    answer = standing.get("/healthz", headers={"host": host})
    assert answer.status_code == (200 if allowed else 421)


def test_one_text_other_priors_and_shares_that_nothing_vouches_for(standing):
    answer = standing.post(text=" my money ").json()
    assert answer["results"][0]["class"] == "refund"
    assert set(answer["results"][0]) == {"class", "probability", "top"}
    assert "notes" not in answer
    (shifted,) = standing.post(text="my money", priors={"refund": 0.0, "login": 0.9}).json()["results"]
    assert shifted["class"] == "login"
    answer = standing.post(text="my money", unknown=0.99, coverage=0.99).json()
    assert answer["results"][0]["unknown"] is False
    assert [note.partition("so ")[2] for note in answer["notes"]] == [
        "no answer is unknown",
        "every set holds all classes",
    ]


def test_requests_that_cannot_be_read(standing):
    url = f"{standing.url}/v1/classify"
    for body in (b"", b'{"text": "\\ud800"}', b'{"text": "\xff"}', b"[" * 100_000):
        assert error_of(httpx.post(url, content=body, headers=HEADERS))[0] in (400, 422)
    assert error_of(httpx.post(url, content=b"{}")) == (415, "unknown_type")
    assert error_of(httpx.post(url, data={"text": "a"})) == (415, "unknown_type")
    assert error_of(httpx.get(url)) == (405, "wrong_method")
    assert error_of(standing.get("/nothing")) == (404, "not_found")
    assert standing.log == []
    for answer in (standing.get("/healthz"), standing.get("/nothing"), standing.post(text="a")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "server" not in answer.headers


def test_faults_of_the_server_are_in_its_log_only(live, text_model, watched):
    server = live(text_model, watched)
    for error, expected in (
        (EmbedderError("/home/me/model: is gone"), (502, "embedder_failed")),
        (ApiError("/home/me", refused=True), (422, "invalid")),
        (ZeroDivisionError("/home/me"), (500, "internal")),
    ):
        watched.error = lambda items, error=error: error
        answer = server.post(text="a")
        assert error_of(answer) == expected
        assert "/home/me" not in answer.text
    assert server.log[0] == "an embedding failed: /home/me/model: is gone"
    assert "ZeroDivisionError: /home/me" in server.log[1]  # with a traceback
    watched.error = lambda items: None
    assert server.post(text="a").status_code == 200


def test_a_token_is_needed_for_everything_but_the_health(live, text_model, watched):
    server = live(text_model, watched, Access(None, token=TOKEN), body_seconds=0.2)
    assert server.get("/healthz").status_code == 200
    for path in ("/v1/classes", "/metrics", "/openapi.json", "/v1/classify", "/nothing", "//healthz"):
        answer = server.get(path)
        assert error_of(answer) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    for header in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", b"Bearer \xe4"):
        assert server.get("/metrics", headers={"authorization": header}).status_code == 401
    unread = httpx.post(f"{server.url}/v1/classify", content=iter([b"{"] * 3))  # the token comes first
    assert unread.status_code == 401
    right = {"authorization": f"Bearer {TOKEN}", "host": "desk.example"}  # any name will do here
    assert server.get("/v1/classes", headers=right).status_code == 200
    assert server.get("/v1/classes", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200
    answer = httpx.post(f"{server.url}/v1/classify", json={"text": "a"}, headers=right)
    assert answer.status_code == 200
    assert TOKEN not in server.get("/metrics", headers=right).text
    assert TOKEN not in repr(Access(token=TOKEN))
