"""Cross-validation on a task's given samples: which of them are held out together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from adamab.task import Sample, Task
from adamab.task.words import folded


def folds_of(task: Task, n_folds: int, seed: int) -> NDArray[np.int64]:
    """(n,) the fold of each given sample; those of a class are spread over the folds.

    The same text under another id is in the same fold: trained on, it would give the other away.
    """
    rng = np.random.default_rng([seed, n_folds])
    folds = np.zeros(len(task.samples), dtype=np.int64)
    first: dict[str, int] = {}
    originals = [first.setdefault(folded(sample.text), i) for i, sample in enumerate(task.samples)]
    for c in task.class_names:
        rows = [i for i in first.values() if task.samples[i].class_name == c]
        folds[rng.permutation(rows)] = (np.arange(len(rows)) + rng.integers(n_folds)) % n_folds
    return folds[originals]


def split(task: Task, held_out: NDArray[np.bool_]) -> tuple[Task, list[Sample]]:
    """The task without some of its samples, and these samples."""
    marked = list(zip(task.samples, held_out, strict=True))
    rest = replace(task, samples=tuple(sample for sample, held in marked if not held))
    return rest, [sample for sample, held in marked if held]
