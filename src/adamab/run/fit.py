"""From a task of texts to a classifier: embed, augment, weigh the views, fold the result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
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
from adamab.method.stacking import Estimate, HeldOut
from adamab.model import Classifier, load
from adamab.model.new_class import NewClassModel
from adamab.providers.embedders.base import Embedder
from adamab.providers.functions import EmbedFunction
from adamab.providers.generators.base import Generator, GivenVectors
from adamab.providers.image_store import ImageStore
from adamab.providers.metering import Budget, CallContext, Spend
from adamab.providers.registry import keeping_vectors, open_generator
from adamab.run import directory as folder
from adamab.run._arrays import OnRound, fit_arrays
from adamab.run._intake import SampleSource
from adamab.run.directory import SampleVectors, vectors_of, write_task
from adamab.run.gate import Diversity, Gate, diversity
from adamab.run.prefetch import BatchPrefetcher
from adamab.run.records import History, RoundRecord
from adamab.run.resume import Inputs
from adamab.run.run_log import FINISHED, IN_MEMORY, STOPPED, JournalRunLog, RunLog
from adamab.run.samples import DescribedClasses, TaskEmbedder, TrainingSet
from adamab.run.settings import FitSettings, FitSetup, check_holdout, set_up, store_settings, within_budget
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.version import __version__

Floats = NDArray[np.float32]
POOLED = "pooled"
_OF_VECTORS = {"generator", "policy", "recipe", "budget", "seed", "all_scores"}  # settings


@dataclass(frozen=True)
class FitResult:
    """The classifier and what happened on the way to it."""

    classifier: Classifier
    history: History
    synthetic: tuple[Sample, ...] = ()
    closed: Mapping[str, str] = field(default_factory=dict)  # class -> why it could give no more
    overlong: int = 0  # texts longer than the embedder takes
    synthetic_by_class: Mapping[str, int] = field(default_factory=dict)
    ended: str | None = None  # why generation ended early, if it did
    diversity: tuple[Diversity, ...] = ()  # of each class
    spent: Mapping[tuple[str, str | None], Spend] = field(default_factory=dict)  # by purpose and class
    unused: int = 0  # batches that were fetched ahead and not needed
    reused: Mapping[str, int] = field(default_factory=dict)  # by class: synthetic samples of earlier fits
    set_aside: Mapping[str, int] = field(default_factory=dict)  # of classes that the task has no more
    vectors: SampleVectors = field(repr=False, kw_only=True)
    new_class: NewClassModel = field(repr=False, kw_only=True)  # what gives an added class its rows
    held_out: HeldOut | None = None  # what `estimate` and the classifier's confidence come from

    @property
    def estimate(self) -> Estimate | None:
        """Accuracy on the given samples alone; None where none was held out."""
        return None if self.held_out is None else self.held_out.estimate()


def fit_task(
    task: Task,
    embedder: str | Embedder | EmbedFunction = "auto",
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
    run_log: RunLog = IN_MEMORY,
) -> FitResult:
    """Embed, augment, train.

    Args:
        setup: the task and what its settings name, opened.
        call_context: what calls are metered by, and where their answers are kept.
        on_round: called with each record as it happens.
        run_log: has the rounds of an earlier process and takes those of this one.

    Returns:
        The classifier and what happened on the way to it.
    """
    task, settings, recipe, generator = setup.task, setup.settings, setup.recipe, setup.generator
    source = None
    if generator is not None:
        generator.follow(run_log.resume.classes)
        generator.check(task.class_names)
    try:
        with call_context.connected(setup.embedder, generator):
            texts = TaskEmbedder(task, setup.embedder, recipe, setup.images)
            samples = texts.training_set(generator)
            if generator is None:
                _check_classes(task, samples)
            else:
                gate = Gate(recipe, holdout=setup.holdout, rejected=run_log.resume.dropped)
                source = sample_source(
                    generator, task.classes, samples, recipe, call_context, embedder=texts, gate=gate
                )
            with nullcontext() if source is None else source.batches:
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
        metadata={"modality": task.modality, **_metadata(recipe, settings, outcome.held_out)},
        confidence=outcome.confidence,
    )
    pooled = samples.views[samples.pooled]
    synthetic_counts = np.bincount(samples.class_index[~samples.given], minlength=len(task.classes))
    return FitResult(
        classifier,
        outcome.history,
        synthetic=() if source is None else _synthetic(samples, task, setup.images),
        closed={} if source is None else source.closed_classes(),
        overlong=texts.overlong,
        synthetic_by_class=dict(zip(task.class_names, synthetic_counts.tolist(), strict=True)),
        ended=None if source is None else source.ended,
        diversity=tuple(diversity(pooled, samples.class_index, samples.given, samples.n_classes)),
        spent=call_context.spent(),
        unused=0 if source is None else source.batches.unused,
        reused={} if source is None else dict(source.reused),
        set_aside={} if source is None else dict(source.set_aside),
        vectors=vectors_of(samples),
        new_class=replace(
            outcome.new_class, wording=task.prompts.described, with_examples=task.prompts.with_examples
        ),
        held_out=outcome.held_out,
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


def fit_vectors(
    vectors: Floats,  # (n, d)
    class_index: NDArray[np.int64],  # (n,)
    *,
    classes: Sequence[ClassSpec],
    class_vectors: Floats | None = None,  # (K, d)
    **settings: Any,
) -> FitResult:
    """Fit a classifier on vectors that were made elsewhere: one view, no texts.

    Args:
        vectors: those of the given samples.
        class_index: the class of each.
        classes: their names.
        class_vectors: embedded descriptions, if there are any.
        settings: generator, policy, recipe, budget, seed and all_scores of `FitSettings`; another raises
            `RecipeError`.

    Returns:
        The classifier and what happened on the way to it.
    """
    chosen = FitSettings(**settings)
    if unused := sorted(chosen.model_fields_set - _OF_VECTORS):
        raise RecipeError(f"a fit on vectors has no use for {', '.join(unused)}; leave that out")
    budget, generator = chosen.budget or Budget(), open_generator(chosen.generator, seed=chosen.seed)
    recipe = within_budget(chosen.recipe, budget).with_options(words=False)
    described = None if class_vectors is None else DescribedClasses((), {POOLED: class_vectors})
    copies = generator is not None and generator.copies
    samples = TrainingSet(len(classes), lambda _: described, has_texts=False, copies=copies)
    samples.add(class_index.tolist(), {POOLED: vectors}, given=True)
    source = None
    if generator is not None:
        if not generator.yields_vectors:
            raise RecipeError("arrays need a generator of vectors, such as noise; this one writes texts")
        source = sample_source(generator, classes, samples, recipe, CallContext(budget))
    outcome = fit_arrays(
        samples, recipe, source, chosen.policy, seed=chosen.seed, all_scores=chosen.all_scores
    )
    classifier = Classifier(
        classes=tuple(spec.name for spec in classes),
        heads=outcome.heads,
        metadata=_metadata(recipe, chosen, outcome.held_out),
        confidence=outcome.confidence,
    )
    return FitResult(
        classifier,
        outcome.history,
        vectors=vectors_of(samples),
        new_class=outcome.new_class,
        held_out=outcome.held_out,
    )


def sample_source(
    generator: Generator,
    classes: Sequence[ClassSpec],
    samples: TrainingSet,
    recipe: Recipe,
    call_context: CallContext,
    *,
    embedder: TaskEmbedder | None = None,
    gate: Gate | None = None,
) -> SampleSource:
    """Where synthetic samples come from.

    Args:
        generator: what makes them: texts and images, or vectors of the pooled view around the given ones.
        classes: what they are made of.
        samples: the given samples.
        recipe: how many make a batch.
        call_context: the cap on samples, and where batches are kept.
        embedder: of texts and images; vectors need none.
        gate: which samples may enter; that of the recipe if None.

    Returns:
        A source that has given nothing yet.
    """
    budget, vectors = call_context.budget.samples, None
    if generator.yields_vectors:
        if len(samples.views) > 1 or recipe.words:
            raise RecipeError(
                "this generator yields vectors of the pooled embedding, so the recipe may have no other "
                "view; set views=pooled and words=false"
            )
        embedder = None
        rows = samples.views[samples.pooled][samples.given]
        vectors = GivenVectors(rows, samples.class_index[samples.given])
    given = [samples.given_texts(c) for c in range(len(classes))]
    remote = embedder is not None and embedder.remote
    batches = BatchPrefetcher(
        generator,
        classes,
        # Where the budget ends within a batch, the rest of it is left over.
        batch=recipe.batch if budget is None else max(1, min(recipe.batch, budget)),
        given=given.__getitem__,
        vectors=vectors,
        embed=embedder.embed_ahead if embedder is not None and remote else None,
        log=call_context.log,
    )
    return SampleSource(
        batches,
        classes,
        gate or Gate(recipe),
        None if embedder is None else embedder.embed,
        recipe.batch,
        budget,
        max_refusals=recipe.max_refusals,
        plan=lambda rounds: call_context.plan(rounds, embedding=remote),
    )


def _synthetic(samples: TrainingSet, task: Task, images: ImageStore | None) -> tuple[Sample, ...]:
    find_image = (lambda text: None) if images is None else images.find
    rows = np.flatnonzero(~samples.given) if samples.has_texts else ()
    texts_and_names = [(samples.texts[i], task.class_names[samples.class_index[i]]) for i in rows]
    return tuple(Sample(text, name, "synthetic", image=find_image(text)) for text, name in texts_and_names)


def _metadata(recipe: Recipe, settings: FitSettings, held_out: HeldOut | None) -> dict[str, Any]:
    return {
        "adamab": __version__,
        "recipe": recipe.model_dump(mode="json"),
        "policy": settings.policy,
        "seed": settings.seed,
        "out_of_fold": None if held_out is None else asdict(held_out.estimate()),
    }


def resume_run(
    setup: FitSetup,
    *,
    own_task: bool = False,
    stop: threading.Event | None = None,
    on_start: Callable[[JournalRunLog], None] | None = None,
    on_round: OnRound | None = None,
) -> dict[str, Any]:
    """Fit into the settings' run directory.

    A run that is there already is resumed: answers that have arrived are not bought again. Calls that were in
    flight when it was killed are repeated; a server that does not honour `Idempotency-Key` bills those again.

    Args:
        setup: the task and what its settings name, opened.
        own_task: the task is the one that the run keeps; another must have all that was changed in that.
        stop: when it is set, the fit ends after the calls that are on their way.
        on_start: called when the directory is locked and its journal read, before anything is fitted.
        on_round: called with each record as it happens.

    Returns:
        The contents of the run's `fit.json`.
    """
    started = time.perf_counter()
    task, settings, path = setup.task, setup.settings, setup.settings.run_dir
    assert path is not None
    if setup.holdout is not None:
        check_holdout(setup.task, setup.holdout)

    def check() -> None:
        """Nobody else changes the run's own task from here on; what was changed before must not get lost."""
        if own_task and folder.read_task(path) != task:
            raise RunError(f"{place(path)}: its task was changed while this fit was starting; start it again")
        if not own_task and not settings.overwrite and folder.has_journal(path):
            _check_edits(task, path)

    with JournalRunLog(
        path,
        Inputs.of(setup),
        reject=setup.reject,
        start_over=settings.overwrite,
        own_task=own_task,
        check=check,
    ) as session:
        store_settings(session.journal, path, settings)
        if on_start is not None:
            on_start(session)
        if not own_task:
            write_task(path, task)
        if session.complete and all((path / name).is_file() for name in folder.RESULTS):
            with suppress(ModelFileError, RunError):  # damaged results are written again, without a call
                load(path)
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
            setup, result, seconds=time.perf_counter() - started, classes=session.resume.classes
        )
        folder.write_results(path, task, result, summary)
        session.journal.note(FINISHED, {"synthetic": summary["synthetic"]}, durable=True)
        if setup.images is not None and folder.has_set_aside(path):
            setup.images.keep_only(session.journal.references() | {sample.text for sample in task.samples})
        for aside in folder.ASIDE.values():
            (path / aside).unlink(missing_ok=True)
        return {**summary, "changes": session.changes, "complete": False}


def _check_edits(task: Task, path: Path) -> None:
    """A task file that lacks what was changed in the run's own task would take it back."""
    edits, present = folder.read_edits(path), folder.parts_of(task)
    for part in sorted((edits.gained - present) | (edits.lost & present)):
        name, verb = short(part.class_name), "added to" if part in edits.gained else "taken out of"
        change = {
            "class": f"class {name} was {verb}",
            "description": f"the description of class {name} was changed in",
            "example": f"an example of class {name} was {verb}",
        }[part.kind]
        raise RunError(
            f"{change} this run's own task, and TASK does not say so; "
            f"leave TASK out (adamab fit --run {place(path)}), or change it there as well"
        )
