"""What a server takes at most, and reading a request's body within it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from adamab.serving.problems import Refused, busy, unreadable

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_LINGER_BYTES, _LINGER_SECONDS = 16 * 2**20, 1.0


@dataclass(frozen=True)
class Limits:
    """What is refused beyond; sizes in bytes, times in seconds."""

    items: int = 256  # texts or pictures of one request
    body: int = 2**20  # of one request
    all_bodies: int = 256 * 2**20  # of all requests that are being read or answered
    characters: int = 100_000  # of one text
    header_seconds: float = 10.0  # to send the headers
    body_seconds: float = 20.0  # to send the body
    answer_seconds: float = 30.0  # to wait for the answer
    stop_seconds: float = 30.0  # to finish what was accepted when told to stop
    connections: int = 1000
    batch_items: int = 64  # a batch is closed when it has so many
    batch_wait: float = 0.002  # the longest that the first of a batch waits for others
    waiting_items: int = 4096  # of all requests that wait for a batch


class Bodies:
    """Reads bodies and counts what all requests hold together, so that many cannot fill the memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @contextmanager
    def counted(self) -> Iterator[Account]:
        """What is read through the account counts until the block ends."""
        account = Account(self)
        try:
            yield account
        finally:
            self.held -= account.size

    async def read(
        self, account: Account, receive: Receive, declared: str | None, *, asks_first: bool = False
    ) -> bytes:
        """The whole body; raises `Refused` as soon as it is known to be too large or too slow.

        `declared` is the length that the headers tell; a client that `asks_first` sends nothing before it
        is told to.
        """
        length = _length(declared)
        if length is not None and length > self._limits.body:
            if not asks_first:
                await _listen(receive)
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._collected(account, receive)
        except TimeoutError:
            raise Refused(
                408,
                "slow_body",
                f"the body did not arrive within {self._limits.body_seconds:g} seconds; send it faster",
                {"Connection": "close"},
            ) from None

    async def _collected(self, account: Account, receive: Receive) -> bytes:
        parts: list[bytes] = []
        async for part in _parts(receive):
            account.add(len(part))
            if account.size > self._limits.body:
                parts.clear()
                await _listen(receive)
                raise self._too_large()
            if self.held > self._limits.all_bodies:
                raise busy("too much is being sent to the server at once; try again")
            parts.append(part)
        return b"".join(parts)

    def _too_large(self) -> Refused:
        return Refused(
            413,
            "body_too_large",
            f"the body is larger than {self._limits.body} bytes; send fewer or smaller items a request",
            {"Connection": "close"},
        )


class Account:
    """What one request holds."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.size = 0

    def add(self, count: int) -> None:
        """So many bytes more are held."""
        self.size += count
        self._bodies.held += count


async def _listen(receive: Receive) -> None:
    """A client that still sends would see its connection reset before the answer, so hear a little more."""
    read = 0
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            async for part in _parts(receive):
                read += len(part)
                if read > _LINGER_BYTES:
                    return
    except TimeoutError:
        pass


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(499, "gone", "the client has gone")
        more = message.get("more_body", False)
        yield message.get("body", b"")


def _length(declared: str | None) -> int | None:
    if declared is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", declared):
        raise unreadable("the Content-Length header is no number of bytes")
    return int(declared)
