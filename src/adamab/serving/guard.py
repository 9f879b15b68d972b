"""What every request passes first and every answer last: host, origin, token, headers, counting, faults."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adamab.serving.problems import Refused

if TYPE_CHECKING:
    from adamab.serving.limits import Receive
    from adamab.serving.metrics import Metrics

    Scope = MutableMapping[str, Any]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

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


@dataclass(frozen=True)
class Access:
    """Who may ask: the names that the Host header may have (None for any), and the bearer token."""

    hosts: frozenset[str] | None = LOOPBACK
    token: str | None = None
    open_paths: frozenset[str] = frozenset({"/healthz"})  # need no token

    def __repr__(self) -> str:
        return f"Access(hosts={self.hosts}, token={'set' if self.token else 'none'})"  # it is a secret

    def check(self, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        """Raises `Refused`."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.hosts is not None and without_port(host) not in self.hosts:
            # A web page whose name was made to point here would otherwise read what a browser may reach.
            raise Refused(
                421, "foreign_host", "the Host header names another host; start with --allow-host NAME"
            )
        if method not in _SAFE and not self._own_origin(headers.get(b"origin"), host):
            raise Refused(403, "foreign_origin", "the request comes from a page of another site")
        if self.token is not None and path not in self.open_paths:
            self._check_token(self.token, headers.get(b"authorization", b""))

    def _own_origin(self, origin: bytes | None, host: str) -> bool:
        """Browsers name the page that a request comes from; other clients name none."""
        if origin is None:
            return True
        try:
            place = urlsplit(origin.decode("latin-1").lower()).netloc
        except ValueError:
            return False
        return bool(place) and place == host

    def _check_token(self, token: str, authorization: bytes) -> None:
        scheme, _, given = authorization.partition(b" ")
        # Both are evaluated, and in constant time, so that the answer's time tells nothing about the token.
        right = hmac.compare_digest(given.strip(), token.encode())
        if not (right and scheme.lower() == b"bearer"):
            raise Refused(
                401,
                "unauthorized",
                "send the server's token: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )


class Guard:
    """ASGI middleware around everything."""

    def __init__(
        self,
        app: App,
        *,
        access: Access,
        metrics: Metrics,
        log: Callable[[str], None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app, self._access, self._metrics, self._log = app, access, metrics, log
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only HTTP is guarded: there is nothing else but the server's own start and stop."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        answer = _Answer(send, self._stopping)
        self._metrics.in_progress.inc()
        try:
            self._access.check(scope["method"], scope["path"], dict(scope["headers"]))
            await self._app(scope, receive, answer.send)
        except Refused as refusal:
            await answer.refuse(refusal)
        except asyncio.CancelledError:
            await answer.refuse(Refused(503, "stopping", "the server was told to stop"))
        except Exception as error:
            self._log(_traceback(error))
            await answer.refuse(Refused(500, "internal", "the server failed; its log says why"))
        finally:
            self._metrics.in_progress.dec()
            self._metrics.request(_path(scope), answer.status, time.perf_counter() - start)


class _Answer:
    """Adds the headers and remembers the status."""

    def __init__(self, send: Send, stopping: Callable[[], bool]) -> None:
        self._send, self._stopping = send, stopping
        self.status = 0

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name.lower() for name, _ in message["headers"]}
            more = [(name, value) for name, value in _HEADERS.items() if name not in own]
            if self._stopping() and b"connection" not in own:
                more.append((b"connection", b"close"))  # a client must not send its next request here
            message = {**message, "headers": [*message["headers"], *more]}
        await self._send(message)

    async def refuse(self, refusal: Refused) -> None:
        """Unless an answer was begun, which then stays incomplete."""
        if self.status:
            return
        body = refusal.body()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **{name.lower(): value for name, value in refusal.headers.items()},
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})


def without_port(host: str) -> str:
    """The name of a Host header.

    Example:
        >>> without_port("desk.example:8443"), without_port("[::1]")
        ('desk.example', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _path(scope: Scope) -> str:
    """The route's path: a label for each path that somebody tries would fill the memory."""
    return str(getattr(scope.get("route"), "path", "other"))


def _traceback(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error)).rstrip()
