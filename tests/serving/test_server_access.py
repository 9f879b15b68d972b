"""Who may ask: token, host and origin."""

from __future__ import annotations

import httpx
import pytest

from adamab.serving.guard import Access

TOKEN = "correct horse"


def test_a_token_is_needed_for_everything_but_the_health(live, text_model, watched):
    server = live(text_model, watched, Access(token=TOKEN))
    assert server.get("/healthz").status_code == 200
    for path in ("/v1/classes", "/metrics", "/openapi.json", "/v1/classify", "/nothing", "//healthz"):
        answer = server.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    right = {"authorization": f"Bearer {TOKEN}"}
    assert server.get("/v1/classes", headers=right).status_code == 200
    assert server.get("/v1/classes", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200
    answer = httpx.post(f"{server.url}/v1/classify", json={"text": "a"}, headers=right)
    assert answer.status_code == 200
    assert TOKEN not in server.get("/metrics", headers=right).text


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xe4"],
)
def test_wrong_tokens(header):
    with pytest.raises(Exception, match="send the server's token"):
        Access(token=TOKEN).check(
            "GET", "/metrics", {b"host": b"localhost", b"authorization": header.encode("latin-1")}
        )


def test_a_token_is_not_shown():
    assert TOKEN not in repr(Access(token=TOKEN))


def test_a_body_is_not_read_before_the_token(live, text_model, watched):
    server = live(text_model, watched, Access(token=TOKEN), body_seconds=0.2)
    answer = httpx.post(f"{server.url}/v1/classify", content=iter([b"{"] * 3))
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:1", True),
        ("[::1]:8000", True),
        ("desk.example", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("localhost@evil.example", False),
        ("", False),
    ],
)
def test_a_loopback_server_answers_to_its_own_names(standing, host, allowed):
    answer = standing.get("/healthz", headers={"host": host})
    assert answer.status_code == (200 if allowed else 421)


def test_elsewhere_any_name_will_do(live, text_model, watched):
    server = live(text_model, watched, Access(None))
    assert server.get("/healthz", headers={"host": "desk.example"}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "allowed"), [(None, True), ("own", True), ("https://evil.example", False), ("null", False)]
)
def test_pages_of_other_sites_may_not_post(standing, origin, allowed):
    headers = {} if origin is None else {"origin": standing.url if origin == "own" else origin}
    answer = httpx.post(f"{standing.url}/v1/classify", json={"text": "a"}, headers=headers)
    assert answer.status_code == (200 if allowed else 403)
