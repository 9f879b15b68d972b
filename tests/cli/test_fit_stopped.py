"""Ctrl-C during a fit: the call on its way is paid for, so it is waited for; the run goes on later."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from adamab.run.run_log import STOPPED, Journal
from adamab.testing import Fault
from tests.cli.conftest import weights

QUICK = ("--set", "augmentation_rounds=6", "--no-cache")


def command(server, *more):
    spec = f"openai:m?base_url={server.url}/v1"
    return ("fit", "task.yaml", "--run", "run", "--embedder", spec, "--generator", spec, *QUICK, *more)


class Process:
    """`adamab fit` in a process of its own, which gets Ctrl-C while the server is busy with a request."""

    def __init__(self, folder, server, *more):
        self.server = server
        self.process = subprocess.Popen(
            [sys.executable, "-m", "adamab", *command(server, *more)],
            cwd=folder,
            env=dict(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_call(self):
        """Until a request is with the server that takes long."""
        while not any(seen.fault == "slow" and seen.status is None for seen in self.server.seen):
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.005)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def heard(self):
        """Until it has said that it will stop."""
        line = self.process.stderr.readline()
        assert line == "stopping after the current call; Ctrl-C again stops at once and may lose it\n"

    def end(self):
        message, complaints = self.process.communicate()
        assert message == ""
        return self.process.returncode, complaints


@pytest.fixture
def undisturbed(adamab, folder, server):
    """The weights of a run that nobody stops."""
    result = adamab(*command(server, "--overwrite"))
    assert result.exit_code == 0, result.output
    undisturbed_weights = weights(folder / "run")
    for path in (folder / "run").iterdir():
        path.unlink()
    server.reset()
    return undisturbed_weights


GO_ON = "adamab: stopped; everything that was bought is in run: run the same command again to go on\n"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_the_current_call_is_waited_for(adamab, refused, folder, server, undisturbed, path):
    server.add_fault(Fault("slow", path=path, after=3, seconds=2.0))
    process = Process(folder, server, "--prefetch", "0")
    process.wait_for_call()
    assert refused(*command(server)) == (
        "adamab: run: another process is writing this run; wait for it or stop it\n"
    )
    process.interrupt()
    process.heard()
    assert process.end() == (130, GO_ON)
    assert all(seen.status == 200 for seen in server.seen)  # the slow one among them
    with Journal(folder / "run") as journal:
        assert len(list(journal.events(STOPPED))) == 1
    bought = {seen.idempotency_key for seen in server.seen}
    count = server.count()
    result = adamab(*command(server))
    assert result.exit_code == 0, result.output
    assert "resuming the run after " in result.stderr
    assert not bought & {seen.idempotency_key for seen in server.seen[count:]}
    assert weights(folder / "run") == undisturbed


def test_the_second_time_ends_it_at_once(adamab, folder, server, undisturbed):
    server.add_fault(Fault("slow", path="chat", after=2, times=None, seconds=30.0))
    process = Process(folder, server)
    process.wait_for_call()
    process.interrupt()
    process.heard()
    process.interrupt()
    assert process.end() == (130, GO_ON)
    assert any(seen.status is None for seen in server.seen)  # nobody has waited for the answer
    server.clear_faults()
    result = adamab(*command(server, "--json"))
    assert result.exit_code == 0, result.output
    assert weights(folder / "run") == undisturbed
    # What was given up counts as spent: nobody knows whether it was billed. One of the calls that run ahead
    # may have been given up before it was sent.
    spent = json.loads(result.stdout)["spent"]["calls"]
    assert server.count() <= spent <= server.count() + 4
