"""How a view is prepared for its heads: centre, length, span; and what the classes look like in it.

Everything here is learned from the training rows alone, without their classes.
"""

from __future__ import annotations

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
BLOCK = 1024  # rows that are compared at a time, so that no second matrix as large as the first is made
NEIGHBOURS = 50  # on a drawn direction, among which copies are looked for
SMALL = 1000  # samples of a fit, and columns of a decomposition, up to which one thread is best


@dataclass(frozen=True)
class View:
    """One view of all samples, and of the class descriptions where it has those."""

    name: str
    x: Rows  # (n, d)
    described: Rows | None = None  # (K, d)
    unquoted: Rows | None = None  # (K, d) the same without examples, where wordings quote some


@dataclass(frozen=True)
class ViewTransform:
    """x -> basisᵀ (x - centre) / ‖x - centre‖; each part may be absent."""

    centre: Floats | None  # (d,)
    normalise: bool
    basis: Floats | None  # (d, r)

    @classmethod
    def learned(cls, x: Rows, recipe: Recipe, basis: Floats | None = None) -> ViewTransform:
        """That of these rows, in a basis if one is given.

        Args:
            x: (n, d) rows.
            recipe: whether to centre and normalise.
            basis: (d, r) of `learned_span`.
        """
        centre: Floats | None = None
        if recipe.centre:
            mean = x.mean(axis=0) if x.shape[0] else np.zeros(x.shape[1])
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
    """A view in the coordinates of its heads."""

    transform: ViewTransform
    queries: Floats  # (n, r)
    described: Floats | None  # (K, r) unit description vectors
    of_descriptions: ViewTransform | None  # what makes them


def prepare(view: View, recipe: Recipe, basis: Floats | None = None) -> PreparedView:
    """Learn a view's transform and apply it, in a basis if one is given.

    Args:
        view: rows of the samples, and of the class descriptions if it has those.
        recipe: says whether to centre and normalise.
        basis: (d, r) of `learned_span`.
    """
    transform = ViewTransform.learned(view.x, recipe, basis)
    if view.described is None:
        return PreparedView(transform, transform(view.x), None, None)
    # Their centre is their own: they are worded alike and unlike the samples.
    of_descriptions = ViewTransform.learned(view.described, recipe, basis)
    return PreparedView(transform, transform(view.x), of_descriptions(view.described), of_descriptions)


def learned_span(view: View, recipe: Recipe, width: int) -> Floats:  # (d, r), r <= width
    """Orthonormal basis of the samples and the descriptions: their strongest directions.

    Args:
        view: rows of the samples, and of the class descriptions if it has those.
        recipe: whether to centre and normalise.
        width: most columns of the basis.
    """
    rows = view.x[evenly_spread(view.x.shape[0], SPAN_ROWS)]
    spanning = ViewTransform.learned(view.x, recipe)(rows)
    if view.described is not None:
        some = view.described[evenly_spread(view.described.shape[0], SPAN_ROWS)]
        spanning = np.concatenate([spanning, ViewTransform.learned(view.described, recipe)(some)])
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


def _strongest(gram: NDArray[np.float64], width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """At most `width` of the largest eigenvalues and their vectors, without those that are rounding."""
    values, vectors = eigen(gram)
    order = np.argsort(-values, kind="stable")[:width]
    strong = order[values[order] > RELATIVE_RANK**2 * max(values.max(), TINY)]
    keep = strong if len(strong) else order[:1]
    return values[keep], vectors[:, keep]


def originals_of(vectors: NDArray[np.float32], group: NDArray[np.int64], distance: float) -> NDArray[np.intp]:
    """One of the samples of the same group that a sample is a copy of; itself if none.

    Copies have nearly the same projection on any direction, so only those that are near each other on a drawn
    one are compared. Of exact copies none is missed, nor of others in groups of up to `NEIGHBOURS`; in
    larger groups a few are, where others come between.

    Args:
        vectors: (n, d) the samples.
        group: (n,) samples of different groups are no copies of each other.
        distance: up to which two are copies.

    Returns:
        (n,) numbers of samples.
    """
    n, width = vectors.shape
    direction = np.random.default_rng(0).standard_normal(width, np.float32)
    order = np.lexsort((vectors @ direction, group))
    originals = np.arange(n)
    for step in range(1, min(NEIGHBOURS, n - 1) + 1):
        before, after = order[:-step], order[step:]
        same = group[after] == group[before]
        if not same.any():
            break
        before, after = before[same], after[same]
        near = np.empty(len(before), np.bool_)
        for start in range(0, len(near), BLOCK):
            rows = slice(start, start + BLOCK)
            apart = vectors[after[rows]].astype(np.float64) - vectors[before[rows]]
            near[rows] = np.linalg.norm(apart, axis=1) <= distance
        for i, j in zip(before[near], after[near], strict=True):  # in order, so runs are followed
            first = originals[i]  # not the neighbour: else a crowd of neighbours would be one sample
            if (
                originals[j] == j
                and np.linalg.norm(vectors[j].astype(np.float64) - vectors[first]) <= distance
            ):
                originals[j] = first
    while (originals[originals] != originals).any():  # a first one may itself be a copy of another
        originals = originals[originals]
    return originals


def spread(vectors: NDArray[np.float32]) -> float:
    """The typical distance from the middle: a few samples that are far away do not change it much."""
    if not len(vectors):
        return 0.0
    centre, lengths = np.median(vectors, axis=0), np.empty(len(vectors))
    for start in range(0, len(vectors), BLOCK):
        rows = slice(start, start + BLOCK)
        lengths[rows] = np.linalg.norm(vectors[rows].astype(np.float64) - centre, axis=1)
    return float(np.median(lengths)) or float(np.sqrt(np.square(lengths).mean()))


def spread_within(vectors: NDArray[np.float32], class_index: NDArray[np.int64]) -> float:
    """The typical distance between two samples of a class; 0 where no class has two."""
    counts = np.bincount(class_index)[class_index] if len(class_index) else class_index
    rows = np.flatnonzero(counts > 1)
    if not len(rows):
        return 0.0
    of_class, n = class_index[rows], counts[rows]
    means = class_means(vectors[rows], of_class, np.ones(len(rows)), int(of_class.max()) + 1)
    lengths = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        some = slice(start, start + BLOCK)
        apart = vectors[rows[some]].astype(np.float64) - means[of_class[some]]
        lengths[some] = np.linalg.norm(apart, axis=1)
    # Two samples are √2 times as far apart as one is from the mean of its class, which it is a part of.
    return float(np.median(lengths * np.sqrt(2 * n / (n - 1))))


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
