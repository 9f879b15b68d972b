"""A fit that is killed leaves nothing under its name, and the next one works."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = pytest.mark.slow

CLASSES = [f"class{i}" for i in range(6)]


@pytest.fixture
def task(tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"{c} text {i}" for c in CLASSES for i in range(5)]
    vectors = np.repeat(np.eye(6, 32), 5, axis=0) + 0.3 * rng.standard_normal((30, 32))
    np.savez(tmp_path / "v.npz", ids=np.array(ids), **{"view/pooled": vectors.astype(np.float32)})
    examples = {c: [text for text in ids if text.startswith(c + " ")] for c in CLASSES}
    (tmp_path / "task.yaml").write_text(json.dumps(examples))
    return tmp_path


def command(folder, *more):
    arguments = ["fit", "task.yaml", "--run", "run", "--embedder", "npz:v.npz", "--set", "words=false", *more]
    return [sys.executable, "-m", "adamab", *arguments]


def test_killed_at_many_points(task):
    start = time.monotonic()
    subprocess.run(command(task), cwd=task, check=True, capture_output=True)
    whole = time.monotonic() - start
    for point in np.linspace(0.05, 1.0, 15):
        running = subprocess.Popen(
            command(task, "--overwrite"), cwd=task, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(point * whole)
        running.send_signal(signal.SIGKILL)
        running.wait()
        # the old run or the new one, never a mixture
        done = subprocess.run(
            [sys.executable, "-m", "adamab", "predict", "run", "v.npz"],
            cwd=task,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 31
    subprocess.run(command(task, "--overwrite"), cwd=task, check=True, capture_output=True)
