"""Sweeps that are killed, on both engines."""

import json
import os
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

NOUNS = {"fruit": "apple pear plum", "tool": "hammer saw drill", "river": "danube rhine nile"}


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "ADAMAB_CACHE": str(folder / "vectors")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sweep(folder, output, *engine):
    small = ["--search=weight_ridge=0.3:30:log", "--search=centre=true,false", "--trials=8", "--folds=3"]
    return start(folder, "adamab", "sweep", "task.yaml", "-o", output, *small, *engine)


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A task, and the sweep of it that nobody stopped."""
    folder = tmp_path_factory.mktemp("studies")
    examples = {
        name: [f"a {a} and a {b}" for a in words.split() for b in words.split()]
        for name, words in NOUNS.items()
    }
    classes = [{"name": n, "description": f"about a {n}", "examples": e} for n, e in examples.items()]
    (folder / "task.yaml").write_text(json.dumps({"name": "nouns", "classes": classes}))
    process = sweep(folder, "whole", "--jobs=0")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return folder


@pytest.mark.parametrize("engine", [("--jobs=2",), ("--engine=ray",)], ids=["local", "ray"])
def test_a_sweep_that_is_killed_again_and_again_ends_as_one_never_stopped(place, engine):
    output = f"killed{engine[0]}"
    for finished in (2, 11, 20):
        process = sweep(place, output, *engine)
        while len(lines(place / output / "optuna.jsonl")) < finished:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.kill()
        process.communicate()
    process = sweep(place, output, *engine)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert (place / output / "sweep.json").read_bytes() == (place / "whole" / "sweep.json").read_bytes()
