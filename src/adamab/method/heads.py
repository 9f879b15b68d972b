"""Fit the head of every view: folds and the final member trained as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator
from adamab.method.evidence import (
    Component,
    Estimate,
    Share,
    best_scale,
    choose_shares,
    estimate_accuracy,
    stratified_folds,
)
from adamab.method.training import as_tensor, train_heads
from adamab.method.views import PreparedView, RawView, Rows, isometric, prepare, too_wide
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]
MEMBER_NUMBERS = 50_000_000  # logits of all members at once: 200 MB
PATIENCE = 2  # checkpoints without a gain after which a training stops

# Without folds there is no evidence. These factors are typical of what folds choose where there are
# some: trained logits of few samples are too steep, wide views most of all.
PRIOR_SCALE = {"pooled": 0.9, "words": 0.6}
PRIOR_SCALE_WIDE = 0.15
PRIOR_SCALE_SIMILARITY = 2.0


@dataclass(frozen=True)
class HeadState:
    """A trained head as plain arrays.

    Its width may exceed that of the prepared view: members are padded to the widest with zeros.
    """

    tower: tuple[Floats, ...]  # query tower, (out, in) each
    class_vectors: Floats  # (K, width) calibrated, times the logit scale


@dataclass(frozen=True)
class TrainedHead:
    """One view: how it is prepared, and its head at each checkpoint."""

    name: str
    prepared: PreparedView
    states: dict[int, HeadState] = field(default_factory=dict)


@dataclass(frozen=True)
class FittedViews:
    """Heads and shares; `estimate` is None where there were no folds."""

    heads: tuple[TrainedHead, ...]
    shares: tuple[Share, ...]
    estimate: Estimate | None

    def shares_of(self, view: str) -> tuple[Share, ...]:
        """The trained and the untrained share of a view."""
        return tuple(share for share in self.shares if share.view == view)


def fit_views(
    views: Sequence[RawView],
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,) evidence counts these only
    n_classes: int,
    recipe: Recipe,
    *,
    seed: int,
    copies: bool = False,
) -> FittedViews:
    """Train every view's head and weigh the views by out-of-fold evidence on the given samples.

    Where the other samples are near copies of given ones (`copies`), no fold trains on them: a copy of
    a held-out sample would give it away.
    """
    folds = _folds(class_index, given, n_classes, recipe, seed)
    held = [folds == k for k in range(folds.max(initial=-1) + 1)]
    seen = given if copies else np.ones(len(class_index), dtype=np.bool_)
    weight = np.where(given, 1.0, recipe.synthetic_weight).astype(np.float32)
    heads, components = [], []
    for view in views:
        head, of_view = _fit_view(view, class_index, held, seen, weight, n_classes, recipe, seed)
        heads.append(head)
        components += of_view
    if not held:
        return FittedViews(tuple(heads), tuple(_prior_shares(components, recipe)), None)
    judged = folds >= 0
    shares = choose_shares(components, class_index[judged], recipe.pull)
    estimate = estimate_accuracy(components, class_index[judged], folds[judged], recipe.pull)
    return FittedViews(tuple(heads), tuple(shares), estimate)


def _folds(
    class_index: NDArray[np.int64], given: NDArray[np.bool_], n_classes: int, recipe: Recipe, seed: int
) -> NDArray[np.int64]:
    """(n,) the fold that holds a given sample out; -1 for samples that are never held out."""
    folds = np.full(len(class_index), -1, dtype=np.int64)
    most = int(np.bincount(class_index[given], minlength=1).max())
    affordable = MEMBER_NUMBERS // max(1, len(class_index) * n_classes) - 1
    n_folds = min(recipe.folds, most, max(2, affordable))
    if n_folds >= 2:
        folds[given] = stratified_folds(class_index[given], n_folds, np.random.default_rng(seed))
    return folds


def _fit_view(
    view: RawView,
    class_index: NDArray[np.int64],
    held: Sequence[NDArray[np.bool_]],
    seen: NDArray[np.bool_],  # (n,) what folds may train on
    weight: Floats,
    n_classes: int,
    recipe: Recipe,
    seed: int,
) -> tuple[TrainedHead, list[Component]]:
    """Train one view's members; the last one sees every sample and becomes the head."""
    everything = np.ones(len(class_index), dtype=np.bool_)
    final = prepare(*view.rows(everything), class_index, everything, n_classes, recipe)
    members = [*_fold_members(view, class_index, [seen & ~out for out in held], n_classes, recipe), final]
    head = TrainedHead(view.name, final)
    logits: list[Floats] = []
    patience = _Patience(class_index, held, last=max(recipe.checkpoints))

    def at_checkpoint(step: int, model: Calibrator) -> bool:
        head.states[step] = _state(model, classes)
        logits.append(_held_out(model(queries, classes).numpy(), held))
        return patience.goes_on(step, logits[-1])

    queries, classes = _batch([m.queries for m in members]), _batch([m.classes for m in members])
    if not len(class_index):  # descriptions only: there is nothing to train on
        return head, _similarity(view.name, members, held, recipe)
    train_heads(
        queries,
        classes,
        as_tensor(class_index),
        as_tensor(np.stack([weight * (seen & ~out) for out in held] + [weight])),
        recipe,
        seed=seed,
        at_checkpoint=at_checkpoint,
    )
    trained = Component(view.name, False, tuple(head.states), np.stack(logits))
    return head, [trained, *_similarity(view.name, members, held, recipe)]


