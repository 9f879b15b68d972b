"""One cell: train what it names, then score it once; test samples are looked at when training is over."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from adamab.errors import BudgetError
from adamab.providers.budget import Budget
from adamab.providers.generators.base import Generator
from adamab.providers.sync import run_sync
from adamab.run.holdout import Holdout
from adamab.run.outside import Outside
from adamab.run.resolve import embedder_key, open_generator
from adamab.study.baselines.base import TrainingData, items_of
from adamab.study.baselines.registry import make_baseline
from adamab.study.baselines.remote import metered
from adamab.study.experiments.cells import FOLDS, Cell
from adamab.study.experiments.definition import CALIBRATOR, EVENLY, NONE
from adamab.study.experiments.materials import KnownVectors, Materials
from adamab.study.folds import folds_of, split
from adamab.study.parameters import n_parameters
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe

N_FOLDS = 5


@dataclass(frozen=True)
class Measured:
    """What a cell yields."""

    correct: NDArray[np.bool_]  # (n,)
    counts: tuple[int, ...]  # training samples of each class
    seconds: float  # of training
    n_parameters: int
    synthetic: int
    answers: Mapping[str, int] = field(default_factory=dict)  # of a model that was asked, beside classes


def measure(cell: Cell, materials: Materials, outside: Outside | None = None) -> Measured:
    """Run one cell; `outside` meters what is paid for."""
    if cell.scored == FOLDS:
        return _cross_validated(cell, materials, outside)
    test = materials.draws[cell.draw].test
    if cell.method == CALIBRATOR:
        return _calibrator(cell, materials, materials.task(cell.draw, cell.setting), test, outside)
    return _baseline(cell, materials, test, outside)


def _calibrator(
    cell: Cell, materials: Materials, task: Task, scored: Sequence[Sample], outside: Outside | None
) -> Measured:
    from adamab.run.fit import fit_task  # torch: only processes that fit pay for it

    vectors = materials.vectors[cell.set]
    started = time.perf_counter()
    fit = fit_task(
        task,
        vectors,
        generator=None if cell.policy == NONE else _generator(cell, materials),
        policy=cell.policy,
        recipe=cell.full_recipe(),
        seed=cell.seed,
        holdout=_tests(cell, materials, scored),
        outside=outside,
        images=materials.images,
    )
    seconds = time.perf_counter() - started
    _check_finished(fit.ended, outside)
    views, texts = _views(materials, cell, scored), [sample.text for sample in scored]
    correct = _correct(fit.classifier.predict(views, texts), scored)
    samples = [*task.samples, *fit.synthetic]
    size = n_parameters(fit.classifier, cell.full_recipe())
    return Measured(correct, _counts(task, samples), seconds, size, len(fit.synthetic))


def _cross_validated(cell: Cell, materials: Materials, outside: Outside | None) -> Measured:
    """Every given sample is scored once by a calibrator that was fitted without it."""
    task = materials.task(cell.draw, cell.setting)
    folds = folds_of(task, N_FOLDS, cell.seed)
    found, order = [], []
    for fold in np.unique(folds):
        rest, scored = split(task, folds == fold)
        found.append(_calibrator(cell, materials, rest, scored, outside))
        order.append(np.flatnonzero(folds == fold))
    correct = np.concatenate([m.correct for m in found])[np.argsort(np.concatenate(order))]
    seconds = sum(m.seconds for m in found)
    return replace(found[0], correct=correct, seconds=seconds)


def _baseline(cell: Cell, materials: Materials, test: Sequence[Sample], outside: Outside | None) -> Measured:
    data = _training_data(cell, materials, outside)
    baseline = make_baseline(cell.method, seed=cell.seed, **cell.settings)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # Two samples a class make scikit-learn ask whether the classes are numbers to regress on.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        baseline.fit(data)
    seconds = getattr(baseline, "fit_seconds_", time.perf_counter() - started)  # without loading a model
    with metered(baseline, outside or Outside()):
        correct = _correct(baseline.predict(_views(materials, cell, test), items_of(test)), test)
    counts = tuple(list(data.labels).count(c) for c in data.classes)
    synthetic = len(data.labels) - len(materials.draws[cell.draw].task.samples)
    return Measured(correct, counts, seconds, int(baseline.n_parameters_), synthetic, baseline.report())


def _training_data(cell: Cell, materials: Materials, outside: Outside | None) -> TrainingData:
    task, vectors = materials.task(cell.draw, cell.setting), materials.vectors[cell.set]
    added = () if cell.policy == NONE else evenly(cell, materials, outside)
    return TrainingData.of_task(
        task,
        added,
        views=_views(materials, cell, [*task.samples, *added]),
        class_views=_class_views(task, vectors),
        plain_class_views=_class_views(_plain(task), vectors) if task.prompts.with_examples else None,
    )


def _class_views(task: Task, vectors: KnownVectors) -> dict[str, NDArray[np.float32]]:
    """Of the classes' wordings; none where they have no vectors."""
    wordings = [task.prompts.class_text(c, [s.text for s in task.samples_of(c.name)]) for c in task.classes]
    return run_sync(vectors.embed(wordings, kind="class")).views if vectors.has(wordings).all() else {}


