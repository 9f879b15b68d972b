"""What it costs to choose a class, in full-batch gradients.

A full-batch gradient is one forward and backward pass of the mean cross-entropy by autograd. Choosing is all
that a round adds: building the gradient shift and the lazy, exact argmax. Counts are balanced, so δ² decides.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from adamab.method.calibrator import Calibrator
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.method.policies import Arms, Choice, GradientShiftUCB
from adamab.task.recipe import Recipe
from benchmarks.memory import peak_extra_megabytes
from benchmarks.report import Figure, Group, Table, alternating, seconds

SHAPES = ((200, 768, 1200), (1000, 384, 5000))  # K, d, n
EPOCHS = (0, 20, 100)
REPEAT = 20
GROWTH = (
    *((k, 384, 4 * k) for k in (50, 100, 200, 500, 1000, 2000)),
    *((200, 384, n) for n in (400, 1600, 6400)),
    *((200, d, 1200) for d in (192, 384, 768, 1536)),
)
DENORMAL = "gradient after training is slowed by denormal numbers; to the one at the start: {:.2f}"


class Setting:
    """A calibrator with the paper's start unless `recipe` says otherwise, unit vectors around their class."""

    def __init__(self, n_classes: int, width: int, n: int, recipe: Recipe | None = None) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.n_classes = n_classes
        recipe = recipe or Recipe.preset("paper")
        self.model = Calibrator(width, n_classes, recipe, generator=self.generator)
        self.classes = self._unit(torch.randn(n_classes, width, generator=self.generator))
        self.y = torch.arange(n) % n_classes
        noise = self._unit(torch.randn(n, width, generator=self.generator))
        self.queries = self._unit(noise + self.classes[self.y])
        counts = np.bincount(self.y.numpy(), minlength=n_classes)
        self.arms = Arms(counts, np.ones(n_classes, dtype=np.bool_), batch=2)
        self.policy = GradientShiftUCB(alpha=100)

    @staticmethod
    def _unit(x: torch.Tensor) -> torch.Tensor:
        return functional.normalize(x, dim=1)

    def train(self, epochs: int) -> None:
        """The paper's optimiser, with its state from the first of these epochs."""
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.005, weight_decay=1e-4)
        for _ in range(epochs):
            for batch in torch.randperm(len(self.y), generator=self.generator).split(256):
                optimizer.zero_grad()
                self._loss(batch).backward()
                optimizer.step()

    def _loss(self, rows: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(self.queries[rows], self.classes), self.y[rows])

    def gradient(self) -> None:
        """One full-batch gradient."""
        self.model.zero_grad()
        functional.cross_entropy(self.model(self.queries, self.classes), self.y).backward()

    def tiny_gradient(self) -> None:
        """A gradient of eight samples: starts the threads, uses no memory to speak of."""
        self._loss(torch.arange(8)).backward()

    def class_passes(self) -> None:
        """The plain way: one forward pass, then one backward pass a class over all parameters."""
        parameters = list(self.model.parameters())
        logits = self.model(self.queries, self.classes)
        losses = functional.cross_entropy(logits, self.y, reduction="none")
        for c in range(self.n_classes):
            torch.autograd.grad(losses[self.y == c].mean(), parameters, retain_graph=True)

    def slow_shift(self) -> torch.Tensor:
        """A thriftier slow way: each class's own samples only, the K x P matrix, then the formula."""
        parameters, rows = list(self.model.parameters()), []
        for c in range(self.n_classes):
            loss = self._loss(torch.nonzero(self.y == c).flatten())
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
        gradients = torch.stack(rows)
        u = self.arms.batch / (len(self.y) + self.arms.batch)
        return gradients.sub_(gradients.mean(0)).mul_(u).square_().sum(1)  # balanced: g_D = g_B

    def shift(self) -> GradientShift:
        """The gradient shift, built again."""
        view = ViewTerms(self.model, self.queries, self.classes)
        return GradientShift([view], self.y, n_classes=self.n_classes, batch=self.arms.batch)

    def choose(self, *, all_exact: bool = False) -> Choice:
        """Choose a class as a round does."""
        rng = np.random.default_rng(0)
        return self.policy.choose(self.arms, rng=rng, shift=self.shift(), all_exact=all_exact)

    def evaluated(self) -> int:
        """How many classes got an exact score."""
        choice = self.choose()
        assert choice.exact is not None
        return int(choice.exact.sum())


def run() -> Group:
    figures, rows = [], []
    for n_classes, width, n in SHAPES:
        setting, at_start, trained = Setting(n_classes, width, n), 0.0, 0
        for epochs in EPOCHS:
            setting.train(epochs - trained)
            trained = epochs
            gradient, choose, everything = alternating(
                [setting.gradient, setting.choose, lambda s=setting: s.choose(all_exact=True)], REPEAT
            )
            at_start = at_start or gradient
            figures.append(
                Figure(
                    f"choosing, K={n_classes} d={width} n={n}, {epochs} epochs, in gradients",
                    choose / gradient,
                    2 if epochs else 5,
                    note=DENORMAL.format(choose / at_start) if epochs else "random start",
                )
            )
            rows.append(
                [
                    *(str(v) for v in (n_classes, width, n, epochs)),
                    f"{1e3 * gradient:.1f}",
                    f"{choose / gradient:.2f}",
                    f"{choose / at_start:.2f}",
                    str(setting.evaluated()),
                    f"{everything / gradient:.2f}",
                    f"{everything / at_start:.2f}",
                ]
            )
            if (n_classes, epochs) == (200, 0):
                figures.append(_against_class_gradients(setting))
    extra, gradient_extra = peak_extra_megabytes(*SHAPES[0])
    note = f"rise of the peak; the gradient before it had raised it by {gradient_extra:.0f} MB"
    figures.append(Figure("choosing, peak extra memory at K=200, MB", extra + gradient_extra, 250, note=note))
    header = [
        "K",
        "d",
        "n",
        "epochs",
        "gradient, ms",
        "choosing, gradients",
        "in gradients at the start",
        "classes evaluated",
        "all scores exact, gradients",
        "in gradients at the start",
    ]
    return Group(figures, [Table("Choosing and all exact scores", header, rows), _growth()])


def _against_class_gradients(setting: Setting) -> Figure:
    choose, passes, thrifty = alternating([setting.choose, setting.class_passes, setting.slow_shift], 5)
    note = (
        "one forward pass and a backward pass per class, at the random start; against passes "
        f"over each class's own samples that end with the K x P matrix and δ²: {thrifty / choose:.1f} times"
    )
    name = "choosing, times faster than one backward pass a class at K=200"
    return Figure(name, passes / choose, 30, at_most=False, note=note)


def _growth() -> Table:
    rows = []
    for n_classes, width, n in GROWTH:
        setting = Setting(n_classes, width, n)
        setting.train(5)
        gradient, choose = alternating([setting.gradient, setting.choose], 5)
        everything = seconds(lambda s=setting: s.choose(all_exact=True), 1)
        ratios = [f"{choose / gradient:.2f}", str(setting.evaluated()), f"{everything / gradient:.2f}"]
        rows.append(
            [str(n_classes), str(width), str(n), f"{1e3 * gradient:.1f}", f"{1e3 * choose:.1f}", *ratios]
        )
    header = [
        "K",
        "d",
        "n",
        "gradient, ms",
        "choosing, ms",
        "in gradients",
        "classes evaluated",
        "all scores exact, gradients",
    ]
    return Table("Growth with K, n and d, after 5 epochs", header, rows)
