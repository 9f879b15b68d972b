"""Fit the heads of every view: its calibrator, its discriminant, and its untrained similarity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator
from adamab.method.descriptions import TYPICAL_SIMILARITY, is_described, without_misleading_descriptions
from adamab.method.devices import as_array, as_tensor
from adamab.method.discriminant import LinearState, discriminants, lone_discriminant
from adamab.method.evidence import (
    Component,
    HeldOut,
    Judged,
    Kind,
    Share,
    best_scale,
    choose_shares,
    honest_logits,
    typical_weights,
)
from adamab.method.folded_views import FitSamples, FoldedView
from adamab.method.folds import held_out_folds, judged_samples, possible_classes
from adamab.method.tiny_numbers import tiny_is_zero
from adamab.method.training import train_heads
from adamab.method.views import PreparedView, RawView
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]
PATIENCE = 1  # checkpoints without a gain after which a training stops

# Without folds there is no evidence, and of a few held-out samples there is little. These factors are typical
# of what folds choose where there are many: trained logits of few samples are too steep.
PRIOR_SCALE = {"pooled": 0.9, "words": 0.6}
PRIOR_SCALE_WIDE = 0.15


@dataclass(frozen=True)
class HeadState:
    """A trained calibrator as plain arrays.

    Its width may exceed that of the prepared view: members are padded to the widest with zeros.
    """

    tower: tuple[Floats, ...]  # query tower, (out, in) each
    class_vectors: Floats  # (K, width) calibrated, times the logit scale
    class_tower: tuple[Floats, ...]  # (out, in) each
    free: Floats | None  # (K, width) trained vectors beside the class tower


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
        """What a view counts by its calibrator, discriminant or similarity; None if nothing."""
        found = (s for s in self.shares if (s.view, s.kind) == (view, kind) and s.weight)
        return next(found, None)

    def scaled(self, factor: float) -> FittedViews:
        """The same with all logits multiplied."""
        shares = (replace(share, weight=factor * share.weight) for share in self.shares)
        return replace(self, shares=tuple(shares))

    def weights(self, kind: Kind) -> dict[str, float]:
        """Weights by view of all components of a kind."""
        return {share.view: share.weight for share in self.shares if share.kind == kind}


@tiny_is_zero()
def fit_views(
    views: Sequence[RawView],
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,) the others are synthetic
    n_classes: int,
    recipe: Recipe,
    *,
    seed: int,
    copies: bool = False,
    originals: NDArray[np.int64] | None = None,  # (n,)
) -> FittedViews:
    """Train every view's heads and weigh them by out-of-fold evidence.

    Where the other samples are near copies of given ones (`copies`), no fold trains on them or judges by
    them: a copy of a held-out sample would give it away. Samples that repeat another of their class and
    source (`originals`: one of them, by sample) are held out together and judged once.
    """
    seen = given if copies else np.ones(len(class_index), dtype=np.bool_)
    counted = np.where(given, 1.0, recipe.synthetic_evidence).astype(np.float32)
    folds = held_out_folds(class_index, given, counted * seen, recipe, seed, originals)
    samples = FitSamples(
        class_index,
        folds,
        judged_samples(folds, given, n_classes, seed, originals),
        seen,
        np.where(given, 1.0, recipe.synthetic_weight).astype(np.float32),
        counted,
        possible_classes(class_index, given, counted * seen, n_classes, originals),
        n_classes,
    )
    if not samples.held:
        views = [without_misleading_descriptions(view, samples, given, recipe) for view in views]
    # Where nothing but one sample a class is known, there is nothing to train on.
    lone = samples.lone and not any(is_described(view, seen) for view in views)
    heads, closed, components = [], [], []
    for view in views:
        folded = FoldedView(view, samples, recipe)
        trained = not ((view.wide or lone) and recipe.discriminants)
        if trained:
            head, of_view = _fit_calibrator(folded, samples, recipe, seed)
            heads.append(head)
            components += of_view
        if recipe.discriminants and len(class_index) and (samples.held or not trained):
            discriminant, component = (
                _fit_lone_discriminant(folded, samples, recipe)
                if lone
                else _fit_discriminant(folded, samples, recipe, beside=trained)
            )
            closed.append(discriminant)
            components.append(component)
    shares, held_out = _weighed(components, samples, given, recipe)
    return FittedViews(tuple(heads), tuple(closed), tuple(shares), held_out)


def _weighed(
    components: Sequence[Component], samples: FitSamples, given: NDArray[np.bool_], recipe: Recipe
) -> tuple[list[Share], HeldOut | None]:
    """Shares by evidence and the honest logits of given samples; fixed shares where nothing is held out."""
    if not samples.held:
        return _prior_shares(components, recipe), None
    judged, out = samples.judged(), samples.asked
    strength = {"pull": recipe.pull, "typical": recipe.typical}
    shares = choose_shares(components, judged, **strength)
    if not given[out].any():
        return shares, None
    honest = honest_logits(components, judged, samples.folds[out], **strength)
    position = np.flatnonzero(out[given])
    return shares, HeldOut(honest[given[out]], judged.class_index[given[out]], position)


def _fit_calibrator(
    view: FoldedView, samples: FitSamples, recipe: Recipe, seed: int
) -> tuple[TrainedHead, list[Component]]:
    """Train one view's members as one batch; the last one sees every sample and becomes the head."""
    members, held = view.members(recipe.max_width), samples.asked_of
    head = TrainedHead(view.name, members[-1])
    similarity = list(_similarity(view.name, members, held, recipe))
    if not len(samples.class_index):  # descriptions only: there is nothing to train on
        return head, similarity
    logits: list[Floats] = []
    patience = _Patience(samples.judged() if held else None, last=max(recipe.checkpoints))

    def at_checkpoint(step: int, model: Calibrator) -> bool:
        head.states[step] = _state(model, classes)
        logits.append(_in_order(list(as_array(model(judged, classes)))[: len(held)], held, samples.n_classes))
        return patience.goes_on(step, logits[-1])

    queries, classes = _batch([m.queries for m in members]), _batch([m.classes for m in members])
    judged = queries.gather(1, _rows_of_members(held).expand(-1, -1, queries.shape[2]))
    train_heads(
        queries,
        classes,
        as_tensor(samples.class_index),
        as_tensor(samples.weights()),
        recipe,
        seed=seed,
        at_checkpoint=at_checkpoint,
    )
    typical = PRIOR_SCALE.get(view.name, PRIOR_SCALE_WIDE)
    trained = Component(view.name, "calibrator", tuple(head.states), np.stack(logits), typical)
    return head, [trained, *similarity]


