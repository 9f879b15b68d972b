"""Fit the heads of every view: its calibrator, its discriminant, and its untrained similarity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import EllipsisType

import numpy as np
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator
from adamab.method.cross_validation import CrossValidatedView, FitSamples, without_misleading_descriptions
from adamab.method.discriminant import LinearState, discriminants, one_shot_discriminant
from adamab.method.numerics import Array
from adamab.method.stacking import Component, HeldOut, Kind, Share, best_scale, choose_shares, honest_logits
from adamab.method.training import train_heads
from adamab.method.views import PreparedView, View
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class HeadState:
    """A trained calibrator as plain arrays.

    Its width may exceed that of the prepared view: members are padded to the widest with zeros.
    """

    tower: tuple[Floats, ...]  # query tower, (out, in) each
    class_vectors: Floats  # (K, width) calibrated, times the logit scale
    class_tower: tuple[Floats, ...]  # (out, in) each
    free: Floats | None  # (K, width) trained vectors beside the class tower

    @classmethod
    def of(cls, model: Calibrator, classes: Array, member: int | EllipsisType = ...) -> HeadState:
        """A copy of one member's arrays; by default of a calibrator without members.

        Args:
            model: the trained calibrator.
            classes: inputs of its class tower.
            member: which of its members.
        """
        return cls(
            tuple(w[member].astype(np.float32) for w in model.query_tower.weights),
            model.class_vectors(classes)[member].astype(np.float32),
            tuple(w[member].astype(np.float32) for w in model.class_tower.weights),
            None if model.free is None else model.free[member].astype(np.float32),
        )


@dataclass(frozen=True)
class TrainedHead:
    """One view's calibrator: how the view is prepared for it, and its state at each checkpoint.

    Without states it stands for the untrained similarity alone.
    """

    name: str
    prepared: PreparedView
    states: dict[int, HeadState] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedDiscriminant:
    """One view's discriminant: how the view is prepared for it, and its state at each shrinkage."""

    name: str
    prepared: PreparedView
    states: dict[int, LinearState]


@dataclass(frozen=True)
class FittedViews:
    """Heads and shares; `held_out` is None where no given sample was held out."""

    heads: tuple[TrainedHead, ...]
    discriminants: tuple[TrainedDiscriminant, ...]
    shares: tuple[Share, ...]
    held_out: HeldOut | None

    def share(self, view: str, kind: Kind) -> Share | None:
        """What a view counts by its calibrator, discriminant or similarity; None if nothing.

        Args:
            view: its name.
            kind: of the component.
        """
        return next((s for s in self.shares if (s.view, s.kind) == (view, kind) and s.weight), None)

    def weights(self, kind: Kind) -> dict[str, float]:
        """Weights by view of all components of a kind."""
        return {share.view: share.weight for share in self.shares if share.kind == kind}


def fit_views(views: Sequence[View], samples: FitSamples, recipe: Recipe, *, seed: int) -> FittedViews:
    """Train every view's heads and weigh them by out-of-fold evidence.

    Args:
        views: with one pair of matrices for each of `samples.learned_from`.
        samples: classes and folds (`split_samples`).
        recipe: every hyperparameter.
        seed: of the starts and of dropout.
    """
    if not samples.scored_rows:
        views = [without_misleading_descriptions(view, samples, recipe) for view in views]
    # Where nothing but one sample per class is known, there is nothing to train on.
    single = 0 < len(samples.class_index) == len(np.unique(samples.class_index))
    one_shot = single and all(view.rows[-1][1] is None for view in views)
    heads, closed, components = [], [], []
    for view in views:
        folded = CrossValidatedView(view, samples, recipe)
        trained = not ((view.is_wide or one_shot) and recipe.discriminants)
        # The factor of trained logits where there is no evidence, or little
        scales = {"pooled": recipe.prior_scale_pooled, "words": recipe.prior_scale_words}
        prior_scale = scales.get(view.name, recipe.prior_scale_wide)
        if trained:
            head, of_view = _calibrator(folded, samples, recipe, seed, prior_scale)
            heads.append(head)
            components += of_view
        if recipe.discriminants and len(samples.class_index) and (samples.scored_rows or not trained):
            if not one_shot:  # without evidence it has no weight beside a calibrator
                prior_scale = 0.0 if trained else recipe.prior_scale_wide
            discriminant, component = _discriminant(folded, samples, recipe, one_shot, prior_scale)
            closed.append(discriminant)
            components.append(component)
    shares, held_out = choose_shares(components, samples.evaluation, recipe), None
    given = samples.given[samples.scored]
    if given.any():
        honest = honest_logits(components, samples.evaluation, samples.folds[samples.scored], recipe)
        position = np.flatnonzero(samples.scored[samples.given])
        held_out = HeldOut(honest[given], samples.evaluation.class_index[given], position)
    return FittedViews(tuple(heads), tuple(closed), tuple(shares), held_out)


