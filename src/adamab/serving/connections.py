"""Connections that do not take for ever: uvicorn's protocol with time limits on both directions.

uvicorn itself bounds only the pause between two requests. Somebody who sends a header a minute, or does
not read what he asked for, would keep his connection for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from adamab.serving.limits import Limits
from adamab.serving.problems import Refused, busy

_RECENT = 0.5  # seconds after its last answer in which a client's next request may be on its way
_PHRASES = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


class BoundedConnection(H11Protocol):
    """One connection; `limits` are set by `bounded`."""

    limits: ClassVar[Limits] = Limits()
    _timer: asyncio.TimerHandle | None = None
    _active = 0.0  # when the client came, or got its last answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new client: the time for its first headers begins."""
        super().connection_made(transport)
        self._active = self.loop.time()
        if len(self.connections) > self.limits.connections:
            self._refuse(busy("too many connections; try again"))
            return
        self._start(self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Between requests the first byte begins the time for headers; with the last of them it ends."""
        if self._is_idle() and self._timer is None:
            self._start(self._too_slow)
        super().data_received(data)
        if not self._is_idle():
            self._stop()

    def shutdown(self) -> None:
        """The server stops: what is idle is closed, unless its next request may be on its way.

        The answer to that one, like all from now on, says that the connection is closed after it. A timer
        runs after what the sockets have to say, so that nothing which lies there already is thrown away.
        """
        if not self._is_idle():
            super().shutdown()
            return
        left = self._active + _RECENT - self.loop.time()
        self.loop.call_later(max(left, 0.0), self._close_if_idle)

    def on_response_complete(self) -> None:
        """An answer was sent."""
        self._active = self.loop.time()
        super().on_response_complete()

    def _close_if_idle(self) -> None:
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()

    def pause_writing(self) -> None:
        """The client does not read what it asked for."""
        super().pause_writing()
        self._stop()
        self._start(self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._stop()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so in the shape of all refusals."""
        self._refuse(Refused(400, "unreadable", "this is no HTTP request that can be read"))

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start(self, action: Any) -> None:
        self._timer = self.loop.call_later(self.limits.header_seconds, action)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        seconds = self.limits.header_seconds
        self._refuse(Refused(408, "slow_headers", f"no request within {seconds:g} seconds"))

    def _refuse(self, refusal: Refused) -> None:
        """Outside any request, so past uvicorn's own bookkeeping."""
        if self.transport.is_closing():
            return
        body = refusal.body()
        lines = [
            f"HTTP/1.1 {refusal.status} {_PHRASES[refusal.status]}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            "x-content-type-options: nosniff",
            *(f"{name.lower()}: {value}" for name, value in refusal.headers.items()),
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()


def bounded(limits: Limits) -> type[BoundedConnection]:
    """The protocol with these limits."""
    return type("BoundedConnection", (BoundedConnection,), {"limits": limits})
