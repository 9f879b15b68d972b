"""From a task of texts to a classifier: embed, augment, weigh the views, fold the result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import (
    BudgetError,
    ModelFileError,
    RecipeError,
    RunError,
    StoppedError,
    TaskError,
    place,
    short,
)
from adamab.method.numerics import on_device
from adamab.method.stacking import Estimate, HeldOut
from adamab.model import Classifier, load
from adamab.model.new_class import NewClassModel
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator, GivenVectors
from adamab.providers.image_store import ImageStore
from adamab.providers.metering import Budget, CallContext, Spend
from adamab.providers.registry import keeping_vectors, open_generator
from adamab.run import directory as folder
from adamab.run._arrays import OnRound, fit_arrays
from adamab.run._intake import SampleSource
from adamab.run.directory import SampleVectors, read_task, vectors_of, write_task
from adamab.run.gate import Diversity, Gate, diversity
from adamab.run.prefetch import BatchLog, BatchPrefetcher
from adamab.run.records import History, RoundRecord
from adamab.run.run_log import FINISHED, STOPPED, JournalRunLog, NullRunLog, RunLog
from adamab.run.samples import DescribedClasses, TaskEmbedder, TrainingSet
from adamab.run.settings import FitSettings, FitSetup, check_holdout, set_up, store_settings, within_budget
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.task.words import normalised_text
from adamab.version import __version__

Floats = NDArray[np.float32]
POOLED = "pooled"


@dataclass(frozen=True)
class FitResult:
    """The classifier and what happened on the way to it."""

    classifier: Classifier
    history: History
    synthetic: tuple[Sample, ...] = ()
    estimate: Estimate | None = None  # of the given samples alone; None without folds
    closed: Mapping[str, str] = field(default_factory=dict)  # class -> why it could give no more
    overlong: int = 0  # texts longer than the embedder takes
    synthetic_by_class: Mapping[str, int] = field(default_factory=dict)
    ended: str | None = None  # why generation ended early, if it did
    diversity: tuple[Diversity, ...] = ()  # of each class
    spent: Mapping[tuple[str, str | None], Spend] = field(default_factory=dict)  # by purpose and class
    unused: int = 0  # batches that were fetched ahead and not needed
    vectors: SampleVectors = field(repr=False, kw_only=True)
    new_class: NewClassModel = field(repr=False, kw_only=True)  # what gives an added class its rows
    held_out: HeldOut | None = None  # what `estimate` and the classifier's confidence come from


def fit_task(
    task: Task,
    embedder: str | Embedder = "local",
    *,
    on_round: OnRound | None = None,
    call_context: CallContext | None = None,
    images: ImageStore | None = None,
    **settings: Any,
) -> FitResult:
    """Fit a classifier for a task of texts or images, in memory.

    Args:
        task: classes, given samples, wording.
        embedder: what turns samples into vectors.
        on_round: called with each record as it happens.
        call_context: prices, and where calls are metered and answers kept, if several fits share that.
        images: where generated images are stored; a folder that lives as long as the result if None.
        settings: generator, policy, recipe, budget, seed and the other fields of `FitSettings`.
    """
    setup = set_up(task, FitSettings(embedder=embedder, **settings), images=images)
    if setup.settings.run_dir is not None:
        raise RecipeError("fit_task writes no run; use ADAMABClassifier(run_dir=...) or adamab fit")
    return build_classifier(setup, call_context or setup.call_context(), on_round=on_round)


def build_classifier(
    setup: FitSetup,
    call_context: CallContext,
    *,
    on_round: OnRound | None = None,
    run_log: RunLog | None = None,
) -> FitResult:
    """Embed, augment, train; `run_log` has the rounds of an earlier process and takes those of this one."""
    task, settings, recipe, generator = setup.task, setup.settings, setup.recipe, setup.generator
    run_log = run_log or NullRunLog()
    source = None
    if generator is not None:
        generator.check(task.class_names)
    try:
        with on_device(settings.device), call_context.connected(setup.embedder, generator):
            texts = TaskEmbedder(task, setup.embedder, recipe, setup.images)
            samples = texts.training_set()
            if generator is None:
                _check_classes(task, samples)
            else:
                samples.copies = generator.copies
                gate = Gate(recipe, holdout=setup.holdout, rejected=run_log.resume.dropped)
                source = _source(generator, task, texts, samples, recipe, gate, call_context)
            with nullcontext() if source is None else _waiting_for_calls(source):
                outcome = fit_arrays(
                    samples,
                    recipe,
                    source,
                    settings.policy,
                    seed=settings.seed,
                    all_scores=settings.all_scores,
                    on_round=on_round,
                    prefetch=settings.prefetch if generator is not None and generator.api is not None else 0,
                    run_log=run_log,
                )
    except BudgetError as error:  # one that ends generation is no error, one that ends before it is
        raise BudgetError(
            f"{error}, and the task's own samples are not embedded yet; raise --budget"
        ) from None
    classifier = Classifier(
        classes=task.class_names,
        heads=outcome.heads,
        vocabulary=outcome.vocabulary,
        embedder_spec=setup.embedder_spec,
        fingerprint=setup.embedder.fingerprint,
        query_prompt=task.prompts.query,
        metadata={"modality": task.modality, **_metadata(recipe, settings, outcome.estimate)},
        confidence=outcome.confidence,
    )
    pooled = samples.views[samples.pooled]
    synthetic_counts = np.bincount(samples.class_index[~samples.given], minlength=len(task.classes))
    result = FitResult(
        classifier,
        outcome.history,
        estimate=outcome.estimate,
        overlong=texts.overlong,
        synthetic_by_class=dict(zip(task.class_names, synthetic_counts.tolist(), strict=True)),
        diversity=tuple(diversity(pooled, samples.class_index, samples.given, samples.n_classes)),
        spent=call_context.spent(),
        vectors=vectors_of(samples),
        new_class=replace(
            outcome.new_class, wording=task.prompts.described, with_examples=task.prompts.with_examples
        ),
        held_out=outcome.held_out,
    )
    if source is None:
        return result
    return replace(
        result,
        synthetic=_synthetic(samples, task, setup.images),
        closed=source.closed_classes(),
        overlong=texts.overlong + source.overlong,
        ended=source.ended,
        unused=source.batches.unused,
    )


def _check_classes(task: Task, samples: TrainingSet) -> None:
    """Every class needs a sample or a vector of its wording, or it could never be predicted."""
    described = samples.describe_classes(samples.given)
    if described is not None and samples.pooled in described.views:
        return
    for spec, count in zip(task.classes, samples.counts(), strict=True):
        if not count:
            raise TaskError(
                f"class {short(spec.name)} has no example, and this embedder has no vectors of descriptions; "
                "add an example, or name a --generator"
            )


@contextmanager
def _waiting_for_calls(source: SampleSource) -> Iterator[None]:
    """What is on its way is paid for, so it is waited for; unless somebody insists on stopping."""
    try:
        yield
    except KeyboardInterrupt:
        source.batches.abandon()
        raise
    finally:
        source.batches.drain()


def fit_vectors(
    vectors: Floats,  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    *,
    classes: Sequence[ClassSpec],
    class_vectors: Floats | None = None,  # (K, d)
    **settings: Any,
) -> FitResult:
    """Fit a classifier on vectors that were made elsewhere: one view, no texts.

    `settings` are generator, policy, recipe, budget, seed and device of `FitSettings`.
    """
    chosen = FitSettings(**settings)
    budget, generator = chosen.budget or Budget(), open_generator(chosen.generator, seed=chosen.seed)
    recipe = within_budget(chosen.recipe, budget).with_options(words=False)
    described = None if class_vectors is None else DescribedClasses((), {POOLED: class_vectors})
    samples = TrainingSet(len(classes), lambda _: described, has_texts=False)
    samples.add(class_index.tolist(), {POOLED: vectors}, given=True)
    source = None
    if generator is not None:
        if not generator.yields_vectors:
            raise RecipeError("arrays need a generator of vectors, such as noise; this one writes texts")
        source = vector_source(generator, classes, samples, recipe, budget=budget.samples)
    with on_device(chosen.device):
        outcome = fit_arrays(samples, recipe, source, chosen.policy, seed=chosen.seed)
    classifier = Classifier(
        classes=tuple(spec.name for spec in classes),
        heads=outcome.heads,
        metadata=_metadata(recipe, chosen, outcome.estimate),
        confidence=outcome.confidence,
    )
    return FitResult(
        classifier,
        outcome.history,
        estimate=outcome.estimate,
        closed={} if source is None else source.closed_classes(),
        vectors=vectors_of(samples),
        new_class=outcome.new_class,
        held_out=outcome.held_out,
    )


def vector_source(
    generator: Generator,
    classes: Sequence[ClassSpec],
    samples: TrainingSet,
    recipe: Recipe,
    *,
    budget: int | None = None,
    log: BatchLog | None = None,
) -> SampleSource:
    """A source of vectors of the pooled view, drawn around those that are given."""
    given = GivenVectors(samples.views[samples.pooled][samples.given], samples.class_index[samples.given])
    batch = _batch_size(recipe, budget)
    batches = BatchPrefetcher(generator, classes, batch=batch, given=lambda _: (), vectors=given, log=log)
    return SampleSource(batches, classes, Gate(recipe), None, recipe.batch, budget)


def _source(
    generator: Generator,
    task: Task,
    texts: TaskEmbedder,
    samples: TrainingSet,
    recipe: Recipe,
    gate: Gate,
    call_context: CallContext,
) -> SampleSource:
    budget = call_context.budget.samples
    if generator.yields_vectors:
        if len(samples.views) > 1 or recipe.words:
            raise RecipeError(
                "this generator yields vectors of the pooled embedding, so the recipe may have no other "
                "view; set views=pooled and words=false"
            )
        samples.has_texts = False  # from here on a sample is its vector
        return vector_source(generator, task.classes, samples, recipe, budget=budget, log=call_context.log)
    given = [samples.texts_of(c, given=True) for c in range(len(task.classes))]
    batches = BatchPrefetcher(
        generator,
        task.classes,
        batch=_batch_size(recipe, budget),
        given=given.__getitem__,
        embed=texts.embed_ahead if texts.remote else None,
        log=call_context.log,
    )
    return SampleSource(
        batches,
        task.classes,
        gate,
        texts.embed,
        recipe.batch,
        budget,
        max_refusals=recipe.max_refusals,
        plan=lambda rounds: call_context.plan(rounds, embedding=texts.remote),
    )


def _batch_size(recipe: Recipe, budget: int | None) -> int:
    """Samples in a batch; where the budget ends within one, the rest of it is left over."""
    return recipe.batch if budget is None else max(1, min(recipe.batch, budget))


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


def _metadata(recipe: Recipe, settings: FitSettings, estimate: Estimate | None) -> dict[str, Any]:
    return {
        "adamab": __version__,
        "recipe": recipe.model_dump(mode="json"),
        "policy": settings.policy,
        "seed": settings.seed,
        "out_of_fold": None if estimate is None else asdict(estimate),
    }


def resume_run(
    setup: FitSetup,
    *,
    stop: threading.Event | None = None,
    on_start: Callable[[JournalRunLog], None] = lambda session: None,
    on_round: OnRound | None = None,
) -> dict[str, Any]:
    """Fit into the settings' run directory and return the contents of its `fit.json`.

    A run that is there already is resumed: nothing that was bought is bought again. When `stop` is set,
    the fit ends after the calls that are on their way.
    """
    started = time.perf_counter()
    task, settings, path = setup.task, setup.settings, setup.settings.run_dir
    assert path is not None
    check_holdout(setup)
    if not settings.overwrite and folder.has_journal(path):
        _check_added(task, path)
    with JournalRunLog(path, setup.inputs(), reject=setup.reject, start_over=settings.overwrite) as session:
        store_settings(session.journal, path, settings)
        on_start(session)
        write_task(path, task)
        if session.complete and folder.has_results(path) and _is_sound(path):
            return {**folder.read_summary(path), "changes": [], "complete": True}
        if setup.images is not None:
            setup.images.tidy()

        def after_round(record: RoundRecord) -> None:
            if on_round is not None:
                on_round(record)
            if stop is not None and stop.is_set():
                raise StoppedError("stopped")

        try:
            result = build_classifier(
                replace(setup, embedder=keeping_vectors(setup.embedder, path / folder.VECTORS)),
                setup.call_context(
                    journal=session.journal, ledger=session.ledger if any(setup.apis) else None, stop=stop
                ),
                on_round=after_round,
                run_log=session,
            )
        except (KeyboardInterrupt, StoppedError):
            session.journal.note(STOPPED, {})
            raise KeyboardInterrupt(
                f"stopped; everything that was bought is in {place(path)}: "
                "run the same command again to go on"
            ) from None
        summary = folder.summarise(
            task,
            result,
            setup.recipe,
            policy=settings.policy,
            generator=setup.generator_spec,
            budget=setup.budget,
            seed=settings.seed,
            seconds=time.perf_counter() - started,
        )
        folder.write_results(path, task, result, summary)
        session.journal.note(FINISHED, {"synthetic": summary["synthetic"]}, durable=True)
        if setup.images is not None and folder.has_set_aside(path):
            setup.images.keep_only(session.journal.references())
        for aside in folder.ASIDE.values():
            (path / aside).unlink(missing_ok=True)
        return {**summary, "changes": session.changes, "complete": False}


def _is_sound(path: Path) -> bool:
    """Whether the classifier can be read; if not, it is written again, which costs no call."""
    try:
        load(path)
    except ModelFileError:
        return False
    return True


def _check_added(task: Task, path: Path) -> None:
    """A task file that lacks a class which the run's classifier has would take it away again."""
    added = folder.read_summary(path).get("added", []) if folder.is_run(path) else []
    if not added:
        return
    kept, present = read_task(path), {(s.class_name, normalised_text(s.text)) for s in task.samples}
    for name in added:
        lost = [s for s in kept.samples_of(name) if (name, normalised_text(s.text)) not in present]
        if name not in task.class_names or lost:
            what = "is not" if name not in task.class_names else "has examples that are not"
            raise RunError(
                f"class {short(name)} was added to this run with adamab add-class and {what} in the task; "
                f"leave TASK out (adamab fit --run {place(path)}), or write them into it"
            )
