"""Requests to a server: who may ask, what it takes at most, how it refuses the rest, and what it counts.

`Guard` is what every request passes first and every answer last.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON = "application/json"
TOKEN = "ADAMAB_TOKEN"  # in the environment: what clients must send
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # of histograms
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LINGER_BYTES, _LINGER_SECONDS = 16 * 2**20, 1.0


@dataclass
class Refused(Exception):  # noqa: N818  a refusal is an answer, not a fault
    """A request that gets no result: a status, a word for programs and a line for people."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, dict[str, str]]:
        """The one shape of everything that is refused."""
        return {"error": {"code": self.code, "message": self.message}}

    def response(self) -> Response:
        """The answer; what is not printable in the message arrives as an escape."""
        body = json.dumps(self.content)
        return Response(body, self.status, dict(self.headers), JSON)


def invalid(message: str) -> Refused:
    """The request can be read but not be answered as it is."""
    return Refused(422, "invalid", message)


def unreadable(message: str) -> Refused:
    """The request's body is not what it says it is."""
    return Refused(400, "unreadable", message)


def busy(message: str) -> Refused:
    """The server has no room for now."""
    return Refused(503, "busy", message, {"Retry-After": "1"})


def client_gone() -> Refused:
    """Nobody will read this; it is for the metrics."""
    return Refused(499, "gone", "the client has gone")


@dataclass(frozen=True)
class Limits:
    """What is refused beyond; sizes in bytes, times in seconds."""

    items: int = 256  # texts or images of one request
    body: int = 2**20  # of one request
    all_bodies: int = 256 * 2**20  # of all requests that are being read or answered
    characters: int = 100_000  # of one text
    body_seconds: float = 20.0  # to send the body
    answer_seconds: float = 30.0  # to wait for the answer
    stop_seconds: float = 30.0  # to finish what was accepted when asked to stop
    connections: int = 1000  # at a time
    batch_items: int = 64  # a batch is closed when it has so many
    batch_wait: float = 0.002  # the longest that the first of a batch waits for others
    waiting_items: int = 4096  # of all requests that wait for a batch


class Bodies:
    """Reads bodies and counts what all requests hold together, so that many cannot fill the memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body, which counts until the block ends.

        Raises `Refused` as soon as the body is known to be too large or too slow.
        """
        stream = request.stream()
        parts: list[bytes] = []
        size = 0
        try:
            try:
                declared = request.headers.get("content-length", "0")
                if not re.fullmatch("[0-9]{1,18}", declared):
                    raise unreadable("the Content-Length header is no number of bytes")
                if int(declared) > self._limits.body:
                    if "expect" not in request.headers:  # such a client sends nothing before it is asked to
                        await _drain(stream)
                    raise self._too_large()
                async with asyncio.timeout(self._limits.body_seconds):
                    async for part in stream:
                        size += len(part)
                        self.held += len(part)
                        if size > self._limits.body:
                            parts.clear()
                            await _drain(stream)
                            raise self._too_large()
                        if self.held > self._limits.all_bodies:
                            raise busy("too much is being sent to the server at once; try again")
                        parts.append(part)
            except TimeoutError:
                seconds = self._limits.body_seconds
                message = f"the body did not arrive within {seconds:g} seconds; send it faster"
                raise Refused(408, "slow_body", message, {"Connection": "close"}) from None
            except ClientDisconnect:
                raise client_gone() from None
            parts[:] = [b"".join(parts)]
            yield parts.pop()  # so that nothing here keeps it in memory
        finally:
            self.held -= size

    def _too_large(self) -> Refused:
        message = f"the body is larger than {self._limits.body} bytes; send fewer or smaller items a request"
        return Refused(413, "body_too_large", message, {"Connection": "close"})


async def _drain(stream: AsyncIterator[bytes]) -> None:
    """A client that still sends would see its connection reset before the answer, so hear a little more."""
    read = 0
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            async for part in stream:
                read += len(part)
                if read > _LINGER_BYTES:
                    return
    except TimeoutError:
        pass


