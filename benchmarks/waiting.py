"""Waiting for an API: a fit that fetches batches ahead against one that waits for each.

The provider's server has a process of its own, so that the two do not share an interpreter, and takes
300 ms a call. Both fits begin in an empty run directory and without the cache that runs share; they have
to decide the same and end with the same weights, or their times could not be compared.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from adamab.run.fit import resume_run
from adamab.run.settings import FitSettings, FitSetup, set_up
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from benchmarks.report import Figure, Group, Table

LATENCY = 0.3  # seconds a call
N_CLASSES, GIVEN, ROUNDS, BATCH = 30, 5, 60, 5  # TREC's shape
PREFETCH = 8
BAR = 0.25
PARTS = ("generating", "embedding", "scoring", "training")


@dataclass(frozen=True)
class Fit:
    """One fit: how long it took and what came of it."""

    prefetch: int
    seconds: float
    summary: dict[str, Any]
    rounds: list[dict[str, Any]]
    weights: bytes
    calls: int  # that the server received

    @property
    def chosen(self) -> list[str]:
        """The class of each round."""
        return [round_["chosen"] for round_ in self.rounds]

    def spent(self, part: str) -> float:
        """Seconds of all rounds on one of their parts."""
        return sum(round_["seconds"][part] for round_ in self.rounds)


@contextmanager
def provider() -> Iterator[str]:
    """The address of a server that takes its time."""
    command = [sys.executable, "-m", "adamab.testing", "--port", "0", "--latency", str(LATENCY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://[\w.]+:\d+", process.stdout.readline())
            assert address is not None, "the server did not say where it serves"
            yield address[0]
        finally:
            process.terminate()


def one_fit(url: str, prefetch: int, rounds: int = ROUNDS) -> Fit:
    """A fit in a new directory, against a server that remembers nothing."""
    _control(Request(f"{url}/_reset", method="POST"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        start = time.perf_counter()
        summary = resume_run(_set_up(url, prefetch, rounds, path))
        seconds = time.perf_counter() - start
        lines = (path / "history.jsonl").read_text(encoding="utf-8").splitlines()
        weights = (path / "model.safetensors").read_bytes()
    calls = sum(counts["received"] for counts in _control(Request(f"{url}/_seen")).values())
    return Fit(prefetch, seconds, summary, [json.loads(line) for line in lines], weights, calls)


def run() -> Group:
    with provider() as url:
        one_fit(url, PREFETCH, rounds=2)  # imports, and the first tensors
        ahead, waiting = one_fit(url, PREFETCH), one_fit(url, 0)
    assert ahead.chosen == waiting.chosen, "fetching ahead changed the decisions"
    assert ahead.weights == waiting.weights, "fetching ahead changed the weights"
    assert len(ahead.rounds) == ROUNDS, f"{len(ahead.rounds)} rounds instead of {ROUNDS}"
    note = (
        f"{ahead.seconds:.1f} s to {waiting.seconds:.1f} s; same decisions, same weights; "
        f"{ahead.summary['unused_batches']} batches fetched and not used"
    )
    name = f"waiting, {ROUNDS} rounds of {BATCH} at 300 ms a call, prefetch {PREFETCH} to prefetch 0"
    header = ["prefetch", "seconds", *PARTS, "before and after the rounds", "calls", "unused batches"]
    return Group(
        [Figure(name, ahead.seconds / waiting.seconds, BAR, note=note)],
        [Table("Where the time goes, in seconds", header, [_row(waiting), _row(ahead)])],
    )


def _row(fit: Fit) -> list[str]:
    spent = [fit.spent(part) for part in PARTS]
    numbers = [fit.seconds, *spent, fit.seconds - sum(spent)]
    return [
        str(fit.prefetch),
        *(f"{n:.2f}" for n in numbers),
        str(fit.calls),
        str(fit.summary["unused_batches"]),
    ]


def _set_up(url: str, prefetch: int, rounds: int, run: Path) -> FitSetup:
    base = f"{url}/v1"
    settings = FitSettings(
        embedder=f"openai:text-embedding-local?base_url={base}",
        generator=f"openai:chat-local?base_url={base}",
        recipe=Recipe().with_options(augmentation_rounds=rounds, batch=BATCH),
        prefetch=prefetch,
        run_dir=run,
    )
    return set_up(_task(), settings)


def _task() -> Task:
    """Classes that share no word of their own with one another."""
    names = [f"subject{c:02d}" for c in range(N_CLASSES)]
    examples = {name: [f"what about {name} number {i}, part {i * i}" for i in range(GIVEN)] for name in names}
    return Task.from_mapping(examples, descriptions={name: f"questions about {name}" for name in names})


def _control(request: Request) -> dict[str, Any]:
    with urlopen(request) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer
