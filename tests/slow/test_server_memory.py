"""A server that has answered 100,000 requests is no larger than one that has answered some."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from adamab.model import save
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.stored import NpzEmbedder
from adamab.run.fit import fit_task
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.testing import HashEmbedder

CLIENTS, WARM_UP, REQUESTS = 32, 10_000, 100_000
BAR = 1.1
WORDS = {"refund": "money", "login": "sign", "praise": "likes"}


@pytest.fixture
def run(tmp_path):
    """A model whose vectors stand in a file."""
    texts = {name: [f"{word} {n}" for n in range(4)] for name, word in WORDS.items()}
    ids = [text for members in texts.values() for text in members]
    classes = tuple(ClassSpec(name, word) for name, word in WORDS.items())
    task = Task(classes, tuple(Sample(t, name) for name, ts in texts.items() for t in ts), name="toy")
    wordings = [task.prompts.class_text(spec) for spec in classes]
    vectors = run_sync(HashEmbedder(width=16).embed([*ids, *wordings])).views["pooled"]
    np.savez(tmp_path / "v.npz", **{"ids": np.array([*ids, *wordings]), "view/pooled": vectors})
    spec = f"npz:{tmp_path / 'v.npz'}"
    fitted = fit_task(task, NpzEmbedder(tmp_path / "v.npz"), embedder_spec=spec)
    save(fitted.classifier, tmp_path / "run")
    return tmp_path / "run"


def request(host, number):
    """Mostly good ones; some of each kind that is refused, each with something of its own."""
    kind = number % 20
    if kind == 17:
        return f"GET /nothing/{number} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
    text = f"{list(WORDS.values())[number % 3]} {number % 4}"
    question = {
        18: {"text": f"unheard of {number}"},
        19: {"text": text, f"field{number}": 1},
    }.get(kind, {"texts": [text] * (1 + number % 3), "top_k": 2, "unknown": 0.9})
    body = json.dumps(question).encode()
    head = f"POST /v1/classify HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def client(address, numbers, seen):
    reader, writer = await asyncio.open_connection(*address)
    for number in numbers:
        writer.write(request(f"{address[0]}:{address[1]}", number))
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head.lower())[0]))
        seen[int(head.split(b" ", 2)[1])] += 1
    writer.close()
    await writer.wait_closed()


def asked(address, count):
    seen = Counter()

    async def all_clients():
        parts = [range(start, count, CLIENTS) for start in range(CLIENTS)]
        await asyncio.gather(*(client(address, part, seen) for part in parts))

    asyncio.run(all_clients())
    return seen


def resident(process):
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="resident memory is read as Linux tells it"
)
def test_memory_stays_flat(run):
    command = [sys.executable, "-m", "adamab", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        host, port = re.findall(r"http://(\S+):(\d+)", process.stdout.readline())[0]
        asked((host, int(port)), WARM_UP)
        before = resident(process.pid)
        seen = asked((host, int(port)), REQUESTS)
        after = resident(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    print(f"{before} kB after {WARM_UP} requests, {after} kB after {REQUESTS} more: {after / before:.3f}")
    assert seen == {200: REQUESTS * 17 // 20, 404: REQUESTS // 20, 422: REQUESTS // 10}
    assert after <= BAR * before
