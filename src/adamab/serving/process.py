"""A server as a process: its socket, its signals, its end.

SIGTERM, SIGINT   stop accepting, finish what was accepted, end with code 0; a second SIGINT ends at once
SIGHUP            open what the run holds now; requests go on meanwhile
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from adamab.errors import AdamabError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from adamab.serving.requests import Limits
    from adamab.serving.server import ServerState

_STOPPED = 130
_KEEP_ALIVE = 75  # seconds; longer than the usual 60 of proxies, so that they close first
_LONGEST_HEADERS = 32 * 1024
_GRACE = 0.5  # seconds in which the next request of a connection that was kept may be on its way
_ENDS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))


class ServerError(AdamabError):
    """The server cannot be started as asked."""


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, before a model is loaded in vain; raises `ServerError`."""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = places[0]
        bound = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":  # elsewhere it would let two servers have the same port
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no address of this machine"
        raise ServerError(
            f"cannot listen at {host}, port {port} ({reason}); choose another with --host or --port"
        ) from None
    return bound


def address_of(bound: socket.socket) -> str:
    """Where the server is, as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(
    app: FastAPI, limits: Limits, *, ready: Callable[[], None], log: Callable[[str], None]
) -> uvicorn.Server:
    """A server that runs until a signal says to stop.

    Args:
        app: What answers the requests.
        limits: How many connections it takes, and how long answers have when it stops.
        ready: Called when requests are accepted.
        log: Takes lines for whoever runs the server.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=limits.stop_seconds,  # type: ignore[arg-type]  # a fraction will do
        h11_max_incomplete_event_size=_LONGEST_HEADERS,
    )
    return _Server(config, app.state.server_state, ready, log)


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        ready: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self._server_state, self._ready, self._log = server_state, ready, log
        self._reload_asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reloader: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reloader = self._loop.create_task(self._reload_when_asked())
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._server_state.stopping = True
        if self._reloader is not None:
            self._reloader.cancel()
        if self.server_state.connections:  # answers now say that theirs is closed, the others are closed then
            await asyncio.sleep(_GRACE)
        await super().shutdown(sockets)

    async def _reload_when_asked(self) -> None:
        """One after the other; a signal that comes during a reload makes one more of them."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            await self._server_state.reload()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, a stop that was asked for ends with code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = dict.fromkeys(_ENDS, self.handle_exit)
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._ask_for_reload
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self.should_exit = self._server_state.stopping = True
            self._log("stopping: what was accepted is finished; Ctrl-C again stops at once")
        elif sig == signal.SIGINT:
            self._server_state.images.remove()
            self._server_state.refit.kill()
            os._exit(_STOPPED)  # a batch that is being computed cannot be interrupted otherwise

    def _ask_for_reload(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._reload_asked.set)
