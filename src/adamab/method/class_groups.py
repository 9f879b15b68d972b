"""Sums within classes, for classes of any and very different sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adamab.method.devices import wide_sum

BLOCK_NUMBERS = 4_000_000  # numbers in one block of class matrices: 16 MB in float32


class ClassGroups:
    """Samples ordered by the size of their class, then by class.

    In that order (`order` gives it) all classes of one size lie side by side, so a block of them
    is a view (classes, size, width) of the samples: nothing is gathered and nothing padded. Every
    method takes arrays that are already in this order.

    What has one number a sample or a class (weights, sums) is in double precision and on the processor;
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
        """Mean of one number a sample, by class; 0 where a class has no sample."""
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
        """(classes, their samples, samples a class) for classes of one size, memory bounded."""
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
        found = [self._mean_outer(a, b, chosen[p], s) for p, s in zip(parts, sizes, strict=True)]
        order = torch.argsort(torch.cat(parts)).to(b.device)
        return torch.cat(found)[order]

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
        return wide_sum(product, (1, 2))
    return wide_sum(((b * share).mT @ a).square(), (1, 2))