def _plain(task: Task) -> Task:
    return replace(task, prompts=replace(task.prompts, with_examples=False))


def evenly(cell: Cell, materials: Materials, outside: Outside | None) -> tuple[Sample, ...]:
    """What round-robin adds, through the same gate as in a fit: the cheapest fit that there is."""
    from adamab.run.fit import fit_task

    key = cell.draw, cell.batch, cell.rounds
    if key not in materials.added:
        # Its heads are thrown away: nothing is trained, neither in the rounds nor after them.
        recipe = Recipe(views=("pooled",), words=False, discriminants=False, folds=0, checkpoints=(0,))
        fit = fit_task(
            materials.task(cell.draw, "zero-shot"),
            materials.vectors[cell.set],
            generator=_generator(cell, materials),
            policy=EVENLY,
            recipe=recipe.with_options(batch=cell.batch, augmentation_rounds=cell.rounds),
            seed=cell.seed,
            holdout=_tests(cell, materials),
            outside=outside,
            images=materials.images,
        )
        _check_finished(fit.ended, outside)
        materials.added[key] = fit.synthetic
    return materials.added[key]


def _tests(cell: Cell, materials: Materials, scored: Sequence[Sample] = ()) -> Holdout:
    """What no generator may hand out: a model may know a test text by heart; `scored` may be given ones."""
    return Holdout(sample.text for sample in (*materials.draws[cell.draw].test, *scored))


def _check_finished(ended: str | None, outside: Outside | None) -> None:
    if ended is not None and outside is not None and outside.budget != Budget():
        raise BudgetError(f"{ended}, so this cell is not finished; raise --budget, all others are kept")


def _generator(cell: Cell, materials: Materials) -> Generator:
    own = materials.generator(cell.draw)
    found = own if own is not None else open_generator(cell.generator, seed=cell.seed)
    if found is None:
        raise ValueError(f"generator {cell.generator} of a cell with policy {cell.policy}")
    return found


def _views(materials: Materials, cell: Cell, samples: Sequence[Sample]) -> dict[str, NDArray[np.float32]]:
    vectors, prompts = materials.vectors[cell.set], materials.draws[cell.draw].task.prompts
    return run_sync(vectors.embed([embedder_key(sample, vectors, prompts) for sample in samples])).views


def _correct(predicted: Sequence[str], scored: Sequence[Sample]) -> NDArray[np.bool_]:
    return np.array([p == s.class_name for p, s in zip(predicted, scored, strict=True)], dtype=np.bool_)


def _counts(task: Task, samples: Sequence[Sample]) -> tuple[int, ...]:
    labels = [sample.class_name for sample in samples]
    return tuple(labels.count(name) for name in task.class_names)
