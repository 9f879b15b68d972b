"""A fit that starts over and is killed leaves the earlier results, and a journal to resume from."""

import hashlib
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = pytest.mark.slow

CLASSES = [f"class{i}" for i in range(6)]
RESULTS = ("model.safetensors", "model.json", "synthetic.jsonl")


@pytest.fixture
def task(tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"{c} text {i}" for c in CLASSES for i in range(5)]
    vectors = np.repeat(np.eye(6, 32), 5, axis=0) + 0.3 * rng.standard_normal((30, 32))
    np.savez(tmp_path / "v.npz", ids=np.array(ids), **{"view/pooled": vectors.astype(np.float32)})
    examples = {c: [text for text in ids if text.startswith(c + " ")] for c in CLASSES}
    (tmp_path / "task.yaml").write_text(json.dumps(examples))
    return tmp_path


def command(*more):
    options = ["--embedder", "npz:v.npz", "--generator", "noise", "--set", "words=false"]
    start = [sys.executable, "-m", "adamab", "fit", "task.yaml", "--run", "run"]
    return [*start, *options, "--set", "views=pooled", *more]


def adamab(task, *arguments):
    done = subprocess.run(arguments, cwd=task, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def results(task):
    return {name: hashlib.sha256((task / "run" / name).read_bytes()).hexdigest() for name in RESULTS}


def test_killed_at_many_points(task):
    start = time.monotonic()
    adamab(task, *command())
    whole, expected = time.monotonic() - start, results(task)
    resumed = 0
    for point in np.linspace(0.05, 1.0, 12):
        running = subprocess.Popen(
            command("--overwrite"), cwd=task, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(point * whole)
        running.send_signal(signal.SIGKILL)
        running.wait()
        # What was there before can be used at every moment.
        output = adamab(task, sys.executable, "-m", "adamab", "predict", "run", "v.npz")
        assert len(output.splitlines()) == 31
        # Whether it had started over or not: started again, without --overwrite, it ends the same.
        if (task / "run" / "journal.sqlite").exists():
            resumed += 1
            adamab(task, *command())
        assert results(task) == expected
    assert resumed >= 6
    adamab(task, *command("--overwrite"))
    assert results(task) == expected
    assert not [path.name for path in (task / "run").iterdir() if path.name.endswith(".old")]
