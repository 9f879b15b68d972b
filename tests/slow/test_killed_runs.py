"""`kill -9` at thirty points of a run against an API, then resume: nothing differs, nothing is bought twice.

Each point is a run of its own with a server of its own. The process dies when the server has received or
answered so many requests, or some time after its last one; every third run dies a second time. At some of
the points the server knows no Idempotency-Keys, as most real ones: then what was on its way is paid for
twice, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adamab.providers.cache import VectorCache
from adamab.providers.generators.chat_protocol import digest
from adamab.run.run_log import Journal
from adamab.testing import ProviderServer, ReceivedRequest

pytestmark = pytest.mark.slow

ROUNDS, PREFETCH, LATENCY, JITTER = 20, 4, 0.03, 0.03
TASK = {
    "name": "support",
    "classes": {
        "refund": "wants money back",
        "login": "cannot sign in",
        "praise": "likes the product",
        "shipping": "asks where a parcel is",
    },
    "examples": {
        "refund": ["money back please", "send my money back", "I want the money returned"],
        "login": ["cannot sign in today", "sign in fails", "the sign in page is broken"],
        "praise": ["likes it a lot", "she likes it", "everyone likes it here"],
        "shipping": ["where is my parcel", "it has not arrived", "when will it be delivered"],
    },
}
SETTINGS = ("folds=2", "checkpoints=0,6", f"augmentation_rounds={ROUNDS}")


@dataclass(frozen=True)
class Point:
    """When to kill: at request `number`, when it has come or when it is answered, `later` seconds on."""

    event: str  # "asked" or "answered"
    number: int
    later: float = 0.0


@dataclass
class Kill:
    """What was there when the process died: of the requests so far, those whose answers were kept."""

    seen: list[ReceivedRequest]
    kept: set[str]  # idempotency keys


@dataclass
class Outcome:
    """What a run has come to."""

    chosen: list[str] = field(default_factory=list)
    weights: str = ""
    synthetic: str = ""
    seen: list[ReceivedRequest] = field(default_factory=list)
    billed: int = 0
    repeated: int = 0  # billed although the very same request had been billed before
    unused: int = 0
    kills: list[Kill] = field(default_factory=list)
    output: str = ""

    @property
    def asked(self) -> Counter[str]:
        return Counter(seen.idempotency_key for seen in self.seen)

    @property
    def under_way(self) -> list[set[str]]:
        """At each kill, the requests whose answers were not kept."""
        return [{seen.idempotency_key for seen in one.seen} - one.kept for one in self.kills]


def start(folder: Path, server: ProviderServer) -> subprocess.Popen[str]:
    url = f"openai:m?base_url={server.url}/v1"
    command = [sys.executable, "-m", "adamab", "fit", "task.yaml", "--run", "run", "--no-cache", "--quiet"]
    command += ["--embedder", f"{url}&batch=5", "--generator", url, "--prefetch", str(PREFETCH)]
    command += [part for setting in SETTINGS for part in ("--set", setting)]
    environment = {**os.environ, "ADAMAB_CACHE": str(folder / "no-cache.sqlite")}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(folder: Path, server: ProviderServer, kills: list[Kill]) -> Outcome:
    """Run to the end and gather everything."""
    process = start(folder, server)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    run = folder / "run"
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return Outcome(
        chosen=[record["chosen"] for record in history],
        weights=hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
        synthetic=(run / "synthetic.jsonl").read_text(),
        seen=server.seen,
        billed=server.billed(),
        repeated=server.repeated(),
        unused=json.loads((run / "fit.json").read_text())["unused_batches"],
        kills=kills,
        output=output,
    )


def kill(folder: Path, server: ProviderServer, point: Point) -> Kill:
    """Run until the point and end it there, or after it if the run was quicker."""
    process = start(folder, server)
    while process.poll() is None and not reached(server, point):
        time.sleep(0.001)
    time.sleep(point.later)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    seen = server.seen
    kept = kept_keys(folder, seen)
    while any(one.status is None for one in server.seen):
        time.sleep(0.005)  # a server does not know that nobody listens any more, and bills
    return Kill(seen, kept)


def reached(server: ProviderServer, point: Point) -> bool:
    seen = server.seen
    happened = seen if point.event == "asked" else [one for one in seen if one.status is not None]
    return len(happened) >= point.number


def kept_keys(folder: Path, seen: list[ReceivedRequest]) -> set[str]:
    """The requests whose answers lie in the run's files; looked for in a copy, so that nothing is mended."""
    copy = folder / f"copy{time.monotonic_ns()}"
    shutil.copytree(folder / "run", copy) if (folder / "run").exists() else copy.mkdir()
    asks = []
    if (copy / "journal.sqlite").exists() and (copy / "journal.sqlite").stat().st_size:
        with Journal(copy) as journal:
            asks = list(replies(journal))
    vectors = VectorCache(copy / "vectors.sqlite")
    return {one.idempotency_key for one in seen if is_kept(one, asks, vectors)}


def replies(journal: Journal):
    import sqlite3

    db = sqlite3.connect(journal.path)
    with suppress(sqlite3.OperationalError):  # the process died before there were tables
        for name, batch, number, data in db.execute("SELECT class, batch, number, data FROM replies"):
            yield name, batch, number, json.loads(data)["digest"]
    db.close()


