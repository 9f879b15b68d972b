"""Fit the heads of every view: its calibrator, its discriminant, and its untrained similarity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator
from adamab.method.discriminant import LinearState, discriminants, held_out_logits
from adamab.method.evidence import (
    Component,
    HeldOut,
    Judged,
    Kind,
    Share,
    best_scale,
    choose_shares,
    honest_logits,
    stratified_folds,
)
from adamab.method.tiny_numbers import tiny_is_zero
from adamab.method.training import as_tensor, train_heads
from adamab.method.views import (
    PreparedView,
    RawView,
    Rows,
    isometric,
    learned_span,
    prepare,
    too_wide,
)
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]
MEMBER_NUMBERS = 50_000_000  # logits of all members at once: 200 MB
PATIENCE = 1  # checkpoints without a gain after which a training stops

# Without folds there is no evidence. These factors are typical of what folds choose where there are
# some: trained logits of few samples are too steep.
PRIOR_SCALE = {"pooled": 0.9, "words": 0.6}
PRIOR_SCALE_WIDE = 0.15
PRIOR_SCALE_SIMILARITY = 2.0


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


@dataclass(frozen=True)
class _Samples:
    """What all views of a fit share."""

    class_index: NDArray[np.int64]  # (n,)
    folds: NDArray[np.int64]  # (n,) the fold that holds a sample out; -1 where none does
    seen: NDArray[np.bool_]  # (n,) what folds may train on
    weight: Floats  # (n,) in training
    counted: Floats  # (n,) in evidence
    n_classes: int

    @cached_property
    def held(self) -> list[NDArray[np.bool_]]:
        """(n,) what each fold holds out."""
        return [self.folds == k for k in range(self.folds.max(initial=-1) + 1)]

    def judged(self) -> Judged:
        """The samples that are held out once."""
        out = self.folds >= 0
        return Judged(self.class_index[out], self.counted[out])

    def learned_from(self) -> list[NDArray[np.bool_]]:
        """(n,) what each fold may learn from."""
        return [self.seen & ~out for out in self.held]

    def weights(self) -> Floats:  # (folds + 1, n)
        """Weights in every fold, and of the final member, which sees every sample."""
        return np.stack([self.weight * learned for learned in self.learned_from()] + [self.weight])


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
) -> FittedViews:
    """Train every view's heads and weigh them by out-of-fold evidence.

    Where the other samples are near copies of given ones (`copies`), no fold trains on them or judges by
    them: a copy of a held-out sample would give it away.
    """
    seen = given if copies else np.ones(len(class_index), dtype=np.bool_)
    counted = np.where(given, 1.0, recipe.synthetic_evidence).astype(np.float32)
    samples = _Samples(
        class_index,
        _folds(class_index, given, counted * seen, n_classes, recipe, seed),
        seen,
        np.where(given, 1.0, recipe.synthetic_weight).astype(np.float32),
        counted,
        n_classes,
    )
    heads, closed, components = [], [], []
    for view in views:
        folded = _FoldedView(view, samples, recipe)
        trained = not (view.wide and recipe.discriminants)
        if trained:
            head, of_view = _fit_calibrator(folded, samples, recipe, seed)
            heads.append(head)
            components += of_view
        # Without folds nobody could say how much it counts beside a calibrator.
        if recipe.discriminants and len(class_index) and (samples.held or not trained):
            discriminant, component = _fit_discriminant(folded, samples, recipe)
            closed.append(discriminant)
            components.append(component)
    shares, held_out = _weighed(components, samples, given, recipe)
    return FittedViews(tuple(heads), tuple(closed), tuple(shares), held_out)


def _weighed(
    components: Sequence[Component], samples: _Samples, given: NDArray[np.bool_], recipe: Recipe
) -> tuple[list[Share], HeldOut | None]:
    """Shares by evidence and the honest logits of given samples; fixed shares where nothing is held out."""
    if not samples.held:
        return _prior_shares(components, recipe), None
    judged, out = samples.judged(), samples.folds >= 0
    shares = choose_shares(components, judged, recipe.pull)
    if not given[out].any():
        return shares, None
    honest = honest_logits(components, judged, samples.folds[out], recipe.pull)
    position = np.flatnonzero(out[given])
    return shares, HeldOut(honest[given[out]], judged.class_index[given[out]], position)


def _folds(
    class_index: NDArray[np.int64],
    given: NDArray[np.bool_],
    counted: Floats,  # (n,) in evidence
    n_classes: int,
    recipe: Recipe,
    seed: int,
) -> NDArray[np.int64]:
    """(n,) the fold that holds a sample out; -1 for samples that are never held out.

    Given and synthetic samples are spread over the folds apart from each other, so that no fold lacks
    those that count most. Of many samples a part of the folds is evidence enough.
    """
    folds = np.full(len(class_index), -1, dtype=np.int64)
    judged = counted > 0
    most = int(np.bincount(class_index[judged], minlength=1).max())
    affordable = MEMBER_NUMBERS // max(1, len(class_index) * n_classes) - 1
    n_folds = min(recipe.folds, most, max(2, affordable))
    if n_folds < 2:
        return folds
    rng = np.random.default_rng(seed)
    for of_source in (given, judged & ~given):
        folds[of_source] = stratified_folds(class_index[of_source], n_folds, rng)
    return _enough(folds, class_index, given, counted, recipe)


def _enough(
    folds: NDArray[np.int64],
    class_index: NDArray[np.int64],
    given: NDArray[np.bool_],
    counted: Floats,
    recipe: Recipe,
) -> NDArray[np.int64]:
    """The folds whose evidence is enough; none where it would be lopsided."""
    out = folds >= 0
    numbers, folds[out] = np.unique(folds[out], return_inverse=True)  # a fold may have come out empty
    # The batches that some classes have got would speak for these classes alone.
    lopsided = not given[out].any() and len(np.unique(class_index[out])) < len(np.unique(class_index))
    if len(numbers) < 2 or lopsided:
        return np.full_like(folds, -1)
    evidence = float(counted[out].sum())
    if evidence > recipe.evidence:
        folds[folds >= max(2, math.ceil(len(numbers) * recipe.evidence / evidence))] = -1
    return folds


class _FoldedView:
    """A view's rows as each fold may see them, and last as the final member does."""

    def __init__(self, view: RawView, samples: _Samples, recipe: Recipe) -> None:
        self.name = view.name
        self._samples, self._recipe = samples, recipe
        self._rows: list[tuple[Rows, Rows | None]] = []
        raw: tuple[Rows, Rows | None] | None = None
        for learned in samples.learned_from():
            rows = view.rows(learned)
            # Rotated once where all folds start from the same rows.
            if raw is None or rows[0] is not raw[0] or rows[1] is not raw[1]:
                raw, rotated = rows, isometric(*rows)
            self._rows.append(rotated)
        everything = np.ones(len(samples.class_index), dtype=np.bool_)
        self._rows.append(view.rows(everything))
        self._learned = [*samples.learned_from(), everything]

    def members(self, width: int | None) -> list[PreparedView]:
        """The view prepared for heads of at most `width` columns, fold by fold; the last for all samples."""
        bases = self._spans if self._must_shrink(width) else [None] * len(self._rows)
        return [
            prepare(
                *rows,
                self._samples.class_index,
                learned,
                self._samples.n_classes,
                self._recipe,
                None if basis is None else np.ascontiguousarray(basis[:, :width]),
            )
            for basis, rows, learned in zip(bases, self._rows, self._learned, strict=True)
        ]

    def _must_shrink(self, width: int | None) -> TypeGuard[int]:
        """As the final member must, whatever the rotation has saved the folds."""
        return width is not None and too_wide(self._rows[-1][0], width)

    @cached_property
    def _spans(self) -> list[Floats]:
        """For the widest head that does not take the view as it is; narrower ones have its first columns."""
        widths = filter(self._must_shrink, (self._recipe.max_width, self._recipe.discriminant_width))
        widest = max(widths)
        return [
            learned_span(*rows, learned, self._recipe, widest)
            for rows, learned in zip(self._rows, self._learned, strict=True)
        ]


