"""The provider server's sockets: reads requests, delivers answers whole or as a fault wants it."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import socketserver
import struct
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol
from urllib.parse import urlsplit

from adamab.testing.provider_book import Seen
from adamab.testing.provider_errors import Answer
from adamab.testing.provider_faults import Fault

POLL = 0.05  # seconds between looks at whether a hanging client has gone
_SECRET = ("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie")


class Desk(Protocol):
    """What answers the requests."""

    def control(self, method: str, path: str, raw: bytes) -> Answer:
        """The answer to a request about the server itself."""

    def receive(
        self, seen: Seen, method: str, raw: bytes, key: str | None
    ) -> tuple[Answer | None, Fault | None]:
        """Take a request in: an answer that needs no thought, and the fault that befalls it."""

    def answer(self, seen: Seen, raw: bytes, fault: Fault | None) -> Answer:
        """The answer to a request taken in."""

    def pause(self, fault: Fault | None) -> float:
        """Seconds before the answer is made."""


class HttpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One thread a connection. Not `http.server.HTTPServer`, which may wait for DNS to name its host."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], desk: Desk) -> None:
        self.desk = desk
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread."""
        with self._changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error; anything else is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Take no more, end what is open and wait until it has ended."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, timeout=5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpServer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: people read the terminal."""

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        raw = self._read()
        if raw is not None:
            self._handle(raw)

    def _read(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.close_connection = True
            self._send(Answer(411, {"error": {"message": "Content-Length is missing"}}))
            return None
        raw = self.rfile.read(int(length))
        if len(raw) == int(length):
            return raw
        self.close_connection = True  # the client died while it was asking
        return None

    def _handle(self, raw: bytes) -> None:
        path = urlsplit(self.path).path
        if path.startswith("/_"):
            self._send(self.server.desk.control(self.command, path, raw))
        else:
            self._serve(path, raw)

    def _serve(self, path: str, raw: bytes) -> None:
        desk, seen = self.server.desk, self._seen(path, raw)
        answer, fault = desk.receive(seen, self.command, raw, self._key())
        if fault is not None and fault.kind == "hang" and fault.sent is None:
            return self._hang(fault.seconds)
        if self.server.closing.wait(desk.pause(fault)):
            self.close_connection = True
            return None
        answer = answer or desk.answer(seen, raw, fault)
        seen.status = answer.status
        return self._deliver(answer, fault)

    def _seen(self, path: str, raw: bytes) -> Seen:
        headers = {name.lower(): value for name, value in self.headers.items()}
        shown = {name: value for name, value in headers.items() if name not in _SECRET}
        idempotency = headers.get("idempotency-key", "")
        has_key = "authorization" in headers
        return Seen(path, _parsed(raw), shown, has_key=has_key, idempotency_key=idempotency)

    def _key(self) -> str | None:
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else None

    def _deliver(self, answer: Answer, fault: Fault | None) -> None:
        if fault is None or fault.kind not in ("hang", "reset", "truncate"):
            return self._send(answer)
        body = _encoded(answer)
        share = 0.5 if fault.sent is None else fault.sent
        part = body[: math.floor(len(body) * share)]
        if fault.kind == "truncate":
            self.close_connection = True
            return self._write(answer, part, len(body) if fault.how == "length" else None)
        if fault.kind == "hang" or share > 0:
            self._write(answer, part, len(body))
        return self._hang(fault.seconds) if fault.kind == "hang" else self._reset()

    def _send(self, answer: Answer) -> None:
        body = _encoded(answer)
        self._write(answer, body, len(body))

    def _write(self, answer: Answer, body: bytes, length: int | None) -> None:
        kind = "text/html" if isinstance(answer.payload, bytes) else "application/json"
        headers = {"Server": "adamab", "Content-Type": kind, **answer.headers}
        if length is not None:
            headers["Content-Length"] = str(length)
        if self.close_connection:
            headers["Connection"] = "close"
        lines = [f"{self.protocol_version} {answer.status} {_phrase(answer.status)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        # Head and body in one piece, which saves the client a wait.
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def _hang(self, seconds: float | None) -> None:
        self.close_connection = True
        end = time.monotonic() + (math.inf if seconds is None else seconds)
        while (left := end - time.monotonic()) > 0 and not self._gone():
            if self.server.closing.wait(min(POLL, left)):
                return

    def _gone(self) -> bool:
        try:
            peeked: bytes = self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return peeked == b""

    def _reset(self) -> None:
        time.sleep(0.02)  # a reset throws away what the client has not read yet
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()  # it holds the socket open
        self.connection.close()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _encoded(answer: Answer) -> bytes:
    if isinstance(answer.payload, bytes):
        return answer.payload
    return json.dumps(answer.payload).encode()