class Metrics:
    """Counters for Prometheus, in a registry of their own: two servers in a process do not share them."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter("adamab_requests", "Requests", ["path", "status"], registry=registry)
        self._seconds = Histogram(
            "adamab_request_seconds", "Time to answer", ["path"], buckets=_SECONDS, registry=registry
        )
        self.in_progress = Gauge(
            "adamab_requests_in_progress", "Requests that are being answered", registry=registry
        )
        self.classified = Counter("adamab_items", "Texts and images that were classified", registry=registry)
        self._batches = Histogram("adamab_batch_items", "Items a batch", buckets=_SIZES, registry=registry)
        self._batch_seconds = Histogram(
            "adamab_batch_seconds", "Time to compute a batch", buckets=_SECONDS, registry=registry
        )
        self.waiting = Gauge("adamab_waiting_items", "Items that wait for a batch", registry=registry)
        self.reloads = Counter("adamab_reloads", "Reloads of the model", ["outcome"], registry=registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered.

        Args:
            path: The route's, not the one that was asked for, so that nobody can make up new ones.
            status: The answer's HTTP status.
            seconds: From the request's arrival to the end of the answer.
        """
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, items: int, seconds: float) -> None:
        """A batch was computed."""
        self._batches.observe(items)
        self._batch_seconds.observe(seconds)

    def page(self) -> bytes:
        """All of it as Prometheus reads it."""
        return generate_latest(self._registry)


@dataclass(frozen=True)
class Access:
    """Who may ask: the names that the Host header may have (None for any), and the bearer token."""

    hosts: frozenset[str] | None = LOOPBACK
    token: str | None = None
    open_paths: frozenset[str] = frozenset({"/healthz"})  # need no token

    def __repr__(self) -> str:
        return f"Access(hosts={self.hosts}, token={'set' if self.token else 'none'})"  # it is a secret

    def check(self, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        """Refuse whoever may not ask; raises `Refused`.

        Args:
            method: Of the request; one that only reads may come from a page of another site.
            path: Of the request; `open_paths` need no token.
            headers: Of the request, their names in lower case.
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.hosts is not None and without_port(host) not in self.hosts:
            # A web page whose name was made to point here would otherwise read what a browser may reach.
            raise Refused(
                421, "foreign_host", "the Host header names another host; start with --allow-host NAME"
            )
        # Browsers name the page that a request comes from; other clients name none.
        origin = headers.get(b"origin")
        if method not in _SAFE and origin is not None and not _is_page_of(host, origin):
            raise Refused(403, "foreign_origin", "the request comes from a page of another site")
        if self.token is None or path in self.open_paths:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        # Both are evaluated, and in constant time, so that the answer's time tells nothing about the token.
        right = hmac.compare_digest(given.strip(), self.token.encode())
        if not (right and scheme.lower() == b"bearer"):
            raise Refused(
                401,
                "unauthorized",
                "send the server's token: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )


def _is_page_of(host: str, origin: bytes) -> bool:
    try:
        return urlsplit(origin.decode("latin-1").lower()).netloc == host != ""
    except ValueError:
        return False


class Guard:
    """ASGI middleware around everything."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        metrics: Metrics,
        log: Callable[[str], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._app, self._access, self._metrics, self._log = app, access, metrics, log
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only HTTP is guarded: there is nothing else but the server's own start and stop."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": self._with_own(message["headers"])}
            await send(message)

        self._metrics.in_progress.inc()
        try:
            refusal = await self._answered(scope, receive, send_guarded)
            if refusal is not None and not status:  # an answer that was begun stays incomplete
                await refusal.response()(scope, receive, send_guarded)
        finally:
            self._metrics.in_progress.dec()
            # The route's path: a label for each path that somebody tries would fill the memory.
            path = str(getattr(scope.get("route"), "path", "other"))
            self._metrics.request(path, status, time.perf_counter() - start)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> Refused | None:
        """None where the application answered, else what is to be answered instead."""
        try:
            self._access.check(scope["method"], scope["path"], dict(scope["headers"]))
            await self._app(scope, receive, send)
        except Refused as refusal:
            return refusal
        except asyncio.CancelledError:
            return Refused(503, "stopping", "the server is stopping")
        except Exception as error:
            self._log("".join(traceback.format_exception(error)).rstrip())
            return Refused(500, "internal", "the server failed; its log says why")
        return None

    def _with_own(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        given = {name.lower() for name, _ in headers}
        own = [(name, value) for name, value in _HEADERS.items() if name not in given]
        if self._stopping() and b"connection" not in given:
            own.append((b"connection", b"close"))  # a client must not send its next request here
        return [*headers, *own]


def without_port(host: str) -> str:
    """The name of a Host header.

    Example:
        >>> without_port("desk.example:8443"), without_port("[::1]")
        ('desk.example', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
