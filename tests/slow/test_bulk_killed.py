"""Bulk prediction under hard conditions: killed workers and drivers, a full cluster, a cluster of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from adamab import engines
from adamab.cli import errors
from adamab.cli.app import app
from adamab.cli.console import say
from adamab.engines import ray_cluster
from adamab.predict import parts
from adamab.providers.async_bridge import run_sync
from adamab.testing import HashEmbedder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

TEXTS = {
    "refund": ["money back please", "send my money back", "I want the money returned"],
    "login": ["cannot sign in today", "sign in fails", "the sign in page is broken"],
}
NEW = ["money money back", "back with the money", "sign in cannot work", "cannot sign in"]
MINUTES = 5
ADAMAB = [sys.executable, "-c", "import sys; from adamab.cli import main; sys.exit(main())"]


def adamab(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    classes = [
        {"name": name, "description": f"about {name}", "examples": texts} for name, texts in TEXTS.items()
    ]
    (place / "task.yaml").write_text(json.dumps({"name": "toy", "classes": classes}))
    ids = [*TEXTS["refund"], *TEXTS["login"], *NEW, *(f"{name}: about {name}" for name in TEXTS)]
    vectors = run_sync(HashEmbedder(width=16).embed(ids)).views["pooled"]
    np.savez(
        place / "vectors.npz", **{"ids": np.array(ids), "view/pooled": vectors, "model": np.array("toy")}
    )
    embedder = ("--embedder", f"npz:{place / 'vectors.npz'}", "--no-cache")
    result = adamab("fit", place / "task.yaml", "--run", place / "run", *embedder)
    assert result.exit_code == 0, result.output
    return place / "run"


@pytest.fixture
def times():
    """How often the corpus repeats its rows: a part of two of them takes a worker 3 ms."""
    return 40


@pytest.fixture
def corpus(tmp_path, write_corpus, times):
    return write_corpus(tmp_path / "data", NEW, times)


@pytest.fixture
def expected(corpus, tmp_path, model, table_of):
    assert adamab("predict", model, corpus, "-o", tmp_path / "local", "--part-rows", "2").exit_code == 0
    return table_of(tmp_path / "local")


def wait_until(condition, what):
    """What takes minutes here will not come."""
    last = time.monotonic() + MINUTES * 60
    while not (value := condition()):
        assert time.monotonic() < last, f"{what}: not so after {MINUTES} minutes"
        time.sleep(0.02)
    return value


def busy_worker():
    """A process below this one that works at a task of Ray."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    below = descendants(os.getpid())
    pids = [int(line.split()[0]) for line in listed.splitlines() if "ray::_run_in_task" in line]
    return next((pid for pid in pids if pid in below), None)


@pytest.mark.filterwarnings("default:waiting")
def test_a_killed_worker_is_replaced_and_a_full_cluster_is_waited_for(
    tmp_path, corpus, model, expected, ray_address, monkeypatch, table_of, hold_cpus
):
    monkeypatch.setattr(engines, "PATIENCE", 0.5)
    out, waited, killed = tmp_path / "out", threading.Event(), []
    monkeypatch.setattr(errors, "say", lambda text: (waited.set(), say(text)))
    with ray_cluster(ray_address) as ray, ThreadPoolExecutor() as pool:
        other = hold_cpus(ray, 2)

        def kill_a_worker():
            """Which cannot have begun before the other job is gone, and is not done with its second part."""
            wait_until(waited.is_set, "the command says that it waits")
            ray.kill(other)
            wait_until(lambda: list(out.glob("part-*")), "a part is there")
            killed.append(wait_until(busy_worker, "a worker is busy"))
            os.kill(killed[0], signal.SIGKILL)

        killing = pool.submit(kill_a_worker)
        result = adamab("predict", model, corpus, "-o", out, "--part-rows", "2", "--engine", "ray")
        killing.result()
    assert result.exit_code == 0, result.output
    assert result.stderr.count("waiting: other jobs hold all processors of Ray") == 1
    assert result.stdout == ""
    assert killed
    assert not alive(killed[0])
    assert table_of(out).equals(expected)
    assert not list(out.glob(".part-*"))


@pytest.mark.parametrize(("held", "workers"), [(1.5, 2), (0, 9)])
def test_no_number_of_workers_stalls(
    tmp_path, corpus, model, expected, ray_address, held, workers, table_of, hold_cpus
):
    out = tmp_path / "out"
    with ray_cluster(ray_address) as ray:
        other = hold_cpus(ray, held)
        result = adamab(
            "predict", model, corpus, "-o", out, "--part-rows", "2", "--engine", "ray", "--workers", workers
        )
        ray.kill(other)
    assert result.exit_code == 0, result.output
    assert table_of(out).equals(expected)


def test_a_part_that_kills_every_worker_is_given_up(tmp_path, model, ray_address, monkeypatch):
    def deadly(part, worker):  # of this function, so that workers get it with the job
        if any("cannot sign in" in row.fields["text"] for row in part.content):
            os._exit(9)
        return worker(part)

    monkeypatch.setattr(parts, "predict_part", deadly)
    monkeypatch.setattr(engines, "PATIENCE", 0.1)
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("\n".join([*NEW[:3] * 2, "cannot sign in"]) + "\n")
    command = ("predict", model, source, "-o", out, "--engine", "ray", "--address", ray_address)
    result = adamab(*command, "--part-rows", "3")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("adamab: Ray gave up ('The worker died")
    assert result.stderr.count("\n") == 1  # nobody is asked to wait for other jobs
    assert (out / "part-00000-000000.parquet").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("times", [400], ids=["long"])
def test_a_stopped_driver_takes_its_cluster_along_and_a_second_start_resumes(
    tmp_path, corpus, model, expected, number, table_of
):
    """A Ray of its own, as users have it: no address, no token set, an empty home folder.

    The job takes seconds, so it is not over before the signal arrives.
    """
    out, home = tmp_path / "out", tmp_path / "home"
    home.mkdir()
    options = ("--part-rows", "2", "--engine", "ray")
    command = [*ADAMAB, "predict", str(model), str(corpus), "-o", str(out), *options]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**kept, "HOME": str(home)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        wait_until(
            lambda: len(list(out.glob("part-*"))) >= 3 or process.poll() is not None, "three parts are there"
        )
        children = descendants(process.pid)
        process.send_signal(number)
        _, output = process.communicate()
    assert children
    if number != signal.SIGKILL:
        assert process.returncode == 130, output
        assert output == "adamab: stopped; what is finished is kept: run the same command again to go on\n"
    wait_until(lambda: not any(alive(child) for child in children), "its children have ended")
    done = len(list(out.glob("part-*")))
    assert 3 <= done < len(list((tmp_path / "local").glob("part-*")))
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert again.stdout == ""
    assert f"{done} of them finished before" in again.stderr
    assert table_of(out).equals(expected)
    assert not list(home.iterdir())  # Ray would write a token there


def descendants(pid):
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    below, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in pairs if parent in frontier}
        below += frontier
    return below


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
