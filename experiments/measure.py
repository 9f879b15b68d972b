"""One cell: the draw and the vectors that it needs, training what it names, and scoring it once."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.compare.bench import n_parameters
from adamab.compare.methods import TrainingData, items_of, make_baseline
from adamab.compare.remote import metered
from adamab.errors import BudgetError, EmbedderError
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedder, Item, Kind
from adamab.providers.embedders.stored import MemoryEmbedder
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.providers.image_store import ImageStore, temporary_store
from adamab.providers.metering import Budget, CallContext
from adamab.providers.registry import embedder_key, open_embedder, open_generator, shared_images
from adamab.run.gate import Holdout
from adamab.sweep import folds_of, split
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe
from adamab.task.spec import Modality
from experiments.cells import FOLDS, POOL, RECORDED, Cell, DrawKey
from experiments.datasets.base import DataSet, Draw
from experiments.definition import CALIBRATOR, EVENLY, NONE, Experiment
from experiments.shapes import shaped

ZERO_SHOT, FEW_SHOT = "zero-shot", "few-shot"


class DrawnSamples(Generator):
    """Texts or images that a draw holds ready, each at most once, in the draw's order."""

    def __init__(self, texts: Mapping[str, Sequence[str]], modality: Modality, fingerprint: str) -> None:
        self.fingerprint, self.modality = fingerprint, modality
        self._texts = texts

    async def generate(self, request: Request) -> Batch:
        """The next ones of the class."""
        existing = set(request.existing)
        left = [text for text in self._texts.get(request.spec.name, ()) if text not in existing]
        taken = left[: request.count]
        return Batch(tuple(taken), closed="no more of them" if len(taken) == len(left) else None)


@dataclass(frozen=True)
class Materials:
    """Everything that a worker is handed."""

    draws: Mapping[DrawKey, Draw]
    vectors: Mapping[str, MemoryEmbedder]  # by set
    # What round-robin has added to a draw, by samples per round and rounds: every baseline wants the same.
    added: dict[tuple[DrawKey, int, int], tuple[Sample, ...]] = field(default_factory=dict)
    images: ImageStore | None = None  # where images are read and stored; None if all samples are texts

    def task(self, key: DrawKey, setting: str) -> Task:
        """The draw's task; in the few-shot setting its wordings quote the given samples."""
        task = self.draws[key].task
        if setting != FEW_SHOT:
            return task
        return replace(task, prompts=replace(task.prompts, with_examples=True))

    def generator(self, key: DrawKey) -> Generator | None:
        """What a set itself can serve with; None where an API has to."""
        draw = self.draws[key]
        if key.generator not in (RECORDED, POOL):
            return None
        samples = draw.recorded if key.generator == RECORDED else draw.pool
        return DrawnSamples(samples, draw.task.modality, f"{key.generator} {draw.digest}")


def draws_of(
    keys: Iterable[DrawKey], sets: Mapping[str, DataSet], experiment: Experiment
) -> dict[DrawKey, Draw]:
    """One draw a key; where nothing is added to the given samples, what could be is not kept."""
    draws: dict[DrawKey, Draw] = {}
    for key in dict.fromkeys(keys):
        draw = sets[key.set].draw(
            key.seed,
            given=key.given,
            generator=key.source,  # type: ignore[arg-type]  # one of the two by construction
            part=experiment.part,
            split=experiment.split,
        )
        if experiment.amounts_of(key.set) == (0,):
            draw = replace(draw, pool={}, recorded={}, images={})
        draws[key] = shaped(draw, key.shape)
    return draws


def embedder_of(data: DataSet, spec: str) -> tuple[Embedder, str | None]:
    """The set's own vectors, or the embedder that is asked for and what it is called."""
    own = data.embedder()
    if own is not None:
        return own, None
    embedder = open_embedder(spec)
    check_takes(embedder, data)
    return embedder, spec


def check_takes(embedder: Embedder, data: DataSet) -> None:
    """Refuse images to an embedder of texts before anything is sent."""
    if data.images and "image" not in embedder.modalities:
        raise EmbedderError(
            f"{embedder} embeds no images, and {data.name} are images; name another with --embedder, such "
            "as clip-vit-large"
        )


def gather(
    draws: Mapping[DrawKey, Draw],
    sets: Mapping[str, DataSet],
    spec: str,
    settings: Sequence[str],
    call_context: CallContext | None = None,
) -> Materials:
    """Embed every sample that is known before the first fit once; the user's cache keeps the vectors."""
    vectors = {}
    for name in dict.fromkeys(key.set for key in draws):
        embedder, named = embedder_of(sets[name], spec)
        known = MemoryEmbedder(embedder, None if named is None else partial(open_embedder, named))
        of_set = [draw for key, draw in draws.items() if key.set == name]
        with (call_context or CallContext()).connected(embedder, None):
            _fill(known, embedder, "query", [item for draw in of_set for item in known_items(draw, embedder)])
            if named is not None and "text" in embedder.modalities:
                _fill(known, embedder, "class", [w for draw in of_set for w in wordings(draw, settings)])
        vectors[name] = known
    return Materials(draws, vectors, images=_store(draws.values()))


