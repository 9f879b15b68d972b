"""The open connections of an event loop, shared by all clients and closed when the loop ends.

They belong to the loop they were opened in, not to a client: a client that is thrown away has no way
to close them, since that takes an `await`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from weakref import WeakKeyDictionary

import httpx

_KEPT = httpx.Limits(max_connections=None, max_keepalive_connections=64)
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None]]]
_open = WeakKeyDictionary()


async def connections() -> httpx.AsyncClient:
    """Those of the running loop. Redirects are not followed: they could lead a key astray."""
    loop = asyncio.get_running_loop()
    if loop not in _open:
        http = httpx.AsyncClient(limits=_KEPT, follow_redirects=False)
        # A loop that ends finishes its asynchronous generators, which is the only notice that it gives.
        end = _closed_at_the_end(loop, http)
        _open[loop] = http, end
        await anext(end)
    return _open[loop][0]


async def _closed_at_the_end(
    loop: asyncio.AbstractEventLoop, http: httpx.AsyncClient
) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _open.pop(loop, None)
        await http.aclose()
