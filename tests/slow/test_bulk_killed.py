"""Bulk prediction under hard conditions: killed workers and drivers, a full cluster, a cluster of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from adamab.cli.app import app
from adamab.providers.ray_cluster import ray_cluster
from adamab.providers.sync import run_sync
from adamab.serving import bulk_ray
from adamab.testing import HashEmbedder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

TEXTS = {
    "refund": ["money back please", "send my money back", "I want the money returned"],
    "login": ["cannot sign in today", "sign in fails", "the sign in page is broken"],
}
NEW = ["money money back", "back with the money", "sign in cannot work", "cannot sign in"]
ADAMAB = [sys.executable, "-c", "import sys; from adamab.cli import main; sys.exit(main())"]


def table_of(folder):
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("part-*.parquet")))


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
    fast = ("--set", "folds=2", "--set", "checkpoints=0,6", "--no-cache")
    result = adamab(
        "fit",
        place / "task.yaml",
        "--run",
        place / "run",
        "--embedder",
        f"npz:{place / 'vectors.npz'}",
        *fast,
    )
    assert result.exit_code == 0, result.output
    return place / "run"


@pytest.fixture
def corpus(tmp_path):
    """Two files with some broken rows."""
    (tmp_path / "data").mkdir()
    for number in range(2):
        lines = [json.dumps({"text": text, "n": n}) for n, text in enumerate(NEW * (40 + number))]
        lines[17:19] = ['{"text": ', '{"text": "no vector of it"}']
        (tmp_path / "data" / f"{number}.jsonl").write_text("\n".join(lines))
    return tmp_path / "data"


@pytest.fixture
def expected(corpus, tmp_path, model):
    assert adamab("predict", model, corpus, "-o", tmp_path / "local", "--part-rows", "2").exit_code == 0
    return table_of(tmp_path / "local")


def holder(ray, cpus):
    @ray.remote(num_cpus=cpus)
    class Holder:
        def ready(self):
            return True

    actor = Holder.remote()
    assert ray.get(actor.ready.remote())
    return actor


def kill_a_worker(out):
    """`kill -9` for the process of an actor, as soon as it has written a part."""
    while not list(out.glob("part-*")):
        time.sleep(0.02)
    found = subprocess.run(["pgrep", "-f", "ray::MapWorker"], capture_output=True, text=True, check=True)
    os.kill(int(found.stdout.split()[0]), signal.SIGKILL)


def test_a_killed_worker_is_replaced_and_a_full_cluster_is_waited_for(
    tmp_path, corpus, model, expected, ray_address, monkeypatch
):
    monkeypatch.setattr(bulk_ray, "PATIENCE", 0.5)
    out = tmp_path / "out"
    with ray_cluster(ray_address) as ray:
        other = holder(ray, 2)
        threading.Timer(3.0, ray.kill, (other,)).start()
        killer = threading.Thread(target=kill_a_worker, args=(out,))
        killer.start()
        result = adamab("predict", model, corpus, "-o", out, "--part-rows", "2", "--engine", "ray")
        killer.join()
    assert result.exit_code == 0, result.output
    assert result.stderr.count("waiting: other jobs hold all 2 CPUs of Ray") == 1
    assert result.stdout == ""
    assert table_of(out).equals(expected)
    assert not list(out.glob(".part-*"))


@pytest.mark.parametrize(("held", "workers"), [(1.5, 2), (1, 9), (0, 4)])
def test_no_number_of_workers_stalls(tmp_path, corpus, model, expected, ray_address, held, workers):
    out = tmp_path / "out"
    with ray_cluster(ray_address) as ray:
        other = holder(ray, held)
        result = adamab(
            "predict", model, corpus, "-o", out, "--part-rows", "2", "--engine", "ray", "--workers", workers
        )
        ray.kill(other)
    assert result.exit_code == 0, result.output
    assert table_of(out).equals(expected)


def test_a_file_that_a_worker_cannot_read_is_one_line_and_parts_stay(tmp_path, model, ray_address):
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        path = tmp_path / "data" / f"{name}.parquet"
        pq.write_table(pa.table({"text": NEW * 50}), path, compression=None, use_dictionary=False)
    broken = bytearray(path.read_bytes())
    broken[4:400] = b"\xff" * 396  # the first page; the footer is as it was
    path.write_bytes(broken)
    out = tmp_path / "out"
    command = ("predict", model, tmp_path / "data", "-o", out, "--engine", "ray", "--address", ray_address)
    result = adamab(*command)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("adamab: ")
    assert result.stderr.count("\n") == 1
    assert "b.parquet: is damaged" in result.stderr


@pytest.fixture
def short():
    """A folder for temporary files whose path leaves room for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as name:
        yield Path(name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_driver_takes_its_cluster_along_and_a_second_start_goes_on(
    tmp_path, corpus, model, expected, number, short
):
    """A Ray of its own, as users have it: no address, no token set, an empty home folder."""
    out, home = tmp_path / "out", tmp_path / "home"
    home.mkdir()
    command = [
        *ADAMAB,
        "predict",
        str(model),
        str(corpus),
        "-o",
        str(out),
        "--part-rows",
        "2",
        "--engine",
        "ray",
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**kept, "HOME": str(home), "TMPDIR": str(short)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while len(list(out.glob("part-*"))) < 3 and process.poll() is None:
            time.sleep(0.02)
        children = descendants(process.pid)
        process.send_signal(number)
        _, told = process.communicate()
    assert children
    if number != signal.SIGKILL:
        assert process.returncode == 130, told
        assert told == "adamab: stopped\n"
        assert not list(short.iterdir())
    wait_until(lambda: not any(alive(child) for child in children))
    done = len(list(out.glob("part-*")))
    assert 3 <= done < len(list((tmp_path / "local").glob("part-*")))
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert again.stdout == ""
    assert f"{done} of them finished before" in again.stderr
    assert table_of(out).equals(expected)
    assert not list(home.iterdir())  # Ray would write a token there


def descendants(pid):
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in found.splitlines()]
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


def wait_until(condition):
    while not condition():
        time.sleep(0.1)


def test_one_file_survives_kill_9(tmp_path, model):
    source, whole, out = tmp_path / "in.txt", tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(f"{text}\n" for text in NEW * 20000))
    assert adamab("predict", model, source, "-o", whole).exit_code == 0
    partial = tmp_path / ".out.jsonl.partial"
    command = [*ADAMAB, "predict", str(model), str(source), "-o", str(out)]
    for kill in (True, True, False):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            size = partial.stat().st_size if partial.exists() else 0
            while kill and process.poll() is None:
                if partial.exists() and partial.stat().st_size > size + 200_000:
                    process.kill()
            _, told = process.communicate()
        assert out.exists() != kill
    assert "going on after" in told
    assert out.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".out*"))