def _fit_discriminant(
    view: FoldedView, samples: FitSamples, recipe: Recipe, *, beside: bool
) -> tuple[TrainedDiscriminant, Component]:
    members = view.members(recipe.discriminant_width)
    states = [
        discriminants(member, samples.class_index, weight, samples.n_classes, recipe.shrinkages)
        for member, weight in zip(members, samples.weights(), strict=True)
    ]
    fitted = TrainedDiscriminant(view.name, members[-1], states[-1])
    logits = np.stack(
        [
            _in_order(
                [
                    state[shrinkage].logits(m.queries[out])
                    for m, state, out in zip(members, states, samples.asked_of, strict=False)
                ],
                samples.asked_of,
                samples.n_classes,
            )
            for shrinkage in recipe.shrinkages
        ]
    )
    # Without evidence nobody can say what it counts beside a calibrator.
    typical = 0.0 if beside else PRIOR_SCALE_WIDE
    return fitted, Component(view.name, "discriminant", tuple(recipe.shrinkages), logits, typical)


def _fit_lone_discriminant(
    view: FoldedView, samples: FitSamples, recipe: Recipe
) -> tuple[TrainedDiscriminant, Component]:
    (prepared,) = view.members(recipe.discriminant_width)
    state = lone_discriminant(prepared, samples.class_index, samples.n_classes)
    option = recipe.shrinkages[0]
    typical = PRIOR_SCALE.get(view.name, PRIOR_SCALE_WIDE)
    nothing_held_out = np.zeros((1, 0, samples.n_classes), np.float32)
    return (
        TrainedDiscriminant(view.name, prepared, {option: state}),
        Component(view.name, "discriminant", (option,), nothing_held_out, typical),
    )


