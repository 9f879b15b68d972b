"""The theorem's algorithm on a distribution that is known: one sample and one full gradient step a round.

The distribution is a finite population of real texts: a class is drawn evenly, a text of the class
evenly. Training samples are drawn from it with replacement, so they are independent draws as the
theorem asks, and the true gradient is a mean over the population, exact up to rounding. Policies and
gradient shift are those of the product; the oracle, which may look at the true gradient, lives here only.
`adamab` and `tight` weigh the bonus against δ² itself with an α of the paper; `product` is ADAMAB as the
default recipe has it, with the recipe's own α on δ² relative to its scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from adamab.method.calibrator import Calibrator
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.method.policies import Arms, Policy, make_policy
from adamab.method.training import START, architecture, seeded
from adamab.task.recipe import Recipe

Floats = NDArray[np.float64]
ORACLE, PRODUCT = "oracle", "product"
POLICIES = ("oracle", "adamab", "product", "tight", "greedy", "round-robin", "random")
DRAWS, CHOICES = 11, 12  # purposes of random numbers, besides those of training
EXTREMES = ("gradient_bound", "gradient_norm", "curvature")  # G, B and a lower bound of β
BLOCK = 4_000_000  # numbers of a block of single samples' gradients


@dataclass(frozen=True)
class Population:
    """All texts of a distribution as vectors, the same number of every class."""

    name: str
    class_names: tuple[str, ...]
    queries: NDArray[np.float32]  # (K, m, d)
    classes: NDArray[np.float32]  # (K, d) vectors of the descriptions
    digest: str = ""  # sha256 of texts and classes


@dataclass(frozen=True)
class Setting:
    """What all descents of a study share."""

    calibrator: str = "default"  # the preset whose network is trained
    rate: float = 0.2
    rounds: int = 120
    given: int = 2  # samples a class before the first round
    alpha: float = 100.0  # of the paper's experiments: on δ² itself, which is what the theorem is about
    marks: int = 3  # rounds at which curvature and all single samples' gradients are looked at


@dataclass(frozen=True)
class Trace:
    """One descent, round by round; t is the round, w_t the parameters before its step."""

    policy: str
    seed: int
    chosen: NDArray[np.int64]  # (T,) class C_t
    counts: NDArray[np.int64]  # (T, K) samples of each class before the round
    shift: Floats  # (T,) δ_t², of the gradient that the step took
    expected: Floats  # (T,) δ_t²(C_t), with the class's mean in place of the sample that was drawn
    best: Floats  # (T,) the smallest δ_t²(C)
    slope: Floats  # (T,) ‖∇L(w_t)‖²
    loss: Floats  # (T,) L(w_t)
    scale: Floats  # (T,) what a relative δ² is divided by; NaN where the policy estimates no δ²
    extremes: Mapping[str, float]  # by EXTREMES; of one policy only

    @property
    def regret(self) -> Floats:
        """(T,) δ_t²(C_t) above the smallest, on the policy's own path."""
        return self.expected - self.best

    @property
    def chosen_ratio(self) -> Floats:
        """(T,) samples of the chosen class to those of the smallest, when it is chosen."""
        of_chosen = self.counts[np.arange(len(self.chosen)), self.chosen]
        return np.asarray(of_chosen / self.counts.min(1), dtype=np.float64)

    @property
    def count_ratio(self) -> Floats:
        """(T,) samples of the largest class to those of the smallest, before the round."""
        return np.asarray(self.counts.max(1) / self.counts.min(1), dtype=np.float64)


def descend(population: Population, policy: str, *, seed: int, setting: Setting) -> Trace:
    """One descent; with the same seed all policies share start, given samples and each class's draws."""
    return _Descent(population, policy, seed, setting).run()


