"""A whole run of the paper's CUB200 shape: what the bandit adds to the same run with `random`."""

from __future__ import annotations

import time

import numpy as np

from adamab.providers.generators.base import Batch, Generator, Request
from adamab.providers.metering import CallContext
from adamab.run._arrays import fit_arrays
from adamab.run.fit import sample_source
from adamab.run.records import History
from adamab.run.samples import DescribedClasses, TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from benchmarks.report import Figure, Group, Table

N_CLASSES, WIDTH, GIVEN = 200, 768, 2
SEEDS = 3


class Around(Generator):
    """Vectors around the class's own: free, so that the run's time is the method's."""

    fingerprint = "around"
    yields_vectors = True

    def __init__(self, classes: np.ndarray, noise: float = 1.0) -> None:
        self._classes, self._noise = classes, noise
        self._rng = np.random.default_rng(1)

    async def generate(self, request: Request) -> Batch:
        """As many as asked for."""
        return Batch(
            vectors=stored(self._classes[[request.class_index] * request.count], self._rng, self._noise)
        )


def stored(centres: np.ndarray, rng: np.random.Generator, noise: float = 1.0) -> np.ndarray:
    """Unit vectors around unit vectors; the larger the noise, the farther away."""
    vectors = centres + noise * unit(rng.standard_normal(centres.shape))
    return unit(vectors).astype(np.float32)


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length one."""
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def one_run(policy: str, seed: int) -> tuple[float, History]:
    """Seconds and records of 500 rounds, 400 of which add two samples."""
    rng = np.random.default_rng(0)
    classes = unit(rng.standard_normal((N_CLASSES, WIDTH))).astype(np.float32)
    described = DescribedClasses((), {"pooled": classes})
    samples = TrainingSet(N_CLASSES, lambda _: described, has_texts=False)
    y = np.repeat(np.arange(N_CLASSES), GIVEN)
    samples.add(y.tolist(), {"pooled": stored(classes[y], rng)}, given=True)
    recipe = Recipe.preset("paper:cub200")
    specs = [ClassSpec(str(c)) for c in range(N_CLASSES)]
    source = sample_source(Around(classes), specs, samples, recipe, CallContext())
    start = time.perf_counter()
    outcome = fit_arrays(samples, recipe, source, policy, seed=seed)
    return time.perf_counter() - start, outcome.history


def run() -> Group:
    times: dict[str, list[float]] = {"random": [], "adamab": []}
    rows = []
    for seed in range(SEEDS):
        for policy, own in times.items():
            seconds, history = one_run(policy, seed)
            own.append(seconds)
            spent = [sum(getattr(r.seconds, part) for r in history) for part in ("scoring", "training")]
            rows.append([policy, str(seed), f"{seconds:.1f}", *(f"{s:.1f}" for s in spent)])
    ratios = np.array(times["adamab"]) / np.array(times["random"])
    name = "paper run, CUB200 shape, time with adamab to time with random"
    note = f"median of {SEEDS} seeds, both policies in turn ({ratios.min():.2f} to {ratios.max():.2f})"
    header = ["policy", "seed", "seconds", "of these scoring", "training"]
    return Group(
        [Figure(name, float(np.median(ratios)), 1.5, note=note)],
        [Table("Where the time goes", header, rows)],
    )