def is_kept(one: ReceivedRequest, asks: list[tuple[str, int, int, str]], vectors: VectorCache) -> bool:
    if one.path.endswith("/chat/completions"):
        return any(one.idempotency_key == digest(*ask, one.body) for ask in asks)
    place = one.headers["host"] + "/v1"
    texts = one.body["input"]
    return any(
        len(vectors.get(f"openai:m@{place}", kind, texts, ["pooled"])) == len(texts)
        for kind in ("query", "class")
    )


def whole_run(folder: Path) -> Outcome:
    with ProviderServer(latency=LATENCY, jitter=JITTER) as server:
        write_task(folder)
        return finish(folder, server, [])


def killed_run(folder: Path, points: list[Point], idempotent: bool = True) -> Outcome:
    seed = points[0].number
    with ProviderServer(latency=LATENCY, jitter=JITTER, seed=seed, idempotent=idempotent) as server:
        write_task(folder)
        kills = [kill(folder, server, point) for point in points]
        return finish(folder, server, kills)


def write_task(folder: Path) -> None:
    folder.mkdir()
    (folder / "task.yaml").write_text(json.dumps(TASK))


def plan(total: int) -> list[list[Point]]:
    """Thirty runs: points spread over all requests, and over what comes after the last."""
    plans = [[Point("asked" if n % 2 else "answered", 1 + n * (total - 1) // 23)] for n in range(24)]
    plans += [[Point("answered", total * n // 4, later=0.004 * n)] for n in (1, 2, 3)]
    plans += [[Point("answered", total, later=later)] for later in (0.05, 0.3, 0.6)]
    for number, points in enumerate(plans):
        if number % 3 == 0:  # a second time, some requests further on
            points.append(Point("asked", points[0].number + 1 + number))
    return plans


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Outcome:
    return whole_run(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def killed(tmp_path_factory, whole) -> list[Outcome]:
    plans = plan(len(whole.seen))
    assert len(plans) == 30
    return killed_runs(tmp_path_factory.mktemp("killed"), plans, idempotent=True)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory, whole) -> list[Outcome]:
    """Runs with a server that knows no Idempotency-Keys."""
    plans = plan(len(whole.seen))[1::5]
    return killed_runs(tmp_path_factory.mktemp("forgetful"), plans, idempotent=False)


def killed_runs(folder: Path, plans: list[list[Point]], *, idempotent: bool) -> list[Outcome]:
    folders = [folder / f"{n}" for n in range(len(plans))]
    with ThreadPoolExecutor(2) as pool:  # the machine has two cores
        return list(pool.map(killed_run, folders, plans, [idempotent] * len(plans)))


def test_the_kills_are_spread_over_the_run(whole, killed):
    assert len(whole.chosen) == ROUNDS
    assert sum(len(outcome.kills) for outcome in killed) == 40
    dead = [len(outcome.kills[0].seen) for outcome in killed]
    # A slow machine dies later than asked, so these are far below what a quiet one shows.
    assert min(dead) < len(whole.seen) / 3
    assert len(set(dead)) >= 8
    lost = [len(keys) for outcome in killed for keys in outcome.under_way]
    assert sum(n > 0 for n in lost) >= 5  # calls were on their way in most of them


def test_the_same_decisions(whole, killed):
    assert [outcome.chosen for outcome in killed] == [whole.chosen] * len(killed)


def test_the_same_weights_and_samples(whole, killed):
    assert {outcome.weights for outcome in killed} == {whole.weights}
    assert {outcome.synthetic for outcome in killed} == {whole.synthetic}
    assert {outcome.output for outcome in killed} == {""}  # no warning that the journal was departed from


def test_what_was_kept_is_never_asked_for_again(killed):
    for outcome in killed:
        for one in outcome.kills:
            later = outcome.seen[len(one.seen) :]
            assert not one.kept & {seen.idempotency_key for seen in later}


def test_only_calls_on_their_way_are_asked_for_again(killed):
    for outcome in killed:
        assert all(len(keys) <= PREFETCH + 2 for keys in outcome.under_way)
        twice = sum(count - 1 for count in outcome.asked.values())
        assert twice <= sum(map(len, outcome.under_way))


def test_nothing_is_billed_twice(whole, killed):
    needed = set(requests(whole))
    for outcome in killed:
        # Every request that the whole run made is made, and each is billed once: what was on its way
        # is asked for again under the same key.
        bodies = requests(outcome)
        assert needed <= set(bodies)
        assert outcome.billed == len(set(bodies)) == len(outcome.asked)
        # Batches that were fetched ahead and never needed: at most so many, in all processes together.
        assert outcome.billed - whole.billed <= 2 * PREFETCH


def test_without_keys_only_what_was_on_its_way_is_billed_twice(whole, forgetful):
    assert len(forgetful) == 6
    for outcome in forgetful:
        assert outcome.chosen == whole.chosen
        assert outcome.weights == whole.weights
        # The server bills whatever it has received, also what nobody waits for any more.
        assert outcome.repeated == len(outcome.seen) - len(set(requests(outcome)))
        assert outcome.repeated <= sum(map(len, outcome.under_way))
        twice = {key for key, count in outcome.asked.items() if count > 1}
        assert twice <= set().union(*outcome.under_way)
    assert any(outcome.repeated for outcome in forgetful)  # or the server does remember


def requests(outcome: Outcome) -> list[str]:
    return [one.path + json.dumps(one.body, sort_keys=True) for one in outcome.seen]
