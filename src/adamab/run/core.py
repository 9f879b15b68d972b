"""A fit on arrays: rounds, evidence, heads; text tasks and array estimators both end here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adamab.classifier import Confidence, Head
from adamab.classifier.class_side import ClassSide, Reference
from adamab.classifier.confidence import confidence_of
from adamab.errors import TaskError
from adamab.method.blas_threads import one_thread_if_small
from adamab.method.copies import originals_of
from adamab.method.evidence import Estimate, HeldOut, in_both
from adamab.method.heads import FittedViews, fit_views
from adamab.method.policies import make_policy
from adamab.run.assemble import Folded, heads_of_fit, heads_of_loop
from adamab.run.joint_model import JointModel
from adamab.run.loop import Loop, Trail, Untold
from adamab.run.records import History, RoundRecord
from adamab.run.source import Source
from adamab.run.training_set import TrainingSet
from adamab.task.recipe import Recipe

OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Outcome:
    """What a fit on arrays yields."""

    heads: tuple[Head, ...]
    class_side: ClassSide  # what gives a class that comes later its rows
    history: History
    held_out: HeldOut | None  # given samples, judged by folds that did not see them; None without folds
    confidence: Confidence

    @property
    def estimate(self) -> Estimate | None:
        """Accuracy on the held-out samples."""
        return None if self.held_out is None else self.held_out.estimate()


class _Models:
    """Makes the loop's model when the loop wants it, from the evidence at that moment."""

    def __init__(
        self,
        samples: TrainingSet,
        recipe: Recipe,
        source: Source | None,
        seed: int,
        of_given: FittedViews | None,
    ) -> None:
        self._samples, self._recipe, self._source, self._seed = samples, recipe, source, seed
        self._of_given = of_given  # where `samples` begins with synthetic ones
        self.first: FittedViews | None = None
        self.n_first = -1
        self.loop: JointModel | None = None

    def make(self) -> JointModel:
        if self._recipe.refit:
            self.first, self.n_first = self.fit(), len(self._samples)
        rounds = self._recipe.n_rounds(self._samples.n_classes)
        honest = self._of_given or self.first
        self._tell_apart(honest)
        self.loop = JointModel(
            self._samples,
            self._recipe,
            self.first,
            None if honest is None else honest.held_out,
            seed=self._seed,
            rounds=rounds,
        )
        return self.loop

    def _tell_apart(self, honest: FittedViews | None) -> None:
        """By what is known before anything is generated: a batch must not depend on when it is fetched."""
        known_before = self._of_given is not None or bool(self._samples.given.all())
        held_out = None if honest is None else honest.held_out
        if self._source is not None and self._recipe.contrast and known_before and held_out is not None:
            self._source.streams.tell_apart(held_out.rivals())

    def fit(self) -> FittedViews:
        """The views on all samples that there are; what was fitted on the same samples is reused."""
        if self.first is not None and self.n_first == len(self._samples):
            return self.first
        return _fitted(self._samples.canonical(), self._recipe, self._seed)


def _fitted(samples: TrainingSet, recipe: Recipe, seed: int) -> FittedViews:
    views = samples.raw_views(recipe)
    with one_thread_if_small(len(samples)):
        return fit_views(
            views,
            samples.class_index,
            samples.given,
            samples.n_classes,
            recipe,
            seed=seed,
            copies=samples.copies,
            originals=originals_of(samples.views[samples.pooled], samples.class_index, samples.given),
        )


def fit_samples(
    samples: TrainingSet,
    recipe: Recipe,
    source: Source | None,
    policy: str,
    *,
    seed: int,
    all_scores: bool = False,
    on_round: OnRound | None = None,
    prefetch: int = 0,
    trail: Trail | None = None,
) -> Outcome:
    """Augment `samples` from `source` and train; the estimate is that of the given samples alone.

    With synthetic samples in the folds the estimate would flatter: whatever wrote them had seen the
    held-out samples. So it is taken before the first round, or on the given samples apart where a
    later segment begins with synthetic ones. So are the temperature, the scores of prediction sets and the
    difficulty of the classes; with one given sample a class there is none of these.
    """
    chooser = make_policy(policy, alpha=recipe.alpha, relative=recipe.relative_shift, ahead=recipe.ahead)
    generating = source is not None and chooser is not None
    trail = trail or Untold()
    given = samples.only_given() if recipe.refit and trail.past.before else None
    of_given = None if given is None else _fitted(given, recipe, seed)
    models, records = _Models(samples, recipe, source, seed, of_given), trail.past.records
    if generating or not recipe.refit:
        loop = Loop(
            samples=samples,
            make_model=models.make,
            source=source,
            policy=chooser,
            recipe=recipe,
            rng=np.random.default_rng(seed),
            trail=trail,
            prefetch=prefetch,
            all_scores=all_scores,
        )
        for record in loop.records():
            records.append(record)
            if on_round is not None:
                on_round(record)
        if source is not None:
            source.streams.end()
    if recipe.refit:
        fitted = models.fit()
        first = of_given or models.first or fitted
        scale = 1.0 if first.held_out is None else first.held_out.scale()
        folded = heads_of_fit(fitted, recipe, scale)
        if not folded:
            raise TaskError("there is neither an example nor a description to go by; add some")
        confidence = _confidence(samples, recipe, first.held_out, fitted.held_out, scale)
        side = _class_side(folded, samples.canonical_classes(), fitted.held_out, scale)
        heads = tuple(part.head for part in folded)
        return Outcome(heads, side, History(records), first.held_out, confidence)
    if models.loop is None:
        raise TaskError("no class has an example, so there is nothing to train on; add some")
    confidence = _confidence(samples, recipe, None, None, 1.0)
    folded = heads_of_loop(models.loop, recipe)
    heads = tuple(part.head for part in folded)
    side = _class_side(folded, samples.class_index, None, 1.0)
    return Outcome(heads, side, History(records), None, confidence)


def _class_side(
    folded: Sequence[Folded], class_index: NDArray[np.int64], held_out: HeldOut | None, scale: float
) -> ClassSide:
    """Given samples come first among the samples, so a held-out one's position is that of its row."""
    heads, class_heads, queries = zip(*folded, strict=True)
    known = None if held_out is None else (held_out.position, scale * held_out.logits)
    # Samples of a last round may have come too late for the loop's heads.
    reference = Reference.of(heads, queries, class_index[: len(queries[0])], known)
    return ClassSide(heads=class_heads, reference=reference)


def _confidence(
    samples: TrainingSet, recipe: Recipe, first: HeldOut | None, final: HeldOut | None, scale: float
) -> Confidence:
    """`first` is held out by folds of the given samples, `final` by folds with the synthetic ones."""
    seen = np.zeros(samples.n_classes)
    np.add.at(seen, samples.class_index, np.where(samples.given, 1.0, recipe.synthetic_weight))
    if first is None or final is None:
        nothing = np.zeros((0, samples.n_classes)), np.zeros(0, np.int64)
        # Where the heads are trained by the loss alone, they learn the shares.
        return confidence_of(*nothing, seen, scale, lean=0.0 if recipe.refit else 1.0)
    # Folds never train on near copies of given samples, so their logits cannot follow how many there are.
    lean = 0.0 if samples.copies else final.lean(seen, scale)
    first, final = in_both(first, final)
    return confidence_of(first.logits, first.class_index, seen, scale, final=final.logits, lean=lean)
