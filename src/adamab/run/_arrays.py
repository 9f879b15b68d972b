"""A fit on arrays: rounds, evidence, heads; text tasks and array estimators both end here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.method.discriminant import FitSamples
from adamab.method.heads import FittedView, FittedViews, HeadState, Kind, fit_views
from adamab.method.numerics import overflow_allowed
from adamab.method.policies import make_policy
from adamab.method.stacking import HeldOut
from adamab.method.views import PreparedView, one_thread_if_small
from adamab.model import Confidence, Head
from adamab.model.confidence import confidence_of
from adamab.model.new_class import ClassHead, Matching, NewClassModel, Stacked, matching_rows
from adamab.run._intake import SampleSource
from adamab.run._loop_model import JointModel, LoopModel, StackedModel
from adamab.run.loop import Loop
from adamab.run.records import History, RoundRecord
from adamab.run.run_log import IN_MEMORY, RunLog
from adamab.run.samples import WORDS, TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.words import Vocabulary

# From trained heads to the finished classifier: fold everything that is constant at prediction.

Floats = NDArray[np.float32]


class InferenceHead(NamedTuple):
    """A head for prediction, and what gives a class that comes later its row in it."""

    head: Head
    class_head: ClassHead


def heads_of_fit(fitted: FittedViews, recipe: Recipe) -> tuple[InferenceHead, ...]:
    """Heads of the views that count; a view with weight zero is not needed at prediction.

    Args:
        fitted: the fitted views and their weights.
        recipe: the one that they were fitted with.
    """
    heads = []
    for view in fitted.views:
        weights = view.weights
        if weights.get("examples") or weights.get("description"):
            heads.append(_stacked_head(view, weights))
        if view.calibrator is not None and weights["calibrator"]:
            heads.append(
                _calibrator_head(view.name, view.prepared, recipe, view.calibrator, weights["calibrator"])
            )
    return tuple(heads)


def _stacked_head(view: FittedView, weights: Mapping[Kind, float]) -> InferenceHead:
    prepared, discriminant = view.prepared, view.discriminant
    examples, description = weights.get("examples", 0.0), weights.get("description", 0.0)
    linear: NDArray[np.floating] = np.zeros(1)
    bias: Floats | None = None
    class_head = Stacked()
    if examples:
        linear, bias = examples * discriminant.vectors, _plain(examples * discriminant.bias)
        shared = discriminant.shared
        class_head = Stacked(
            precision=_plain(shared.precision),
            outside=shared.outside,
            ratio=shared.ratio,
            length=shared.length,
            example_weight=examples,
        )
    if prepared.of_descriptions is not None and prepared.described is not None and description:
        linear = linear + description * prepared.described
        centre = prepared.of_descriptions.centre
        class_head = replace(
            class_head, described=True, description_weight=description, described_centre=centre
        )
    head = Head(view=view.name, linear=_plain(linear), bias=bias, **asdict(prepared.transform))
    return InferenceHead(head, class_head)


def _calibrator_head(
    name: str, prepared: PreparedView, recipe: Recipe, state: HeadState, weight: float
) -> InferenceHead:
    tower, last = state.tower[:-1], state.tower[-1]
    linear, hidden = matching_rows(weight * state.class_vectors, last, bool(tower))
    head = Head(
        view=name,
        tower=tuple(_plain(w) for w in tower),
        activation=recipe.activation,
        linear=_plain(linear),
        hidden=None if hidden is None else _plain(hidden),
        **asdict(prepared.transform),
    )
    of_descriptions = prepared.of_descriptions
    matching = Matching(
        class_input=recipe.class_input,
        described=of_descriptions is not None,
        described_centre=None if of_descriptions is None else of_descriptions.centre,
        scale=float(weight * recipe.logit_scale),
        tower=tuple(_plain(w) for w in state.class_tower),
        free=None if state.free is None else _plain(state.free.mean(axis=0)),
        last=_plain(last),
    )
    return InferenceHead(head, matching)


def _plain(array: NDArray[np.floating]) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)


OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class ArrayFit:
    """What a fit on arrays yields."""

    heads: tuple[Head, ...]
    new_class: NewClassModel  # what gives an added class its rows
    history: History
    held_out: HeldOut | None  # given samples, judged by heads that did not see them
    confidence: Confidence
    vocabulary: Vocabulary | None = None  # that the words' head was fitted with, if there is one


@dataclass
class _LoopModelFactory:
    """Makes the loop's model when the loop wants it, from the evidence at that moment."""

    samples: TrainingSet
    recipe: Recipe
    source: SampleSource | None
    seed: int
    of_given: FittedViews | None  # where `samples` begins with synthetic ones
    first: FittedViews | None = None
    vocabulary: Vocabulary | None = None  # of the last fit
    _fitted: tuple[int, FittedViews] | None = None  # the last fit, and of how many samples
    loop: JointModel | None = None  # the networks, where they are the classifier

    def make(self) -> LoopModel:
        recipe, samples = self.recipe, self.samples
        if not recipe.refit:
            rounds = recipe.n_rounds(samples.n_classes)
            self.loop = JointModel(samples, recipe, seed=self.seed, rounds=rounds)
            return self.loop
        self.first = self.views()
        honest = self.of_given or self.first
        # By what there is before anything is generated: a batch must not depend on when it is fetched.
        before = self.of_given is not None or bool(samples.given.all())
        if self.source is not None and recipe.contrast and before and honest.held_out is not None:
            self.source.batches.avoid(honest.held_out.rivals(recipe.contrast_share))
        scale = 1.0 if honest.held_out is None else honest.held_out.scale()
        fitted = replace(self.first.scaled(scale), held_out=honest.held_out)
        return StackedModel(samples, recipe, fitted, self.vocabulary)

    def views(self) -> FittedViews:
        """The views on all samples that there are; what was fitted on the same samples is reused."""
        if self._fitted is None or self._fitted[0] != len(self.samples):
            samples = self.samples.canonical()
            # Samples made of given ones say nothing that these have not said.
            weights = None
            if samples.copies and not samples.given.all():
                honest = self.of_given or _views_of(samples.only_given(), self.recipe, self.seed)[0]
                weights = honest.weights
            fitted, self.vocabulary = _views_of(samples, self.recipe, self.seed, weights)
            self._fitted = len(self.samples), fitted
        return self._fitted[1]


