"""A run of two thousand rounds that is killed again and again ends as one that was never stopped."""

import json
import subprocess
import sys

import pytest

from adamab.serving.run_reader import RunReader

pytestmark = pytest.mark.slow

ROUNDS = 2000
KILLED_AFTER = (130, 760, 1990)  # between checkpoints, which are written every 25 rounds
FIT = f"""
import sys
from pathlib import Path
from adamab.providers.generators.base import Batch, Generator
from adamab.run.fit import resume_run
from adamab.run.settings import FitSettings, set_up
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.testing import HashEmbedder

class Writer(Generator):
    fingerprint = "writer"

    async def generate(self, request):
        return Batch((f"{{request.spec.name}} says {{request.number}} and {{request.number % 89}}",))

names = [f"class{{c}}" for c in range(20)]
recipe = Recipe.preset("paper").with_options(
    batch=1, batch_size=None, layers=2, bottleneck=1, rounds={ROUNDS}, augmentation_rounds={ROUNDS}
)
task = Task.from_mapping({{name: [name, name + " or so"] for name in names}})
settings = FitSettings(
    embedder=HashEmbedder(width=16), generator=Writer(), recipe=recipe, run_dir=Path(sys.argv[1])
)
resume_run(set_up(task, settings), on_round=lambda record: print(record.round, flush=True))
"""


def fit(run, until=None):
    """Fit, and kill the process when a round has ended; returns how many rounds it ran itself."""
    command = [sys.executable, "-W", "error", "-c", FIT, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ran = 0
        for line in process.stdout:
            ran += 1
            if int(line) == until:
                process.kill()
                break
        _, output = process.communicate()
    assert until is not None or process.returncode == 0, output
    return ran


def left(run):
    """Decisions, scores, losses, samples and weights."""
    history = [json.loads(line) for line in (run / "history.jsonl").read_text("utf-8").splitlines()]
    return {
        "history": [{**record, "seconds": None} for record in history],
        "samples": (run / "synthetic.jsonl").read_text("utf-8"),
        "weights": (run / "model.safetensors").read_bytes(),
    }


def test_killed_and_resumed(tmp_path):
    assert fit(tmp_path / "whole") == ROUNDS
    ran = [fit(tmp_path / "killed", until) for until in KILLED_AFTER]
    ran.append(fit(tmp_path / "killed"))
    assert left(tmp_path / "killed") == left(tmp_path / "whole")
    # Each start replays at most the rounds since the last checkpoint, and a kill comes some rounds late.
    assert sum(ran) < ROUNDS + 200
    with RunReader(tmp_path / "killed") as reader:
        rounds = reader.rounds()
    assert [ended.round for ended in rounds] == list(range(1, ROUNDS + 1))
    assert [ended.chosen for ended in rounds] == [r["chosen"] for r in left(tmp_path / "whole")["history"]]
