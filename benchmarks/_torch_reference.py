"""The method in torch, as it was before it moved to NumPy: what tests and benchmarks compare it with.

The arithmetic is torch's (autograd, `torch.optim`, its threads); starts, orders and dropout masks are those
of the product, so that both take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from adamab.method.calibrator import Calibrator, dropout_mask
from adamab.method.numerics import ROUNDS, SMALL_PRODUCT, random_stream
from adamab.method.training import EpochReport
from adamab.run._loop_model import JointModel
from adamab.task.recipe import Recipe

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


def to_float64(values: Tensor) -> Tensor:
    return values.double()


def sum_float64(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    return values.sum(dims, dtype=torch.float64)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Count numbers below 1e-38 as zero as long as this lasts."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def torch_threads_for(rows: int, width: int, columns: int) -> Iterator[None]:
    """One thread where products are small, torch's own number where they are not."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if 2 * rows * width * columns < SMALL_PRODUCT else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchTower(nn.Module):
    """A tower with the weights of one of the product's."""

    def __init__(self, weights: Sequence[NDArray[np.floating]], activation: str, dropout: float) -> None:
        super().__init__()
        self.activation, self.dropout = ACTIVATIONS[activation], dropout
        self.weights = nn.ParameterList([nn.Parameter(torch.from_numpy(w.copy())) for w in weights])

    def forward(self, x: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        hidden = x
        last = len(self.weights) - 1
        for i, weight in enumerate(self.weights):
            hidden = hidden @ weight.mT
            if i < last:
                hidden = self.activation(hidden)
                if rng is not None and self.dropout:
                    mask = dropout_mask(tuple(hidden.shape), self.dropout, rng, hidden.detach().numpy().dtype)
                    hidden = hidden * torch.from_numpy(mask)
        return x + hidden


class TorchCalibrator(nn.Module):
    """A calibrator with the parameters of one of the product's."""

    def __init__(self, start: Calibrator) -> None:
        super().__init__()
        self.scale = start.scale
        towers = (start.query_tower, start.class_tower)
        self.query_tower, self.class_tower = (TorchTower(t.weights, t.activation, t.dropout) for t in towers)
        self.free = None if start.free is None else nn.Parameter(torch.from_numpy(start.free.copy()))

    def flat(self) -> Tensor:
        """All parameters in one row, in the order of the product's."""
        return torch.cat([p.detach().flatten() for p in self.ordered()])

    def ordered(self) -> list[nn.Parameter]:
        """Query tower, class tower, free vectors."""
        free = [] if self.free is None else [self.free]
        return [*self.query_tower.weights, *self.class_tower.weights, *free]

    def forward(
        self,
        queries: Tensor,
        classes: Tensor,
        chosen: Tensor | None = None,
        rng: np.random.Generator | None = None,
    ) -> Tensor:
        query = self.query_tower(queries, rng)
        vectors = self.class_tower(classes if chosen is None else classes[..., chosen, :], rng)
        if self.free is not None:
            vectors = vectors + (self.free if chosen is None else self.free[..., chosen, :])
        logits: Tensor = self.scale * query @ vectors.mT
        return logits


class TorchTrainer:
    """Epochs by autograd and torch's optimisers."""

    def __init__(self, calibrators: Sequence[TorchCalibrator], recipe: Recipe, rounds: int) -> None:
        self._recipe, self._rounds, self._round = recipe, max(rounds, 1), 0
        parameters = [p for calibrator in calibrators for p in calibrator.parameters()]
        rate, decay = recipe.learning_rate, recipe.weight_decay
        if recipe.full_gradient:
            self.optimiser: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=rate, weight_decay=decay)
        else:
            kind = torch.optim.AdamW if recipe.optimiser == "adamw" else torch.optim.Adam
            self.optimiser = kind(parameters, lr=rate, weight_decay=decay, fused=True)

    @flush_denormals()
    def epoch(
        self,
        views: Sequence[TorchTerms],
        class_index: Tensor,
        weight: Tensor,
        rng: np.random.Generator,
    ) -> EpochReport:
        rate = self._recipe.learning_rate
        if not self._recipe.full_gradient:
            last = rate * self._recipe.final_rate
            progress = min(self._round / self._rounds, 1.0)
            rate = last + (rate - last) * (1 + np.cos(np.pi * progress)) / 2
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        n = len(class_index)
        size = n if self._recipe.full_gradient else min(self._recipe.batch_size or n, n)
        total = 0.0
        for rows in torch.split(torch.from_numpy(rng.permutation(n)), size):
            self.optimiser.zero_grad()
            terms = [v.weight * v.calibrator(v.queries[rows], v.classes, None, rng) for v in views]
            logits = torch.stack(terms).sum(0)
            losses = functional.cross_entropy(logits, class_index[rows], reduction="none")
            loss = (losses * weight[rows]).sum() / weight[rows].sum()
            loss.backward()
            total += float(loss.detach()) * len(rows)
            self.optimiser.step()
        self._round += 1
        return EpochReport(total / n, rate)


