"""The two bias-free residual towers that calibrate a frozen embedding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from adamab.task.recipe import Recipe

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


def dropout_mask(shape: torch.Size, share: float) -> Tensor:
    """Zeros for `share` of the places, to the nearest 256th, and what keeps the mean for the others.

    Eight places from each random number: torch's own dropout draws one per place, which took a quarter
    of a fit.

    Args:
        shape: of the mask.
        share: of the places that are zero.
    """
    dropped = round(256 * share)
    draws = torch.empty((shape.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.uint8)[: shape.numel()].view(shape) >= dropped
    return kept * (256 / (256 - dropped)) if dropped < 256 else torch.zeros(shape)


class Tower(nn.Module):
    """x + f(x), where f is a stack of linear layers without biases; the recipe says of which shape.

    The paper's parameter counts (2.654 M at width 1536, 1.180 M at 1024, 0.664 M at 768) follow from three
    layers and a hidden width of a quarter.

    `members` (possibly empty) are leading dimensions of independent copies that train as one
    batch: with members (M,) the weights are (M, out, in) and inputs (M, n, width).
    """

    def __init__(
        self, width: int, recipe: Recipe, *, members: tuple[int, ...], generator: torch.Generator
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[recipe.activation]
        self.dropout = recipe.dropout
        hidden = max(1, width // recipe.bottleneck)
        sizes = [width] + [hidden] * (recipe.layers - 1) + [width]
        self.weights = nn.ParameterList()
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            last = i == len(sizes) - 2
            bound = 0.0 if last and recipe.zero_last else 1 / math.sqrt(fan_in)  # torch's own Linear
            start = torch.rand((*members, fan_out, fan_in), generator=generator)
            self.weights.append(nn.Parameter((2 * start - 1) * bound))

    def forward(self, x: Tensor) -> Tensor:  # (*members, n, width)
        """Calibrate each row."""
        hidden = x
        last = len(self.weights) - 1
        for i, weight in enumerate(self.weights):
            hidden = hidden @ weight.mT
            if i < last:
                hidden = self.activation(hidden)
                if self.training and self.dropout:
                    hidden = hidden * dropout_mask(hidden.shape, self.dropout).to(hidden.device)
        return x + hidden


class Calibrator(nn.Module):
    """Logits of queries against classes: scale * (q + Q(q)) . (p + P(p) [+ free vector]).

    Example:
        >>> model = Calibrator(8, 3, Recipe(), generator=torch.Generator().manual_seed(0))
        >>> model(torch.ones(5, 8), torch.ones(3, 8)).shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        width: int,
        n_classes: int,
        recipe: Recipe,
        *,
        members: tuple[int, ...] = (),
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.scale = recipe.logit_scale
        self.query_tower = Tower(width, recipe, members=members, generator=generator)
        self.class_tower = Tower(width, recipe, members=members, generator=generator)
        self.free = nn.Parameter(torch.zeros(*members, n_classes, width)) if recipe.free_vectors else None

    def class_vectors(self, classes: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Calibrated class inputs (*members, K, width), free vectors included; or those of some classes.

        Args:
            classes: (*members, K, width) inputs of the class tower.
            chosen: (g,) numbers of some classes; None for all.
        """
        calibrated: Tensor = self.class_tower(classes if chosen is None else classes[..., chosen, :])
        if self.free is None:
            return calibrated
        return calibrated + (self.free if chosen is None else self.free[..., chosen, :])

    def forward(  # (*members, n|K, width)
        self, queries: Tensor, classes: Tensor, chosen: Tensor | None = None
    ) -> Tensor:
        """Logits (*members, n, K), or (*members, n, g) for some classes.

        Args:
            queries: (*members, n, width).
            classes: (*members, K, width) inputs of the class tower.
            chosen: (g,) numbers of some classes; None for all.
        """
        logits: Tensor = self.scale * self.query_tower(queries) @ self.class_vectors(classes, chosen).mT
        return logits


@dataclass(frozen=True)
class FixedLogits:
    """Logits without parameters: weighted matches of samples with descriptions.

    Worked out for the samples and classes that are needed: all together may be too many to hold.

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
