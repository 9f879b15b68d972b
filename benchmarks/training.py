"""How long a fit takes without generation, and how long SetFit takes on the same samples in the same run.

SetFit learns from pairs, which grow with the square of the samples: so some steps of it are measured, after
one that does not count, and multiplied by their number. Without the library (extra `baselines`) only the fit
is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from adamab.compare._setfit import SetFit
from adamab.compare.methods import TrainingData
from adamab.errors import TaskError
from adamab.providers.cache import CachedEmbedder, VectorCache
from adamab.providers.embedders.local import LocalEmbedder
from adamab.run.fit import fit_task
from adamab.task.spec import Task
from benchmarks.report import Figure, Group
from experiments.datasets.base import data_directory, load_data_set

SAMPLES = 15  # of each class
REPEAT = 3
STEPS = 20  # of SetFit
PAIRS_A_STEP = 16  # its default batch


def run() -> Group:
    name, task = _task()
    what = f"{name}, {len(task.classes)} classes, {len(task.samples)} samples"
    with tempfile.TemporaryDirectory() as folder:
        command = sorted(_command_seconds(task, Path(folder), turn) for turn in range(REPEAT))
        training = sorted(_training_seconds(task, Path(folder)) for _ in range(REPEAT + 1))
    whole, ours = command[REPEAT // 2], training[REPEAT // 2]
    figures = [
        Figure(
            f"training, seconds of adamab fit without generation, {what}",
            whole,
            10,
            note=f"the whole command without a cache; of vectors that are there already {ours:.2f} s",
        )
    ]
    if find_spec("setfit") is not None:
        figures.append(_against_setfit(task, what, ours))
    return Group(figures)


def _task() -> tuple[str, Task]:
    """TREC where its files are, else the demo's own task."""
    try:
        data = load_data_set("trec", data_directory())
    except TaskError:
        data = load_data_set("demo", Path())
    return data.title, data.draw(0, given=SAMPLES, part="development").task


def _command_seconds(task: Task, folder: Path, turn: int) -> float:
    classes = [
        {"name": c.name, "description": c.description, "examples": [s.text for s in task.samples_of(c.name)]}
        for c in task.classes
    ]
    (folder / "task.yaml").write_text(json.dumps({"classes": classes}), encoding="utf-8")
    arguments = ["fit", str(folder / "task.yaml"), "--run", str(folder / f"run{turn}"), "--no-cache", "-q"]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "adamab", *arguments], check=True)
    return time.perf_counter() - start


def _training_seconds(task: Task, folder: Path) -> float:
    """Of existing vectors, except for the first call."""
    embedder = CachedEmbedder(LocalEmbedder(), VectorCache(folder / "vectors.sqlite"))
    start = time.perf_counter()
    fit_task(task, embedder)
    return time.perf_counter() - start


def _against_setfit(task: Task, what: str, ours: float) -> Figure:
    data = TrainingData(
        {}, [s.class_name for s in task.samples], task.class_names, [s.text for s in task.samples]
    )
    first, more = (_setfit_seconds(data, steps) for steps in (1, 1 + STEPS))
    steps = _steps(data)
    theirs = first + (more - first) / STEPS * (steps - 1)
    return Figure(
        f"training, times faster than SetFit, {what}",
        theirs / ours,
        20,
        at_most=False,
        note=f"{STEPS} of SetFit's {steps:,} steps measured: {theirs:,.0f} s in all, against {ours:.2f} s",
    )


def _setfit_seconds(data: TrainingData, steps: int) -> float:
    baseline = SetFit(max_steps=steps)
    baseline.fit(replace(data))
    return float(baseline.fit_seconds_)


def _steps(data: TrainingData) -> int:
    """Of its default: all pairs of different classes, and as many of equal ones, repeated."""
    counts, n = Counter(data.labels).values(), len(data.labels)
    equal = sum(count * (count - 1) // 2 for count in counts)
    different = n * (n - 1) // 2 - equal
    return -(-2 * max(equal, different) // PAIRS_A_STEP)


if __name__ == "__main__":
    print(run())