def _store(draws: Iterable[Draw]) -> ImageStore | None:
    """A place for generated images; those that are paid for are kept for the next run too."""
    drawn = [draw for draw in draws if draw.task.modality == "image"]
    if not drawn:
        return None
    store = temporary_store(shared=shared_images())
    for draw in drawn:
        store.know(draw.images.values())
    return store


def known_items(draw: Draw, embedder: Embedder) -> Iterable[Item]:
    """Every text or image of a draw, as the embedder gets it."""
    drawn = [
        Sample(text, name, image=draw.images.get(text))
        for by_class in (draw.pool, draw.recorded)
        for name, texts in by_class.items()
        for text in texts
    ]
    for sample in (*draw.task.samples, *draw.test, *drawn):
        yield embedder_key(sample, embedder, draw.task.prompts)


def wordings(draw: Draw, settings: Sequence[str]) -> Iterable[str]:
    """The classes as the embedder reads them: without examples, and in each of the settings."""
    task = draw.task
    for setting in dict.fromkeys((ZERO_SHOT, *settings)):
        prompts = replace(task.prompts, with_examples=setting == FEW_SHOT)
        for c in task.classes:
            yield prompts.class_text(c, [s.text for s in task.samples_of(c.name)])


def _fill(known: MemoryEmbedder, embedder: Embedder, kind: Kind, items: Iterable[Item]) -> None:
    distinct = list(dict.fromkeys(items))
    known.put(distinct, kind, run_sync(embedder.embed(distinct, kind=kind)))


N_FOLDS = 5
LEAST = 1e-6  # probability that counts in a log loss: some methods rule classes out


@dataclass(frozen=True)
class Measured:
    """What a cell yields."""

    correct: NDArray[np.bool_]  # (n,)
    counts: tuple[int, ...]  # training samples of each class
    seconds: float  # of training
    n_parameters: int
    synthetic: int
    answers: Mapping[str, int] = field(default_factory=dict)  # of a chat model, other than classes
    log_loss: float | None = None  # mean of the test samples; None in rows from before it was measured


def measure(cell: Cell, materials: Materials, call_context: CallContext | None = None) -> Measured:
    """Run one cell; `call_context` meters what is paid for."""
    if cell.scored == FOLDS:
        return _cross_validated(cell, materials, call_context)
    test = materials.draws[cell.draw].test
    if cell.method == CALIBRATOR:
        return _calibrator(cell, materials, materials.task(cell.draw, cell.setting), test, call_context)
    return _baseline(cell, materials, test, call_context)


def _calibrator(
    cell: Cell, materials: Materials, task: Task, scored: Sequence[Sample], call_context: CallContext | None
) -> Measured:
    from adamab.run.fit import fit_task

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
        call_context=call_context,
        images=materials.images,
    )
    seconds = time.perf_counter() - started
    _check_finished(fit.ended, call_context)
    views, texts = _views(materials, cell, scored), [sample.text for sample in scored]
    correct, log_loss = _judged(fit.classifier.predict_proba(views, texts), fit.classifier.classes, scored)
    samples = [*task.samples, *fit.synthetic]
    size = n_parameters(fit.classifier, cell.full_recipe())
    counts = _counts([sample.class_name for sample in samples], task.class_names)
    return Measured(correct, counts, seconds, size, len(fit.synthetic), log_loss=log_loss)


def _cross_validated(cell: Cell, materials: Materials, call_context: CallContext | None) -> Measured:
    """Every given sample is scored once by a calibrator that was fitted without it."""
    task = materials.task(cell.draw, cell.setting)
    folds = folds_of(task, N_FOLDS, cell.seed)
    measured, order = [], []
    for fold in np.unique(folds):
        rest, scored = split(task, folds == fold)
        measured.append(_calibrator(cell, materials, rest, scored, call_context))
        order.append(np.flatnonzero(folds == fold))
    correct = np.concatenate([m.correct for m in measured])[np.argsort(np.concatenate(order))]
    seconds = sum(m.seconds for m in measured)
    return replace(measured[0], correct=correct, seconds=seconds, log_loss=None)


