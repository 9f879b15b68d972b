"""Training: epochs of the loop on the joint loss, and the heads of one view as one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from adamab.method.calibrator import Architecture, Calibrator
from adamab.method.devices import current_device
from adamab.method.fixed_logits import FixedLogits
from adamab.method.gradient_shift import ViewTerms
from adamab.method.sampled_classes import dealt
from adamab.method.tiny_numbers import tiny_is_zero
from adamab.task.recipe import Recipe

START, ROUNDS, HEADS = range(3)  # purposes of random numbers
SMALL_PRODUCT = 100_000_000  # floating point operations; one thread does this in a few milliseconds


def architecture(recipe: Recipe) -> Architecture:
    """The calibrator's shape as the recipe has it."""
    return Architecture(
        layers=recipe.layers,
        bottleneck=recipe.bottleneck,
        activation=recipe.activation,
        dropout=recipe.dropout,
        zero_last=recipe.zero_last,
        free_vectors=recipe.free_vectors,
        logit_scale=recipe.logit_scale,
    )


@contextmanager
def seeded(*seed: int) -> Iterator[torch.Generator]:
    """A generator for starts and orders; torch's own, which dropout draws from, is seeded too and
    put back afterwards.

    The numbers of `seed` (of the run, of the purpose, of the round) are mixed, so that the streams of
    neighbouring seeds and rounds have nothing in common.
    """
    starts, dropout = (int(word) for word in np.random.SeedSequence(seed).generate_state(2, np.uint64) >> 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(dropout)
        yield torch.Generator().manual_seed(starts)


@contextmanager
def threads_for(rows: int, width: int, columns: int) -> Iterator[None]:
    """One thread where products are small, torch's own number where they are not.

    Threads that wait for each other after every small product gain nothing on a quiet machine, and
    on a busy one each wait lasts until the other thread gets its turn: a fit of seconds becomes one
    of minutes.
    """
    before = torch.get_num_threads()
    small = 2 * rows * width * columns < SMALL_PRODUCT
    torch.set_num_threads(1 if small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def joint_logits(
    views: Sequence[ViewTerms], fixed: FixedLogits | None, rows: Tensor, classes: Tensor | None = None
) -> Tensor:
    """(m, K) weighted sum of the views' logits and of the fixed ones; (m, g) for some of the classes."""
    terms = [view.weight * view.logits(rows, classes) for view in views]
    return torch.stack(terms).sum(0) if fixed is None else torch.stack(terms).sum(0) + fixed(rows, classes)


@dataclass(frozen=True)
class EpochReport:
    """What one round of training did."""

    loss: float  # weighted mean over the epoch, before each step
    learning_rate: float


class RoundTrainer:
    """Adam over all views' parameters; its state is kept over rounds, the rate annealed by rounds."""

    def __init__(self, calibrators: Sequence[Calibrator], recipe: Recipe, rounds: int) -> None:
        self._recipe = recipe
        parameters = [p for calibrator in calibrators for p in calibrator.parameters()]
        self._optimiser: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
            if recipe.full_gradient
            else _optimiser(parameters, recipe)
        )
        self._rounds = max(rounds, 1)
        self._round = 0

    @tiny_is_zero()
    def epoch(
        self,
        views: Sequence[ViewTerms],
        class_index: Tensor,  # (n,)
        weight: Tensor,  # (n,)
        fixed: FixedLogits | None,
        generator: torch.Generator,
    ) -> EpochReport:
        """One pass over the samples in mini-batches, in an order drawn from `generator`.

        A batch of very many logits is held against random groups of classes (see `sampled_classes`).
        """
        rate = self._rate()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        n = len(class_index)
        size = n if self._recipe.full_gradient else min(self._recipe.batch_size or n, n)
        total = 0.0
        for rows in torch.split(torch.randperm(n, generator=generator).to(class_index.device), size):
            self._optimiser.zero_grad()
            for loss in _batch_losses(views, fixed, class_index, weight, rows, generator):
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach()) * len(rows)
            self._optimiser.step()
        self._round += 1
        return EpochReport(total / n, rate)

    def state(self) -> dict[str, Tensor]:
        """The optimiser's memory and the number of rounds so far."""
        memory: dict[int, dict[str, Tensor]] = self._optimiser.state_dict()["state"]
        tensors = {f"{i}.{name}": tensor for i, values in memory.items() for name, tensor in values.items()}
        return {key: tensor.cpu() for key, tensor in tensors.items()} | {"round": torch.tensor(self._round)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        memory: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            index, _, name = key.partition(".")
            if name:
                memory.setdefault(int(index), {})[name] = tensor.clone()
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": memory, "param_groups": groups})
        self._round = int(tensors["round"])

    def _rate(self) -> float:
        """Cosine towards `final_rate` of the first rate, one step a round; constant for the theorem."""
        if self._recipe.full_gradient:
            return self._recipe.learning_rate
        first, last = self._recipe.learning_rate, self._recipe.learning_rate * self._recipe.final_rate
        progress = min(self._round / self._rounds, 1.0)
        return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2


def _batch_losses(
    views: Sequence[ViewTerms],
    fixed: FixedLogits | None,
    class_index: Tensor,  # (n,)
    weight: Tensor,  # (n,)
    rows: Tensor,  # (m,)
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """The weighted mean loss of some samples: as a whole, or the share of each group of classes."""
    n_classes, total = len(views[0].classes), weight[rows].sum()
    groups = dealt(class_index[rows], n_classes, generator)
    if not groups:
        logits = joint_logits(views, fixed, rows)
        losses = functional.cross_entropy(logits, class_index[rows], reduction="none")
        yield (losses * weight[rows]).sum() / total
    for group in groups:
        chosen = rows[group.rows]
        losses = group.losses(joint_logits(views, fixed, chosen, group.classes))
        yield (losses * weight[chosen]).sum() / total


def train_heads(
    queries: Tensor,  # (M, n, r)
    classes: Tensor,  # (M, K, r)
    class_index: Tensor,  # (n,)
    weight: Tensor,  # (M, n): 0 holds a sample out of a member
    recipe: Recipe,
    *,
    seed: int,
    at_checkpoint: Callable[[int, Calibrator], bool],
) -> None:
    """Train M heads of one view as one batch, full-batch; very many classes in random groups.

    `at_checkpoint` sees the model at each of the recipe's checkpoints and says whether to go on.
    """
    members, n, width = queries.shape
    share = weight / weight.sum(1, keepdim=True).clamp_min(1e-12)
    with (
        seeded(seed, HEADS) as generator,
        threads_for(members * n, width, max(width // recipe.bottleneck, classes.shape[1])),
    ):
        shape = architecture(recipe)
        model = Calibrator(width, classes.shape[1], shape, members=(members,), generator=generator)
        model.to(current_device())
        optimiser = _optimiser(list(model.parameters()), recipe)
        for step in range(max(recipe.checkpoints) + 1):
            if step in recipe.checkpoints:
                with torch.no_grad():
                    go_on = at_checkpoint(step, model.eval())
                if not go_on:
                    return
                model.train()
            optimiser.zero_grad()
            for loss in _head_losses(model, queries, classes, class_index, share, generator):
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _head_losses(
    model: Calibrator,
    queries: Tensor,  # (M, n, r)
    classes: Tensor,  # (M, K, r)
    class_index: Tensor,  # (n,)
    share: Tensor,  # (M, n)
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """The members' losses, summed: as a whole, or the share of each group of classes."""
    members, n, _ = queries.shape
    groups = dealt(class_index, classes.shape[1], generator, members=members)
    if not groups:
        target = class_index.expand(members, n).flatten()
        logits = model(queries, classes).flatten(0, 1)
        losses = functional.cross_entropy(logits, target, reduction="none").view(members, n)
        yield (losses * share).sum()
    for group in groups:
        logits = model(queries[:, group.rows], classes, group.classes)
        losses = torch.stack([group.losses(of_member) for of_member in logits])
        yield (losses * share[:, group.rows]).sum()


def _optimiser(parameters: list[torch.nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if recipe.optimiser == "adamw" else torch.optim.Adam
    return kind(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)
