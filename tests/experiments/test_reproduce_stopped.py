"""Ctrl-C during an experiment: what is paid for is waited for, what is finished is kept, one line says so."""

import os
import signal
import subprocess
import sys
import time

import pytest

from adamab.testing import Fault, ProviderServer
from experiments.datasets.text_sets import DemoSet

FILE = """
title: Something to stop
sets: [demo]
generators: [pool]
amounts: [2]
embedder: "npz:vectors.npz"
seeds: {seeds}
methods:
  - zero-shot
  - {method}
"""


@pytest.fixture
def begin(tmp_path, save_vectors):
    """Starts an experiment with this method in a process, and a group of processes, of its own."""

    def start(method, *, seeds=1):
        save_vectors(tmp_path / "vectors.npz", draws=[DemoSet().draw(seed) for seed in range(seeds)])
        (tmp_path / "stop.yaml").write_text(FILE.format(method=method, seeds=seeds))
        return subprocess.Popen(
            [sys.executable, "-m", "experiments", "stop.yaml", "--jobs=1"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


@pytest.mark.slow
def test_paid_calls_are_waited_for_and_not_made_again(begin, tmp_path):
    with ProviderServer() as server:
        method = f"chat:m?base_url={server.url}/v1&concurrency=4"
        server.add_fault(Fault("slow", path="chat", after=3, seconds=2.0))
        process = begin(method)
        while not any(seen.fault == "slow" and seen.status is None for seen in server.seen):
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert process.returncode == 130
        assert errors.splitlines()[-2:] == [
            "stopping after the current call; Ctrl-C again stops at once and may lose it",
            "adamab: stopped; 1 of 2 cells are done (1 of them now) and kept in results/stop.rows.jsonl, "
            "answers in your cache: run the same command again to go on",
        ]
        assert {seen.status for seen in server.seen} == {200}  # the slow one among them
        bought, count = {seen.idempotency_key for seen in server.seen}, server.count()
        again = begin(method)
        _, errors = again.communicate()
        assert again.returncode == 0, errors
        assert server.count() == 300  # the test messages, each once
        assert not bought & {seen.idempotency_key for seen in server.seen[count:]}
