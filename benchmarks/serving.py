"""The server under load against the bare loop that embeds and multiplies.

32 clients send one text a request to a server with the local embedder; then the bare loop goes through the
same texts in batches of the size that the server reached on average. The two take turns. Server, clients and
loop are processes with one environment: one thread for the arithmetic. They share the machine with whatever
else runs. The server does what the loop does and more, so a ratio above 1 is chance, or a mistake here; the
The CPU time per text of both is reported with it.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

from adamab.demo import load_demo
from adamab.model import save
from adamab.providers.registry import open_embedder
from adamab.run.fit import fit_task
from benchmarks.report import Figure, Group, Table

CLIENTS, TURNS, SECONDS = 32, 5, 5.0
BAR = 0.8
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
ENVIRONMENT = os.environ | dict.fromkeys(_THREADS, "1")


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process in the common environment, ended at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT
    ) as started:
        try:
            yield started
        finally:
            started.terminate()


def load(url: str, texts: list[str], seconds: float) -> dict[str, Any]:
    """What the clients saw, and the server's batches and CPU time meanwhile."""
    command = [sys.executable, "-m", "benchmarks.serving_clients", url, str(CLIENTS), str(seconds)]
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    before = counters(url)
    done = subprocess.run(command, input=lines, check=True, capture_output=True, text=True, env=ENVIRONMENT)
    figures: dict[str, Any] = json.loads(done.stdout)
    change = {name: value - before[name] for name, value in counters(url).items()}
    figures["batch"] = change["adamab_batch_items_sum"] / change["adamab_batch_items_count"]
    figures["cpu_a_text"] = change["process_cpu_seconds_total"] / change["adamab_batch_items_sum"]
    figures["client_cpus"] = figures["cpu_seconds"] / change["time"]
    figures["rate"] = figures["requests"] / figures["seconds"]
    return figures


def counters(url: str) -> dict[str, float]:
    """What the server counts, without labels."""
    with urlopen(f"{url}/metrics") as answer:
        page = answer.read().decode()
    metrics = {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", page, flags=re.M)}
    return metrics | {"time": time.perf_counter()}


def bare(loop: subprocess.Popen[str], size: float, seconds: float) -> dict[str, float]:
    """What the loop reaches with batches of that size."""
    line = said(loop, f"{max(round(size), 1)} {seconds}")
    answer: dict[str, float] = json.loads(line)
    return answer


def said(started: subprocess.Popen[str], line: str) -> str:
    """The answer to a line."""
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write(line + "\n")
    started.stdin.flush()
    return started.stdout.readline()


def run() -> Group:
    demo = load_demo()
    texts = [sample.text for sample in demo.test]
    random.Random(0).shuffle(texts)  # they are ordered by class, and classes differ in length
    with tempfile.TemporaryDirectory() as folder:
        embedder = open_embedder("local", cache=False)
        save(fit_task(demo.task, embedder, embedder_spec="local").classifier, Path(folder))
        with (
            process("adamab", "serve", folder, "--port", "0") as server,
            process("benchmarks.serving_bare", folder) as loop,
        ):
            assert server.stdout is not None
            assert loop.stdin is not None
            url = re.findall(r"http://\S+", server.stdout.readline())[0]
            loop.stdin.write(json.dumps(texts) + "\n")
            return _measured(url, loop, texts)


def _measured(url: str, loop: subprocess.Popen[str], texts: list[str]) -> Group:
    load(url, texts, 1.0)  # neither first turn counts
    bare(loop, CLIENTS / 2, 1.0)
    turns = []
    for _ in range(TURNS):
        served = load(url, texts, SECONDS)
        alone = bare(loop, served["batch"], SECONDS)
        ratio = served["rate"] / alone["rate"]
        turns.append(served | {"bare": alone["rate"], "bare_cpu_a_text": alone["cpu_a_text"], "ratio": ratio})

    def median(name: str) -> float:
        return float(np.median([turn[name] for turn in turns]))

    note = (
        f"{median('rate'):,.0f} requests a second, the bare loop {median('bare'):,.0f} texts "
        f"in batches of {median('batch'):.1f}; p99 {median('p99_ms'):.0f} ms; CPU a text "
        f"{1e3 * median('cpu_a_text'):.1f} ms, bare {1e3 * median('bare_cpu_a_text'):.1f} ms"
    )
    name = f"server, throughput of {CLIENTS} clients to the bare loop, local embedder"
    return Group([Figure(name, median("ratio"), BAR, at_most=False, note=note)], [_table(turns)])


def _table(turns: list[dict[str, Any]]) -> Table:
    columns = {
        "requests a second": ("rate", 1, 0),
        "bare texts a second": ("bare", 1, 0),
        "ratio": ("ratio", 1, 2),
        "items a batch": ("batch", 1, 1),
        "p50 ms": ("p50_ms", 1, 0),
        "p99 ms": ("p99_ms", 1, 0),
        "server's CPU ms a text": ("cpu_a_text", 1e3, 1),
        "bare CPU ms a text": ("bare_cpu_a_text", 1e3, 1),
        "clients' CPUs": ("client_cpus", 1, 3),
    }
    rows = [[f"{turn[key] * unit:.{digits}f}" for key, unit, digits in columns.values()] for turn in turns]
    title = f"{CLIENTS} clients with one text a request, {SECONDS:g} seconds a turn, one thread each"
    return Table(title, list(columns), rows)