def _calibrator(
    view: CrossValidatedView, samples: FitSamples, recipe: Recipe, seed: int, prior_scale: float
) -> tuple[TrainedHead, list[Component]]:
    """Train one view's members as one batch; the last one sees every sample and becomes the head.

    Training stops when the held-out loss has risen from one checkpoint to the next.
    """
    members = view.members(recipe.max_width)
    head, components = TrainedHead(view.name, members[-1]), []
    if recipe.similarity and members[-1].described is not None:
        matches = (
            recipe.similarity_scale * member.queries[rows] @ member.described.T
            for member, rows in zip(members, samples.scored_rows, strict=False)
            if member.described is not None
        )
        logits = _out_of_fold(matches, samples)[None]
        components = [Component(view.name, "similarity", (0,), logits, recipe.prior_scale_similarity)]
    if not len(samples.class_index):  # descriptions only: there is nothing to train on
        return head, components
    # Members of unlike width are one batch: the narrower ones get columns of zeros.
    widths = [m.queries.shape[1] for m in members]
    padding = [((0, 0), (0, max(widths) - width)) for width in widths]
    queries = np.stack([np.pad(m.queries, p) for m, p in zip(members, padding, strict=True)])
    classes = np.stack([np.pad(m.classes, p) for m, p in zip(members, padding, strict=True)])
    # (M, m, 1) what each member holds out, filled up with the first sample; the last holds out none.
    rows = np.zeros((len(members), max(map(len, samples.scored_rows), default=0), 1), np.int64)
    for of_member, scored in zip(rows, samples.scored_rows, strict=False):
        of_member[: len(scored), 0] = scored
    held_out = np.take_along_axis(queries, rows, axis=1)
    at_checkpoints: list[Floats] = []
    losses: list[float] = []

    def at_checkpoint(step: int, model: Calibrator) -> bool:
        head.states[step] = HeadState.of(model, classes, -1)
        at_checkpoints.append(_out_of_fold(model(held_out, classes), samples))
        if samples.scored_rows:
            losses.append(best_scale(at_checkpoints[-1], samples.evaluation)[0])
            if len(losses) - int(np.argmin(losses)) > recipe.patience:
                return False
        return step < max(recipe.checkpoints)

    train_heads(
        queries,
        classes,
        samples.class_index,
        samples.weights,
        recipe,
        seed=seed,
        at_checkpoint=at_checkpoint,
    )
    trained = Component(view.name, "calibrator", tuple(head.states), np.stack(at_checkpoints), prior_scale)
    return head, [trained, *components]


def _discriminant(
    view: CrossValidatedView, samples: FitSamples, recipe: Recipe, one_shot: bool, prior_scale: float
) -> tuple[TrainedDiscriminant, Component]:
    members, n_classes = view.members(recipe.discriminant_width), samples.n_classes
    if one_shot:
        state = one_shot_discriminant(members[-1], samples.class_index, n_classes, recipe)
        states = [{recipe.shrinkages[0]: state}]
    else:
        states = [
            discriminants(member, samples.class_index, weight, n_classes, recipe)
            for member, weight in zip(members, samples.weights, strict=True)
        ]
    options = tuple(states[-1])
    folds = list(zip(members, states, samples.scored_rows, strict=False))
    logits = []
    for option in options:
        parts = (of_fold[option].logits(m.queries[rows]) for m, of_fold, rows in folds)
        logits.append(_out_of_fold(parts, samples))
    fitted = TrainedDiscriminant(view.name, members[-1], states[-1])
    return fitted, Component(view.name, "discriminant", options, np.stack(logits), prior_scale)


def _out_of_fold(of_folds: Iterable[NDArray[np.floating]], samples: FitSamples) -> Floats:
    """(scored, K) in the order of the samples, from those of each fold (m, K), perhaps with more rows."""
    logits = np.zeros((len(samples.evaluation.class_index), samples.n_classes), np.float32)
    fold_of = samples.folds[samples.scored]
    for fold, (part, rows) in enumerate(zip(of_folds, samples.scored_rows, strict=False)):
        logits[fold_of == fold] = part[: len(rows)]
    return logits
