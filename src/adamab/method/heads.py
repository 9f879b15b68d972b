"""Fit the heads of every view and weigh them by leave-one-out evidence.

A view has a two-covariance discriminant of its samples and, where the class descriptions mean something in
it, the cosine with them; on request the pooled view also has the paper's calibrator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator
from adamab.method.discriminant import Discriminant, FitSamples
from adamab.method.numerics import Array
from adamab.method.stacking import FOLDS, HeldOut, honest_logits, stack_weights, stratified_folds
from adamab.method.training import train_heads
from adamab.method.views import (
    PreparedView,
    View,
    class_inputs,
    class_means,
    learned_span,
    prepare,
)
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
Kind: TypeAlias = Literal["examples", "description", "calibrator"]
MOST_EVIDENCE = 4_000_000  # leave-one-out logits of a head: 16 MB, and there are about ten heads
LEAST_EVIDENCE = 100  # samples that weights should rest on, however many classes there are


@dataclass(frozen=True)
class HeadState:
    """A trained calibrator as plain arrays."""

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
class FittedView:
    """A view's heads, and what each counts."""

    name: str
    prepared: PreparedView
    discriminant: Discriminant
    calibrator: HeadState | None
    weights: Mapping[Kind, float]


@dataclass(frozen=True)
class FittedViews:
    """All heads; `held_out` is None where no given sample could be left out."""

    views: tuple[FittedView, ...]
    weights: Numbers  # (H,) of the heads, as `stack_weights` gave them
    held_out: HeldOut | None

    def scaled(self, factor: float) -> FittedViews:
        """The same with all logits times a factor: one over the temperature."""
        views = (replace(v, weights={k: factor * w for k, w in v.weights.items()}) for v in self.views)
        return replace(self, views=tuple(views), weights=factor * self.weights)


@dataclass(frozen=True)
class _Evidence:
    """One head in the stack."""

    view: str
    kind: Kind
    prior: float  # its weight without evidence
    logits: Floats  # (m, K) of samples that it has not seen
    own: Floats | None = None  # (m,) `LeftOut.own`; None where the number of samples changes nothing


def fit_views(
    views: Sequence[View],
    samples: FitSamples,
    recipe: Recipe,
    *,
    seed: int,
    weights: Numbers | None = None,
) -> FittedViews:
    """Fit every view's heads and weigh them.

    Of very many classes the leave-one-out logits of all samples would not fit into memory, and weights need
    no more than some: given ones first, drawn by chance.

    Args:
        views: of all samples.
        samples: classes, and which samples are given.
        recipe: every hyperparameter.
        seed: of what is drawn.
        weights: (H,) of the heads of another fit; None chooses them by the samples.
    """
    n_classes, class_index = samples.n_classes, samples.class_index
    rows, most = np.arange(len(class_index)), max(LEAST_EVIDENCE, MOST_EVIDENCE // n_classes)
    if len(rows) > most:
        rng = np.random.default_rng(seed)  # the same given ones, whatever was generated
        drawn = [rng.permutation(rows[of]) for of in (samples.given, ~samples.given)]
        rows = np.sort(np.concatenate(drawn)[:most])
    fitted, evidence = [], []
    names = [view.name for view in views]
    described = [view.name for view in views if view.described is not None]
    for view in views:
        basis = learned_span(view, recipe, recipe.width)
        prepared, calibrator = prepare(view, recipe, basis), None
        discriminant = Discriminant(prepared.queries, samples, recipe)
        prior = recipe.example_weight * _share(view.name, names, samples, recipe)
        left_out = discriminant.leave_one_out(rows)
        evidence.append(_Evidence(view.name, "examples", prior, left_out.logits, left_out.own))
        if prepared.of_descriptions is not None:
            # A wording that quotes a sample would vouch for it.
            unquoted = view.described if view.unquoted is None else view.unquoted
            matches = prepared.queries[rows] @ prepared.of_descriptions(unquoted).T
            prior = recipe.description_weight * _share(view.name, described, samples, recipe)
            evidence.append(_Evidence(view.name, "description", prior, matches))
        if recipe.calibrator and view.name == samples.pooled and len(class_index):
            calibrator, logits = _calibrator(prepared, samples, recipe, seed)
            evidence.append(_Evidence(view.name, "calibrator", recipe.calibrator_weight, logits[rows]))
        fitted.append(FittedView(view.name, prepared, discriminant, calibrator, {}))
    if not evidence:  # neither a sample nor a description
        return FittedViews((), np.zeros(0), None)
    logits, priors = np.stack([e.logits for e in evidence]), np.array([e.prior for e in evidence])
    if weights is None:
        weights = stack_weights(logits, class_index[rows], priors, recipe.weight_ridge)
    held_out, judged = None, samples.given[rows] & _has_others(samples)[rows]
    if judged.any():
        family = samples.family[rows]
        of_class = class_index[rows]
        joint = honest_logits(logits, of_class, family, priors, recipe.weight_ridge, seed=seed)
        for head, of_head in zip(evidence, logits, strict=True):
            if head.own is not None:
                of_head[np.arange(len(rows)), of_class] = head.own
        foretold = honest_logits(logits, of_class, family, priors, recipe.weight_ridge, seed=seed)
        position = samples.position[rows]
        held_out = HeldOut(joint[judged], of_class[judged], position[judged], foretold[judged])
    of_heads = list(zip(evidence, weights.tolist(), strict=True))
    weighed = (
        replace(view, weights={e.kind: weight for e, weight in of_heads if e.view == view.name})
        for view in fitted
    )
    return FittedViews(tuple(weighed), weights, held_out)


def _has_others(samples: FitSamples) -> NDArray[np.bool_]:
    """(n,) whether the class of a sample has others than its near copies."""
    of_class = np.bincount(samples.class_index, minlength=samples.n_classes)[samples.class_index]
    of_family = np.bincount(samples.family, minlength=len(samples.family))[samples.family]
    return np.asarray(of_class > of_family)


def _share(name: str, names: Sequence[str], samples: FitSamples, recipe: Recipe) -> float:
    """A view's part of the weight of these views, where the pooled embedding counts as several."""
    parts = {other: recipe.pooled_share if other == samples.pooled else 1.0 for other in names}
    return parts[name] / sum(parts.values())


def _calibrator(
    prepared: PreparedView, samples: FitSamples, recipe: Recipe, seed: int
) -> tuple[HeadState, Floats]:
    """The paper's networks on one view, and the logits (n, K) of samples by folds that did not see them.

    Folds and the final calibrator are members of one batch. The only sample of a class stays in all folds
    and gets zeros, as from a discriminant.
    """
    rng, of_class = np.random.default_rng(seed), samples.class_index
    folds = stratified_folds(of_class, samples.family, FOLDS, rng)
    folds[~_has_others(samples)] = -1
    weight = samples.weights(recipe)
    learned = [np.where(folds == fold, 0, weight) for fold in range(FOLDS)] + [weight]
    means = [class_means(prepared.queries, of_class, w, samples.n_classes) for w in learned]
    classes = np.stack([class_inputs(m, prepared.described, recipe.class_input) for m in means])
    queries = np.broadcast_to(prepared.queries, (len(learned), *prepared.queries.shape))
    model = train_heads(queries, classes, of_class, np.stack(learned), recipe, seed=seed)
    logits = np.zeros((len(of_class), samples.n_classes), np.float32)
    for fold, of_fold in enumerate(model(queries, classes)[:-1]):
        logits[folds == fold] = of_fold[folds == fold]
    return HeadState.of(model, classes, -1), logits
