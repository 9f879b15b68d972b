"""The client of all paid APIs, over real sockets."""

import asyncio
import copy
import logging
import pickle
import socket
import threading
import traceback
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from adamab.errors import ApiError, BudgetError, StoppedError
from adamab.providers.async_bridge import run_sync
from adamab.providers.http import ApiClient, BadAnswerError, Call, Limits, _open
from adamab.providers.metering import Budget, Ledger, Price, Usage
from adamab.providers.services import service_of
from adamab.testing import Fault, ProviderServer

KEY = "sk-very-secret-0123456789"
PROMPT = "a very private text"
QUICK = Limits(first_wait=0.001, longest_wait=0.002, timeout=5.0)
BOUND = Usage(100)
PRICE = Price(Decimal(2))  # 2000 nano-dollars a token
CALL = Call("/embeddings", {"model": "m", "input": [PROMPT]}, BOUND, "embed")


def client(server, limits=QUICK, model="m"):
    return ApiClient(service_of("openai", base_url=f"{server.url}/v1"), model, limits)


def metered(server, budget=None, limits=QUICK):
    made = client(server, limits)
    made.ledger, made.price = Ledger(Budget.parse(budget)), PRICE
    return made, made.ledger


def tokens(answer):
    return Usage(answer["usage"]["prompt_tokens"])


async def post(made, call=CALL, **options):
    return await made.post(call, usage=tokens, **options)


async def failure(made, call=CALL, **options):
    with pytest.raises(ApiError) as caught:
        await post(made, call, **options)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__context__)
    assert KEY not in shown
    assert PROMPT not in shown
    assert "\n" not in str(caught.value)
    return caught.value


async def test_what_is_sent_and_nothing_private_is_logged(server, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level(logging.INFO)
    made = client(server)
    half = {"model": "m", "input": [f"{PROMPT} \ud800"]}
    await post(made, Call("/embeddings", half, BOUND, "embed", idempotency_key="k1"))
    (seen,) = server.seen
    assert seen.body == {"model": "m", "input": [f"{PROMPT} ?"]}, "half a character cannot be sent"
    assert (seen.has_key, seen.idempotency_key) == (True, "k1")
    assert seen.headers["user-agent"].startswith("adamab/")
    shown = caplog.text + repr(made) + repr(CALL) + repr(vars(made))
    assert KEY not in shown
    assert PROMPT not in shown


@pytest.mark.parametrize(
    ("fault", "billed"),
    [
        (Fault("status", times=2), 1),
        (Fault("status", status=429, retry_after=0.01), 1),
        (Fault("status", status=500), 1),
        (Fault("status", status=503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), 1),
        (Fault("reset"), 2),
        (Fault("reset", sent=0.0), 2),
        (Fault("truncate"), 2),
        (Fault("truncate", how="length"), 2),
        (Fault("garbage"), 1),
    ],
    ids=str,
)
async def test_what_passes_is_tried_again(server, fault, billed):
    server.idempotent = False
    server.add_fault(fault)
    made, ledger = metered(server)
    assert len((await post(made))["data"]) == 1
    assert server.count() == 1 + (fault.times or 0)
    assert server.billed() == billed
    assert ledger.spent().calls == server.count(), "each attempt is a call"
    assert ledger.spent().unsettled == 0


@pytest.mark.parametrize("sent", [None, 0.5])
async def test_a_hanging_server_is_left(server, sent):
    server.add_fault(Fault("hang", sent=sent))
    made, ledger = metered(server, limits=Limits(first_wait=0.001, timeout=0.3))
    assert len((await post(made))["data"]) == 1
    assert server.count() >= 2
    server.add_fault(Fault("hang", sent=sent))
    made, ledger = metered(server, limits=Limits(retries=0, timeout=0.3))
    error = await failure(made)
    assert str(error) == "openai: no answer after 1 attempt (last: nothing for 0.3 s); start again later"
    assert ledger.spent().nano_usd == 100 * 2000, "it may have been billed"


async def test_a_connection_that_is_refused():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unused.getsockname()[1]}"
    made = ApiClient(service_of("openai", base_url=f"http://{place}/v1"), "m")
    made.ledger, made.price = Ledger(), PRICE
    error = await failure(made)
    assert str(error) == f"openai: nothing answers at {place}/v1; is the server running?"
    assert (made.ledger.spent().calls, made.ledger.spent().nano_usd) == (1, 0)


