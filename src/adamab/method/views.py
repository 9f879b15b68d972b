"""How a view is prepared for its head: centre, length, span; and what the classes look like in it.

Everything here is learned from the training rows alone, and learned again inside each fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from adamab.method.numerics import one_thread
from adamab.task.recipe import Recipe

Floats: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = Any  # Floats or a scipy CSR matrix of float32, which has no static type
RELATIVE_RANK = 1e-6  # directions with less of the largest variance are rounding
TINY = 1e-30  # less is nothing
SHORTEST = 1e-12  # rows are divided by no shorter length
SPAN_ROWS = 1000  # rows that a span is learned from: with more, its strongest directions hardly change
SMALL = 1000  # samples of a fit, and columns of a decomposition, up to which one thread is best


@dataclass(frozen=True)
class View:
    """One view of all samples, as each fold may see it and, last, as the heads of the classifier do.

    Folds differ where a vocabulary is fitted on the samples of a fold, or class wordings quote them.
    """

    name: str
    rows: Sequence[tuple[Rows, Rows | None]]  # (n, d) samples; (K, d) class descriptions, if it has those
    is_wide: bool = False  # many columns beside the pooled embedding, such as layers: a discriminant serves


@dataclass(frozen=True)
class ViewTransform:
    """x -> basisᵀ (x - centre) / ‖x - centre‖; each part may be absent."""

    centre: Floats | None  # (d,)
    normalise: bool
    basis: Floats | None  # (d, r)

    @classmethod
    def learned(
        cls, x: Rows, learned_from: NDArray[np.bool_] | None, recipe: Recipe, basis: Floats | None = None
    ) -> ViewTransform:
        """That of some of the rows (None: of all), in a basis if one is given.

        Args:
            x: (n, d) rows.
            learned_from: (n,) rows that the centre is learned from; None for all.
            recipe: whether to centre and normalise.
            basis: (d, r) of `learned_span`.
        """
        centre: Floats | None = None
        if recipe.centre:
            rows = x[np.ones(x.shape[0], np.bool_) if learned_from is None else learned_from]
            mean = rows.mean(axis=0) if rows.shape[0] else np.zeros(x.shape[1])
            centre = np.asarray(mean, dtype=np.float32).ravel()
        return cls(centre, recipe.normalise, basis)

    def __call__(self, x: Rows) -> Floats:  # (n, d) -> (n, r)
        """Prepare rows for the head."""
        sparse = sp.issparse(x)
        rows = x if self.basis is None else x @ self.basis
        projected = np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float32)
        if self.centre is not None:
            projected = projected - (self.centre if self.basis is None else self.centre @ self.basis)
        if self.normalise:
            if not sparse:
                lengths = np.linalg.norm(x if self.centre is None else x - self.centre, axis=1)
            else:  # without making x dense
                squares = np.asarray(x.multiply(x).sum(axis=1)).ravel()
                if self.centre is not None:
                    squares = squares - 2 * (x @ self.centre) + self.centre @ self.centre
                lengths = np.sqrt(np.maximum(squares, 0))
            projected = projected / np.maximum(lengths, SHORTEST).astype(np.float32)[:, None]
        return np.asarray(projected, dtype=np.float32)


@dataclass(frozen=True)
class PreparedView:
    """A view ready for its head."""

    transform: ViewTransform
    queries: Floats  # (n, r)
    classes: Floats  # (K, r) input of the class tower
    described: Floats | None  # (K, r) unit description vectors, for untrained similarity
    described_centre: Floats | None = None  # (d,) what was subtracted from the descriptions


def prepare(
    x: Rows,
    described: Rows | None,
    class_index: NDArray[np.int64],
    learned_from: NDArray[np.bool_],
    n_classes: int,
    recipe: Recipe,
    basis: Floats | None = None,
) -> PreparedView:
    """Learn a view's transform from some rows and apply it to all, in a basis if one is given.

    Args:
        x: (n, d) the samples.
        described: (K, d) the class descriptions, if the view has those.
        class_index: (n,) class of each sample.
        learned_from: (n,) the samples that centre and class means may be learned from.
        n_classes: K.
        recipe: says whether to centre and normalise, and what the class tower sees.
        basis: (d, r) of `learned_span`.
    """
    transform = ViewTransform.learned(x, learned_from, recipe, basis)
    queries = transform(x)
    units, centre = None, None
    if described is not None:
        # Their centre is their own: they are worded alike and unlike the samples.
        of_descriptions = ViewTransform.learned(described, None, recipe, basis)
        units, centre = of_descriptions(described), of_descriptions.centre
    means = class_means(queries, class_index, learned_from, n_classes)
    return PreparedView(transform, queries, class_inputs(means, units, recipe.class_input), units, centre)


def needs_span(x: Rows, width: int | None) -> bool:
    """Whether a head of at most that width cannot take the rows as they are."""
    return width is not None and (sp.issparse(x) or int(x.shape[1]) > width)


def learned_span(
    x: Rows, described: Rows | None, learned_from: NDArray[np.bool_], recipe: Recipe, width: int
) -> Floats:  # (d, r), r <= width
    """Orthonormal basis of some rows and the descriptions: their strongest directions.

    Args:
        x: (n, d) the samples.
        described: (K, d) the class descriptions, if the view has those.
        learned_from: (n,) samples that may be learned from.
        recipe: whether to centre and normalise.
        width: most columns of the basis.
    """
    learned = np.flatnonzero(learned_from)
    rows = x[learned[evenly_spread(len(learned), SPAN_ROWS)]]
    spanning = ViewTransform.learned(x, learned_from, recipe)(rows)
    if described is not None:
        some = described[evenly_spread(described.shape[0], SPAN_ROWS)]
        of_descriptions = ViewTransform.learned(described, None, recipe)
        spanning = np.concatenate([spanning, of_descriptions(some)])
    few = len(spanning) < spanning.shape[1]
    narrow = spanning if few else spanning.T
    gram = np.zeros((len(narrow), len(narrow)))
    for start in range(0, narrow.shape[1], 4096):  # not all rows in double precision at once
        block = narrow[:, start : start + 4096].astype(np.float64)
        gram += block @ block.T
    values, basis = _strongest(gram, width)
    if few:
        # Rows that are all alike are zero once they are centred; they span nothing, and stay zero.
        basis = spanning.T @ (basis / np.sqrt(np.maximum(values, TINY)))
    return np.ascontiguousarray(basis, dtype=np.float32)


def class_inputs(means: Floats, described: Floats | None, kind: str) -> Floats:
    """(K, r) what the class tower sees; a class without samples has a zero mean.

    Args:
        means: (K, r) class means.
        described: (K, r) descriptions, if the view has those.
        kind: `Recipe.class_input`.
    """
    if described is None or kind == "mean":
        return unit(means)
    if kind == "description":
        return described
    return unit(unit(means) + unit(described))


def class_means(
    queries: Floats,
    class_index: NDArray[np.int64],
    weight: NDArray[np.floating] | NDArray[np.bool_],  # of each row: 0 for those that may not be learned from
    n_classes: int,
) -> Floats:
    """(K, r) mean of the rows of each class by their weights; zero where there is none.

    Args:
        queries: (n, r) prepared samples.
        class_index: (n,) class of each.
        weight: (n,) of each; 0 for those that may not be learned from.
        n_classes: K.
    """
    rows = np.flatnonzero(weight)
    weights = weight[rows].astype(np.float64)
    share = weights / np.bincount(class_index[rows], weights, n_classes)[class_index[rows]]
    averaging = sp.csr_matrix((share, (class_index[rows], rows)), shape=(n_classes, len(queries)))
    return np.asarray(averaging @ queries, dtype=np.float32)


def isometric(x: Rows, described: Rows | None) -> tuple[Rows, Rows | None]:
    """The same rows in coordinates of their own span: all inner products stay, the width shrinks.

    Folds then work on n + K columns instead of thousands. Nothing is learned here that could leak:
    it is a rotation.

    Args:
        x: (n, d) the samples.
        described: (K, d) the class descriptions, if the view has those.
    """
    n, sparse = x.shape[0], sp.issparse(x)
    if n + (0 if described is None else described.shape[0]) >= min(x.shape[1], SPAN_ROWS):
        return x, described
    together = x
    if described is not None:
        together = sp.vstack([x, described], format="csr") if sparse else np.concatenate([x, described])
    gram = together @ together.T
    values, vectors = _strongest((gram.toarray() if sparse else gram).astype(np.float64), gram.shape[0])
    rotated = (vectors * np.sqrt(np.maximum(values, 0))).astype(np.float32)
    return rotated[:n], None if described is None else rotated[n:]


def _strongest(gram: NDArray[np.float64], width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """At most `width` of the largest eigenvalues and their vectors, without those that are rounding."""
    values, vectors = eigen(gram)
    order = np.argsort(-values, kind="stable")[:width]
    strong = order[values[order] > RELATIVE_RANK**2 * max(values.max(), TINY)]
    keep = strong if len(strong) else order[:1]
    return values[keep], vectors[:, keep]


def evenly_spread(n: int, most: int) -> NDArray[np.intp]:
    """At most so many of n rows, evenly spread."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.intp)


def unit(x: Floats) -> Floats:
    """Rows of length one; a zero row stays zero."""
    lengths = np.maximum(np.linalg.norm(x, axis=1), SHORTEST).astype(np.float32)
    return np.asarray(x / lengths[:, None], dtype=np.float32)


def one_thread_if_small(size: int) -> AbstractContextManager[Any]:
    """BLAS with one thread for so many samples of a fit or columns of a decomposition.

    A fit of a few hundred samples makes thousands of small products. BLAS shares each among all processors
    that it sees and spins until the last is done: on two busy cores a decomposition of 512 columns took 75
    times as long as with one thread. On a quiet machine threads gain little at this size.
    """
    return one_thread() if size <= SMALL else nullcontext()


def eigen(symmetric: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:  # (r, r) -> (r,), (r, r)
    """Eigenvalues in rising order, and their vectors as columns.

    Example:
        >>> values, _ = eigen(np.array([[2.0, 0.0], [0.0, 1.0]]))
        >>> values.tolist()
        [1.0, 2.0]
    """
    with one_thread_if_small(len(symmetric)):
        values, vectors = np.linalg.eigh(symmetric)
    return values, vectors
