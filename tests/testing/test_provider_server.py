"""The provider server over real sockets: what it answers, counts and refuses, and the process on its own.

That the faults spoil answers as they say is tested with the clients that meet them, in tests/providers.
"""

import base64
import io

import httpx
import numpy as np
import PIL.Image
import pytest

from adamab.testing import Fault, ProviderServer, __main__

CHAT, EMBED, DRAW = "/v1/chat/completions", "/v1/embeddings", "/v1/images/generations"
VOYAGE, MULTIMODAL = "/voyage/v1/embeddings", "/voyage/v1/multimodalembeddings"
COHERE, RERANKERS = "/cohere/v2/embed", ("/cohere/v2/rerank", "/jina/v1/rerank", "/voyage/v1/rerank")
TEXTS = ["the red car broke down", "my red car broke", "bread and butter"]
KEY = "sk-proj-verysecretverysecret-9876"


@pytest.fixture
def server():
    with ProviderServer(width=16) as running:
        yield running


@pytest.fixture(scope="module")
def client():
    with httpx.Client(timeout=10, verify=False) as shared:  # loading certificates takes longer than all else
        yield shared


@pytest.fixture(name="post")
def _post(client):
    def post(server, path, key="", **body):
        headers = {"Idempotency-Key": key} if key else {}
        return client.post(server.url + path, json={"model": "m", **body}, headers=headers)

    return post


def vectors(response):
    return np.array([entry["embedding"] for entry in response.json()["data"]], np.float64)


def image(data):
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"content": [{"type": "image_base64", "image_base64": url}]}


def png(width, height):
    stream = io.BytesIO()
    PIL.Image.new("RGB", (width, height)).save(stream, "PNG")
    return stream.getvalue()


def test_each_counts_in_its_own_way(server, post):
    assert post(server, EMBED, input=TEXTS).json()["usage"] == {"prompt_tokens": 14, "total_tokens": 14}
    assert post(server, VOYAGE, input=TEXTS).json()["usage"] == {"total_tokens": 14}
    cohere = post(server, COHERE, texts=TEXTS, input_type="search_document").json()
    assert cohere["meta"]["billed_units"] == {"input_tokens": 14}
    text = {"content": [{"type": "text", "text": "abcdefgh"}]}
    inputs = [image(png(5, 2)), image(png(800, 700)), text]
    usage = post(server, MULTIMODAL, inputs=inputs).json()["usage"]
    pixels = 50_000 + 560_000
    assert usage == {"text_tokens": 2, "image_pixels": pixels, "total_tokens": 2 + -(-pixels // 560)}
    long = post(server, RERANKERS[0], query="x", documents=["word " * 1000] * 60).json()
    assert long["meta"]["billed_units"] == {"search_units": 2}  # each document counts as three
    body = {"model": "gpt-image-1-mini", "prompt": "abcdefgh", "n": 2, "size": "1536x1024"}
    made = 2 * 6208  # a quality that is not given is the highest
    usage = post(server, DRAW, **body).json()["usage"]
    assert usage == {"total_tokens": 2 + made, "input_tokens": 2, "output_tokens": made}
    assert server.images() == 4


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (EMBED, {"input": ["x"] * 2049}, "array too long"),
        (EMBED, {"input": [""]}, "empty string"),
        (EMBED, {"input": TEXTS, "input_type": "query"}, "input_type"),
        (VOYAGE, {"input": TEXTS, "input_type": "search_query"}, "search_query"),
        (COHERE, {"texts": TEXTS}, "input_type"),
        (COHERE, {"texts": 5, "input_type": "classification"}, "list of texts"),
        (MULTIMODAL, {"inputs": ["b"]}, "'inputs' is invalid"),
        (MULTIMODAL, {"inputs": [image(b"x")]}, "not be decoded"),
        (MULTIMODAL, {"inputs": [{"content": [{"type": "image_url", "image_url": "https:"}]}]}, "fetches no"),
        (MULTIMODAL, {"inputs": []}, "batch size limit is 1000"),
        (CHAT, {"messages": []}, "messages"),
        (DRAW, {"prompt": ""}, "prompt"),
        (DRAW, {"prompt": "x", "model": "gpt-image-1", "response_format": "b64_json"}, "response_format"),
        (RERANKERS[0], {"query": "", "documents": TEXTS}, "query"),
        (RERANKERS[1], {"query": {"image": "x"}, "documents": TEXTS}, "takes no images"),
        (EMBED, {"input": TEXTS, "model": ""}, "must provide a model"),
    ],
)
def test_what_the_services_do_not_take_is_refused_and_not_billed(server, post, path, body, words):
    refused = post(server, path, **body)
    assert refused.status_code in (400, 422)
    assert words in refused.text
    assert (server.billed(), server.images()) == (0, 0)


