"""Clients of a server, as many as asked, each on a connection of its own that it keeps.

`python -m benchmarks.serving_clients URL CLIENTS SECONDS` reads texts from stdin, one JSON string a line,
and prints a JSON object: how many answers came in that time, how long they took, and the clients' CPU time.
The time begins a second after the first request, and requests in flight at its end do not count.
Written on plain sockets, since the clients share the machine with the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

import numpy as np

RAMP = 1.0  # seconds


async def _client(
    host: str, port: int, requests: list[bytes], start: int, window: tuple[float, float]
) -> list[float]:
    reader, writer = await asyncio.open_connection(host, port)
    times: list[float] = []
    turn = start
    while (begun := time.perf_counter()) < window[1]:
        writer.write(requests[turn % len(requests)])
        turn += 1
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split(b" ", 2)[1]
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        if status != b"200":
            raise SystemExit(f"the server answered {status.decode()}: {body.decode()[:200]}")
        if window[0] <= (ended := time.perf_counter()) < window[1]:
            times.append(ended - begun)
    writer.close()
    return times


async def _all(url: str, clients: int, seconds: float, texts: list[str]) -> list[float]:
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 80
    requests = [_request(place.netloc, text) for text in texts]
    start = time.perf_counter() + RAMP
    window = (start, start + seconds)
    step = max(len(requests) // clients, 1)
    each = await asyncio.gather(*(_client(host, port, requests, n * step, window) for n in range(clients)))
    return [one for times in each for one in times]


def _request(host: str, text: str) -> bytes:
    body = json.dumps({"text": text}).encode()
    head = f"POST /v1/classify HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body


def _main() -> None:
    url, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    texts = [json.loads(line) for line in sys.stdin]
    cpu = time.process_time()
    times = asyncio.run(_all(url, clients, seconds, texts))
    figures = {
        "requests": len(times),
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "p50_ms": float(np.percentile(times, 50)) * 1e3,
        "p99_ms": float(np.percentile(times, 99)) * 1e3,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    _main()