async def test_a_wait_that_is_too_long_is_not_waited(server):
    server.add_fault(Fault("status", retry_after=3600))
    error = await failure(client(server))
    assert str(error) == "openai: asks to wait 60 minutes (429 rate_limit_exceeded); start again later"
    assert server.count() == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("status", status=400), "refuses the request to model 'm' (400 invalid_request_error)"),
        (Fault("status", status=403), "the key in OPENAI_API_KEY was refused (403 "),
        (Fault("status", status=404), "no model 'm' at 127.0.0.1:"),
        (Fault("status", status=402), "out of credit (402"),
        (Fault("status", status=302), "answers with a redirect (302"),
        (Fault("status", status=429, how="quota"), "quota is used up (429 insufficient_quota)"),
    ],
    ids=str,
)
async def test_what_will_not_pass_is_not_tried_again(server, monkeypatch, fault, message):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.add_fault(fault)
    made, ledger = metered(server)
    error = await failure(made)
    assert message in str(error)
    assert error.status == fault.status
    assert (error.too_large, error.refused, error.unsupported) == (False, False, False)
    assert server.count() == 1
    assert (ledger.spent().calls, ledger.spent().nano_usd) == (1, 0)


async def test_a_wrong_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ProviderServer(key="another") as server:
        error = await failure(client(server))
        assert str(error) == "openai: the key in OPENAI_API_KEY was refused (401 invalid_api_key)"
        monkeypatch.delenv("OPENAI_API_KEY")
        error = await failure(client(server))
        assert str(error) == "openai: wants a key (401 invalid_api_key); set OPENAI_API_KEY"
        assert server.count() == 2


