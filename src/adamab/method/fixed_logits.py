"""Logits without parameters: weighted matches of samples with descriptions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FixedLogits:
    """Worked out for the samples and classes that are asked for: all together may be too many to hold.

    Example:
        >>> match = torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.eye(2)
        >>> FixedLogits((match, match))(torch.tensor([1])).tolist()
        [[0.0, 6.0]]
    """

    matches: tuple[tuple[Tensor, Tensor], ...]  # (n, r) and (K, r), weights included

    def __call__(self, rows: Tensor, classes: Tensor | None = None) -> Tensor:
        """(m, K) of some samples; (m, g) for some of the classes."""
        terms = [q[rows] @ (t if classes is None else t[classes]).mT for q, t in self.matches]
        return torch.stack(terms).sum(0) if len(terms) > 1 else terms[0]
