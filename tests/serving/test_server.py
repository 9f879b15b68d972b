"""What is answered, and what is refused, over real sockets."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import numpy as np
import pytest

from adamab.classifier import Asked, load
from adamab.errors import ApiError, EmbedderError
from adamab.run.inference import Inference
from adamab.serving.pictures import Row
from adamab.testing import PixelEmbedder

HEADERS = {"content-type": "application/json"}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message"}
    assert "\n" not in answer.json()["error"]["message"]
    return answer.status_code, answer.json()["error"]["code"]


def test_answers_are_those_of_the_classifier(live, text_model, watched):
    texts = ["my money", "please sign me in", "she likes it", "zebra"]
    server = live(text_model, watched)
    asked = Asked(k=3, unknown=0.5, coverage=0.8)
    answer = server.post(texts=texts, top_k=3, unknown=0.5, coverage=0.8).json()
    told = Inference(load(text_model), watched).answers([Row(text) for text in texts], asked)
    names = load(text_model).classes
    for number, result in enumerate(answer["results"]):
        assert [one["class"] for one in result["top"]] == [names[i] for i in told.indices[number]]
        shares = [one["probability"] for one in result["top"]]
        np.testing.assert_allclose(shares, told.probabilities[number], atol=1e-6)
        assert result["probability"] == shares[0]
        assert result["unknown"] == told.unknown[number]
        assert result["class"] == ("unknown" if result["unknown"] else result["top"][0]["class"])
        assert result["set"] == [names[i] for i in told.sets[number]]
    assert {result["unknown"] for result in answer["results"]} == {True, False}
    assert answer["model"] == {"run": "desk", "digest": server.service.model.digest}


def test_one_text_and_other_priors(live, text_model, watched):
    server = live(text_model, watched)
    (plain,) = server.post(text=" my money ").json()["results"]
    assert plain["class"] == "refund"
    assert set(plain) == {"class", "probability", "top"}
    (shifted,) = server.post(text="my money", priors={"refund": 0.0, "login": 0.9}).json()["results"]
    assert shifted["class"] == "login"


def test_what_else_can_be_asked(live, text_model, watched):
    server = live(text_model, watched)
    told = server.get("/v1/classes").json()
    assert told["classes"] == [{"name": "refund"}, {"name": "login"}, {"name": "praise"}]
    assert (told["modality"], told["model"]["run"]) == ("text", "desk")
    health = server.get("/healthz").json()
    assert health["status"] == "ready"
    assert health["model"] == told["model"]
    assert httpx.head(f"{server.url}/healthz").status_code == 200
    paths = server.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/v1/classify", "/v1/classes", "/healthz", "/metrics"}


def test_the_embedder_is_named_without_options_and_folders(text_model, watched):
    from adamab.serving.service import Service

    service = Service(text_model, watched, log=print)
    for spec, shown in {
        "openai:m?base_url=http://10.0.0.1/v1&key_env=MY_KEY": "openai:m",
        "npz:/home/me/v.npz": "npz:v.npz",
        "st:/home/me/model": "st:model",
        "st:org/model": "st:org/model",
        "local": "local",
    }.items():
        service._embedder = spec
        assert service.embedder == shown


def test_a_file_for_a_model_of_texts(standing):
    answer = httpx.post(f"{standing.url}/v1/classify", files={"images": ("a.txt", b"my money")})
    assert error_of(answer) == (422, "invalid")
    assert "the model classifies texts" in answer.json()["error"]["message"]


def test_a_share_that_nothing_vouches_for_is_told(standing):
    plain = standing.post(text="my money", unknown=0.5).json()
    assert "notes" not in plain
    told = standing.post(text="my money", unknown=0.99, coverage=0.99).json()
    assert told["results"][0]["unknown"] is False
    assert told["notes"] == [
        "too few samples were held out to vouch for 0.99, so no answer is unknown",
        "too few samples were held out to vouch for 0.99, so every set holds all classes",
    ]


def test_what_may_be_refused_is_in_the_document(standing):
    paths = standing.get("/openapi.json").json()["paths"]
    for path in ("/healthz", "/v1/classes"):
        assert "503" in paths[path]["get"]["responses"]


def test_only_what_was_answered_counts_as_classified(live, text_model, watched):
    server = live(text_model, watched)
    watched.error = lambda items: EmbedderError("gone")
    server.post(texts=["a", "b"])
    watched.error = lambda items: None
    server.post(texts=["c", "d", "e"])
    page = server.get("/metrics").text
    assert "adamab_items_total 3.0" in page
    assert "adamab_batch_items_count 2.0" in page


def test_metrics_count_what_happened(live, text_model, watched):
    server = live(text_model, watched)
    server.post(texts=["a", "b", "c"])
    server.post(texts=[])
    server.get("/never/heard/of")
    page = server.get("/metrics").text
    assert 'adamab_requests_total{path="/v1/classify",status="200"} 1.0' in page
    assert 'adamab_requests_total{path="/v1/classify",status="422"} 1.0' in page
    assert 'adamab_requests_total{path="other",status="404"} 1.0' in page
    assert "adamab_items_total 3.0" in page
    assert "adamab_batch_items_count 1.0" in page
    assert "adamab_waiting_items 0.0" in page
    assert 'adamab_request_seconds_count{path="/v1/classify"} 2.0' in page


def test_every_answer_has_the_headers_of_a_careful_server(standing):
    refused = httpx.post(f"{standing.url}/v1/classify", content=b"{", headers=HEADERS)
    for answer in (standing.get("/healthz"), standing.get("/nothing"), standing.post(text="a"), refused):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ({}, 422, "exactly one of"),
        ({"text": "a", "texts": ["b"]}, 422, "exactly one of"),
        ({"texts": []}, 422, "texts: is empty; send at least one"),
        ({"text": ""}, 422, "text: is empty"),
        ({"texts": ["a", " \n "]}, 422, "texts.1: is empty"),
        ({"text": "a\0b"}, 422, "text: holds a NUL"),
        ({"text": 7}, 422, "text: "),
        ({"text": None}, 422, "exactly one of"),
        ({"texts": "a"}, 422, "texts: "),
        ({"text": "a", "topk": 1}, 422, "topk: is no field of a question; did you mean 'top_k'?"),
        ({"text": "a", "top_k": 0}, 422, "top_k: "),
        ({"text": "a", "top_k": 4}, 422, "top_k: is 4, and the model has 3 classes"),
        ({"text": "a", "top_k": 10**30}, 422, "top_k: "),
        ({"text": "a", "top_k": 1.5}, 422, "top_k: "),
        ({"text": "a", "top_k": True}, 422, "top_k: "),
        ({"text": "a", "unknown": 0}, 422, "unknown: "),
        ({"text": "a", "unknown": 1}, 422, "unknown: "),
        ({"text": "a", "unknown": -1e308}, 422, "unknown: "),
        ({"text": "a", "coverage": 10**400}, 422, "coverage: "),
        ({"text": "a", "coverage": 0.9, "priors": {"login": 0.5}}, 422, "leave the priors out"),
        ({"text": "a", "priors": {"nobody": 0.5}}, 422, "nobody"),
        ({"text": "a", "priors": {"login": 1.5}}, 422, "priors.login: "),
        ({"text": "a", "priors": {"login": 0.9, "refund": 0.9}}, 422, "sum to 1.8"),
        ({"images": [{"data": "aGVsbG8="}]}, 422, "the model classifies texts; send texts"),
        ({"images": ["aGVsbG8="]}, 422, 'images.0: write an object {"data": "…base64…"}'),
        ({"images": []}, 422, "images: is empty; send at least one"),
        ([], 422, "object"),
        ("text", 422, "object"),
        (None, 422, "object"),
    ],
)
def test_questions_that_cannot_be_answered(standing, question, status, words):
    answer = httpx.post(f"{standing.url}/v1/classify", content=json.dumps(question), headers=HEADERS)
    assert error_of(answer)[0] == status
    assert words in answer.json()["error"]["message"]
    assert standing.log == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"text": "\\ud800"}', b'{"text": "\xff"}', b'{"text": NaN}', b"\0", b"[" * 100_000],
)
def test_bodies_that_cannot_be_read(standing, body):
    answer = httpx.post(f"{standing.url}/v1/classify", content=body, headers=HEADERS)
    assert error_of(answer)[0] in (400, 422)
    assert standing.log == []


def test_other_types_paths_and_methods(standing):
    url = f"{standing.url}/v1/classify"
    assert error_of(httpx.post(url, content=b"{}")) == (415, "unknown_type")
    assert error_of(httpx.post(url, data={"text": "a"})) == (415, "unknown_type")
    assert error_of(httpx.get(url)) == (405, "wrong_method")
    assert error_of(standing.get("/nothing")) == (404, "not_found")
    assert error_of(standing.get("/docs")) == (404, "not_found")  # it would load scripts from elsewhere


def test_texts_for_a_model_of_pictures(live, picture_model):
    answer = live(picture_model, PixelEmbedder()).post(text="red")
    assert error_of(answer) == (422, "invalid")
    assert "send images" in answer.json()["error"]["message"]


def test_a_failing_embedder_is_the_servers_fault_and_tells_the_log(live, text_model, watched):
    server = live(text_model, watched)
    watched.error = lambda items: EmbedderError("/home/me/model: is gone")
    answer = server.post(text="a")
    assert error_of(answer) == (502, "embedder_failed")
    assert "/home/me" not in answer.text
    assert server.log == ["an embedding failed: /home/me/model: is gone"]
    watched.error = lambda items: ApiError("no", refused=True)
    assert error_of(server.post(text="a")) == (422, "invalid")
    watched.error = lambda items: None
    assert server.post(text="a").status_code == 200


def test_a_bug_is_a_500_with_a_traceback_in_the_log_only(live, text_model, watched):
    server = live(text_model, watched)
    watched.error = lambda items: ZeroDivisionError("secret words")
    answer = server.post(text="a")
    assert error_of(answer) == (500, "internal")
    assert "secret" not in answer.text
    assert "ZeroDivisionError: secret words" in server.log[0]


def test_a_folder_without_a_model(tmp_path: Path):
    from adamab.errors import ModelFileError
    from adamab.serving.service import Service

    with pytest.raises(ModelFileError, match="no such file"):
        Service(tmp_path, log=print)