def gradients(
    model: Calibrator,
    queries: Tensor,  # (B, m, d)
    class_index: Tensor,  # (B, m)
    classes: Tensor,  # (K, d)
) -> tuple[Tensor, Tensor]:
    """Mean loss (B,) and its gradient (B, P) of each of B groups of samples, in one pass."""
    groups, size, _ = queries.shape
    copies = {
        name: p.detach().expand(groups, *p.shape).clone().requires_grad_()
        for name, p in model.named_parameters()
    }
    logits = functional_call(model, copies, (queries, classes.expand(groups, *classes.shape)))
    losses = functional.cross_entropy(logits.flatten(0, 1), class_index.flatten(), reduction="none")
    means = losses.view(groups, size).mean(1)
    parts = torch.autograd.grad(means.sum(), list(copies.values()))
    return means.detach(), torch.cat([part.flatten(1) for part in parts], dim=1)


def start_model(population: Population, setting: Setting, *, seed: int) -> Calibrator:
    """The preset's calibrator before any training, as smooth as the theorem asks.

    So GELU takes the place of ReLU, and there is no dropout: the theorem's gradient is that of one function.
    """
    recipe = Recipe.preset(setting.calibrator).with_options(activation="gelu", dropout=0.0)
    shape = architecture(recipe)
    with seeded(seed, START) as generator:
        model = Calibrator(
            population.queries.shape[2], len(population.class_names), shape, generator=generator
        )
    return model.eval()