@contextmanager
def answering(status, body, headers=None):
    """A server with one answer, for words that no fault has."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()
        thread.join()


LARGE, REFUSED, UNSUPPORTED, PLAIN = "too_large", "refused", "unsupported", ""


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (413, b"", LARGE),
        (400, b'{"error": {"code": "context_length_exceeded", "message": ""}}', LARGE),
        (400, b'{"detail": "The max allowed tokens per submitted batch is 120000."}', LARGE),
        (400, b'{"message": "too many texts: maximum number of texts is 96"}', LARGE),
        (
            422,
            b'{"error": "batch size 64 > maximum allowed batch size 32", "error_type": "Validation"}',
            LARGE,
        ),
        (400, b'{"error": {"message": "max_tokens is too large: 16000. This model supports 4096"}}', LARGE),
        (400, b'{"error": {"message": "`max_tokens` must be less than or equal to 8192"}}', LARGE),
        (400, b'{"error": {"message": "max_tokens must be left out with this model"}}', UNSUPPORTED),
        (500, b'{"error": {"code": 500, "message": "input is too large to process"}}', LARGE),
        (
            429,
            b'{"error": {"code": "rate_limit_exceeded", "message": "Request too large: tokens per min"}}',
            LARGE,
        ),
        (429, b'{"error": {"message": "too many tokens this minute; batch size"}}', PLAIN),
        (400, b'{"error": {"code": "content_policy_violation", "message": ""}}', REFUSED),
        (403, b'{"error": {"code": "content_filter", "message": ""}}', REFUSED),
        (400, b'{"error": {"param": "response_format", "message": "not available"}}', UNSUPPORTED),
        (
            400,
            b'{"error": {"code": "unsupported_parameter", "message": "max_tokens is too large"}}',
            UNSUPPORTED,
        ),
        (422, b'{"detail": [{"loc": ["body"], "msg": "Extra inputs are not permitted"}]}', UNSUPPORTED),
        (400, b'{"error": {"message": "Unrecognized request argument supplied: seed"}}', UNSUPPORTED),
        (400, b'{"error": {"message": "bad"}}', PLAIN),
        (400, b"<html>too", PLAIN),
        (400, b'"no"', PLAIN),
        (400, b"[" * 100_000, PLAIN),
    ],
)
async def test_what_an_error_means(status, body, kind):
    with answering(status, body) as url:
        made = ApiClient(service_of("openai", base_url=url), "m", Limits(retries=0))
        error = await failure(made)
    flags = {name: getattr(error, name) for name in (LARGE, REFUSED, UNSUPPORTED)}
    assert flags == {name: name == kind for name in flags}


async def test_only_a_short_token_of_an_error_is_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    bodies = [
        b'{"error": {"code": "%s", "type": "kind_of_error", "message": "%s"}}'
        % (KEY.encode(), PROMPT.encode()),
        b'{"error": {"code": "a very private text", "type": "kind_of_error"}}',
    ]
    for body in bodies:
        with answering(400, body) as url:
            error = await failure(ApiClient(service_of("openai", base_url=url), "m"))
        assert str(error).endswith("(400 kind_of_error)")


async def test_redirects_are_not_followed(server):
    with answering(307, b"", {"Location": f"{server.url}/v1/embeddings"}) as url:
        assert "redirect (307); check base_url" in str(
            await failure(ApiClient(service_of("openai", base_url=url), "m"))
        )
    assert server.count() == 0


async def test_an_answer_of_the_wrong_shape(server):
    made, ledger = metered(server)

    def wrong(answer):
        answer["nothing"]

    error = await failure(made, keep=wrong)
    assert "openai: no usable answer after 3 attempts (last: an answer of the wrong shape); see what" in str(
        error
    )
    assert server.count() == 3, "a wrong answer may be billed, so it is not asked for often"
    assert ledger.spent().nano_usd == 3 * 5 * 2000, "its usage is known"


KEYED = replace(CALL, idempotency_key="k1")


@pytest.mark.parametrize(
    ("fault", "keys"),
    [
        (Fault("garbage", times=3), ["k1", "k1", "k1-1", "k1-2"]),
        (Fault("truncate"), ["k1", "k1"]),
        (Fault("reset"), ["k1", "k1"]),
        (Fault("status", times=2), ["k1", "k1", "k1"]),
    ],
    ids=str,
)
async def test_the_key_after_a_failure(server, fault, keys):
    server.add_fault(fault)
    await post(client(server), KEYED)
    assert [seen.idempotency_key for seen in server.seen] == keys


async def test_a_remembered_answer_of_the_wrong_shape_is_not_asked_for_again(server):
    bad = []

    def picky(answer):
        if len(server.seen) == 1 or len(server.seen) == 4:
            bad.append(server.seen[-1].idempotency_key)
            raise BadAnswerError("not this one")

    for _ in range(2):  # the second time as after a crash
        server.add_fault(Fault("reset", after=1))
        await post(client(server), KEYED, keep=picky)
    assert bad == ["k1", "k1"]
    assert [seen.idempotency_key for seen in server.seen] == ["k1", "k1-1", "k1-1"] * 2
    assert server.billed() == 2


@pytest.mark.parametrize(
    ("fault", "nano_usd"),
    [
        (Fault("no_usage"), 100 * 2000),  # unknown: what was reserved
        (Fault("overcharge", factor=50), 250 * 2000),  # more than reserved, and said so
        (Fault("reset"), 100 * 2000 + 5 * 2000),
        (Fault("garbage"), 100 * 2000 + 5 * 2000),
        (Fault("status", status=500), 5 * 2000),
        (Fault("status", status=408), 100 * 2000 + 5 * 2000),  # a gateway gave up, not the model
        (Fault("status", status=524), 100 * 2000 + 5 * 2000),
    ],
    ids=str,
)
async def test_what_is_settled(server, fault, nano_usd):
    server.add_fault(fault)
    made, ledger = metered(server)
    await post(made)
    assert ledger.spent().nano_usd == nano_usd


async def test_the_budget_holds_for_every_attempt(server):
    server.add_fault(Fault("status", status=500, times=None))
    made, _ = metered(server, "3 calls")
    with pytest.raises(BudgetError, match="3 calls"):
        await post(made)
    assert server.count() == 3


async def test_a_cancelled_call_counts_with_what_was_reserved(server):
    server.add_fault(Fault("hang"))
    made, ledger = metered(server)
    task = asyncio.create_task(post(made))
    while server.count() == 0:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    spent = ledger.spent()
    assert (spent.calls, spent.unsettled, spent.nano_usd) == (1, 0, 100 * 2000)
    assert len((await post(made))["data"]) == 1, "its place is free again"


async def test_a_wish_to_stop_ends_before_the_next_attempt(server):
    made, ledger = metered(server, limits=Limits(first_wait=100.0, longest_wait=100.0))
    made.stop = threading.Event()
    server.add_fault(Fault("status", status=500, times=None))
    task = asyncio.create_task(post(made))
    while server.count() == 0:
        await asyncio.sleep(0.005)
    made.stop.set()
    with pytest.raises(StoppedError):
        await task  # although it was to wait for 50 seconds or more
    with pytest.raises(StoppedError):
        await post(made)
    assert (server.count(), ledger.spent().calls) == (1, 1)


async def test_requests_and_tokens_are_paced(server):
    made = client(server, Limits(rpm=6000, tpm=60_000))
    await asyncio.gather(*(post(made) for _ in range(5)))
    assert made._requests is not None
    assert made._tokens is not None
    assert [claim.amount for claim in made._requests._claims] == [1.0] * 5
    assert [claim.amount for claim in made._tokens._claims] == [5] * 5, "corrected to what was used"


def test_one_client_in_many_loops_and_threads(server):
    made = client(server)
    answers = [asyncio.run(post(made)), run_sync(post(made)), asyncio.run(post(made))]
    workers = [threading.Thread(target=lambda: answers.append(asyncio.run(post(made)))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(answers) == 7
    assert sum(loop.is_closed() for loop in _open) == 0, "those of ended loops are closed and gone"


async def test_copies_of_a_client(server):
    made, _ = metered(server)
    await post(made)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (other.service, other.model, other.limits, other.ledger) == (made.service, "m", QUICK, None)
        await post(other)


class Proxy:
    """Notes what it is sent, and refuses it."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.heard = []

    def __enter__(self):
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        return self

    def _listen(self):
        while True:
            connection, _ = self._socket.accept()
            with connection:
                heard = connection.recv(65536).decode()
                if heard == "end":
                    return
                self.heard.append(heard)
                connection.sendall(
                    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )

    def __exit__(self, *error):
        with socket.create_connection(self._socket.getsockname()) as last:
            last.sendall(b"end")
        self._thread.join()
        self._socket.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_way_to_this_machine_leads_past_proxies(server, monkeypatch, host):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Proxy() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        await post(ApiClient(service_of("openai", base_url=f"http://{host}:{server.port}/v1"), "m", QUICK))
    assert [seen.has_key for seen in server.seen] == [True]
    assert proxy.heard == []


@pytest.mark.parametrize(
    ("url", "first"),
    [("http://api.test/v1", "POST http://api.test/"), ("https://api.test/v1", "CONNECT api.test")],
)
async def test_a_proxy_never_hears_the_key(monkeypatch, url, first):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Proxy() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        await failure(ApiClient(service_of("openai", base_url=url), "m", Limits(retries=0)))
    (heard,) = proxy.heard
    assert heard.startswith(first)
    assert KEY not in heard
    assert "uthorization" not in heard


async def test_an_answer_that_never_ends_is_cut(monkeypatch):
    monkeypatch.setattr("adamab.providers.http.LONGEST_ANSWER", 100)
    with answering(200, b" " * 1000) as url:
        made = ApiClient(service_of("openai", base_url=url), "m", Limits(retries=0))
        assert "no JSON" in str(await failure(made))
