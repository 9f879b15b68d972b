"""The whole story on the built-in task: every way to use the same examples, side by side.

A fit gets the task, which holds the given messages only, and the vectors of what it may see. Test
messages are looked at once the classifier is finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts
from adamab.providers.sync import run_sync
from adamab.study.baselines import LinearProbe, Similarity, TrainingData
from adamab.study.datasets.demo import demo_generator, load_demo, synthetic_texts
from adamab.study.processes import end_with_parent
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe

POLICIES = ("random", "round-robin", "adamab")
SIMILARITY, PROBE, RECIPE = "similarity", "probe", "recipe"


@dataclass(frozen=True)
class Plan:
    """What is compared. `per_class` are synthetic samples a class on average, ascending."""

    seeds: tuple[int, ...] = (0, 1, 2)
    per_class: tuple[int, ...] = (5, 10)
    recipe: Recipe = field(default_factory=Recipe)
    workers: int | None = None  # processes; None means up to two, 0 means this one

    def jobs(self) -> list[Job]:
        """Every fit, the longest first so that no process waits for another at the end."""
        amounts = sorted(self.per_class, reverse=True)
        augmented = [Job(p, n, s) for n in amounts for s in self.seeds for p in reversed(POLICIES)]
        return augmented + [Job("none", 0, seed) for seed in self.seeds]


@dataclass(frozen=True)
class Job:
    """One fit of the recipe; baselines on the same samples are measured beside it."""

    policy: str
    per_class: int
    seed: int


@dataclass(frozen=True)
class Measurement:
    """One method, trained once, on all test messages."""

    method: str  # similarity, probe or recipe
    policy: str
    seed: int
    synthetic: int
    correct: NDArray[np.bool_]  # (n,)
    seconds: float
    samples_by_class: dict[str, int]  # given and synthetic
    estimate: tuple[float, float, float] | None = None  # out-of-fold accuracy and its interval


class KnownVectors(Embedder):
    """Vectors from memory, of a closed set of texts; asking for another is a mistake."""

    def __init__(self, fingerprint: str, vectors: dict[Kind, tuple[list[str], Embedded]]) -> None:
        self.fingerprint = fingerprint
        self.vectors = {kind: embedded for kind, (_, embedded) in vectors.items()}
        self.views = tuple(self.vectors["query"].views)
        self._rows = {kind: {t: i for i, t in enumerate(texts)} for kind, (texts, _) in vectors.items()}

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        texts = only_texts(items)
        rows = [self._rows[kind][text] for text in texts]
        known = self.vectors[kind]
        return Embedded({view: known.views[view][rows] for view in views}, known.overlong[rows])


@dataclass(frozen=True)
class Materials:
    """What jobs need: the training side, and apart from it the test messages."""

    task: Task
    training: KnownVectors
    test: tuple[Sample, ...]
    test_views: dict[str, NDArray[np.float32]]


def gather(embedder: Embedder, recipe: Recipe) -> Materials:
    """Embed every text once."""
    data, views = load_demo(), recipe.views or embedder.views
    queries = list(dict.fromkeys([*(s.text for s in data.task.samples), *synthetic_texts()]))
    wordings = [data.task.prompts.class_text(spec) for spec in data.task.classes]
    sides: dict[Kind, tuple[list[str], Embedded]] = {
        "query": (queries, run_sync(embedder.embed(queries, kind="query", views=views))),
        "class": (wordings, run_sync(embedder.embed(wordings, kind="class", views=views))),
    }
    test = run_sync(embedder.embed([s.text for s in data.test], kind="query", views=views))
    return Materials(data.task, KnownVectors(embedder.fingerprint, sides), data.test, test.views)


def measure(
    plan: Plan, materials: Materials, *, on_job: Callable[[], None] = lambda: None
) -> Iterator[Measurement]:
    """Run the plan; measurements come as jobs end, in no particular order."""
    workers = min(2, os.cpu_count() or 1) if plan.workers is None else plan.workers
    if workers == 0:
        for job in plan.jobs():
            yield from run_job(job, materials, plan.recipe)
            on_job()
        return
    # One thread each: small matrices gain nothing from more, and threads that wait for each other
    # on a busy machine are slower by an order of magnitude.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (materials, plan.recipe))
    try:
        for done in as_completed([pool.submit(_run_in_worker, job) for job in plan.jobs()]):
            yield from done.result()
            on_job()
    finally:
        pool.shutdown(cancel_futures=True)


def run_job(job: Job, materials: Materials, recipe: Recipe) -> list[Measurement]:
    """Fit the recipe and the baselines that belong beside it."""
    from adamab.run.fit import fit_task  # torch: only processes that fit pay for it

    task = materials.task
    started = time.perf_counter()
    fit = fit_task(
        task,
        materials.training,
        generator=None if job.policy == "none" else demo_generator(seed=job.seed),
        policy=job.policy,
        recipe=recipe,
        budget=job.per_class * len(task.classes),
        seed=job.seed,
    )
    seconds = time.perf_counter() - started
    texts = [sample.text for sample in materials.test]
    predicted = fit.classifier.predict(materials.test_views, texts)
    told = fit.estimate
    estimate = None if told is None else (told.accuracy, told.low, told.high)
    measured = _measurement(RECIPE, job, materials, fit.synthetic, predicted, seconds, estimate)
    return [measured, *_baselines(job, materials, fit.synthetic)]


def _baselines(job: Job, materials: Materials, synthetic: Sequence[Sample]) -> Iterator[Measurement]:
    """The probe where a policy spreads samples evenly; zero-shot where nothing is generated."""
    if job.policy not in ("none", "round-robin"):
        return
    data, view = _training_data(materials, synthetic), materials.training.views[0]
    baselines: dict[str, LinearProbe | Similarity] = {PROBE: LinearProbe(view=view, random_state=job.seed)}
    if job.policy == "none":
        baselines[SIMILARITY] = Similarity(view=view)
    for method, baseline in baselines.items():
        started = time.perf_counter()
        predicted = baseline.fit(data).predict(materials.test_views)
        seconds = time.perf_counter() - started
        yield _measurement(method, job, materials, synthetic, predicted, seconds)


def _training_data(materials: Materials, synthetic: Sequence[Sample]) -> TrainingData:
    samples = (*materials.task.samples, *synthetic)
    texts = [sample.text for sample in samples]
    return TrainingData(
        views=run_sync(materials.training.embed(texts)).views,
        labels=[sample.class_name for sample in samples],
        classes=materials.task.class_names,
        texts=texts,
        class_views=materials.training.vectors["class"].views,
    )


def _measurement(
    method: str,
    job: Job,
    materials: Materials,
    synthetic: Sequence[Sample],
    predicted: Sequence[str],
    seconds: float,
    estimate: tuple[float, float, float] | None = None,
) -> Measurement:
    counts = dict.fromkeys(materials.task.class_names, 0)
    for sample in (*materials.task.samples, *synthetic):
        counts[sample.class_name] += 1
    truth = [sample.class_name for sample in materials.test]
    correct = np.array([p == t for p, t in zip(predicted, truth, strict=True)])
    return Measurement(method, job.policy, job.seed, len(synthetic), correct, seconds, counts, estimate)


_worker: tuple[Materials, Recipe] | None = None


def _start_worker(materials: Materials, recipe: Recipe) -> None:
    global _worker
    import torch

    end_with_parent()
    torch.set_num_threads(1)
    threadpool_limits(1)
    _worker = materials, recipe


def _run_in_worker(job: Job) -> list[Measurement]:
    if _worker is None:
        raise RuntimeError("the process was not started by _start_worker")
    return run_job(job, *_worker)