@pytest.mark.parametrize("fault", ["sleepy", "status:code=4", "status:times=x", "reset:sent=2"])
def test_faults_that_make_no_sense_are_refused(fault):
    with pytest.raises((ValueError, TypeError)):
        Fault.parse(fault)
    with pytest.raises(ValueError, match="unknown style"):
        ProviderServer(style="haiku")


@pytest.mark.parametrize("kind", [None, "reset", "truncate", "nan", "few_vectors"])
def test_a_repeated_key_gets_the_right_answer_and_is_billed_once(server, post, kind):
    if kind is not None:
        server.add_fault(Fault(kind))
    try:
        post(server, EMBED, key="a", input=TEXTS)
    except httpx.TransportError:
        assert kind == "reset"
    assert np.isfinite(vectors(post(server, EMBED, key="a", input=TEXTS))).all()
    assert (server.count(), server.billed(), server.repeated()) == (2, 1, 0)
    refused = post(server, EMBED, key="a", input=TEXTS[:1])
    assert refused.json()["error"]["type"] == "idempotency_error"
    server.idempotent = False
    post(server, EMBED, key="a", input=TEXTS)
    assert (server.billed(), server.repeated()) == (2, 1)


def test_control_over_http(server, client, post):
    added = client.post(server.url + "/_faults", json=[{"kind": "status", "status": 500, "times": None}])
    assert added.json() == {"added": 1}
    assert post(server, EMBED, input=TEXTS).status_code == 500
    assert [(seen.status, seen.fault, seen.billed) for seen in server.seen] == [(500, "status", False)]
    assert client.post(server.url + "/v1/nothing", json={}).status_code == 404
    counts = client.get(server.url + "/_seen").json()
    assert counts[EMBED] == {"received": 1, "billed": 0, "repeated": 0}
    assert client.post(server.url + "/_reset", json={}).status_code == 200
    assert client.get(server.url + "/_seen").json() == {}
    for wrong in ([{"kind": "sleepy"}], 4, [4]):
        assert client.post(server.url + "/_faults", json=wrong).status_code == 400
    assert client.get(server.url + "/_nothing").status_code == 404
    assert client.post(server.url + EMBED, content=b"{no json").status_code == 400


def test_the_process_serves_until_it_is_stopped(monkeypatch, capsys, client):
    handlers, statuses = {}, []

    def stopped(seconds):
        url = capsys.readouterr().out.split("openai ")[1].split("/v1")[0]
        headers = {"Authorization": "Bearer sk-x"}
        body = {"model": "m", "input": "x"}
        statuses.extend(client.post(url + EMBED, json=body, headers=headers).status_code for _ in range(2))
        assert __main__.main(["--port", url.rpartition(":")[2]]) == 2, "the port is in use"
        handlers[__main__.signal.SIGTERM](15, None)

    monkeypatch.setattr(__main__, "sleep", stopped)
    monkeypatch.setattr(__main__.signal, "signal", handlers.__setitem__)
    assert __main__.main(["--port", "0", "--key", "sk-x", "--fault", "status", "--style", "lines"]) == 0
    assert statuses == [429, 200]
    assert "choose another --port" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        __main__.main(["--fault", "sleepy"])
    assert "unknown fault 'sleepy'" in capsys.readouterr().err
