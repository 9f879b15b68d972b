"""Throughput of the built-in embedder against sentence-transformers on the same weights, texts and cores.

`python -m benchmarks.embedding CORES` is the part that measures, in a process of its own that may use so many
cores. With all views it is compared with `st:`, which gives the same ones; with `pooled` alone with the
library's own `encode`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from adamab.demo import load_demo
from adamab.providers.embedders.local import LocalEmbedder
from adamab.providers.embedders.sentence_transformers import SentenceTransformerEmbedder
from benchmarks.report import Figure, Group, alternating

CORES = (1, 2)
SHORT, LONG = 300, 24  # texts
JOINED = 40  # short texts in the longest of the long ones
REPEAT = 5


def texts(kind: str) -> list[str]:
    """Distinct texts: messages of the demo, or up to forty of them in one."""
    rng = random.Random(0)
    messages = [sample.text for sample in load_demo().test]
    if kind == "short":
        return [f"{rng.choice(messages)} {number}" for number in range(SHORT)]
    return [" ".join(rng.choices(messages, k=rng.randint(JOINED // 4, JOINED))) for _ in range(LONG)]


def run() -> Group:
    figures = []
    for cores in CORES:
        environment = os.environ | {"OMP_NUM_THREADS": str(cores), "RAYON_NUM_THREADS": str(cores)}
        command = [sys.executable, "-m", "benchmarks.embedding", str(cores)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        figures += [Figure(**each, bar=1.0, at_most=False) for each in json.loads(done.stdout)]
    return Group(figures)


def _measured(cores: int) -> list[dict[str, Any]]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    local = LocalEmbedder()
    other = SentenceTransformerEmbedder(str(local.directory))
    asyncio.run(local.embed(["load"]))
    asyncio.run(other.embed(["load"]))
    return [each for kind in ("short", "long") for each in _compared(local, other, kind, cores)]


def _compared(
    local: LocalEmbedder, other: SentenceTransformerEmbedder, kind: str, cores: int
) -> Iterator[dict[str, Any]]:
    inputs, library = texts(kind), other._loaded
    times = alternating(
        [
            lambda: asyncio.run(local.embed(inputs)),
            lambda: asyncio.run(other.embed(inputs)),
            lambda: asyncio.run(local.embed(inputs, views=["pooled"])),
            lambda: library.encode(inputs, show_progress_bar=False),
        ],
        REPEAT,
    )
    for what, (own, theirs) in {"all views, to st:": times[:2], "pooled, to encode()": times[2:]}.items():
        yield {
            "name": f"embedding, throughput of local, {kind} texts, {cores} core{'s' * (cores > 1)}, {what}",
            "value": theirs / own,
            "note": f"{len(inputs) / own:,.0f} texts a second against {len(inputs) / theirs:,.0f}",
        }


if __name__ == "__main__":
    print(json.dumps(_measured(int(sys.argv[1]))))