def _fit_calibrator(
    view: _FoldedView, samples: _Samples, recipe: Recipe, seed: int
) -> tuple[TrainedHead, list[Component]]:
    """Train one view's members as one batch; the last one sees every sample and becomes the head."""
    members, held = view.members(recipe.max_width), samples.held
    head = TrainedHead(view.name, members[-1])
    similarity = list(_similarity(view.name, members, held, recipe))
    if not len(samples.class_index):  # descriptions only: there is nothing to train on
        return head, similarity
    logits: list[Floats] = []
    patience = _Patience(samples.judged() if held else None, last=max(recipe.checkpoints))

    def at_checkpoint(step: int, model: Calibrator) -> bool:
        head.states[step] = _state(model, classes)
        logits.append(_held_out(model(queries, classes).numpy(), held))
        return patience.goes_on(step, logits[-1])

    queries, classes = _batch([m.queries for m in members]), _batch([m.classes for m in members])
    train_heads(
        queries,
        classes,
        as_tensor(samples.class_index),
        as_tensor(samples.weights()),
        recipe,
        seed=seed,
        at_checkpoint=at_checkpoint,
    )
    trained = Component(view.name, "calibrator", tuple(head.states), np.stack(logits))
    return head, [trained, *similarity]


def _fit_discriminant(
    view: _FoldedView, samples: _Samples, recipe: Recipe
) -> tuple[TrainedDiscriminant, Component]:
    members = view.members(recipe.discriminant_width)
    states = [
        discriminants(member, samples.class_index, weight, samples.n_classes, recipe.shrinkages)
        for member, weight in zip(members, samples.weights(), strict=True)
    ]
    fitted = TrainedDiscriminant(view.name, members[-1], states[-1])
    logits = list(held_out_logits(members[:-1], states[:-1], samples.held))
    empty = np.zeros((len(recipe.shrinkages), 0, samples.n_classes), np.float32)
    found = np.stack(logits) if logits else empty
    return fitted, Component(view.name, "discriminant", tuple(recipe.shrinkages), found)


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
    logits = [recipe.similarity_scale * m.queries @ m.described.T for m in members if m.described is not None]
    if recipe.similarity and logits:
        yield Component(view, "similarity", (0,), _held_out(np.stack(logits), held)[None])


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
        tuple(w[-1].numpy().copy() for w in model.class_tower.weights),
        None if model.free is None else model.free[-1].numpy().copy(),
    )


def _prior_shares(components: Sequence[Component], recipe: Recipe) -> list[Share]:
    """Fixed weights that bring the components to a like steepness."""
    step = min(recipe.checkpoints, key=lambda s: abs(s - recipe.default_steps))
    shares = []
    for c in components:
        if c.kind == "similarity":
            option, scale = 0, PRIOR_SCALE_SIMILARITY
        elif c.kind == "calibrator":
            option, scale = step, PRIOR_SCALE.get(c.view, PRIOR_SCALE_WIDE)
        else:
            option, scale = c.options[0], PRIOR_SCALE_WIDE
        shares.append(Share(c.view, c.kind, option, scale / len(components)))
    return shares
