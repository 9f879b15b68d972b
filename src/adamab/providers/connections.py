"""The open connections of an event loop, shared by all clients and closed when the loop ends.

They belong to the loop they were opened in, not to a client: a client that is thrown away has no way
to close them, since that takes an `await`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from weakref import WeakKeyDictionary

import httpx

from adamab.providers.services import host_of, is_loopback

_KEPT = httpx.Limits(max_connections=None, max_keepalive_connections=64)
_Open = tuple[httpx.AsyncClient, AsyncGenerator[None]]
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, _Open]]  # True: past all proxies
_open = WeakKeyDictionary()


async def connections(url: str) -> httpx.AsyncClient:
    """Those of the running loop to the place of `url`.

    Redirects are not followed: they could lead a key astray. The environment's proxies are used, but not
    on the way to this machine: a key goes there in the clear, and a proxy is another machine.
    """
    direct = is_loopback(host_of(url))
    loop = asyncio.get_running_loop()
    clients = _open.setdefault(loop, {})
    if direct not in clients:
        http = _client(direct)
        # A loop that ends finishes its asynchronous generators, which is the only notice that it gives.
        end = _closed_at_the_end(loop, http)
        clients[direct] = http, end
        await anext(end)
    return clients[direct][0]


def _client(direct: bool) -> httpx.AsyncClient:
    if direct:  # with a transport of its own httpx does not look for proxies
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(limits=_KEPT, trust_env=True), follow_redirects=False
        )
    return httpx.AsyncClient(limits=_KEPT, follow_redirects=False)


async def _closed_at_the_end(
    loop: asyncio.AbstractEventLoop, http: httpx.AsyncClient
) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _open.pop(loop, None)
        await http.aclose()
