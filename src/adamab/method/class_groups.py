"""Sums within classes, for classes of any and very different sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK_NUMBERS = 4_000_000  # numbers in one block of class matrices: 16 MB in float32


class ClassGroups:
    """Samples ordered by the size of their class, then by class.

    In that order (`order` gives it) all classes of one size lie side by side, so a block of them
    is a view (classes, size, width) of the samples: nothing is gathered and nothing padded. Every
    method takes arrays that are already in this order.
    """

    def __init__(self, class_index: Tensor, weight: Tensor, n_classes: int) -> None:
        counts = torch.bincount(class_index, minlength=n_classes)
        by_class = torch.argsort(class_index, stable=True)
        self.order = by_class[torch.argsort(counts[class_index[by_class]], stable=True)]
        self.class_index = class_index[self.order]
        self.weight = weight[self.order]  # (n,) float64
        self.totals = torch.zeros(n_classes, dtype=torch.float64).index_add_(0, self.class_index, self.weight)
        self.present = self.totals > 0
        self.n_present = int(self.present.sum())
        self.of_own_class = self.totals[self.class_index]
        self.share = self.weight / self.of_own_class  # weight within the mean of its class
        self._counts = counts
        sorted_classes = torch.argsort(counts, stable=True)
        ends = torch.cumsum(counts[sorted_classes], 0)
        self._starts = torch.empty_like(ends)
        self._starts[sorted_classes] = ends - counts[sorted_classes]
        self._sorted_classes = sorted_classes[counts[sorted_classes] > 0]

    def mean(self, values: Tensor) -> Tensor:  # (n,) float64 -> (K,)
        """Mean of one number a sample, by class; 0 where a class has no sample."""
        return torch.zeros_like(self.totals).index_add_(0, self.class_index, self.share * values)

    def _blocks(self, numbers_a_sample: int) -> Iterator[tuple[Tensor, slice, int]]:
        """(classes, their samples, samples a class) for classes of one size, memory bounded."""
        sizes, runs = torch.unique_consecutive(self._counts[self._sorted_classes], return_counts=True)
        for size, alike in zip(sizes.tolist(), torch.split(self._sorted_classes, runs.tolist()), strict=True):
            for classes in torch.split(alike, max(1, BLOCK_NUMBERS // (size * numbers_a_sample))):
                start = int(self._starts[classes[0]])
                yield classes, slice(start, start + size * len(classes)), size

    def outer_norms(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """(K,) Σ over pairs of ‖ mean over the class of b_i a_iᵀ ‖², in float64."""
        norms = torch.zeros_like(self.totals)
        for a, b in pairs:
            for classes, samples, size in self._blocks(a.shape[1] + b.shape[1]):
                shape = (len(classes), size, -1)
                share = self.share[samples].view(shape).to(a.dtype)
                norms[classes] += _outer_norms(a[samples].view(shape), b[samples].view(shape), share)
        return norms

    def mean_outer(self, a: Tensor, b: Tensor, classes: NDArray[np.intp]) -> Tensor:
        """(c, a's width, b's width): mean over each class of a_i b_iᵀ."""
        chosen = torch.from_numpy(classes)
        counts = self._counts[chosen]
        sizes = torch.unique(counts).tolist()
        if len(sizes) == 1:  # balanced data: nothing to put together
            return self._mean_outer(a, b, chosen, sizes[0])
        result = a.new_empty(len(chosen), a.shape[1], b.shape[1])
        for size in sizes:
            alike = torch.nonzero(counts == size).flatten()
            result[alike] = self._mean_outer(a, b, chosen[alike], size)
        return result

    def _mean_outer(self, a: Tensor, b: Tensor, classes: Tensor, size: int) -> Tensor:
        samples = self._starts[classes][:, None] + torch.arange(size)  # (c, size)
        share = self.share[samples].to(b.dtype)
        return a[samples].mT @ (b[samples] * share[..., None])


def _outer_norms(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    """(c,) ‖ Σ_i share_i b_i a_iᵀ ‖²: by Gram matrices for small classes, formed for large ones."""
    size, width, other = a.shape[1], a.shape[2], b.shape[2]
    if size * (width + other) <= width * other:
        product = (a @ a.mT) * (b @ b.mT) * share * share.mT
        return product.sum((1, 2), dtype=torch.float64)
    return ((b * share).mT @ a).square().sum((1, 2), dtype=torch.float64)