# Sums within classes, for classes of any and very different sizes.

BLOCK_NUMBERS = 4_000_000  # numbers in one block of class matrices: 16 MB in float32


class ClassGroups:
    """Samples ordered by the size of their class, then by class.

    In that order (`order` gives it) all classes of one size lie side by side, so a block of them
    is a view (classes, size, width) of the samples: nothing is gathered and nothing padded. Every
    method takes arrays that are already in this order.

    What has one number per sample or class (weights, sums) is in double precision and on the processor;
    `order` and `class_index` are where the samples are.
    """

    def __init__(self, class_index: Tensor, weight: Tensor, n_classes: int) -> None:
        device, class_index = class_index.device, class_index.cpu()
        counts = torch.bincount(class_index, minlength=n_classes)
        by_class = torch.argsort(class_index, stable=True)
        order = by_class[torch.argsort(counts[class_index[by_class]], stable=True)]
        self._class_index = class_index[order]
        self.order, self.class_index = order.to(device), self._class_index.to(device)
        self.weight = weight[order]  # (n,) float64
        self.totals = torch.zeros(n_classes, dtype=torch.float64)
        self.totals.index_add_(0, self._class_index, self.weight)
        self.present = self.totals > 0
        self.n_present = int(self.present.sum())
        self.of_own_class = self.totals[self._class_index]
        self.share = self.weight / self.of_own_class  # weight within the mean of its class
        self._counts = counts
        sorted_classes = torch.argsort(counts, stable=True)
        ends = torch.cumsum(counts[sorted_classes], 0)
        self._starts = torch.empty_like(ends)
        self._starts[sorted_classes] = ends - counts[sorted_classes]
        self._sorted_classes = sorted_classes[counts[sorted_classes] > 0]

    def mean(self, values: Tensor) -> Tensor:  # (n,) float64 -> (K,)
        """Mean of one number per sample, by class; 0 where a class has no sample."""
        return torch.zeros_like(self.totals).index_add_(0, self._class_index, self.share * values)

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

    def _blocks(self, numbers_a_sample: int, within: slice) -> Iterator[tuple[Tensor, slice, int]]:
        """(classes, their samples, samples per class) for classes of one size, memory bounded."""
        starts = self._starts[self._sorted_classes]
        inside = self._sorted_classes[(starts >= within.start) & (starts < within.stop)]
        sizes, runs = torch.unique_consecutive(self._counts[inside], return_counts=True)
        for size, alike in zip(sizes.tolist(), torch.split(inside, runs.tolist()), strict=True):
            for classes in torch.split(alike, max(1, BLOCK_NUMBERS // (size * numbers_a_sample))):
                start = int(self._starts[classes[0]])
                yield classes, slice(start, start + size * len(classes)), size

    def outer_norms(self, pairs: Sequence[tuple[Tensor, Tensor]], within: slice | None = None) -> Tensor:
        """(K,) Σ over pairs of ‖ mean over the class of b_i a_iᵀ ‖², in float64.

        With `within`, one of `spans`, the pairs have the rows of its samples only; other classes get 0.
        """
        norms = torch.zeros_like(self.totals)
        within = slice(0, len(self._class_index)) if within is None else within
        for a, b in pairs:
            for classes, samples, size in self._blocks(a.shape[1] + b.shape[1], within):
                shape = (len(classes), size, -1)
                share = self.share[samples].view(shape).to(a.dtype).to(a.device)
                rows = slice(samples.start - within.start, samples.stop - within.start)
                norms[classes] += _outer_norms(a[rows].view(shape), b[rows].view(shape), share)
        return norms

    def mean_outer(self, a: Callable[[Tensor], Tensor], b: Tensor, classes: NDArray[np.intp]) -> Tensor:
        """(c, a's width, b's width): mean over each class of a_i b_iᵀ; `a` gives rows by their numbers."""
        chosen = torch.from_numpy(classes)
        counts = self._counts[chosen]
        sizes = torch.unique(counts).tolist()
        if len(sizes) <= 1:  # balanced data: nothing to put together
            return self._mean_outer(a, b, chosen, sizes[0] if sizes else 0)
        parts = [torch.nonzero(counts == size).flatten() for size in sizes]
        outer = [self._mean_outer(a, b, chosen[p], s) for p, s in zip(parts, sizes, strict=True)]
        order = torch.argsort(torch.cat(parts)).to(b.device)
        return torch.cat(outer)[order]

    def _mean_outer(self, a: Callable[[Tensor], Tensor], b: Tensor, classes: Tensor, size: int) -> Tensor:
        samples = self._starts[classes][:, None] + torch.arange(size)  # (c, size)
        share = self.share[samples].to(b.dtype).to(b.device)
        samples = samples.to(b.device)
        return a(samples).mT @ (b[samples] * share[..., None])


def _outer_norms(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    """(c,) ‖ Σ_i share_i b_i a_iᵀ ‖²: by Gram matrices for small classes, formed for large ones."""
    size, width, other = a.shape[1], a.shape[2], b.shape[2]
    if size * (width + other) <= width * other:
        product = (a @ a.mT) * (b @ b.mT) * share * share.mT
        return sum_float64(product, (1, 2))
    return sum_float64(((b * share).mT @ a).square(), (1, 2))


TINY = 1e-15
BELOW_ROUNDING = 0.999  # keeps a lower bound that may be tight below the rounded exact value
MOST_RESIDUALS = 50_000_000  # held at once: 200 MB
INNER_NUMBERS = 1_000_000  # numbers of a block of inner gradients: it should stay in the processor's cache


@dataclass(frozen=True)
class TorchTerms:
    """One trained view as the shift sees it."""

    calibrator: TorchCalibrator
    queries: Tensor  # (n, width)
    classes: Tensor  # (K, width)
    weight: float = 1.0

    def logits(self, rows: Tensor, classes: Tensor | None = None) -> Tensor:
        """(m, K) of some samples, (m, g) for some of the classes; without the weight."""
        logits: Tensor = self.calibrator(self.queries[rows], self.classes, classes)
        return logits


class TorchShift:
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
    """

    @torch.no_grad()
    def __init__(
        self,
        views: Sequence[TorchTerms],
        class_index: Tensor,  # (n,)
        *,
        n_classes: int,
        batch: float,
        sample_weight: Tensor | None = None,
    ) -> None:
        weight = torch.ones(len(class_index)) if sample_weight is None else sample_weight
        groups = ClassGroups(class_index, to_float64(weight), n_classes)
        total = float(weight.sum())
        h_weight = groups.weight * (1 / (total + batch) - 1 / (groups.n_present * groups.of_own_class))
        self._u = batch / (total + batch)
        residuals = _Residuals(views, groups)
        self._views = [_ViewPass(view, groups, residuals, h_weight) for view in residuals.views]
        h2 = 0.0
        norms, query_norms = torch.zeros_like(groups.totals), torch.zeros_like(groups.totals)
        for samples, residual in residuals.blocks():
            for view in self._views:
                norms += view.backward(samples, residual)
        inner = torch.zeros(len(class_index), dtype=torch.float64)
        for view in self._views:
            view_h2, per_sample = view.along_h()
            h2 += view_h2
            inner += per_sample
            query_norms += groups.outer_norms(view.query_pairs())
        for samples, residual in residuals.blocks():
            for view in self._views:
                inner[samples] += view.along_class_h(samples, residual)
        delta2 = self._u**2 * (norms + query_norms) + 2 * self._u * groups.mean(inner) + h2
        self.present = groups.present.numpy()
        self.lower = torch.where(groups.present, delta2, 0.0).numpy()
        self.scale = self._u**2 * float(query_norms.sum()) / groups.n_present

    def exact(self, classes: NDArray[np.intp]) -> NDArray[np.float64]:
        """δ² of `classes` (each must be present), with every trainable parameter counted."""
        return self.refine(classes, np.full(len(classes), np.inf))[0]

    @torch.no_grad()
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


class _ViewLogits:
    """One view's forward pass over all samples and classes, up to the product of the two."""

    def __init__(self, view: TorchTerms, groups: ClassGroups) -> None:
        calibrator = view.calibrator
        self.factor = view.weight * calibrator.scale
        self.query = _TowerPass(calibrator.query_tower, view.queries[groups.order])
        self.class_ = _TowerPass(calibrator.class_tower, view.classes)
        self.has_free = calibrator.free is not None
        vectors = self.class_.output if calibrator.free is None else self.class_.output + calibrator.free
        self.vectors = self.factor * vectors

    def of(self, samples: slice | Tensor) -> Tensor:
        """(m, K) weighted logits."""
        return self.query.output[samples] @ self.vectors.mT


class _Residuals:
    """Softmax less one for the own class, (n, K): held if small enough, else worked out when it is needed."""

    def __init__(self, views: Sequence[TorchTerms], groups: ClassGroups) -> None:
        self.views = [_ViewLogits(view, groups) for view in views]
        self._groups = groups
        n, n_classes = len(groups.class_index), len(groups.totals)
        self._held = self._worked_out(slice(0, n)) if n * n_classes <= MOST_RESIDUALS else None

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Samples of whole classes, and their residuals (m, K)."""
        if self._held is not None:
            yield slice(0, len(self._held)), self._held
            return
        for samples in self._groups.spans(MOST_RESIDUALS // 4 // len(self._groups.totals)):
            yield samples, self._worked_out(samples)

    def of(self, samples: Tensor) -> Tensor:
        """(..., K) of samples (...)."""
        if self._held is not None:
            return self._held[samples]
        rows = samples.flatten()
        residual = self._worked_out(rows) if len(rows) else self.views[0].of(rows)
        return residual.view(*samples.shape, len(self._groups.totals))

    def _worked_out(self, samples: slice | Tensor) -> Tensor:
        logits = self.views[0].of(samples)
        for view in self.views[1:]:
            logits += view.of(samples)
        return _residual(logits, self._groups.class_index[samples])


def _residual(logits: Tensor, class_index: Tensor) -> Tensor:
    residual = logits.sub_(logits.amax(1, keepdim=True)).exp_()  # in place: new memory costs more than exp
    residual /= residual.sum(1, keepdim=True)
    own = class_index[:, None]
    residual.scatter_(1, own, 0)
    # A trained softmax is full of numbers like 1e-40, on which processors are ten times slower. What
    # is 1e-15 of the largest entry is far below the rounding of every sum it enters.
    torch.threshold_(residual, TINY * float(residual.max()), 0.0)
    # probability − 1 would lose all digits where the class is certain
    return residual.scatter_(1, own, -residual.sum(1, keepdim=True))


def _square(x: Tensor) -> float:
    flat = x.flatten()
    return float(flat @ flat)


def _weighted_outer(a: Tensor, weight: Tensor, b: Tensor) -> Tensor:
    """Σ_i weight_i a_i b_iᵀ, scaling the narrower factor."""
    column = weight[:, None]
    return (column * a).mT @ b if a.shape[1] < b.shape[1] else a.mT @ (column * b)


def _forms(a: Tensor, matrix: Tensor, b: Tensor) -> Tensor:
    """a_iᵀ M b_i of every row, multiplied on the side that leaves the narrower product."""
    narrow, other = (b @ matrix.mT, a) if a.shape[1] < b.shape[1] else (a @ matrix, b)
    return to_float64(narrow.mul_(other).sum(1))


class _TowerPass:
    """Activations of a tower and the slopes of its activation function."""

    def __init__(self, tower: TorchTower, x: Tensor) -> None:
        self.weights: list[Tensor] = [w.detach() for w in tower.weights]
        self.inputs = [x]  # a_i of each layer
        self.slopes: list[Tensor] = []  # φ' before each layer but the first
        for weight in self.weights[:-1]:
            with torch.enable_grad():
                before = (self.inputs[-1] @ weight.mT).requires_grad_()
                after = tower.activation(before)
                (slope,) = torch.autograd.grad(after.sum(), before)
            self.inputs.append(after.detach())
            self.slopes.append(slope)
        self.output = torch.addmm(x, self.inputs[-1], self.weights[-1].mT)

    def upstream(self, of_output: Tensor) -> list[Tensor]:
        """Gradient at the output of each layer, first layer first."""
        result = [of_output]
        for weight, slope in zip(reversed(self.weights[1:]), reversed(self.slopes), strict=True):
            result.append((result[-1] @ weight) * slope)
        return result[::-1]

    def tangent(self, directions: Sequence[Tensor]) -> Tensor:
        """Change of the output when each layer's weight moves along its direction (a JVP)."""
        moved = self.inputs[0] @ directions[0].mT
        for i, slope in enumerate(self.slopes, 1):
            moved = (moved * slope) @ self.weights[i].mT + self.inputs[i] @ directions[i].mT
        return moved


class _ViewPass:
    """One view's share: `backward` block by block, `along_h`, then `along_class_h` block by block."""

    def __init__(
        self, forward: _ViewLogits, groups: ClassGroups, residuals: _Residuals, h_weight: Tensor
    ) -> None:
        self._groups, self._residuals, self._vectors = groups, residuals, forward.vectors
        self.factor, self.has_free = forward.factor, forward.has_free
        self.query, self.class_ = forward.query, forward.class_
        output = self.query.output
        self._h_weight = h_weight.to(output.dtype).to(output.device)  # (n,)
        self._of_output = torch.empty_like(output)  # (n, d) gradient of the own loss at the query's output
        self._of_vectors = torch.zeros_like(self.class_.output)  # (K, d) that of h at the class vectors
        self._own = output.new_empty(len(output))  # (n,) residual of the own class

    def backward(self, samples: slice, residual: Tensor) -> Tensor:
        """Take residuals (m, K) of whole classes back to the activations.

        Returns (K,) their ‖g_C‖² in the class tower's last layer and the free vectors.
        """
        output = self.query.output[samples]
        self._of_output[samples] = residual @ self._vectors
        self._of_vectors += _weighted_outer(residual, self.factor * self._h_weight[samples], output)
        self._own[samples] = residual.gather(1, self._groups.class_index[samples][:, None])[:, 0]
        # Both share one factor.
        mixed = residual @ (self.factor * self.class_.inputs[-1])
        if self.has_free:
            mixed = torch.cat([mixed, self.factor * residual], dim=1)
        return self._groups.outer_norms([(mixed, output)], samples)

    def along_h(self) -> tuple[float, Tensor]:
        """‖h‖² for this view's parameters, and ⟨∇l_i, h⟩ of every sample for those of the query tower."""
        h2, inner = 0.0, torch.zeros(len(self._own), dtype=torch.float64)
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

    def along_class_h(self, samples: slice, residual: Tensor) -> Tensor:
        """⟨∇l_i, h⟩ of some samples for the parameters of the class side; after `along_h`."""
        return _forms(residual, self._moved, self.query.output[samples])

    @cached_property
    def _query_upstream(self) -> list[Tensor]:
        return self.query.upstream(self._of_output)

    def query_pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Factors (a_i, b_i) of the query tower's per-sample gradients."""
        return list(zip(self.query.inputs, self._query_upstream, strict=True))

    @property
    def classes_per_block(self) -> int:
        """How many classes' inner gradients fit into one block of memory."""
        n_classes, hidden = self.class_.inputs[-1].shape
        return max(1, INNER_NUMBERS // (n_classes * hidden))

    @cached_property
    def _back_one_layer(self) -> Tensor:
        """(n, hidden): queries pulled back through the class tower's last layer."""
        return self.query.output @ (self.factor * self.class_.weights[-1])

    @cached_property
    def _inner_layers(self) -> list[_InnerLayer]:
        return [_InnerLayer(inputs) for inputs in self.class_.inputs[:-1]]

    @cached_property
    def _own_row_bounds(self) -> NDArray[np.float64]:
        """(inner layers, K): what each layer's ‖g_C‖² is at least, judged by the class's own row."""
        groups = self._groups
        own = self._own[:, None] * self._back_one_layer
        means = torch.zeros_like(self.class_.inputs[-1])  # (K, hidden)
        share = groups.share.to(own.dtype).to(own.device)
        means.index_add_(0, groups.class_index, own * share[:, None])
        bounds = []
        for i in reversed(range(len(self.class_.slopes))):
            upstream = means * self.class_.slopes[i]
            squares = sum_float64(upstream.square(), (1,))
            bounds.append((self._inner_layers[i].own_share * squares).numpy())
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
                upstream = self._groups.mean_outer(self._residuals.of, self._back_one_layer, classes[open_])
            else:
                kept = upstream if keep.all() else upstream[torch.from_numpy(keep).to(upstream.device)]
                upstream = kept @ self.class_.weights[i + 1]
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

    def __init__(self, inputs: Tensor) -> None:  # (K, in)
        self._factor = inputs.mT
        self._cholesky: Tensor | None = None
        self._n_classes, width = inputs.shape
        if self._n_classes < width:
            exact = to_float64(inputs)
            cholesky, failed = torch.linalg.cholesky_ex(exact @ exact.mT)
            if not failed:
                factor = cholesky.mT.to(inputs.dtype)
                self._cholesky, self._factor = cholesky, factor.to(inputs.device)

    @cached_property
    def own_share(self) -> Tensor:
        if self._cholesky is None:
            return torch.zeros(self._n_classes, dtype=torch.float64)
        return BELOW_ROUNDING / torch.cholesky_inverse(self._cholesky).diagonal()

    def norms(self, upstream: Tensor) -> NDArray[np.float64]:
        """(c,) from (c, K, out)."""
        flat = (self._factor @ upstream).flatten(1)
        squares: NDArray[np.float64] = to_float64(torch.linalg.vector_norm(flat, dim=1)).square().numpy()
        return squares


class TorchJointModel(JointModel):
    """The loop's model with torch underneath, from the same start."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._torch = {name: TorchCalibrator(c) for name, c in self.calibrators.items()}
        recipe, rounds = self._recipe, int(options["rounds"])  # type: ignore[call-overload]
        self._torch_trainer = TorchTrainer(list(self._torch.values()), recipe, rounds)

    def _torch_terms(self) -> list[TorchTerms]:
        dtype = next(iter(self._torch.values())).query_tower.weights[0].dtype
        return [
            TorchTerms(
                calibrator,
                torch.from_numpy(np.ascontiguousarray(self._queries[name])).to(dtype),
                torch.from_numpy(np.ascontiguousarray(self._class_inputs(name))).to(dtype),
            )
            for name, calibrator in self._torch.items()
        ]

    def threads(self) -> AbstractContextManager[None]:
        """As many threads of torch's as the work of a round is worth."""
        width = max(queries.shape[1] for queries in self._queries.values())
        n, n_classes = len(self._samples), self._samples.n_classes
        return torch_threads_for(n, width, max(width // self._recipe.bottleneck, n_classes))

    def shift(self, batch: int, more: NDArray[np.int64] | None = None) -> TorchShift:  # type: ignore[override]
        with flush_denormals():
            return TorchShift(
                self._torch_terms(),
                torch.from_numpy(self._samples.class_index),
                n_classes=self._samples.n_classes,
                batch=batch * self._recipe.synthetic_weight,
                sample_weight=torch.from_numpy(self._sample_weight()),
            )

    def epoch(self, round_: int) -> EpochReport:
        weight = torch.from_numpy(self._sample_weight())
        terms = self._torch_terms()
        with self.threads():
            report = self._torch_trainer.epoch(
                terms,
                torch.from_numpy(self._samples.class_index),
                weight.to(terms[0].queries.dtype),
                random_stream(self._seed, ROUNDS, round_),
            )
        for name, calibrator in self.calibrators.items():
            calibrator.parameters[:] = self._torch[name].flat().numpy()
        return report
