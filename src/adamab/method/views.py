"""How a view is prepared for its head: centre, length, span; and what the classes look like in it.

Everything here is learned from the training rows alone, and learned again inside each fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from adamab.method.blas_threads import eigen
from adamab.task.recipe import Recipe

Floats: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = Any  # Floats or a scipy CSR matrix of float32, which has no static type
RELATIVE_RANK = 1e-6  # directions with less of the largest variance are rounding
TINY = 1e-30  # less is nothing
SPAN_ROWS = 1000  # rows that a span is learned from: with more, its strongest directions hardly change


class RawView(Protocol):
    """One view of all samples as it comes from the outside.

    `rows` may depend on which samples may be learned from: a vocabulary is fitted on them, and a
    class wording may quote them.
    """

    @property
    def name(self) -> str:
        """The view's name."""

    @property
    def wide(self) -> bool:
        """Whether it is one of many columns beside the pooled embedding: layers, single tokens.

        A discriminant does as well there as a calibrator, in a fraction of the time.
        """

    def rows(self, learned_from: NDArray[np.bool_]) -> tuple[Rows, Rows | None]:
        """Vectors of all samples (n, d) and of the class descriptions (K, d), if it has those."""


@dataclass(frozen=True)
class ViewTransform:
    """x -> basisᵀ (x - centre) / ‖x - centre‖; each part may be absent."""

    centre: Floats | None  # (d,)
    normalise: bool
    basis: Floats | None  # (d, r)

    def __call__(self, x: Rows) -> Floats:  # (n, d) -> (n, r)
        """Prepare rows for the head."""
        projected = _dense(x if self.basis is None else x @ self.basis)
        if self.centre is not None:
            projected = projected - (self.centre if self.basis is None else self.centre @ self.basis)
        if self.normalise:
            projected = projected / _lengths(x, self.centre)[:, None]
        return projected.astype(np.float32, copy=False)


@dataclass(frozen=True)
class PreparedView:
    """A view ready for its head."""

    transform: ViewTransform
    queries: Floats  # (n, r)
    classes: Floats  # (K, r) input of the class tower
    described: Floats | None  # (K, r) unit description vectors, for untrained similarity
    described_centre: Floats | None = None  # (d,) what was subtracted from the descriptions


def prepare(
    x: Rows,  # (n, d)
    described: Rows | None,  # (K, d)
    class_index: NDArray[np.int64],  # (n,)
    learned_from: NDArray[np.bool_],  # (n,)
    n_classes: int,
    recipe: Recipe,
    basis: Floats | None = None,  # (d, r)
) -> PreparedView:
    """Learn a view's transform from some rows and apply it to all, in a basis if one is given."""
    transform = ViewTransform(_centre(x, learned_from, recipe), recipe.normalise, basis)
    queries = transform(x)
    units, middle = (None, None) if described is None else _unit_descriptions(described, recipe, basis)
    means = class_means(queries, class_index, learned_from, n_classes)
    return PreparedView(transform, queries, class_inputs(means, units, recipe), units, middle)


def learned_span(
    x: Rows, described: Rows | None, learned_from: NDArray[np.bool_], recipe: Recipe, width: int
) -> Floats:  # (d, r), r <= width
    """The strongest directions of some rows and the descriptions, the strongest first."""
    rows = x[_spread(np.flatnonzero(learned_from))]
    spanning = ViewTransform(_centre(x, learned_from, recipe), recipe.normalise, None)(rows)
    if described is not None:
        some = described[_spread(np.arange(described.shape[0]))]
        spanning = _stack(spanning, _descriptions_transform(described, recipe)(some))
    return span_basis(spanning, width)


def needed_span(
    x: Rows, described: Rows | None, learned_from: NDArray[np.bool_], recipe: Recipe
) -> Floats | None:
    """The span in which a calibrator takes the view; none where it takes it as it is."""
    if recipe.max_width is None or not too_wide(x, recipe.max_width):
        return None
    return learned_span(x, described, learned_from, recipe, recipe.max_width)


def too_wide(x: Rows, width: int) -> bool:
    """Whether a head of that width cannot take the view as it is."""
    return sp.issparse(x) or int(x.shape[1]) > width


def class_inputs(means: Floats, described: Floats | None, recipe: Recipe) -> Floats:
    """(K, r) what the class tower sees; a class without samples has a zero mean."""
    if described is None or recipe.class_input == "mean":
        return unit(means)
    if recipe.class_input == "description":
        return described
    return unit(unit(means) + unit(described))


