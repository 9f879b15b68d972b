"""Limits on size, number and time, told clearly, and clients that mean no good."""

import json
import socket
from contextlib import ExitStack

import httpx

HEADERS = {"content-type": "application/json"}


def head(server, *lines):
    first = ["POST /v1/classify HTTP/1.1", f"host: {server.url[7:]}", "content-type: application/json"]
    return "\r\n".join([*first, *lines, "", ""]).encode()


def answer_to(client):
    """Status and body of an answer after which the server closes."""
    client.settimeout(30)
    parts = b"".join(iter(lambda: client.recv(65536), b""))
    top, _, body = parts.partition(b"\r\n\r\n")
    return int(top.split()[1]), json.loads(body)


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


def test_too_many_and_too_long(live, text_model, watched):
    server = live(text_model, watched, items=3, characters=10)
    assert server.post(texts=["a", "b", "c"]).status_code == 200
    assert code(server.post(texts=["a", "b", "c", "d"])) == (413, "too_many_items")
    assert server.post(text="a" * 10).status_code == 200
    assert code(server.post(texts=["b" * 11])) == (413, "text_too_long")
    assert watched.asked[1:] == [["a", "b", "c"], ["a" * 10]]  # the first was the warm-up


def test_large_bodies(live, text_model, watched):
    server = live(text_model, watched, body=1000)
    assert server.post(text="a" * 980).status_code == 200
    answer = server.post(text="a" * 2000)
    assert code(answer) == (413, "body_too_large")
    assert "1000 bytes" in answer.json()["error"]["message"]
    with socket.create_connection(server.address) as client:  # nothing of it has to be sent
        client.sendall(head(server, f"content-length: {10**12}", "expect: 100-continue"))
        assert answer_to(client)[0] == 413

    def sent(count):  # of a length that is not declared
        parts = iter([b'{"text": "', *[b"a" * 100] * count, b'"}'])
        return httpx.post(f"{server.url}/v1/classify", content=parts, headers=HEADERS)

    assert sent(5).status_code == 200
    assert code(sent(50)) == code(sent(50_000)) == (413, "body_too_large")
    assert server.desk.bodies.held == 0


def test_bodies_together(live, text_model, watched, eventually):
    server = live(text_model, watched, body=1000, all_bodies=1500)
    with socket.create_connection(server.address) as client:
        client.sendall(head(server, "content-length: 1000") + b" " * 900)
        eventually(lambda: server.desk.bodies.held == 900)
        assert code(server.post(text="a" * 700)) == (503, "busy")
    assert server.get("/healthz").status_code == 200
    eventually(lambda: not server.desk.bodies.held)
    assert server.post(text="a" * 700).status_code == 200


def test_a_body_that_drips(live, text_model, watched):
    server = live(text_model, watched, body_seconds=0.3)
    with socket.create_connection(server.address) as client:
        client.sendall(head(server, "content-length: 1000") + b"{")
        status, body = answer_to(client)
        assert (status, body["error"]["code"]) == (408, "slow_body")
        assert server.post(text="others go on").status_code == 200


def test_half_sent_requests_hold_up_nobody(live, text_model, watched, eventually):
    server = live(text_model, watched, body_seconds=60)
    begun = head(server, "content-length: 1000") + b"{"
    with ExitStack() as stack:
        for number in range(200):
            client = stack.enter_context(socket.create_connection(server.address))
            client.sendall((b"", b"POST /v1/cl", b"GET /healthz HTTP/1.1\r\nx: ", begun)[number % 4])
        eventually(lambda: server.desk.bodies.held == 50)
        url, body = f"{server.url}/v1/classify", {"text": "others go on"}
        assert httpx.post(url, json=body, timeout=5).status_code == 200
        assert server.get("/healthz").status_code == 200


def test_what_is_no_http(live, text_model, watched):
    server = live(text_model, watched)
    for sent in (b"\x16\x03\x01 hello\r\n\r\n", b"GET / HTTP/x\r\n\r\n", b"x: " + b"a" * 100_000):
        with socket.create_connection(server.address, timeout=30) as client:
            client.sendall(sent)
            assert client.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert server.log == []


def test_too_many_connections(live, text_model, watched, eventually):
    server = live(text_model, watched, connections=3)
    with socket.create_connection(server.address), socket.create_connection(server.address):
        eventually(lambda: len(server.server.server_state.connections) == 2)
        assert server.get("/healthz").status_code == 503
    eventually(lambda: not server.server.server_state.connections)
    assert server.get("/healthz").status_code == 200
