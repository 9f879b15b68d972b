"""Training: epochs of the loop on the joint loss, and the heads of one view as one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from adamab.method.calibrator import Calibrator, FixedLogits
from adamab.method.gradient_shift import ViewTerms
from adamab.method.numerics import HEADS, current_device, flush_denormals, seeded, threads_for
from adamab.task.recipe import Recipe

MOST_LOGITS = 50_000_000  # held at once, of all members together: 200 MB, and as much for the gradient


@dataclass(frozen=True)
class Group:
    """Some classes and their samples, or a part of these; or all of both."""

    rows: Tensor | slice  # (m,) the samples
    own: Tensor  # (m,) the place of each sample's class in the group
    classes: Tensor | None = None  # (g,) None: all
    others: float = 0.0  # log of the number of classes that each other class stands for

    def losses(self, logits: Tensor) -> Tensor:  # (*members, m, g) -> (*members, m)
        """Cross-entropy of each sample."""
        own = self.own.expand(logits.shape[:-1])
        if self.others:
            taken_back = torch.full_like(logits[..., :1], -self.others)
            logits = (logits + self.others).scatter_add(-1, own[..., None], taken_back)
        losses = functional.cross_entropy(logits.flatten(0, -2), own.flatten(), reduction="none")
        return losses.view(own.shape)


def class_groups(
    class_index: Tensor,  # (n,)
    n_classes: int,
    generator: torch.Generator,
    *,
    members: int = 1,
) -> list[Group]:
    """Random groups of classes of like size; one of all where their logits are few enough to be held.

    A softmax over K classes takes n x K numbers, and as many again for its gradient. Beyond `MOST_LOGITS` it
    is a sampled softmax (Bengio and Senécal, Adaptive importance sampling to accelerate training of a neural
    probabilistic language model, IEEE TNN 2008), uniformly: at every step the classes are shuffled into
    groups. A sample meets the classes of its own group, and each of the g - 1 others there stands for
    (K - 1) / (g - 1) classes:

        loss = log( exp(z_own) + (K - 1)/(g - 1) Σ_{k in group, k ≠ own} exp(z_k) ) - z_own

    The sum is right on average over the groups, its logarithm nearly so. All samples and all classes take
    part in every step, at a cost of n x g instead of n x K.

    Args:
        class_index: (n,) class of each sample.
        n_classes: K.
        generator: shuffles the classes.
        members: heads that train as one batch.
    """
    n = len(class_index)
    numbers = members * n * n_classes
    if numbers <= MOST_LOGITS:
        return [Group(slice(None), class_index)]
    # m x g numbers per group, where m is about n g / K
    most = max(2, int(math.sqrt(MOST_LOGITS * n_classes / (members * n))))
    parts = min(math.ceil(n_classes / most), n_classes // 2)  # two classes per group at least
    shuffled = torch.randperm(n_classes, generator=generator).to(class_index.device)
    place = torch.full_like(shuffled, -1)
    groups = []
    for classes in torch.tensor_split(shuffled, parts):
        place.fill_(-1)
        place[classes] = torch.arange(len(classes), device=classes.device)
        rows = torch.nonzero(place[class_index] >= 0).flatten()
        others = math.log((n_classes - 1) / (len(classes) - 1))
        # Classes with many samples make a group of many rows, which goes through in parts.
        for part in torch.split(rows, max(1, MOST_LOGITS // (members * len(classes)))):
            if len(part):
                groups.append(Group(part, place[class_index[part]], classes, others))
    return groups


def joint_logits(
    views: Sequence[ViewTerms], fixed: FixedLogits | None, rows: Tensor, classes: Tensor | None = None
) -> Tensor:
    """(m, K) weighted sum of the views' logits and of the fixed ones; (m, g) for some of the classes.

    Args:
        views: the trained views.
        fixed: logits without parameters, if there are any.
        rows: (m,) numbers of samples.
        classes: (g,) numbers of some classes; None for all.
    """
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

    @flush_denormals()
    def epoch(
        self,
        views: Sequence[ViewTerms],
        class_index: Tensor,  # (n,)
        weight: Tensor,  # (n,)
        fixed: FixedLogits | None,
        generator: torch.Generator,
    ) -> EpochReport:
        """One pass over the samples in mini-batches, in an order drawn from `generator`.

        The rate falls as a cosine towards `final_rate` of the first, one step per round. A batch of very many
        logits is held against random groups of classes (see `class_groups`).

        Args:
            views: the trained views.
            class_index: (n,) class of each sample.
            weight: (n,) of each sample in the loss.
            fixed: logits without parameters, if there are any.
            generator: draws the order.
        """
        rate = self._recipe.learning_rate
        if not self._recipe.full_gradient:  # the theorem's setting has a constant rate
            last = rate * self._recipe.final_rate
            progress = min(self._round / self._rounds, 1.0)
            rate = last + (rate - last) * (1 + math.cos(math.pi * progress)) / 2
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        n = len(class_index)
        size = n if self._recipe.full_gradient else min(self._recipe.batch_size or n, n)
        total = 0.0
        for rows in torch.split(torch.randperm(n, generator=generator).to(class_index.device), size):
            self._optimiser.zero_grad()
            total_weight = weight[rows].sum()
            for part in class_groups(class_index[rows], len(views[0].classes), generator):
                chosen = rows[part.rows]
                losses = part.losses(joint_logits(views, fixed, chosen, part.classes))
                loss = (losses * weight[chosen]).sum() / total_weight
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

    Args:
        queries: (M, n, r) prepared samples of each member.
        classes: (M, K, r) inputs of the class towers.
        class_index: (n,) class of each sample.
        weight: (M, n) 0 holds a sample out of a member.
        recipe: optimiser, steps, shape of the towers.
        seed: of the starts and of dropout.
        at_checkpoint: sees the model at each checkpoint and says whether to go on.
    """
    members, n, width = queries.shape
    share = weight / weight.sum(1, keepdim=True).clamp_min(1e-12)
    with (
        seeded(seed, HEADS) as generator,
        threads_for(members * n, width, max(width // recipe.bottleneck, classes.shape[1])),
    ):
        model = Calibrator(width, classes.shape[1], recipe, members=(members,), generator=generator)
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
            for group in class_groups(class_index, classes.shape[1], generator, members=members):
                losses = group.losses(model(queries[:, group.rows], classes, group.classes))
                loss = (losses * share[:, group.rows]).sum()
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _optimiser(parameters: list[torch.nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if recipe.optimiser == "adamw" else torch.optim.Adam
    return kind(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)