def _views_of(
    samples: TrainingSet, recipe: Recipe, seed: int, weights: NDArray[np.float64] | None = None
) -> tuple[FittedViews, Vocabulary | None]:
    with one_thread_if_small(len(samples)):
        views, vocabulary = samples.head_views(recipe)
        if len(np.unique(samples.class_index)) == 1 and any(view.described is not None for view in views):
            # They can be compared with nothing, and centred on their own mean they look like no description.
            samples = samples.only(np.arange(0))
            views, vocabulary = samples.head_views(recipe)
        of_fit, rows = FitSamples.of(
            samples.views[samples.pooled],
            samples.class_index,
            samples.given,
            samples.n_classes,
            samples.pooled,
            recipe,
            copies=samples.copies,
        )
        views = [replace(view, x=view.x[rows]) for view in views]
        return fit_views(views, of_fit, recipe, seed=seed, weights=weights), vocabulary


@overflow_allowed()  # whatever is not finite is refused where it would be used
def fit_arrays(
    samples: TrainingSet,
    recipe: Recipe,
    source: SampleSource | None,
    policy: str,
    *,
    seed: int,
    all_scores: bool = False,
    on_round: OnRound | None = None,
    prefetch: int = 0,
    run_log: RunLog = IN_MEMORY,
) -> ArrayFit:
    """Augment `samples` from `source` and train; the estimate is that of the given samples alone.

    With synthetic samples in the folds the estimate would flatter: whatever wrote them had seen the
    held-out samples. So it is taken before the first round, or on the given samples apart where a
    later segment begins with synthetic ones. So are the temperature, the scores of prediction sets and the
    difficulty of the classes; with one given sample per class there is none of these.
    """
    chooser = make_policy(
        policy,
        alpha=recipe.alpha,
        relative=recipe.relative_shift,
        max_batches_ahead=recipe.max_batches_ahead,
        seed=seed,
    )
    generating = source is not None and chooser is not None
    given = samples.only_given() if recipe.refit and run_log.resume.before else None
    of_given = None if given is None else _views_of(given, recipe, seed)[0]
    models = _LoopModelFactory(samples, recipe, source, seed, of_given)
    records: list[RoundRecord] = []
    if generating or not recipe.refit:
        records = run_log.resume.records
        loop = Loop(
            samples=samples,
            make_model=models.make,
            source=source,
            policy=chooser,
            recipe=recipe,
            rng=np.random.default_rng(seed),
            run_log=run_log,
            prefetch=prefetch,
            all_scores=all_scores,
        )
        for record in loop.records():
            records.append(record)
            if on_round is not None:
                on_round(record)
        if source is not None:
            source.batches.end()
    first: HeldOut | None = None
    final: HeldOut | None = None
    scale = 1.0
    if recipe.refit:
        fitted = models.views()
        first, final = (of_given or models.first or fitted).held_out, fitted.held_out
        scale = 1.0 if first is None else first.scale()
        inference_heads, vocabulary = heads_of_fit(fitted.scaled(scale), recipe), models.vocabulary
        if not inference_heads:
            raise TaskError("there is neither an example nor a description to go by; add some")
    elif models.loop is None:
        raise TaskError("no class has an example, so there is nothing to train on; add some")
    else:
        vocabulary, inference_heads = models.loop.vocabulary, ()
        for name, calibrator in models.loop.calibrators.items():  # each with weight one
            prepared, classes = models.loop.prepared(name)
            state = HeadState.of(calibrator, classes)
            inference_heads += (_calibrator_head(name, prepared, recipe, state, 1.0),)
    heads, class_heads = zip(*inference_heads, strict=True)
    return ArrayFit(
        heads=heads,
        new_class=NewClassModel(heads=class_heads),
        history=History(records),
        held_out=first,
        confidence=_confidence(samples, recipe, first, final, scale),
        vocabulary=vocabulary if any(head.view == WORDS for head in heads) else None,
    )


def _confidence(
    samples: TrainingSet, recipe: Recipe, first: HeldOut | None, final: HeldOut | None, scale: float
) -> Confidence:
    """`first` is judged by heads of the given samples, `final` by heads of the synthetic ones as well."""
    counts = np.zeros(samples.n_classes)
    np.add.at(counts, samples.class_index, np.where(samples.given, 1.0, recipe.synthetic_weight))
    # Networks learn the shares of the classes from the loss; discriminants do not know them.
    exponent = 0.0 if recipe.refit else 1.0
    if first is None or final is None:
        nothing = np.zeros((0, samples.n_classes)), np.zeros(0, np.int64)
        return confidence_of(*nothing, counts, scale, prior_exponent=exponent)
    first, final = first.shared_with(final)
    return confidence_of(
        first.logits, first.class_index, counts, scale, final=final.logits, prior_exponent=exponent
    )