def extremes(model: Calibrator, population: Population, *, texts: int = 10) -> tuple[float, float]:
    """The largest entry and norm of single samples' gradients, of so many texts a class: G and B."""
    some = torch.from_numpy(population.queries)[:, :texts]
    n_classes, size, _ = some.shape
    queries = some.flatten(0, 1)[:, None]
    own = torch.arange(n_classes).repeat_interleave(size)[:, None]
    classes = torch.from_numpy(population.classes)
    rows = max(1, BLOCK // sum(p.numel() for p in model.parameters()))
    entry = norm = 0.0
    for q, y in zip(torch.split(queries, rows), torch.split(own, rows), strict=True):
        _, found = gradients(model, q, y, classes)
        entry = max(entry, float(found.abs().max()))
        norm = max(norm, float(torch.linalg.vector_norm(found, dim=1).max()))
    return entry, norm


def _shifts(of_class: Tensor, rest: Tensor, u: float) -> Floats:
    """‖u g_C + rest‖² of every class, without another matrix of the size of all class gradients."""
    squares = torch.linalg.vector_norm(of_class, dim=1).double().square()
    found = u**2 * squares + 2 * u * (of_class @ rest).double() + rest.double().square().sum()
    return np.asarray(found)


def curvature(model: Calibrator, population: Population, *, steps: int = 15) -> float:
    """The largest curvature of L in absolute value here, by power iteration: β is at least that."""
    parameters = list(model.parameters())
    n_classes, size, _ = population.queries.shape
    logits = model(
        torch.from_numpy(population.queries).flatten(0, 1),
        torch.from_numpy(population.classes),
    )
    loss = functional.cross_entropy(logits, torch.arange(n_classes).repeat_interleave(size))
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
    vector = torch.randn(slope.shape, generator=torch.Generator().manual_seed(0), dtype=slope.dtype)
    found = 0.0
    for _ in range(steps):
        turned = torch.autograd.grad(slope @ (vector / vector.norm()), parameters, retain_graph=True)
        vector = torch.cat([g.flatten() for g in turned])
        found = float(vector.norm())
    return found


def _chooser(policy: str, setting: Setting) -> Policy | None:
    if policy == ORACLE:
        return None
    if policy == PRODUCT:
        usual = Recipe()
        return make_policy("adamab", alpha=usual.alpha, relative=usual.relative_shift, ahead=usual.ahead)
    return make_policy(policy, alpha=setting.alpha, relative=False)


class _Descent:
    def __init__(self, population: Population, policy: str, seed: int, setting: Setting) -> None:
        self._population, self._policy, self._seed, self._setting = population, policy, seed, setting
        self._chooser = _chooser(policy, setting)
        self._scale = float("nan")
        self._rng = np.random.default_rng([seed, CHOICES])
        self._model = start_model(population, setting, seed=seed)
        self._everything = torch.from_numpy(population.queries)  # (K, m, d)
        self._classes = torch.from_numpy(population.classes)
        n_classes, size, _ = self._everything.shape
        self._own = torch.arange(n_classes)[:, None].expand(n_classes, size)
        most = setting.given + setting.rounds  # enough for a policy that chooses one class in every round
        self._queue = np.stack(
            [np.random.default_rng([seed, DRAWS, c]).integers(size, size=most) for c in range(n_classes)]
        )
        self._extremes: dict[str, float] = {}
        self._drawn: list[tuple[int, int]] = []  # class and row of each training sample
        self._counts = np.zeros(n_classes, dtype=np.int64)
        for c in np.repeat(np.arange(n_classes), setting.given):
            self._draw(int(c))

    def run(self) -> Trace:
        found = [self._round(t) for t in range(self._setting.rounds)]
        return Trace(
            self._policy,
            self._seed,
            **{key: np.array([row[key] for row in found]) for key in found[0]},
            extremes=self._extremes,
        )

    def _look(self, round_: int) -> None:
        """What the constants need, at a few rounds of one policy: it costs more than a round."""
        marks = np.linspace(0, self._setting.rounds - 1, self._setting.marks).astype(int)
        if self._policy != "adamab" or round_ not in marks:
            return
        found = (*extremes(self._model, self._population), curvature(self._model, self._population))
        for key, value in zip(EXTREMES, found, strict=True):
            self._extremes[key] = max(value, self._extremes.get(key, 0.0))

    def _round(self, round_: int) -> dict[str, object]:
        self._look(round_)
        losses, of_class = gradients(self._model, self._everything, self._own, self._classes)
        true = of_class.mean(0)
        queries, class_index = self._samples()
        _, current = gradients(self._model, queries[None], class_index[None], self._classes)
        n = len(queries)
        shifts = _shifts(of_class, n / (n + 1) * current[0] - true, 1 / (n + 1))  # δ_t²(C)
        c, counts = self._choose(shifts, queries, class_index), self._counts.copy()
        self._draw(c)
        _, new = gradients(self._model, self._last(), torch.tensor([[c]]), self._classes)
        step = ((n * current + new) / (n + 1))[0]
        self._move(step)
        return {
            "chosen": c,
            "counts": counts,
            "shift": float((step - true).square().sum()),
            "expected": shifts[c],
            "best": shifts.min(),
            "slope": float(true.square().sum()),
            "loss": float(losses.mean()),
            "scale": self._scale,
        }

    def _choose(self, shifts: Floats, queries: Tensor, class_index: Tensor) -> int:
        if self._chooser is None:
            return int(np.argmin(shifts))
        arms = Arms(self._counts, np.ones(len(self._counts), dtype=np.bool_), batch=1)
        if not self._chooser.needs_shift:
            return self._chooser.choose(arms, rng=self._rng).arm
        terms = ViewTerms(self._model, queries, self._classes)
        shift = GradientShift([terms], class_index, n_classes=len(self._counts), batch=1)
        self._scale = shift.scale
        return self._chooser.choose(arms, rng=self._rng, shift=shift).arm

    def _draw(self, c: int) -> None:
        self._drawn.append((c, int(self._queue[c, self._counts[c]])))
        self._counts[c] += 1

    def _samples(self) -> tuple[Tensor, Tensor]:
        class_index, rows = torch.tensor(self._drawn).T
        return self._everything[class_index, rows], class_index

    def _last(self) -> Tensor:
        c, row = self._drawn[-1]
        return self._everything[c, row][None, None]

    @torch.no_grad()
    def _move(self, step: Tensor) -> None:
        start = 0
        for p in self._model.parameters():
            p.sub_(self._setting.rate * step[start : start + p.numel()].view_as(p))
            start += p.numel()
