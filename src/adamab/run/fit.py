"""From a task of texts to a classifier: embed, augment, weigh the views, fold the result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.classifier import Classifier, Head
from adamab.classifier.class_side import ClassSide
from adamab.errors import BudgetError, GeneratorError, RecipeError, TaskError
from adamab.method.devices import on_device
from adamab.method.evidence import Estimate, HeldOut
from adamab.providers.budget import Budget, Spend
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator, GivenVectors, Settings
from adamab.providers.image_store import ImageStore, temporary_store
from adamab.run.core import OnRound, fit_samples
from adamab.run.diversity import Diversity, diversity
from adamab.run.holdout import Holdout
from adamab.run.loop import Trail, Untold
from adamab.run.outside import Outside
from adamab.run.quality import Gate
from adamab.run.records import History
from adamab.run.sample_files import SampleVectors, vectors_of
from adamab.run.sample_side import SampleSide
from adamab.run.source import Source
from adamab.run.streams import BatchLog, Streams
from adamab.run.training_set import DescribedClasses, TrainingSet, WordsView
from adamab.task.messages import short
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.task.words import Vocabulary
from adamab.torch_device import AUTO
from adamab.version import __version__

Floats = NDArray[np.float32]
POOLED = "pooled"


@dataclass(frozen=True)
class FitResult:
    """The classifier and what happened on the way to it."""

    classifier: Classifier
    history: History
    synthetic: tuple[Sample, ...]
    estimate: Estimate | None  # of the given samples alone; None without folds
    closed: dict[str, str]  # class -> why it could give no more
    overlong: int  # texts longer than the embedder takes
    synthetic_by_class: Mapping[str, int] = field(default_factory=dict)
    ended: str | None = None  # why generation ended early, if it did
    diversity: tuple[Diversity, ...] = ()  # of each class
    spent: Mapping[tuple[str, str | None], Spend] = field(default_factory=dict)  # by purpose and class
    unused: int = 0  # batches that were fetched ahead and not needed
    vectors: SampleVectors = field(repr=False, kw_only=True)
    class_side: ClassSide = field(repr=False, kw_only=True)  # what gives a class that comes later its rows
    held_out: HeldOut | None = None  # what `estimate` and the classifier's confidence come from


def fit_task(
    task: Task,
    embedder: Embedder,
    *,
    embedder_spec: str = "",
    generator: Generator | None = None,
    policy: str = "adamab",
    recipe: Recipe | None = None,
    budget: Budget | str | int | None = None,
    seed: int = 0,
    all_scores: bool = False,
    on_round: OnRound | None = None,
    prefetch: int = 0,
    holdout: Holdout | None = None,
    outside: Outside | None = None,
    trail: Trail | None = None,
    images: ImageStore | None = None,
    device: str = AUTO,
) -> FitResult:
    """Fit a classifier for a task of texts or pictures.

    Args:
        task: classes, given samples, wording.
        embedder: what turns texts into vectors.
        embedder_spec: the string that names it, kept for `adamab predict`.
        generator: what writes synthetic samples; None for none.
        policy: which class gets the next batch.
        recipe: every hyperparameter; the preset `default` if None.
        budget: caps such as "200 samples, 1.50 usd, 500 calls"; a number means samples. Without a cap
            on samples they are what the recipe's rounds ask for.
        seed: of everything random.
        all_scores: compute the exact score of every class in each round.
        on_round: called with each record as it happens.
        prefetch: batches to fetch before the policy asks for them, so that waiting overlaps.
        holdout: texts that must not be among the synthetic samples.
        outside: prices, and where calls are metered and answers kept.
        trail: the rounds of an earlier process, and where those of this one are written down.
        images: where generated pictures are stored; a folder that lives as long as the result if None.
        device: where torch trains and scores: cpu, cuda, mps; `auto` is a graphics card if there is one.
    """
    caps = Budget.parse(budget)
    recipe = settled(recipe or Recipe(), task, caps)
    images = images or (temporary_store() if task.modality == "image" else None)
    outside, trail = outside or Outside(caps), trail or Untold()
    if generator is not None:
        generator.check(task.class_names)
        configure(generator, task, recipe, seed=seed, images=images)
    with on_device(device), outside.connected(embedder, generator), _affordable():
        texts = SampleSide(task, embedder, recipe, images)
        samples = texts.training_set()
        if generator is None:
            _check_known(task, samples)
        source = None
        if generator is not None:
            samples.copies = generator.copies
            gate = Gate(recipe, holdout=holdout, rejected=trail.past.dropped)
            source = _source(generator, task, texts, samples, recipe, gate, outside)
        with _waiting_for_calls(source):
            outcome = fit_samples(
                samples,
                recipe,
                source,
                policy,
                seed=seed,
                all_scores=all_scores,
                on_round=on_round,
                prefetch=prefetch if generator is not None and generator.api is not None else 0,
                trail=trail,
            )
    classifier = Classifier(
        classes=task.class_names,
        heads=outcome.heads,
        vocabulary=_vocabulary(samples, outcome.heads, recipe),
        embedder_spec=embedder_spec,
        fingerprint=embedder.fingerprint,
        query_prompt=task.prompts.query,
        metadata={"modality": task.modality, **_metadata(recipe, policy, seed, outcome.estimate)},
        confidence=outcome.confidence,
    )
    return FitResult(
        classifier,
        outcome.history,
        _synthetic(samples, task, images),
        outcome.estimate,
        _closed(source, task.classes),
        texts.overlong + (0 if source is None else source.overlong),
        synthetic_by_class=_synthetic_by_class(samples, task.class_names),
        ended=None if source is None else source.ended,
        diversity=_diversity(samples),
        spent=outside.spent(),
        unused=0 if source is None else source.streams.unused,
        vectors=vectors_of(samples),
        class_side=replace(
            outcome.class_side, wording=task.prompts.described, with_examples=task.prompts.with_examples
        ),
        held_out=outcome.held_out,
    )


def _check_known(task: Task, samples: TrainingSet) -> None:
    """Every class needs a sample or a vector of its wording, or it could never be predicted."""
    side = samples.class_side(samples.given)
    if side is not None and samples.pooled in side.views:
        return
    for spec, count in zip(task.classes, samples.counts(), strict=True):
        if not count:
            raise TaskError(
                f"class {short(spec.name)} has no example, and this embedder has no vectors of descriptions; "
                "add an example, or name a --generator"
            )


@contextmanager
def _affordable() -> Iterator[None]:
    """A budget that ends generation is no error; one that ends before it is."""
    try:
        yield
    except BudgetError as error:
        raise BudgetError(
            f"{error}, and the task's own samples are not embedded yet; raise --budget"
        ) from None


@contextmanager
def _waiting_for_calls(source: Source | None) -> Iterator[None]:
    """What is on its way is paid for, so it is waited for; unless somebody insists on stopping."""
    try:
        yield
    except KeyboardInterrupt:
        if source is not None:
            source.streams.abandon()
        raise
    finally:
        if source is not None:
            source.streams.drain()


def fit_vectors(
    vectors: Floats,  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    *,
    classes: Sequence[ClassSpec],
    class_vectors: Floats | None = None,  # (K, d)
    generator: Generator | None = None,
    policy: str = "adamab",
    recipe: Recipe | None = None,
    budget: Budget | str | int | None = None,
    seed: int = 0,
    device: str = AUTO,
) -> FitResult:
    """Fit a classifier on vectors that were made elsewhere: one view, no texts."""
    caps = Budget.parse(budget)
    recipe = within_budget(recipe or Recipe(), caps).with_options(words=False)
    side = None if class_vectors is None else DescribedClasses((), {POOLED: class_vectors})
    samples = TrainingSet(len(classes), lambda _: side, has_texts=False)
    samples.add(class_index.tolist(), {POOLED: vectors}, given=True)
    if generator is not None and not generator.yields_vectors:
        raise RecipeError("arrays need a generator of vectors, such as noise; this one writes texts")
    source = None
    if generator is not None:
        source = vector_source(generator, classes, samples, recipe, budget=caps.samples)
    with on_device(device):
        outcome = fit_samples(samples, recipe, source, policy, seed=seed)
    classifier = Classifier(
        classes=tuple(spec.name for spec in classes),
        heads=outcome.heads,
        metadata=_metadata(recipe, policy, seed, outcome.estimate),
        confidence=outcome.confidence,
    )
    closed = _closed(source, classes)
    return FitResult(
        classifier,
        outcome.history,
        (),
        outcome.estimate,
        closed,
        0,
        vectors=vectors_of(samples),
        class_side=outcome.class_side,
        held_out=outcome.held_out,
    )


def configure(
    generator: Generator, task: Task, recipe: Recipe, *, seed: int, images: ImageStore | None = None
) -> None:
    """Tell a generator what a fit wants of it; `images` is where pictures are found and put."""
    if not generator.yields_vectors and generator.modality != task.modality:
        raise GeneratorError(
            f"the generator makes {generator.modality}s and the task is of {task.modality}s; "
            "name another with --generator"
        )
    if images is None and task.modality == "image":
        images = temporary_store()
    generator.configure(Settings(task.prompts, seed, recipe, images))


def settled(recipe: Recipe, task: Task, budget: Budget) -> Recipe:
    """The recipe that a fit of the task follows."""
    return within_budget(recipe.for_modality(task.modality), budget)


def within_budget(recipe: Recipe, budget: Budget) -> Recipe:
    """A cap on samples sets the number of rounds that generate, unless the recipe fixes it."""
    if budget.samples is None or recipe.augmentation_rounds is not None:
        return recipe
    return recipe.with_options(augmentation_rounds=math.ceil(budget.samples / recipe.batch))


def vector_source(
    generator: Generator,
    classes: Sequence[ClassSpec],
    samples: TrainingSet,
    recipe: Recipe,
    *,
    budget: int | None = None,
    log: BatchLog | None = None,
) -> Source:
    """A source of vectors of the pooled view, drawn around those that are given."""
    given = GivenVectors(samples.views[samples.pooled][samples.given], samples.class_index[samples.given])
    batch = _batch_size(recipe, budget)
    streams = Streams(generator, classes, batch=batch, given=lambda _: (), vectors=given, log=log)
    return Source(streams, classes, Gate(recipe), None, recipe.batch, budget)


def _source(
    generator: Generator,
    task: Task,
    texts: SampleSide,
    samples: TrainingSet,
    recipe: Recipe,
    gate: Gate,
    outside: Outside,
) -> Source:
    budget = outside.budget.samples
    if generator.yields_vectors:
        if len(samples.views) > 1 or recipe.words:
            raise RecipeError(
                "this generator yields vectors of the pooled embedding, so the recipe may have no other "
                "view; set views=pooled and words=false"
            )
        samples.has_texts = False  # from here on a sample is its vector
        return vector_source(generator, task.classes, samples, recipe, budget=budget, log=outside.log)
    given = [samples.texts_of(c, given=True) for c in range(len(task.classes))]
    streams = Streams(
        generator,
        task.classes,
        batch=_batch_size(recipe, budget),
        given=given.__getitem__,
        embed=texts.embed_ahead if texts.remote else None,
        log=outside.log,
    )
    return Source(
        streams,
        task.classes,
        gate,
        texts.embed,
        recipe.batch,
        budget,
        max_refusals=recipe.max_refusals,
        plan=lambda rounds: outside.plan(rounds, embedding=texts.remote),
    )


def _batch_size(recipe: Recipe, budget: int | None) -> int:
    """Samples in a batch; where the budget ends within one, the rest of it is left over."""
    return recipe.batch if budget is None else max(1, min(recipe.batch, budget))


def _diversity(samples: TrainingSet) -> tuple[Diversity, ...]:
    pooled = samples.views[samples.pooled]
    return tuple(diversity(pooled, samples.class_index, samples.given, samples.n_classes))


def _closed(source: Source | None, classes: Sequence[ClassSpec]) -> dict[str, str]:
    return {} if source is None else {classes[c].name: why for c, why in source.closed.items()}


def _vocabulary(samples: TrainingSet, heads: tuple[Head, ...], recipe: Recipe) -> Vocabulary | None:
    """The vocabulary that the words' head was fitted with, if there is such a head."""
    for view in samples.raw_views(recipe):
        if isinstance(view, WordsView) and any(head.view == view.name for head in heads):
            return view.vocabulary(np.ones(len(samples), dtype=np.bool_))
    return None


def _synthetic(samples: TrainingSet, task: Task, images: ImageStore | None) -> tuple[Sample, ...]:
    if not samples.has_texts:
        return ()
    rows, names = np.flatnonzero(~samples.given), task.class_names
    return tuple(
        Sample(
            samples.texts[i],
            names[samples.class_index[i]],
            "synthetic",
            image=None if images is None else images.find(samples.texts[i]),
        )
        for i in rows
    )


def _synthetic_by_class(samples: TrainingSet, names: Sequence[str]) -> dict[str, int]:
    counts = np.bincount(samples.class_index[~samples.given], minlength=len(names))
    return dict(zip(names, counts.tolist(), strict=True))


def _metadata(recipe: Recipe, policy: str, seed: int, estimate: Estimate | None) -> dict[str, Any]:
    return {
        "adamab": __version__,
        "recipe": recipe.model_dump(mode="json"),
        "policy": policy,
        "seed": seed,
        "out_of_fold": None if estimate is None else asdict(estimate),
    }