class _Patience:
    """Stops a training whose held-out loss has risen from one checkpoint to the next."""

    def __init__(self, judged: Judged | None, *, last: int) -> None:
        self._judged, self._last = judged, last
        self._losses: list[float] = []

    def goes_on(self, step: int, logits: Floats) -> bool:
        if self._judged is not None:
            loss, _ = best_scale(logits, self._judged)
            self._losses.append(loss)
            if len(self._losses) - int(np.argmin(self._losses)) > PATIENCE:
                return False
        return step < self._last


def _similarity(
    view: str, members: Sequence[PreparedView], held: Sequence[NDArray[np.bool_]], recipe: Recipe
) -> Iterator[Component]:
    """The untrained match with the descriptions, where the view has some."""
    if not recipe.similarity or members[-1].described is None:
        return
    logits = [
        (recipe.similarity_scale * m.queries[out] @ m.described.T).astype(np.float32, copy=False)
        for m, out in zip(members, held, strict=False)
        if m.described is not None
    ]
    ordered = _in_order(logits, held, len(members[-1].classes))
    yield Component(view, "similarity", (0,), ordered[None], TYPICAL_SIMILARITY)


def _in_order(
    logits: Sequence[Floats],  # (m, K) of each fold, of the samples that it holds out, perhaps with more rows
    held: Sequence[NDArray[np.bool_]],
    n_classes: int,
) -> Floats:
    """(judged, K) the same in the order of the samples."""
    if not len(held):
        return np.zeros((0, n_classes), np.float32)
    rows = [np.flatnonzero(out) for out in held]
    order = np.argsort(np.concatenate(rows))
    found: Floats = np.concatenate([part[: len(row)] for part, row in zip(logits, rows, strict=True)])[order]
    return found


def _rows_of_members(held: Sequence[NDArray[np.bool_]]) -> torch.Tensor:
    """(M, m, 1) the samples that each member holds out, filled up with the first; the last holds out none."""
    rows = np.zeros((len(held) + 1, max((int(out.sum()) for out in held), default=0), 1), np.int64)
    for of_member, out in zip(rows, held, strict=False):
        of_member[: out.sum(), 0] = np.flatnonzero(out)
    return as_tensor(rows)


def _batch(arrays: Sequence[Floats]) -> torch.Tensor:
    """Stack matrices of like height, the narrower ones padded with zero columns."""
    width = max(array.shape[1] for array in arrays)
    return as_tensor(np.stack([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays]))


def _state(model: Calibrator, classes: torch.Tensor) -> HeadState:
    """The last member's arrays."""
    return HeadState(
        tuple(as_array(w[-1]).copy() for w in model.query_tower.weights),
        as_array(model.scale * model.class_vectors(classes)[-1]),
        tuple(as_array(w[-1]).copy() for w in model.class_tower.weights),
        None if model.free is None else as_array(model.free[-1]).copy(),
    )


def _prior_shares(components: Sequence[Component], recipe: Recipe) -> list[Share]:
    """Fixed weights that bring the components to a like steepness."""
    step = min(recipe.checkpoints, key=lambda s: abs(s - recipe.default_steps))
    return [
        Share(c.view, c.kind, step if c.kind == "calibrator" else c.options[0], weight)
        for c, weight in zip(components, typical_weights(components), strict=True)
    ]
