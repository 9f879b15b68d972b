"""How far one more batch of a class would leave the training gradient from the balanced one.

For every class C, with n the weight of the training set, n_C that of the class, Δn that of the
batch, g_C the mean gradient of the class, g_D that of the training set and g_B the mean of the g_C:

    δ²(C) = ‖ u g_C + h ‖² = u²‖g_C‖² + 2u⟨g_C, h⟩ + ‖h‖²,
    u = Δn/(n+Δn),  h = n/(n+Δn) g_D − g_B

h is the gradient of one weighted loss (weight w_i (1/(n+Δn) − 1/(K n_{y_i})) on sample i), and a
linear layer's gradient of one sample is an outer product b_i a_iᵀ. So neither the K x P matrix of
class gradients nor K backward passes are needed: one forward pass, one backward pass to the
activations, and sums within classes give everything but the class tower's inner layers, whose
norms `exact` adds for the classes that are asked for. Leaving them out makes δ² smaller, never
larger, which is the bound that lazy evaluation needs; a class's own row of such a layer bounds its
norm from below (see `_InnerLayer`), so most classes are given up on without it.

With several views the loss is the cross-entropy of the weighted sum of the views' logits; their
parameters are disjoint, so all terms add up over the views. Class inputs (class means among them)
are constants here: δ² ignores that a new sample would move them.

Everything runs without dropout and draws no random numbers. Sums end in float64: the differences
between classes are often 1e-8 of the bonus they are added to.

The softmax residuals are an n x K matrix. It is held where it has at most `MOST_RESIDUALS` numbers; else it
is worked out twice, in blocks of whole classes, and a third time for the classes that are asked for.
Nothing is approximated either way. A class is never split: where one has very many samples, its block is as
large as that.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from adamab.method.calibrator import Calibrator, CalibratorPass
from adamab.method.numerics import Array, cross_entropy, overflow_allowed

# Sums within classes, for classes of any and very different sizes.

Ints = NDArray[np.intp]
BLOCK_NUMBERS = 4_000_000  # numbers in one block of class matrices: 16 MB in float32


class ClassGroups:
    """Samples ordered by the size of their class, then by class.

    In that order (`order` gives it) all classes of one size lie side by side, so a block of them
    is a view (classes, size, width) of the samples: nothing is gathered and nothing padded. Every
    method takes arrays that are already in this order.

    What has one number per sample or class (weights, sums) is in double precision.
    """

    def __init__(self, class_index: Ints, weight: Array, n_classes: int) -> None:
        counts = np.bincount(class_index, minlength=n_classes)
        by_class = np.argsort(class_index, kind="stable")
        self.order = by_class[np.argsort(counts[class_index[by_class]], kind="stable")]
        self.class_index = class_index[self.order]
        self.weight = weight[self.order].astype(np.float64)  # (n,)
        self.totals = np.bincount(self.class_index, self.weight, n_classes)
        self.present = self.totals > 0
        self.n_present = int(self.present.sum())
        self.of_own_class = self.totals[self.class_index]
        self.share = self.weight / self.of_own_class  # weight within the mean of its class
        self._counts = counts
        sorted_classes = np.argsort(counts, kind="stable")
        ends = np.cumsum(counts[sorted_classes])
        self._starts = np.empty_like(ends)
        self._starts[sorted_classes] = ends - counts[sorted_classes]
        self._sorted_classes = sorted_classes[counts[sorted_classes] > 0]

    def mean(self, values: Array) -> NDArray[np.float64]:  # (n,) -> (K,)
        """Mean of one number per sample, by class; 0 where a class has no sample."""
        return np.asarray(np.bincount(self.class_index, self.share * values, len(self.totals)), np.float64)

    def mean_rows(self, rows: Array) -> Array:  # (n, r) -> (K, r)
        """The same of rows."""
        means = np.zeros((len(self.totals), rows.shape[1]), rows.dtype)
        shared = rows * self.share.astype(rows.dtype)[:, None]
        means[self._sorted_classes] = np.add.reduceat(shared, self._starts[self._sorted_classes])
        return means

    def spans(self, most: int) -> Iterator[slice]:
        """All samples in slices of whole classes, of `most` samples where a class has not more."""
        ends = (self._starts + self._counts)[self._sorted_classes].tolist()
        start = last = 0
        for end in ends:
            if end - start > most and last > start:
                yield slice(start, last)
                start = last
            last = end
        if last > start:
            yield slice(start, last)

    def _blocks(self, numbers_a_sample: int, within: slice) -> Iterator[tuple[Ints, slice, int]]:
        """(classes, their samples, samples per class) for classes of one size, memory bounded."""
        starts = self._starts[self._sorted_classes]
        inside = self._sorted_classes[(starts >= within.start) & (starts < within.stop)]
        sizes, firsts = np.unique(self._counts[inside], return_index=True)  # in rising order already
        for size, alike in zip(sizes.tolist(), np.split(inside, firsts[1:]), strict=True):
            most = max(1, BLOCK_NUMBERS // (size * numbers_a_sample))
            for first in range(0, len(alike), most):
                classes = alike[first : first + most]
                start = int(self._starts[classes[0]])
                yield classes, slice(start, start + size * len(classes)), size

    def outer_norms(self, pairs: Sequence[tuple[Array, Array]], within: slice | None = None) -> Array:
        """(K,) Σ over pairs of ‖ mean over the class of b_i a_iᵀ ‖², in float64.

        With `within`, one of `spans`, the pairs have the rows of its samples only; other classes get 0.
        """
        norms = np.zeros_like(self.totals)
        within = slice(0, len(self.class_index)) if within is None else within
        for a, b in pairs:
            for classes, samples, size in self._blocks(a.shape[1] + b.shape[1], within):
                shape = (len(classes), size, -1)
                share = self.share[samples].reshape(shape).astype(a.dtype)
                rows = slice(samples.start - within.start, samples.stop - within.start)
                norms[classes] += _outer_norms(a[rows].reshape(shape), b[rows].reshape(shape), share)
        return norms

    def mean_outer(self, a: Callable[[Ints], Array], b: Callable[[Ints], Array], classes: Ints) -> Array:
        """(c, a's width, b's width): mean over each class of a_i b_iᵀ; both give rows by their numbers."""
        counts = self._counts[classes]
        sizes = np.unique(counts).tolist()
        if len(sizes) <= 1:  # balanced data: nothing to put together
            return self._mean_outer(a, b, classes, sizes[0] if sizes else 0)
        parts = [np.flatnonzero(counts == size) for size in sizes]
        outer = [self._mean_outer(a, b, classes[p], s) for p, s in zip(parts, sizes, strict=True)]
        return np.concatenate(outer)[np.argsort(np.concatenate(parts))]

    def _mean_outer(
        self, a: Callable[[Ints], Array], b: Callable[[Ints], Array], classes: Ints, size: int
    ) -> Array:
        samples = self._starts[classes][:, None] + np.arange(size)  # (c, size)
        right = b(samples)
        right *= self.share[samples].astype(right.dtype)[..., None]
        outer: Array = a(samples).mT @ right
        return outer


def _outer_norms(a: Array, b: Array, share: Array) -> Array:
    """(c,) ‖ Σ_i share_i b_i a_iᵀ ‖²: by Gram matrices for small classes, formed for large ones."""
    size, width, other = a.shape[1], a.shape[2], b.shape[2]
    if size * (width + other) <= width * other:
        product = a @ a.mT
        product *= b @ b.mT
        product *= share
        product *= share.mT
        return np.asarray(product.sum(axis=(1, 2), dtype=np.float64))
    return _squares((b * share).mT @ a)


def _squares(x: Array) -> NDArray[np.float64]:  # (c, ...) -> (c,)
    """Sums of squares, each by one product of BLAS, which sums in parts."""
    rows = x.reshape(len(x), 1, math.prod(x.shape[1:]))
    return (rows @ rows.mT)[:, 0, 0].astype(np.float64)


BELOW_ROUNDING = 0.999  # keeps a lower bound that may be tight below the rounded exact value
MOST_RESIDUALS = 50_000_000  # held at once: 200 MB
INNER_NUMBERS = 1_000_000  # numbers of a block of inner gradients: it should stay in the processor's cache


@dataclass(frozen=True)
class ViewTerms:
    """One trained view as the shift sees it."""

    calibrator: Calibrator
    queries: Array  # (n, width)
    classes: Array  # (K, width)
    weight: float = 1.0


class GradientShift:
    """δ² of every class: lower bounds at once, exact values on demand.

    Args:
        views: the trained views.
        class_index: (n,) class of each sample.
        n_classes: K; classes without samples have no δ² (they are not in `present`).
        batch: Δn, the weight of the batch to come.
        sample_weight: (n,) weights w_i; all one if None.

    Attributes:
        lower: (K,) float64, δ² without the class towers' inner-layer norms; 0 where not present.
        present: (K,) whether the class has samples.
        scale: u² times the mean squared class gradient of the query towers, a yardstick of the
            same round that needs no further work (`Recipe.relative_shift` divides δ² by it).

    Example:
        >>> from adamab.task.recipe import Recipe
        >>> model = Calibrator(8, 3, Recipe(), rng=np.random.default_rng(0))
        >>> view = ViewTerms(model, np.eye(6, 8), np.eye(3, 8))
        >>> shift = GradientShift([view], np.array([0, 0, 0, 1, 1, 2]), n_classes=3, batch=5)
        >>> bool((shift.exact(np.arange(3)) >= shift.lower).all())
        True
    """

    @overflow_allowed()
    def __init__(
        self,
        views: Sequence[ViewTerms],
        class_index: Ints,  # (n,)
        *,
        n_classes: int,
        batch: float,
        sample_weight: Array | None = None,
    ) -> None:
        weight = np.ones(len(class_index)) if sample_weight is None else sample_weight
        groups = ClassGroups(class_index, weight, n_classes)
        total = float(weight.sum())
        h_weight = groups.weight * (1 / (total + batch) - 1 / (groups.n_present * groups.of_own_class))
        self._u = batch / (total + batch)
        residuals = _Residuals(views, groups)
        self._views = [_ViewPass(view, groups, residuals, h_weight) for view in residuals.views]
        h2 = 0.0
        norms, query_norms = np.zeros_like(groups.totals), np.zeros_like(groups.totals)
        for samples, residual in residuals.blocks():
            for view in self._views:
                norms += view.backward(samples, residual)
        inner = np.zeros(len(class_index))
        for view in self._views:
            view_h2, per_sample = view.along_h()
            h2 += view_h2
            inner += per_sample
            query_norms += groups.outer_norms(view.query_pairs())
        for samples, residual in residuals.blocks():
            for view in self._views:
                inner[samples] += view.along_class_h(samples, residual)
        delta2 = self._u**2 * (norms + query_norms) + 2 * self._u * groups.mean(inner) + h2
        self.present = groups.present
        self.lower = np.where(groups.present, delta2, 0.0)
        self.scale = self._u**2 * float(query_norms.sum()) / groups.n_present

    def exact(self, classes: NDArray[np.intp]) -> NDArray[np.float64]:
        """δ² of `classes` (each must be present), with every trainable parameter counted."""
        return self.refine(classes, np.full(len(classes), np.inf))[0]

    @overflow_allowed()
    def refine(
        self,
        classes: NDArray[np.intp],  # (c,)
        cutoffs: NDArray[np.float64],  # (c,)
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """δ² of `classes`, given up on as soon as it is known to exceed its cutoff.

        Returns the values and whether each is exact; one that is not is a lower bound above its
        cutoff.

        Args:
            classes: (c,) numbers of classes, each of them present.
            cutoffs: (c,) values of δ² above which it need not be exact.
        """
        values = self.lower[classes].copy()
        exact = np.ones(len(classes), dtype=np.bool_)
        for view in self._views:
            for start in range(0, len(classes), view.classes_per_block):
                block = np.arange(start, min(start + view.classes_per_block, len(classes)))
                block = block[exact[block]]
                limits = (cutoffs[block] - values[block]) / self._u**2
                norms, exact[block] = view.inner_norms(classes[block], limits)
                values[block] += self._u**2 * norms
        return values, exact


class _Residuals:
    """Softmax less one for the own class, (n, K): held if small enough, else worked out when it is needed."""

    def __init__(self, views: Sequence[ViewTerms], groups: ClassGroups) -> None:
        self.views = [v.calibrator.run(v.queries[groups.order], v.classes, weight=v.weight) for v in views]
        self._groups = groups
        n, n_classes = len(groups.class_index), len(groups.totals)
        self._held = self._worked_out(slice(0, n)) if n * n_classes <= MOST_RESIDUALS else None

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Samples of whole classes, and their residuals (m, K)."""
        if self._held is not None:
            yield slice(0, len(self._held)), self._held
            return
        for samples in self._groups.spans(MOST_RESIDUALS // 4 // len(self._groups.totals)):
            yield samples, self._worked_out(samples)

    def of(self, samples: Ints) -> Array:
        """(..., K) of samples (...)."""
        if self._held is not None:
            return self._held[samples]
        return self._worked_out(samples.ravel()).reshape(*samples.shape, len(self._groups.totals))

    def _worked_out(self, samples: slice | Ints) -> Array:
        logits = self.views[0].logits(samples)
        for view in self.views[1:]:
            logits += view.logits(samples)
        cross_entropy(logits, self._groups.class_index[samples])
        return logits


def _square(x: Array) -> float:
    flat = x.ravel()
    return float(flat @ flat)


def _weighted_outer(a: Array, weight: Array, b: Array) -> Array:
    """Σ_i weight_i a_i b_iᵀ, scaling the narrower factor."""
    column = weight[:, None]
    outer: Array = (column * a).T @ b if a.shape[1] < b.shape[1] else a.T @ (column * b)
    return outer


def _forms(a: Array, matrix: Array, b: Array) -> NDArray[np.float64]:
    """a_iᵀ M b_i of every row, multiplied on the side that leaves the narrower product."""
    narrow, other = (b @ matrix.T, a) if a.shape[1] < b.shape[1] else (a @ matrix, b)
    narrow *= other
    return np.asarray(narrow.sum(axis=1), dtype=np.float64)


class _ViewPass:
    """One view's share: `backward` block by block, `along_h`, then `along_class_h` block by block."""

    def __init__(
        self, forward: CalibratorPass, groups: ClassGroups, residuals: _Residuals, h_weight: Array
    ) -> None:
        self._groups, self._residuals, self._vectors = groups, residuals, forward.vectors
        self.factor, self.has_free = forward.factor, forward.has_free
        self.query, self.class_ = forward.query, forward.class_
        output = self.query.output
        self._h_weight = h_weight.astype(output.dtype)  # (n,)
        self._of_output = np.empty_like(output)  # (n, d) gradient of the own loss at the query's output
        self._of_vectors = np.zeros_like(self.class_.output)  # (K, d) that of h at the class vectors
        self._own = np.empty(len(output), output.dtype)  # (n,) residual of the own class

    def backward(self, samples: slice, residual: Array) -> Array:
        """Take residuals (m, K) of whole classes back to the activations.

        Returns (K,) their ‖g_C‖² in the class tower's last layer and the free vectors.
        """
        output = self.query.output[samples]
        np.matmul(residual, self._vectors, out=self._of_output[samples])
        self._of_vectors += _weighted_outer(residual, self.factor * self._h_weight[samples], output)
        self._own[samples] = residual[np.arange(len(residual)), self._groups.class_index[samples]]
        # Both share one factor.
        mixed = residual @ (self.factor * self.class_.inputs[-1])
        if self.has_free:
            mixed = np.concatenate([mixed, self.factor * residual], axis=1)
        return self._groups.outer_norms([(mixed, output)], samples)

    def along_h(self) -> tuple[float, Array]:
        """‖h‖² for this view's parameters, and ⟨∇l_i, h⟩ of every sample for those of the query tower."""
        h2, inner = 0.0, np.zeros(len(self._own))
        for a, b in self.query_pairs():
            direction = _weighted_outer(b, self._h_weight, a)  # (out, in)
            h2 += _square(direction)
            inner += _forms(b, direction, a)
        upstream = self.class_.upstream(self._of_vectors)
        directions = [b.mT @ a for a, b in zip(self.class_.inputs, upstream, strict=True)]
        h2 += sum(_square(direction) for direction in directions)
        moved = self.class_.tangent(directions)  # (K, d)
        if self.has_free:
            h2 += _square(self._of_vectors)
            moved += self._of_vectors
        self._moved = self.factor * moved
        return h2, inner

    def along_class_h(self, samples: slice, residual: Array) -> Array:
        """⟨∇l_i, h⟩ of some samples for the parameters of the class side; after `along_h`."""
        return _forms(residual, self._moved, self.query.output[samples])

    @cached_property
    def _query_upstream(self) -> list[Array]:
        return self.query.upstream(self._of_output)

    def query_pairs(self) -> list[tuple[Array, Array]]:
        """Factors (a_i, b_i) of the query tower's per-sample gradients."""
        return list(zip(self.query.inputs, self._query_upstream, strict=True))

    @property
    def classes_per_block(self) -> int:
        """How many classes' inner gradients fit into one block of memory."""
        return max(1, INNER_NUMBERS // self.class_.inputs[-1].size)

    def _back_one_layer(self, outputs: Array) -> Array:
        """(..., hidden): outputs (..., d) of the query tower through the class tower's last layer."""
        pulled: Array = outputs @ (self.factor * self.class_.weights[-1])
        return pulled

    @cached_property
    def _inner_layers(self) -> list[_InnerLayer]:
        return [_InnerLayer(inputs) for inputs in self.class_.inputs[:-1]]

    @cached_property
    def _own_row_bounds(self) -> NDArray[np.float64]:
        """(inner layers, K): what each layer's ‖g_C‖² is at least, judged by the class's own row."""
        means = self._groups.mean_rows(self._own[:, None] * self.query.output)  # (K, d)
        means = self._back_one_layer(means)
        bounds = []
        for i in reversed(range(len(self.class_.slopes))):
            upstream = means * self.class_.slopes[i]
            bounds.append(self._inner_layers[i].own_share * _squares(upstream))
            means = upstream @ self.class_.weights[i]
        return np.stack(bounds[::-1])

    def inner_norms(
        self, classes: NDArray[np.intp], limits: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """‖g_C‖² of the class tower's layers below the last, given up on above the limit."""
        n_layers = len(self.class_.slopes)
        done = np.zeros(len(classes))
        bounds = np.zeros((n_layers, len(classes)))  # of the layers that are not done
        if n_layers and np.isfinite(limits).any():
            bounds = self._own_row_bounds[:, classes]
        open_, upstream = np.arange(len(classes)), None
        for i in reversed(range(n_layers)):
            keep = (done + bounds.sum(0) <= limits)[open_]
            open_ = open_[keep]
            if upstream is None:  # (c, K, hidden)
                upstream = self._groups.mean_outer(
                    self._residuals.of,
                    lambda samples: self._back_one_layer(self.query.output[samples]),
                    classes[open_],
                )
            else:
                kept, weight = upstream if keep.all() else upstream[keep], self.class_.weights[i + 1]
                rows = kept.reshape(-1, kept.shape[-1]) @ weight  # one product instead of one per class
                upstream = rows.reshape(*kept.shape[:-1], rows.shape[1])
            upstream *= self.class_.slopes[i]
            done[open_] += self._inner_layers[i].norms(upstream)
            bounds[i, open_] = 0
        exact = np.zeros(len(classes), dtype=np.bool_)
        exact[open_] = True
        return done + bounds.sum(0), exact


class _InnerLayer:
    """Squared norms of a layer's gradients Σ_k u_k a_kᵀ, where the inputs a_k are those of all classes.

    Only the Gram matrix of the inputs counts, so a Cholesky factor replaces them where there are
    fewer classes than inputs and no class's input depends on the others'. The gradient applied to
    the vector x with a_k · x = [k = C] gives u_C, so its squared norm is at least
    `own_share`[C] ‖u_C‖², where `own_share` is 1 / ‖x‖², one over the diagonal of the inverse.
    """

    def __init__(self, inputs: Array) -> None:  # (K, in)
        self._factor = inputs.T
        self._cholesky: Array | None = None
        self._n_classes, width = inputs.shape
        if self._n_classes < width:
            exact = inputs.astype(np.float64)
            with contextlib.suppress(np.linalg.LinAlgError):
                cholesky = np.linalg.cholesky(exact @ exact.T)
                self._cholesky, self._factor = cholesky, cholesky.T.astype(inputs.dtype)

    @cached_property
    def own_share(self) -> NDArray[np.float64]:
        if self._cholesky is None:
            return np.zeros(self._n_classes)
        inverse = solve_triangular(self._cholesky, np.eye(self._n_classes), lower=True, check_finite=False)
        return np.asarray(BELOW_ROUNDING / np.square(inverse).sum(axis=0))

    def norms(self, upstream: Array) -> NDArray[np.float64]:
        """(c,) from (c, K, out)."""
        return _squares(self._factor @ upstream)