def class_means(
    queries: Floats,
    class_index: NDArray[np.int64],
    weight: NDArray[np.floating] | NDArray[np.bool_],  # of each row: 0 for those that may not be learned from
    n_classes: int,
) -> Floats:
    """(K, r) mean of the rows of each class by their weights; zero where there is none."""
    rows = np.flatnonzero(weight)
    counted = weight[rows].astype(np.float64)
    share = counted / np.bincount(class_index[rows], counted, n_classes)[class_index[rows]]
    averaging = sp.csr_matrix((share, (class_index[rows], rows)), shape=(n_classes, len(queries)))
    return np.asarray(averaging @ queries, dtype=np.float32)


def span_basis(rows: Floats, width: int) -> Floats:  # (n, d) -> (d, r), r <= width
    """Orthonormal basis of the rows' span, or of its `width` strongest directions."""
    if len(rows) < rows.shape[1]:
        values, vectors = eigen(_gram(rows))
        keep = _strongest(values, width)
        # Rows that are all alike are zero once they are centred; they span nothing, and stay zero.
        basis = rows.T @ (vectors[:, keep] / np.sqrt(np.maximum(values[keep], TINY)))
    else:
        values, vectors = eigen(_gram(rows.T))
        basis = vectors[:, _strongest(values, width)]
    return np.ascontiguousarray(basis, dtype=np.float32)


def isometric(x: Rows, described: Rows | None) -> tuple[Rows, Rows | None]:
    """The same rows in coordinates of their own span: all inner products stay, the width shrinks.

    Folds then work on n + K columns instead of thousands. Nothing is learned here that could leak:
    it is a rotation.
    """
    together = x if described is None else _stack(x, described)
    if together.shape[0] >= min(together.shape[1], SPAN_ROWS):
        return x, described
    values, vectors = eigen(_dense(together @ together.T).astype(np.float64))
    keep = _strongest(values, len(values))
    rotated = (vectors[:, keep] * np.sqrt(np.maximum(values[keep], 0))).astype(np.float32)
    n = x.shape[0]
    return rotated[:n], None if described is None else rotated[n:]


def _unit_descriptions(described: Rows, recipe: Recipe, basis: Floats | None) -> tuple[Floats, Floats | None]:
    """(K, r) and their centre (d,), which is their own: they are worded alike and unlike the queries."""
    transform = _descriptions_transform(described, recipe, basis)
    return transform(described), transform.centre


def _descriptions_transform(described: Rows, recipe: Recipe, basis: Floats | None = None) -> ViewTransform:
    everything = np.ones(described.shape[0], dtype=np.bool_)
    return ViewTransform(_centre(described, everything, recipe), recipe.normalise, basis)


def _gram(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """rows @ rows.T in double precision, without a second copy of the rows in it."""
    gram = np.zeros((len(rows), len(rows)))
    for start in range(0, rows.shape[1], 4096):
        block = rows[:, start : start + 4096].astype(np.float64)
        gram += block @ block.T
    return gram


def _strongest(values: NDArray[np.float64], width: int) -> NDArray[np.intp]:
    order = np.argsort(-values, kind="stable")[:width]
    strong: NDArray[np.intp] = order[values[order] > RELATIVE_RANK**2 * max(values.max(), TINY)]
    return strong if len(strong) else order[:1]


def _spread(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """At most SPAN_ROWS of the rows, evenly spread."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), SPAN_ROWS)).astype(np.intp)]


def _stack(x: Rows, described: Rows) -> Rows:
    if sp.issparse(x):
        return sp.csr_matrix(sp.vstack([x, described]))
    return np.concatenate([x, described])


def _dense(x: Rows) -> Floats:
    return np.asarray(x.toarray() if sp.issparse(x) else x, dtype=np.float32)


def _centre(x: Rows, learned_from: NDArray[np.bool_], recipe: Recipe) -> Floats | None:
    return _mean(x, learned_from) if recipe.centre else None


def _mean(x: Rows, rows: NDArray[np.bool_]) -> Floats:
    if not rows.any():
        return np.zeros(x.shape[1], dtype=np.float32)
    return np.asarray(x[rows].mean(axis=0), dtype=np.float32).ravel()


def _lengths(x: Rows, centre: Floats | None) -> Floats:
    """(n,) ‖x - centre‖ without making a sparse x dense."""
    if not sp.issparse(x):
        return _safe(np.linalg.norm(x if centre is None else x - centre, axis=1))
    squares = np.asarray(x.multiply(x).sum(axis=1)).ravel()
    if centre is not None:
        squares = squares - 2 * (x @ centre) + centre @ centre
    return _safe(np.sqrt(np.maximum(squares, 0)))


def unit(x: Floats) -> Floats:
    """Rows of length one; a zero row stays zero."""
    return np.asarray(x / _safe(np.linalg.norm(x, axis=1))[:, None], dtype=np.float32)


def _safe(lengths: NDArray[np.floating]) -> Floats:
    safe: Floats = np.maximum(lengths, 1e-12).astype(np.float32)
    return safe
