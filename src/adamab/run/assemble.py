"""From trained heads to the finished classifier: fold everything that is constant at prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamab.classifier import Head
from adamab.classifier.class_rows import ClassHead, Matching, Scatter
from adamab.method.devices import as_array, as_tensor
from adamab.method.evidence import Share
from adamab.method.heads import FittedViews, HeadState, TrainedDiscriminant
from adamab.method.views import PreparedView
from adamab.run.joint_model import JointModel
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]


class Folded(NamedTuple):
    """A head for prediction, what gives a class that comes later its row in it, and the samples in it."""

    head: Head
    class_head: ClassHead
    queries: Floats  # (n, r) as the head sees them


def heads_of_fit(fitted: FittedViews, recipe: Recipe, scale: float = 1.0) -> tuple[Folded, ...]:
    """Heads of the views that count; a view with weight zero is not asked for at prediction.

    `scale` multiplies all logits: one over the temperature.
    """
    fitted = fitted.scaled(scale)
    heads = []
    for trained in fitted.heads:
        state, weight, similarity = None, 0.0, 0.0
        if (share := fitted.share(trained.name, "similarity")) and trained.prepared.described is not None:
            similarity = share.weight * recipe.similarity_scale
        if share := fitted.share(trained.name, "calibrator"):
            state, weight = trained.states[share.option], share.weight
        if similarity or state is not None:
            heads.append(_head(trained.name, trained.prepared, recipe, state, weight, similarity))
    for discriminant in fitted.discriminants:
        if share := fitted.share(discriminant.name, "discriminant"):
            heads.append(_linear_head(discriminant, share))
    return tuple(heads)


def _linear_head(discriminant: TrainedDiscriminant, share: Share) -> Folded:
    state, transform = discriminant.states[share.option], discriminant.prepared.transform
    head = Head(
        view=discriminant.name,
        centre=transform.centre,
        normalise=transform.normalise,
        basis=transform.basis,
        linear=_plain(share.weight * state.vectors),
        bias=_plain(share.weight * state.bias),
    )
    scatter = Scatter(
        scale=float(share.weight * state.scale),
        inverse=state.measure.inverse(),
        lengths=None if state.lengths is None else astuple(state.lengths),
    )
    return Folded(head, scatter, discriminant.prepared.queries)


def heads_of_loop(model: JointModel, recipe: Recipe) -> tuple[Folded, ...]:
    """The loop's own calibrators as heads, each with weight one: the `paper` recipe."""
    heads = []
    for name, calibrator in model.calibrators.items():
        prepared = model.prepared(name)
        vectors = calibrator.class_vectors(as_tensor(prepared.classes))
        state = HeadState(
            tuple(as_array(w) for w in calibrator.query_tower.weights),
            as_array(calibrator.scale * vectors),
            tuple(as_array(w) for w in calibrator.class_tower.weights),
            None if calibrator.free is None else as_array(calibrator.free),
        )
        heads.append(_head(name, prepared, recipe, state, 1.0, 0.0))
    return tuple(heads)


def _head(
    name: str,
    prepared: PreparedView,
    recipe: Recipe,
    state: HeadState | None,
    weight: float,
    similarity: float,
) -> Folded:
    """w (q + W a) . p + s q . t is one product with q and one with the last hidden units a."""
    width = prepared.queries.shape[1]
    tower: Sequence[Floats] = ()
    hidden: NDArray[np.floating] | None = None
    linear: NDArray[np.floating] | None = None  # (K, r)
    if similarity and prepared.described is not None:
        linear = similarity * prepared.described
    if state is not None:
        vectors = weight * state.class_vectors
        linear = vectors[:, :width] if linear is None else linear + vectors[:, :width]
        pulled = vectors @ state.tower[-1]  # (K, inputs of the last layer)
        tower = state.tower[:-1]
        if tower:
            tower, hidden = (tower[0][:, :width], *tower[1:]), pulled
        else:
            linear = linear + pulled[:, :width]
    transform = prepared.transform
    head = Head(
        view=name,
        centre=transform.centre,
        normalise=transform.normalise,
        basis=transform.basis,
        tower=tuple(_plain(w) for w in tower),
        activation=recipe.activation,
        linear=_plain(np.asarray(linear)),
        hidden=None if hidden is None else _plain(hidden),
    )
    return Folded(head, _matching(prepared, recipe, state, weight, similarity), prepared.queries)


def _matching(
    prepared: PreparedView, recipe: Recipe, state: HeadState | None, weight: float, similarity: float
) -> Matching:
    matching = Matching(
        class_input=recipe.class_input,
        described=prepared.described is not None,
        similarity=float(similarity),
        described_centre=None if prepared.described_centre is None else _plain(prepared.described_centre),
    )
    if state is None:
        return matching
    first, *rest = state.class_tower
    return replace(
        matching,
        scale=float(weight * recipe.logit_scale),
        tower=(_plain(first[:, : prepared.queries.shape[1]]), *(_plain(w) for w in rest)),
        free=None if state.free is None else _plain(state.free.mean(axis=0)),
        last=_plain(state.tower[-1]),
    )


def _plain(array: NDArray[np.floating]) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)
