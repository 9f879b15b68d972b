"""Training: epochs of the loop on the joint loss, and the heads of one view as one batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator
from adamab.method.gradient_shift import ViewTerms
from adamab.method.numerics import HEADS, Array, cross_entropy, overflow_allowed, random_stream, threads_for
from adamab.task.recipe import Recipe

MOST_LOGITS = 50_000_000  # held at once, of all members together: 200 MB
# Of Adam (Kingma and Ba, Adam: a method for stochastic optimization, 2015)
BETAS = (0.9, 0.999)
EPSILON = 1e-8
BLOCK = 32_768  # parameters of which all that a step reads and writes stays in the processor's cache


@dataclass(frozen=True)
class Group:
    """Some classes and their samples, or a part of these; or all of both."""

    rows: NDArray[np.intp] | slice  # (m,) the samples
    own: NDArray[np.intp]  # (m,) the place of each sample's class in the group
    classes: NDArray[np.intp] | None = None  # (g,) None: all
    others: float = 0.0  # log of the number of classes that each other class stands for

    def losses(self, logits: Array) -> Array:  # (*members, m, g) -> (*members, m)
        """Cross-entropy of each sample; `logits` become its derivatives."""
        shape = logits.shape[:-1]
        own, rows = np.broadcast_to(self.own, shape).ravel(), logits.reshape(-1, logits.shape[-1])
        if self.others:  # as much less of the own class as more of the others
            rows[np.arange(len(rows)), own] -= self.others
        return cross_entropy(rows, own).reshape(shape)


def class_groups(
    class_index: NDArray[np.intp],  # (n,)
    n_classes: int,
    rng: np.random.Generator,
    *,
    members: int = 1,
) -> list[Group]:
    """Random groups of classes of like size; one of all where their logits are few enough to be held.

    A softmax over K classes takes n x K numbers. Beyond `MOST_LOGITS` it is a sampled softmax (Bengio and
    Senécal, Adaptive importance sampling to accelerate training of a neural probabilistic language model,
    IEEE TNN 2008), uniformly: at every step the classes are shuffled into groups. A sample meets the classes
    of its own group, and each of the g - 1 others there stands for (K - 1) / (g - 1) classes:

        loss = log( exp(z_own) + (K - 1)/(g - 1) Σ_{k in group, k ≠ own} exp(z_k) ) - z_own

    The sum is right on average over the groups, its logarithm nearly so. All samples and all classes take
    part in every step, at a cost of n x g instead of n x K.

    Args:
        class_index: (n,) class of each sample.
        n_classes: K.
        rng: shuffles the classes.
        members: heads that train as one batch.
    """
    n = len(class_index)
    if members * n * n_classes <= MOST_LOGITS:
        return [Group(slice(None), class_index)]
    # m x g numbers per group, where m is about n g / K
    most = max(2, int(math.sqrt(MOST_LOGITS * n_classes / (members * n))))
    parts = min(math.ceil(n_classes / most), n_classes // 2)  # two classes per group at least
    groups = []
    for classes in np.array_split(rng.permutation(n_classes), parts):
        place = np.full(n_classes, -1)
        place[classes] = np.arange(len(classes))
        rows = np.flatnonzero(place[class_index] >= 0)
        others = math.log((n_classes - 1) / (len(classes) - 1))
        # Classes with many samples make a group of many rows, which goes through in parts.
        for part in _split(rows, max(1, MOST_LOGITS // (members * len(classes)))):
            groups.append(Group(part, place[class_index[part]], classes, others))
    return groups


def _split(rows: NDArray[np.intp], size: int) -> list[NDArray[np.intp]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


class Optimiser:
    """Adam, AdamW or plain gradient descent on a row of parameters, in place.

    Adam adds the decay to the gradient, AdamW takes it off the weights themselves (Loshchilov and Hutter,
    Decoupled weight decay regularization, 2019).

    Args:
        parameters: (P,) changed by each step.
        decay: weight decay.
        decoupled: AdamW.
        plain: gradient descent without a memory.
        epsilon: added to the root mean square of gradients.

    Attributes:
        gradient: (P,) to be filled before `step`, which overwrites it.
    """

    def __init__(
        self,
        parameters: Array,
        *,
        decay: float = 0.0,
        decoupled: bool = False,
        plain: bool = False,
        epsilon: float = EPSILON,
    ) -> None:
        self._parameters, self._decay, self._epsilon = parameters, decay, epsilon
        self._decoupled, self._plain = decoupled, plain
        self.gradient = np.zeros_like(self._parameters)
        moments = 0 if self._plain else len(self._parameters)
        # Sums of past gradients and of their squares that fade by `BETAS`: the moments but for a factor.
        self._first, self._second = np.zeros((2, moments), self._parameters.dtype)
        self._steps = 0

    def step(self, rate: float) -> None:
        """One step along the gradient."""
        self._steps += 1
        if self._plain:
            self.gradient += self._decay * self._parameters
            self.gradient *= rate
            self._parameters -= self.gradient
            return
        beta1, beta2 = BETAS
        root = math.sqrt((1 - beta2) / (1 - beta2**self._steps))  # from √second to the root mean square
        length = rate * (1 - beta1) / (1 - beta1**self._steps) / root
        scratch = np.empty(min(BLOCK, len(self._parameters)), self._parameters.dtype)
        for start in range(0, len(self._parameters), BLOCK):
            block = slice(start, start + BLOCK)
            p, g, first, second = (
                row[block] for row in (self._parameters, self.gradient, self._first, self._second)
            )
            s = scratch[: len(p)]
            if self._decoupled:
                p *= 1 - rate * self._decay
            elif self._decay:
                np.multiply(p, self._decay, out=s)
                g += s
            first *= beta1
            first += g
            g *= g
            second *= beta2
            second += g
            np.sqrt(second, out=s)
            s += self._epsilon / root
            np.divide(first, s, out=s)
            s *= length
            p -= s

    def state(self) -> dict[str, Array]:
        """Its memory."""
        return {"first": self._first.copy(), "second": self._second.copy(), "steps": np.array(self._steps)}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take back what `state` gave."""
        self._first[:], self._second[:] = arrays["first"], arrays["second"]
        self._steps = int(arrays["steps"])


