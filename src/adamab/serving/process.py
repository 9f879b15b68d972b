"""A server as a process: its socket, its signals, its end.

SIGTERM, SIGINT   stop accepting, finish what was accepted, end with code 0; a second SIGINT ends at once
SIGHUP            open what the run holds now; requests go on meanwhile
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from adamab.errors import AdamabError
from adamab.serving.connections import bounded

if TYPE_CHECKING:
    from fastapi import FastAPI

    from adamab.serving.limits import Limits
    from adamab.serving.server import Desk

_STOPPED = 130
_KEEP_ALIVE = 75  # seconds; longer than the usual 60 of proxies, so that they close first
_TICK = 0.1  # seconds between two looks whether to stop
_LONGEST_HEADERS = 32 * 1024
_ENDS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))


class ServerError(AdamabError):
    """The server cannot be started as asked."""


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, before a model is loaded in vain; raises `ServerError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        raise ServerError(f"host {host!r} is no address of this machine; try 127.0.0.1") from None
    try:
        if os.name == "posix":  # elsewhere it would let two servers have the same port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ServerError(_why_not(host, port, error)) from None
    return bound


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} at {host} is in use; choose another with --port, or 0 for any"
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by you; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host {host!r} is no address of this machine; try 127.0.0.1"
    return f"cannot listen at {host}, port {port} ({error.strerror})"


def address_of(bound: socket.socket) -> str:
    """Where the server is, as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(
    app: FastAPI, limits: Limits, *, ready: Callable[[], None], log: Callable[[str], None]
) -> uvicorn.Server:
    """Its `run` serves until a signal says to stop; `ready` is called when requests are accepted."""
    config = uvicorn.Config(
        app,
        http=bounded(limits),
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=limits.stop_seconds,  # type: ignore[arg-type]  # a fraction will do
        h11_max_incomplete_event_size=_LONGEST_HEADERS,
    )
    return _Server(config, app.state.desk, ready, log)


def _waiting_at(bound: socket.socket) -> Iterator[socket.socket]:
    with contextlib.suppress(OSError):  # there is nobody any more
        while True:
            client, _ = bound.accept()
            client.setblocking(False)
            yield client


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, desk: Desk, ready: Callable[[], None], log: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._desk, self._ready, self._log = desk, ready, log
        self._reloads: asyncio.Event | None = None
        self._told_to_stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reloader: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reloads, self._told_to_stop = asyncio.Event(), asyncio.Event()
        self._reloader = self._loop.create_task(self._reload_when_told())
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._desk.stopping = True
        if self._reloader is not None:
            self._reloader.cancel()
        await self._close_the_door(sockets or [])
        await super().shutdown(sockets)

    async def _close_the_door(self, sockets: list[socket.socket]) -> None:
        """No new clients; those who wait for being let in would be thrown out, so they are let in first."""
        assert self._loop is not None
        waiting = [client for bound in sockets for client in _waiting_at(bound)]
        for server in self.servers:
            server.close()
        for client in waiting:
            with contextlib.suppress(OSError):  # it has gone meanwhile
                await self._loop.connect_accepted_socket(self._connection, client)

    def _connection(self) -> asyncio.Protocol:
        kind: Any = self.config.http_protocol_class
        made: asyncio.Protocol = kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def main_loop(self) -> None:
        """Until somebody asks to stop; uvicorn's own looks only ten times a second."""
        assert self._told_to_stop is not None
        for counter in itertools.count():
            if await self.on_tick(counter % 10):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    await self._told_to_stop.wait()

    async def _reload_when_told(self) -> None:
        """One after the other; a signal that comes during a reload makes one more of them."""
        assert self._reloads is not None
        while True:
            await self._reloads.wait()
            self._reloads.clear()
            await self._desk.reload()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, a stop that was asked for ends with code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = dict.fromkeys(_ENDS, self.handle_exit)
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._told_to_reload
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self.should_exit = self._desk.stopping = True
            if self._loop is not None and self._told_to_stop is not None:
                self._loop.call_soon_threadsafe(self._told_to_stop.set)
            self._log("stopping: what was accepted is finished; Ctrl-C again stops at once")
        elif sig == signal.SIGINT:
            self._desk.files.remove()
            os._exit(_STOPPED)  # a batch that is being computed cannot be interrupted otherwise

    def _told_to_reload(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None and self._reloads is not None:
            self._loop.call_soon_threadsafe(self._reloads.set)
