"""The loss of very many classes, with each sample held against a random group of them.

A softmax over K classes takes n x K numbers, and as many again for its gradient. Beyond `MOST_LOGITS` the
classes are dealt into groups anew at every step. A sample meets the classes of its own group, and each of
the g - 1 others there stands for (K - 1) / (g - 1) classes:

    loss = log( exp(z_own) + (K - 1)/(g - 1) Σ_{k in group, k ≠ own} exp(z_k) ) - z_own

The sum is right on average over the groups, its logarithm nearly so. All samples and all classes take part
in every step, at a cost of n x g instead of n x K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

MOST_LOGITS = 50_000_000  # held at once, of all members together: 200 MB, and as much for the gradient


@dataclass(frozen=True)
class Group:
    """Some classes and their samples, or a part of these."""

    rows: Tensor  # (m,) the samples
    classes: Tensor  # (g,)
    own: Tensor  # (m,) the place of each sample's class in the group
    others: float  # log of the number of classes that each other class stands for

    def losses(self, logits: Tensor) -> Tensor:  # (m, g) -> (m,)
        """Cross-entropy of each sample."""
        own = self.own[:, None]
        raised = (logits + self.others).scatter_add(1, own, torch.full_like(logits[:, :1], -self.others))
        return functional.cross_entropy(raised, self.own, reduction="none")


def dealt(
    class_index: Tensor,  # (n,)
    n_classes: int,
    generator: torch.Generator,
    *,
    members: int = 1,
) -> list[Group]:
    """Random groups of like size; none where the logits of all classes are few enough to be held."""
    n = len(class_index)
    numbers = members * n * n_classes
    if numbers <= MOST_LOGITS:
        return []
    # m x g numbers a group, where m is about n g / K
    most = max(2, int(math.sqrt(MOST_LOGITS * n_classes / (members * n))))
    parts = min(math.ceil(n_classes / most), n_classes // 2)  # two classes a group at least
    shuffled = torch.randperm(n_classes, generator=generator).to(class_index.device)
    place = torch.full_like(shuffled, -1)
    found = []
    for classes in torch.tensor_split(shuffled, parts):
        place.fill_(-1)
        place[classes] = torch.arange(len(classes), device=classes.device)
        rows = torch.nonzero(place[class_index] >= 0).flatten()
        others = math.log((n_classes - 1) / (len(classes) - 1))
        # Classes with many samples make a group of many rows, which goes through in parts.
        for part in torch.split(rows, max(1, MOST_LOGITS // (members * len(classes)))):
            if len(part):
                found.append(Group(part, classes, place[class_index[part]], others))
    return found