def _fold_members(
    view: RawView,
    class_index: NDArray[np.int64],
    learned_from: Sequence[NDArray[np.bool_]],  # by each fold
    n_classes: int,
    recipe: Recipe,
) -> list[PreparedView]:
    """The view as each fold sees it; rotated once where all folds start from the same rows."""
    members: list[PreparedView] = []
    raw: tuple[Rows, Rows | None] | None = None
    for learned in learned_from:
        rows = view.rows(learned)
        if raw is None or rows[0] is not raw[0] or rows[1] is not raw[1]:
            raw, rotated = rows, isometric(*rows)
        reduce = too_wide(rows[0], recipe)  # as the final head does, whatever the rotation saved
        members.append(prepare(*rotated, class_index, learned, n_classes, recipe, reduce=reduce))
    return members


class _Patience:
    """Stops a training whose held-out loss has been worse than its best at two checkpoints."""

    def __init__(
        self, class_index: NDArray[np.int64], held: Sequence[NDArray[np.bool_]], *, last: int
    ) -> None:
        self._class_index = class_index[np.any(held, axis=0)] if len(held) else None
        self._last = last
        self._losses: list[float] = []

    def goes_on(self, step: int, logits: Floats) -> bool:
        if self._class_index is not None:
            loss, _ = best_scale(logits, self._class_index)
            self._losses.append(loss)
            if len(self._losses) - int(np.argmin(self._losses)) > PATIENCE:
                return False
        return step < self._last


def _similarity(
    view: str, members: Sequence[PreparedView], held: Sequence[NDArray[np.bool_]], recipe: Recipe
) -> list[Component]:
    """The untrained match with the descriptions, where the view has some."""
    logits = [recipe.similarity_scale * m.queries @ m.described.T for m in members if m.described is not None]
    if not recipe.similarity or not logits:
        return []
    return [Component(view, True, (0,), _held_out(np.stack(logits), held)[None])]


def _held_out(logits: Floats, held: Sequence[NDArray[np.bool_]]) -> Floats:  # (M, n, K) -> (judged, K)
    """Logits of the samples that are held out once, each from the member that did not see it."""
    judged = np.any(held, axis=0) if len(held) else np.zeros(logits.shape[1], dtype=np.bool_)
    result: Floats = logits[-1].copy()
    for member, out in zip(logits, held, strict=False):
        result[out] = member[out]
    return result[judged]


def _batch(arrays: Sequence[Floats]) -> torch.Tensor:
    """Stack matrices of like height, the narrower ones padded with zero columns."""
    width = max(array.shape[1] for array in arrays)
    return as_tensor(np.stack([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays]))


def _state(model: Calibrator, classes: torch.Tensor) -> HeadState:
    """The last member's arrays."""
    return HeadState(
        tuple(w[-1].numpy().copy() for w in model.query_tower.weights),
        (model.scale * model.class_vectors(classes)[-1]).numpy(),
    )


def _prior_shares(components: Sequence[Component], recipe: Recipe) -> list[Share]:
    """Equal weights of views brought to a like steepness."""
    step = min(recipe.checkpoints, key=lambda s: abs(s - recipe.default_steps))
    shares = []
    for c in components:
        scale = PRIOR_SCALE_SIMILARITY if c.similarity else PRIOR_SCALE.get(c.view, PRIOR_SCALE_WIDE)
        shares.append(Share(c.view, c.similarity, 0 if c.similarity else step, scale / len(components)))
    return shares
