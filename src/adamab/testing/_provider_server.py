"""A local server that speaks the protocols of the providers that have a name, with faults on demand.

    with ProviderServer(latency=0.3, faults=[Fault("status", times=2)]) as server:
        ...  # base_url: f"{server.url}/v1", f"{server.url}/voyage/v1", f"{server.url}/cohere"
        ...  # f"{server.url}/jina/v1", f"{server.url}/anthropic/v1"
        ...  # f"{server.url}/azure" or f"{server.url}/tei"
        assert server.billed("/embeddings") == 1

Answers depend on the request alone. An answer is billed when it is made, whether or not it reaches the
client; a repeated Idempotency-Key is answered from memory and not billed again.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import random
import re
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from adamab.testing._provider_endpoints import STYLES, Route, route_of
from adamab.testing._provider_protocol import NO_FAULT, SPOILED, Answer, Fault, Options, Refused, digest

_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
_POLL = 0.05  # seconds between looks at whether the server is to end
_SECRET = ("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie")
_SENT_IMAGE = re.compile(r'"(?:image|image_base64|url)": "')  # a key, in JSON


@dataclass
class ReceivedRequest:
    """One request, as far as it has come: `status` is None until there is an answer."""

    path: str
    body: Any
    headers: dict[str, str] = field(repr=False)  # names in lower case; never the key
    has_key: bool = False
    idempotency_key: str = ""
    status: int | None = None
    fault: str | None = None
    billed: bool = False  # answered with 200, each Idempotency-Key once
    repeated: bool = False  # billed although the very same body had been billed before
    images: int = 0  # that a provider would bill: made, embedded, or looked at


class ProviderServer:
    """Serves on this machine from `start` to `close`, or as a context manager.

    Args:
        latency: Seconds that each request takes.
        faults: What goes wrong from the start.
        style: How the chat model writes, one of `STYLES`.
        width: Width of the vectors, unless a request says otherwise.
        key: An API key that each request needs; None where none is needed.
        jitter: Up to so many seconds more for a request, drawn at random.
        seed: Of the jitter.
        idempotent: False where the header Idempotency-Key means nothing, as with most real providers.
        port: Where to serve; 0 is any free port.

    Example:
        >>> from urllib.request import urlopen
        >>> with ProviderServer() as server, urlopen(f"{server.url}/_seen") as reply:
        ...     (reply.status, server.count(), server.billed())
        (200, 0, 0)
    """

    def __init__(
        self,
        *,
        latency: float = 0.0,
        faults: Iterable[Fault] = (),
        style: str = "schema",
        width: int = 64,
        key: str | None = None,
        jitter: float = 0.0,
        seed: int = 0,
        idempotent: bool = True,
        port: int = 0,
    ) -> None:
        if style not in STYLES:
            raise ValueError(f"unknown style {style!r}; known: {', '.join(STYLES)}")
        self.latency = latency
        self.jitter = jitter
        self.key = key
        self.idempotent = idempotent
        self.port = port
        self._options = Options(width=width, style=style)
        self.random = random.Random(seed)
        self._http: _HttpServer | None = None
        self._lock = threading.Lock()  # of all below, which any thread may ask for
        self.reset()
        for fault in faults:
            self.add_fault(fault)

    def start(self) -> ProviderServer:
        """Bind and serve in a thread; raises OSError where the port is taken."""
        self._http = _HttpServer(("127.0.0.1", self.port), self)
        self.port = int(self._http.server_address[1])  # a restart keeps its place
        serve = self._http.serve_forever
        threading.Thread(target=serve, args=(_POLL,), name="provider-server", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop, and end what still hangs."""
        if self._http is not None:
            self._http.stop()
            self._http = None

    def __enter__(self) -> ProviderServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it serves, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def seen(self) -> list[ReceivedRequest]:
        """The requests so far, in the order they came."""
        with self._lock:
            return list(self._seen)

    def count(self, path_ending: str = "") -> int:
        """Requests received."""
        return len(self._seen_at(path_ending))

    def billed(self, path_ending: str = "") -> int:
        """Requests that a provider would bill."""
        return sum(request.billed for request in self._seen_at(path_ending))

    def repeated(self, path_ending: str = "") -> int:
        """Requests that were billed although the very same body had been billed before."""
        return sum(request.repeated for request in self._seen_at(path_ending))

    def images(self, path_ending: str = "") -> int:
        """Images that a provider would bill."""
        return sum(request.images for request in self._seen_at(path_ending))

    def _seen_at(self, path_ending: str) -> list[ReceivedRequest]:
        return [request for request in self.seen if request.path.endswith(path_ending)]

    def add_fault(self, fault: Fault) -> None:
        """Put one more fault in force, beside those that are."""
        with self._lock:
            self._faults.append((fault, itertools.count()))

    def clear_faults(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()

    def reset(self) -> None:
        """Forget requests, answers and faults."""
        with self._lock:
            self._faults: list[tuple[Fault, Iterator[int]]] = []  # each with how often it has matched
            self._seen: list[ReceivedRequest] = []
            self._billed_bodies: set[tuple[str, str]] = set()
            self._answers: dict[str, tuple[str, Answer | None]] = {}  # by Idempotency-Key

    def control(self, method: str, path: str, raw: bytes) -> Answer:
        """GET /_seen, POST /_faults and POST /_reset, for those who run it in another process."""
        match method, path:
            case "GET", "/_seen":
                return Answer(200, {path: self._counts(path) for path in sorted({s.path for s in self.seen})})
            case "POST", "/_reset":
                self.reset()
                return Answer(200, {"reset": True})
            case "POST", "/_faults":
                try:
                    faults = [Fault(**values) for values in json.loads(raw)]
                except (ValueError, TypeError) as error:
                    return Answer(400, {"error": f"a JSON list of faults is needed: {error}"})
                for fault in faults:
                    self.add_fault(fault)
                return Answer(200, {"added": len(faults)})
        return Answer(404, {"error": "there are GET /_seen, POST /_faults and POST /_reset"})

    def _counts(self, path: str) -> dict[str, int]:
        counts = {"received": self.count(path), "billed": self.billed(path), "repeated": self.repeated(path)}
        images = self.images(path)
        return {**counts, "images": images} if images else counts

    def receive(self, request: ReceivedRequest, raw: bytes) -> Fault:
        """Count a request, and the fault that befalls it: the first in force. All that match count it."""
        with self._lock:
            self._seen.append(request)
            matching = [pair for pair in self._faults if pair[0].matches(request.path, request.body, raw)]
            due = [fault for fault, count in matching if fault.is_due(next(count))]
        if not due:
            return NO_FAULT
        request.fault = due[0].kind
        return due[0]

    def answer(self, request: ReceivedRequest, key: str, fault: Fault) -> Answer:
        """Make the answer to a request with this API key, or take it from memory, and bill it."""
        try:
            if self.key is not None and key != self.key:
                shown = f"{key[:8]}{'*' * 8}{key[-4:]}"  # as much of it as OpenAI shows
                raise Refused(401, f"Incorrect API key provided: {shown}.", code="invalid_api_key")
            route = route_of(request.path, request.headers)
            if (refused := fault.refusal()) is not None:
                raise refused
            return Answer(200, _PAGE) if fault.kind == "garbage" else self._answer(request, fault, route)
        except Refused as refused:
            return refused.answer(request.path, request.body)

    def _answer(self, request: ReceivedRequest, fault: Fault, route: Route) -> Answer:
        key = request.idempotency_key if self.idempotent else ""
        body_digest = digest(request.body)
        with self._lock:
            before, known = self._answers.get(key, (body_digest, None))
        if before != body_digest:
            message = "Keys for idempotent requests can only be used with the same body as at first."
            raise Refused(400, message, type="idempotency_error")
        if known is not None:
            return known
        if not isinstance(request.body, dict):
            raise Refused(400, "We could not parse the JSON body of your request.")
        # Two with one key at a time may both come here: the answers are the same, and one is billed.
        reply = route(request.body, self._options, fault)
        answer = Answer(200, _charged(reply, fault))
        with self._lock:
            if not key or key not in self._answers:
                request.billed = True
                request.images = len(_SENT_IMAGE.findall(json.dumps(request.body)))
                if request.path == "/v1/images/generations":
                    request.images = len(reply.get("data") or ())
                request.repeated = (request.path, body_digest) in self._billed_bodies
                self._billed_bodies.add((request.path, body_digest))
            if key:
                spoiled = fault.kind in SPOILED or (fault.kind == "empty" and "chat" not in request.path)
                self._answers[key] = (body_digest, None if spoiled else answer)
        return answer


def key_in(headers: Mapping[str, str]) -> str:
    """The API key that a request carries, in whichever header its provider wants it."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    return bearer or headers.get("x-api-key", "") or headers.get("api-key", "")


def _charged(reply: Any, fault: Fault) -> Any:
    """The reply with its usage numbers as the fault leaves them."""
    if not isinstance(reply, dict):
        return reply  # it has none
    if fault.kind == "no_usage":
        return {key: value for key, value in reply.items() if key not in ("usage", "meta")}
    if fault.kind == "overcharge":
        usage = reply["usage"] if "usage" in reply else reply["meta"]["billed_units"]
        usage.update({key: math.ceil(fault.factor * value) for key, value in usage.items()})
    return reply


class _HttpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One thread per connection. Not `http.server.HTTPServer`, which may wait for DNS to name its host."""

    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], provider: ProviderServer) -> None:
        self.provider = provider
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that went away is no error
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Take no more, end what is open and wait until it has ended."""
        self.closing.set()
        self.shutdown()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one piece, which saves the client a wait
    server: _HttpServer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: people read the terminal."""

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        raw = self.rfile.read(length)
        if len(raw) == length:
            self._handle(raw)
        else:
            self.close_connection = True  # the client died while it was asking

    def _handle(self, raw: bytes) -> None:
        provider = self.server.provider
        if self.path.startswith("/_"):
            return self._send(provider.control(self.command, self.path, raw), NO_FAULT)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        request = ReceivedRequest(
            self.path,
            body,
            {name: value for name, value in headers.items() if name not in _SECRET},
            has_key=bool(key_in(headers)),
            idempotency_key=headers.get("idempotency-key", ""),
        )
        fault = provider.receive(request, raw)
        if fault.kind == "hang" and fault.sent is None:
            return self._hang(fault.seconds)
        pause = provider.latency + provider.jitter * provider.random.random()
        if fault.kind == "slow":
            pause += fault.seconds or 0.0
        if self.server.closing.wait(pause):
            self.close_connection = True
            return None
        answer = provider.answer(request, key_in(headers), fault)
        request.status = answer.status
        return self._send(answer, fault)

    def _send(self, answer: Answer, fault: Fault) -> None:
        is_page = isinstance(answer.payload, bytes)
        body: bytes = answer.payload if is_page else json.dumps(answer.payload).encode()
        length: int | None = len(body)
        if fault.kind in ("hang", "reset", "truncate"):
            self.close_connection = True
            length = None if fault.kind == "truncate" and fault.how != "length" else length
            share = 0.5 if fault.sent is None else fault.sent
            body = body[: math.floor(len(body) * share)]
            if fault.kind == "reset" and share == 0:
                return self._reset()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/html" if is_page else "application/json")
        if length is not None:
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        if fault.kind == "hang":
            self._hang(fault.seconds)
        if fault.kind == "reset":
            self._reset()
        return None

    def _hang(self, seconds: float | None) -> None:
        self.close_connection = True
        self.server.closing.wait(seconds)

    def _reset(self) -> None:
        time.sleep(0.02)  # a reset throws away what the client has not read yet
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for stream in (self.rfile, self.wfile, self.connection):  # the streams hold the socket open
            stream.close()
        self.wfile = io.BytesIO()  # whoever flushes it once more
