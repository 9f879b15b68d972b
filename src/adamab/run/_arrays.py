"""A fit on arrays: rounds, evidence, heads; text tasks and array estimators both end here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.method.cross_validation import originals_of, split_samples
from adamab.method.heads import FittedViews, HeadState, fit_views
from adamab.method.numerics import overflow_allowed
from adamab.method.policies import make_policy
from adamab.method.stacking import HeldOut
from adamab.method.views import PreparedView, one_thread_if_small
from adamab.model import Confidence, Head
from adamab.model.confidence import confidence_of
from adamab.model.new_class import ClassHead, Matching, NewClassModel, Reference, Scatter, matching_rows
from adamab.run._intake import SampleSource
from adamab.run._loop_model import JointModel
from adamab.run.loop import Loop
from adamab.run.records import History, RoundRecord
from adamab.run.run_log import IN_MEMORY, RunLog
from adamab.run.samples import WORDS, TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.words import Vocabulary

# From trained heads to the finished classifier: fold everything that is constant at prediction.

Floats = NDArray[np.float32]


class InferenceHead(NamedTuple):
    """A head for prediction, what gives a class that comes later its row in it, and the samples in it."""

    head: Head
    class_head: ClassHead
    queries: Floats  # (n, r) as the head sees them


def heads_of_fit(fitted: FittedViews, recipe: Recipe, scale: float = 1.0) -> tuple[InferenceHead, ...]:
    """Heads of the views that count; a view with weight zero is not needed at prediction.

    Args:
        fitted: the trained views and their weights.
        recipe: the one that they were trained with.
        scale: multiplies all logits: one over the temperature.

    Returns:
        Calibrators first, then discriminants.
    """
    heads = []
    for trained in fitted.heads:
        state, weight, similarity = None, 0.0, 0.0
        if (share := fitted.share(trained.name, "similarity")) and trained.prepared.described is not None:
            similarity = scale * share.weight * recipe.similarity_scale
        if share := fitted.share(trained.name, "calibrator"):
            state, weight = trained.states[share.option], scale * share.weight
        if similarity or state is not None:
            heads.append(_head(trained.name, trained.prepared, recipe, state, weight, similarity))
    for discriminant in fitted.discriminants:
        if share := fitted.share(discriminant.name, "discriminant"):
            fisher, prepared = discriminant.states[share.option], discriminant.prepared
            weight = scale * share.weight
            head = Head(
                view=discriminant.name,
                centre=prepared.transform.centre,
                normalise=prepared.transform.normalise,
                basis=prepared.transform.basis,
                linear=_plain(weight * fisher.vectors),
                bias=_plain(weight * fisher.bias),
            )
            inverse = fisher.inverse_scatter()
            scatter = Scatter(scale=float(weight * fisher.scale), inverse=inverse, lengths=fisher.lengths)
            heads.append(InferenceHead(head, scatter, prepared.queries))
    return tuple(heads)


def _head(
    name: str,
    prepared: PreparedView,
    recipe: Recipe,
    state: HeadState | None,
    weight: float,
    similarity: float,
) -> InferenceHead:
    described, width = prepared.described, prepared.queries.shape[1]
    matched = similarity * described if similarity and described is not None else None
    matching = Matching(
        class_input=recipe.class_input,
        described=described is not None,
        similarity=float(similarity),
        described_centre=None if prepared.described_centre is None else _plain(prepared.described_centre),
    )
    vectors, last = None, None
    tower: tuple[Floats, ...] = ()
    if state is not None:
        vectors, last, tower = weight * state.class_vectors, state.tower[-1], state.tower[:-1]
        first, *rest = state.class_tower
        matching = replace(
            matching,
            scale=float(weight * recipe.logit_scale),
            tower=(_plain(first[:, :width]), *(_plain(w) for w in rest)),
            free=None if state.free is None else _plain(state.free.mean(axis=0)),
            last=_plain(last),
        )
    linear, hidden = matching_rows(vectors, last, matched, width, bool(tower))
    if tower:
        tower = (tower[0][:, :width], *tower[1:])
    transform = prepared.transform
    head = Head(
        view=name,
        centre=transform.centre,
        normalise=transform.normalise,
        basis=transform.basis,
        tower=tuple(_plain(w) for w in tower),
        activation=recipe.activation,
        linear=_plain(linear),
        hidden=None if hidden is None else _plain(hidden),
    )
    return InferenceHead(head, matching, prepared.queries)


def _plain(array: NDArray[np.floating]) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)


OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class ArrayFit:
    """What a fit on arrays yields."""

    heads: tuple[Head, ...]
    new_class: NewClassModel  # what gives an added class its rows
    history: History
    held_out: HeldOut | None  # given samples, judged by folds that did not see them; None without folds
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
    loop: JointModel | None = None

    def make(self) -> JointModel:
        recipe, samples = self.recipe, self.samples
        if recipe.refit:
            self.first = self.views()
        honest = self.of_given or self.first
        held_out = None if honest is None else honest.held_out
        # By what there is before anything is generated: a batch must not depend on when it is fetched.
        before = self.of_given is not None or bool(samples.given.all())
        if self.source is not None and recipe.contrast and before and held_out is not None:
            self.source.batches.avoid(held_out.rivals(recipe.contrast_share))
        rounds = recipe.n_rounds(samples.n_classes)
        self.loop = JointModel(samples, recipe, self.first, held_out, seed=self.seed, rounds=rounds)
        return self.loop

    def views(self) -> FittedViews:
        """The views on all samples that there are; what was fitted on the same samples is reused."""
        if self._fitted is None or self._fitted[0] != len(self.samples):
            fitted, self.vocabulary = _cross_validated(self.samples.canonical(), self.recipe, self.seed)
            self._fitted = len(self.samples), fitted
        return self._fitted[1]


def _cross_validated(
    samples: TrainingSet, recipe: Recipe, seed: int
) -> tuple[FittedViews, Vocabulary | None]:
    vectors, distance = samples.views[samples.pooled], recipe.repeat_distance
    with one_thread_if_small(len(samples)):
        split = split_samples(
            samples.class_index,
            samples.given,
            samples.n_classes,
            recipe,
            seed=seed,
            copies=samples.copies,
            originals=originals_of(vectors, samples.class_index, samples.given, distance),
        )
        views, vocabulary = samples.fold_views(recipe, split.learned_from)
        return fit_views(views, split, recipe, seed=seed), vocabulary


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
    of_given = None if given is None else _cross_validated(given, recipe, seed)[0]
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
        inference_heads, vocabulary = heads_of_fit(fitted, recipe, scale), models.vocabulary
        if not inference_heads:
            raise TaskError("there is neither an example nor a description to go by; add some")
        # In the order of `TrainingSet.canonical`.
        synthetic = np.sort(samples.class_index[~samples.given])
        class_index = np.concatenate([samples.class_index[samples.given], synthetic])
    elif models.loop is None:
        raise TaskError("no class has an example, so there is nothing to train on; add some")
    else:
        vocabulary, inference_heads = models.loop.vocabulary, ()
        for name, calibrator in models.loop.calibrators.items():  # each with weight one
            prepared = models.loop.prepared(name)
            state = HeadState.of(calibrator, prepared.classes)
            inference_heads += (_head(name, prepared, recipe, state, 1.0, 0.0),)
        class_index = samples.class_index
    heads, class_heads, queries = zip(*inference_heads, strict=True)
    # Given samples come first among the samples, so a held-out one's position is that of its row.
    held_out_rows = None if final is None else (final.position, scale * final.logits)
    # Samples of a last round may have come too late for the loop's heads.
    reference = Reference.of(heads, queries, class_index[: len(queries[0])], held_out_rows)
    return ArrayFit(
        heads=heads,
        new_class=NewClassModel(heads=class_heads, reference=reference, scale=recipe.added_class_scale),
        history=History(records),
        held_out=first,
        confidence=_confidence(samples, recipe, first, final, scale),
        vocabulary=vocabulary if any(head.view == WORDS for head in heads) else None,
    )


def _confidence(
    samples: TrainingSet, recipe: Recipe, first: HeldOut | None, final: HeldOut | None, scale: float
) -> Confidence:
    """`first` is held out by folds of the given samples, `final` by folds with the synthetic ones."""
    counts = np.zeros(samples.n_classes)
    np.add.at(counts, samples.class_index, np.where(samples.given, 1.0, recipe.synthetic_weight))
    if first is None or final is None:
        nothing = np.zeros((0, samples.n_classes)), np.zeros(0, np.int64)
        # Where the heads are trained by the loss alone, they learn the shares.
        return confidence_of(*nothing, counts, scale, prior_exponent=0.0 if recipe.refit else 1.0)
    # Folds never train on near copies of given samples, so their logits cannot follow how many there are.
    exponent = 0.0 if samples.copies else final.prior_exponent(counts, scale)
    first, final = first.shared_with(final)
    return confidence_of(
        first.logits, first.class_index, counts, scale, final=final.logits, prior_exponent=exponent
    )
