"""Requests that arrive together are embedded together, and each gets its own rows."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from adamab.errors import EmbedderError

WORDS = {"refund": "money", "login": "sign", "praise": "likes"}


def held(server, watched, first="first"):
    """Hold up the embedder with one request; what comes now has to wait. Returns its thread."""
    watched.asked.clear()
    watched.entered.clear()
    watched.open.clear()
    thread = threading.Thread(target=server.post, kwargs={"text": first})
    thread.start()
    assert watched.entered.wait(30)
    return thread


def test_concurrent_requests_share_a_call_and_each_gets_its_own_rows(live, text_model, watched, eventually):
    server = live(text_model, watched)
    thread = held(server, watched)
    questions = [(name, count) for name in WORDS for count in (1, 2, 3)]
    with ThreadPoolExecutor(len(questions)) as pool:

        def ask(question):
            name, count = question
            texts = [f"{WORDS[name]} {number}" for number in range(count)]
            options = {"top_k": count, "unknown": 0.99} if count > 1 else {}
            return server.post(texts=texts, **options).json()

        answers = [pool.submit(ask, question) for question in questions]
        eventually(lambda: server.desk._batcher._items == 18)
        watched.open.set()
        for (name, count), answer in zip(questions, answers, strict=True):
            results = answer.result()["results"]
            assert [result["top"][0]["class"] for result in results] == [name] * count
            assert all(len(result["top"]) == count for result in results)
            assert all(("unknown" in result) == (count > 1) for result in results)
    thread.join()
    assert len(watched.asked) == 2  # the first, and all others together
    assert len(watched.asked[1]) == 9  # equal texts once


def test_a_batch_has_an_end_and_one_bad_request_spoils_no_other(live, text_model, watched, eventually):
    server = live(text_model, watched, batch_items=4)
    thread = held(server, watched)
    watched.error = lambda items: EmbedderError("bad") if "bad" in items else None
    requests = [["0", "1", "2"], ["a", "b"], ["bad"], ["c"]]
    with ThreadPoolExecutor(4) as pool:
        answers = []
        for texts in requests:
            answers.append(pool.submit(server.post, texts=texts))
            count = sum(map(len, requests[: len(answers)]))
            eventually(lambda count=count: server.desk._batcher._items == count)
        watched.open.set()
        assert [answer.result().status_code for answer in answers] == [200, 200, 502, 200]
    thread.join()
    assert watched.asked[1:3] == [["0", "1", "2"], ["a", "b", "bad", "c"]]  # requests stay whole


def test_a_request_whose_client_has_gone_is_not_computed(live, text_model, watched, eventually):
    server = live(text_model, watched)
    thread = held(server, watched)
    body = b'{"text": "nobody waits for this"}'
    head = f"POST /v1/classify HTTP/1.1\r\nhost: {server.url[7:]}\r\ncontent-type: application/json\r\n"
    with socket.create_connection(server.address) as client:
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        eventually(lambda: server.desk._batcher._items == 1)
    eventually(lambda: server.desk._batcher._items == 0)
    watched.open.set()
    thread.join()
    assert server.post(text="somebody does").status_code == 200
    assert watched.asked == [["first"], ["somebody does"]]
    assert 'status="499"' in server.get("/metrics").text
    assert server.log == []


def test_a_full_queue_and_a_slow_answer(live, text_model, watched, eventually):
    server = live(text_model, watched, waiting_items=2, answer_seconds=0.5)
    watched.open.clear()
    first = server.post(text="first")
    assert (first.status_code, first.json()["error"]["code"]) == (504, "too_slow")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.post, texts=["b", "c"])
        eventually(lambda: server.desk._batcher._items == 2)
        full = server.post(text="d")
        assert (full.status_code, full.json()["error"]["code"]) == (503, "busy")
        assert full.headers["retry-after"] == "1"
        assert waiting.result().status_code == 504
    assert server.desk._batcher._items == 0
    watched.open.set()
    assert server.post(text="e").status_code == 200