def _baseline(
    cell: Cell, materials: Materials, test: Sequence[Sample], call_context: CallContext | None
) -> Measured:
    data = _training_data(cell, materials, call_context)
    baseline = make_baseline(cell.method, seed=cell.seed, **cell.settings)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # Two samples per class make scikit-learn ask whether the classes are numbers to regress on.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        baseline.fit(data)
    seconds = getattr(baseline, "fit_seconds_", time.perf_counter() - started)  # without loading a model
    with metered(baseline, call_context or CallContext()):
        shares = baseline.predict_proba(_views(materials, cell, test), items_of(test))
    correct, log_loss = _judged(shares, baseline.classes_, test)
    if baseline.answered_ is not None:
        correct &= baseline.answered_
    counts = _counts(data.labels, data.classes)
    synthetic = len(data.labels) - len(materials.draws[cell.draw].task.samples)
    size = int(baseline.n_parameters_)
    return Measured(correct, counts, seconds, size, synthetic, baseline.report(), log_loss)


def _training_data(cell: Cell, materials: Materials, call_context: CallContext | None) -> TrainingData:
    task, vectors = materials.task(cell.draw, cell.setting), materials.vectors[cell.set]
    added = () if cell.policy == NONE else evenly(cell, materials, call_context)
    plain = replace(task, prompts=replace(task.prompts, with_examples=False))
    return TrainingData.of_task(
        task,
        added,
        views=_views(materials, cell, [*task.samples, *added]),
        class_views=_class_views(task, vectors),
        plain_class_views=_class_views(plain, vectors) if task.prompts.with_examples else None,
    )


def _class_views(task: Task, vectors: MemoryEmbedder) -> dict[str, NDArray[np.float32]]:
    """Of the classes' wordings; none where they have no vectors."""
    wordings = [task.prompts.class_text(c, [s.text for s in task.samples_of(c.name)]) for c in task.classes]
    return run_sync(vectors.embed(wordings, kind="class")).views if vectors.has(wordings).all() else {}


def evenly(cell: Cell, materials: Materials, call_context: CallContext | None) -> tuple[Sample, ...]:
    """What round-robin adds, through the same gate as in a fit: the cheapest fit that there is."""
    from adamab.run.fit import fit_task

    key = cell.draw, cell.batch, cell.rounds
    if key not in materials.added:
        # Its heads are thrown away: nothing is trained, neither in the rounds nor after them.
        recipe = Recipe(views=("pooled",), words=False)
        fit = fit_task(
            materials.task(cell.draw, "zero-shot"),
            materials.vectors[cell.set],
            generator=_generator(cell, materials),
            policy=EVENLY,
            recipe=recipe.with_options(batch=cell.batch, augmentation_rounds=cell.rounds),
            seed=cell.seed,
            holdout=_tests(cell, materials),
            call_context=call_context,
            images=materials.images,
        )
        _check_finished(fit.ended, call_context)
        materials.added[key] = fit.synthetic
    return materials.added[key]


def _tests(cell: Cell, materials: Materials, scored: Sequence[Sample] = ()) -> Holdout:
    """What no generator may hand out: a model may know a test text by heart; `scored` may be given ones."""
    return Holdout(sample.text for sample in (*materials.draws[cell.draw].test, *scored))


def _check_finished(ended: str | None, call_context: CallContext | None) -> None:
    if ended is not None and call_context is not None and call_context.budget != Budget():
        raise BudgetError(f"{ended}, so this cell is not finished; raise --budget, all others are kept")


def _generator(cell: Cell, materials: Materials) -> Generator:
    own = materials.generator(cell.draw)
    generator = own if own is not None else open_generator(cell.generator, seed=cell.seed)
    if generator is None:
        raise ValueError(f"generator {cell.generator} of a cell with policy {cell.policy}")
    return generator


def _views(materials: Materials, cell: Cell, samples: Sequence[Sample]) -> dict[str, NDArray[np.float32]]:
    vectors, prompts = materials.vectors[cell.set], materials.draws[cell.draw].task.prompts
    return run_sync(vectors.embed([embedder_key(sample, vectors, prompts) for sample in samples])).views


def _judged(
    shares: NDArray[np.floating[Any]], classes: Sequence[str], scored: Sequence[Sample]
) -> tuple[NDArray[np.bool_], float]:
    """Which samples are right, and the mean log loss; of equal probabilities the first class wins."""
    column = {name: number for number, name in enumerate(classes)}
    truth = np.array([column[sample.class_name] for sample in scored])
    true = np.maximum(shares[np.arange(len(truth)), truth].astype(np.float64), LEAST)
    return shares.argmax(axis=1) == truth, float(-np.log(true).mean())


def _counts(labels: Iterable[str], classes: Sequence[str]) -> tuple[int, ...]:
    of_class = Counter(labels)
    return tuple(of_class[name] for name in classes)