@dataclass(frozen=True)
class EpochReport:
    """What one round of training did."""

    loss: float  # weighted mean over the epoch, before each step
    learning_rate: float | None = None  # None where nothing is trained by steps


class RoundTrainer:
    """Trains all views' calibrators together; the optimisers' memory is kept, the rate annealed by rounds."""

    def __init__(self, calibrators: Sequence[Calibrator], recipe: Recipe, rounds: int) -> None:
        self._recipe = recipe
        self._optimisers = [_optimiser(c, recipe, plain=recipe.full_gradient) for c in calibrators]
        self._rounds = max(rounds, 1)
        self._round = 0

    @overflow_allowed()
    def epoch(
        self,
        views: Sequence[ViewTerms],
        class_index: NDArray[np.intp],  # (n,)
        weight: Array,  # (n,)
        rng: np.random.Generator,
    ) -> EpochReport:
        """One pass over the samples in mini-batches, in an order drawn from `rng`.

        The rate falls as a cosine towards `final_rate` of the first, one step per round. A batch of very many
        logits is held against random groups of classes (see `class_groups`).

        Args:
            views: the trained views, in the order of the calibrators.
            class_index: (n,) class of each sample.
            weight: (n,) of each sample in the loss.
            rng: draws the order, and dropout.
        """
        rate = self._recipe.learning_rate
        if not self._recipe.full_gradient:  # the theorem's setting has a constant rate
            last = rate * self._recipe.final_rate
            progress = min(self._round / self._rounds, 1.0)
            rate = last + (rate - last) * (1 + math.cos(math.pi * progress)) / 2
        n = len(class_index)
        size = n if self._recipe.full_gradient else min(self._recipe.batch_size or n, n)
        total = 0.0
        for rows in _split(rng.permutation(n), size):
            share = weight[rows] / weight[rows].sum()
            for i, group in enumerate(class_groups(class_index[rows], len(views[0].classes), rng)):
                total += self._backward(views, rows, share, group, rng, add=i > 0) * len(rows)
            for optimiser in self._optimisers:
                optimiser.step(rate)
        self._round += 1
        return EpochReport(total / n, rate)

    def _backward(
        self,
        views: Sequence[ViewTerms],
        rows: NDArray[np.intp],
        share: Array,
        group: Group,
        rng: np.random.Generator,
        *,
        add: bool,
    ) -> float:
        """The loss of a group, whose gradients the optimisers get."""
        chosen = rows[group.rows]
        passes = [
            v.calibrator.run(v.queries[chosen], v.classes, group.classes, weight=v.weight, rng=rng)
            for v in views
        ]
        logits = passes[0].logits()
        for other in passes[1:]:
            logits += other.logits()
        weight = share[group.rows].astype(logits.dtype, copy=False)
        loss = float(group.losses(logits) @ weight)
        logits *= weight[:, None]
        for of_view, optimiser in zip(passes, self._optimisers, strict=True):
            of_view.backward(logits, optimiser.gradient, add=add)
        return loss

    def state(self) -> dict[str, Array]:
        """The optimisers' memory and the number of rounds so far."""
        states = enumerate(optimiser.state() for optimiser in self._optimisers)
        arrays = {f"{i}.{name}": array for i, state in states for name, array in state.items()}
        return {**arrays, "round": np.array(self._round)}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take back what `state` gave."""
        for i, optimiser in enumerate(self._optimisers):
            optimiser.restore({name: arrays[f"{i}.{name}"] for name in ("first", "second", "steps")})
        self._round = int(arrays["round"])


def _optimiser(calibrator: Calibrator, recipe: Recipe, *, plain: bool = False) -> Optimiser:
    decoupled = recipe.optimiser == "adamw"
    return Optimiser(calibrator.parameters, decay=recipe.weight_decay, decoupled=decoupled, plain=plain)


def train_heads(
    queries: Array,  # (M, n, r)
    classes: Array,  # (M, K, r)
    class_index: NDArray[np.intp],  # (n,)
    weight: Array,  # (M, n): 0 holds a sample out of a member
    recipe: Recipe,
    *,
    seed: int,
) -> Calibrator:
    """Train M heads of one view as one batch, full-batch; very many classes in random groups.

    Args:
        queries: (M, n, r) prepared samples of each member.
        classes: (M, K, r) inputs of the class towers.
        class_index: (n,) class of each sample.
        weight: (M, n) 0 holds a sample out of a member.
        recipe: optimiser, steps, shape of the towers.
        seed: of the starts and of dropout.
    """
    members, n, width = queries.shape
    share = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
    rng = random_stream(seed, HEADS)
    with threads_for(members * n, width, max(width // recipe.bottleneck, classes.shape[1])):
        model = Calibrator(width, classes.shape[1], recipe, members=(members,), rng=rng)
        optimiser = _optimiser(model, recipe)
        for _ in range(recipe.calibrator_steps):
            for i, group in enumerate(class_groups(class_index, classes.shape[1], rng, members=members)):
                passed = model.run(queries[:, group.rows], classes, group.classes, rng=rng)
                logits = passed.logits()
                group.losses(logits)
                logits *= share[:, group.rows, None]
                passed.backward(logits, optimiser.gradient, add=i > 0)
            optimiser.step(recipe.learning_rate)
    return model
