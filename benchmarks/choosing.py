"""What it costs to choose a class, in full-batch gradients; and what a saturated softmax costs.

A full-batch gradient is one forward and backward pass of the mean cross-entropy. Choosing is all that a round
adds: building the gradient shift and the lazy, exact argmax. Counts are balanced, so δ² decides.
"""

from __future__ import annotations

import numpy as np

from adamab.method.calibrator import Calibrator
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.method.numerics import cross_entropy
from adamab.method.policies import Arms, Choice, GradientShiftUCB
from adamab.method.training import RoundTrainer
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
SATURATED = 1000.0  # factor of the logit scale


class Setting:
    """A calibrator with the paper's start unless `recipe` says otherwise, unit vectors around their class."""

    def __init__(self, n_classes: int, width: int, n: int, recipe: Recipe | None = None) -> None:
        self.rng = np.random.default_rng(0)
        self.n_classes = n_classes
        recipe = recipe or Recipe.preset("paper").with_options(batch_size=256, final_rate=1.0)
        self.model = Calibrator(width, n_classes, recipe, rng=self.rng)
        self.classes = self._unit(self.rng.standard_normal((n_classes, width), np.float32))
        self.y = np.arange(n) % n_classes
        noise = self._unit(self.rng.standard_normal((n, width), np.float32))
        self.queries = self._unit(noise + self.classes[self.y])
        self.views = [ViewTerms(self.model, self.queries, self.classes)]
        self.trainer = RoundTrainer([self.model], recipe, rounds=100)
        self.of_loss = np.zeros_like(self.model.parameters)
        counts = np.bincount(self.y, minlength=n_classes)
        self.arms = Arms(counts, np.ones(n_classes, dtype=np.bool_), batch=2)
        self.policy = GradientShiftUCB(alpha=100)

    @staticmethod
    def _unit(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    def train(self, epochs: int) -> None:
        """The paper's optimiser, or that of the recipe."""
        for _ in range(epochs):
            self.trainer.epoch(self.views, self.y, np.ones(len(self.y)), self.rng)

    def gradient(self, rows: slice = slice(None)) -> None:
        """One full-batch gradient."""
        passed = self.model.run(self.queries[rows], self.classes)
        residual = passed.logits()
        cross_entropy(residual, self.y[rows])
        residual /= len(residual)
        passed.backward(residual, self.of_loss)

    def tiny_gradient(self) -> None:
        """A gradient of eight samples: starts the threads, uses no memory to speak of."""
        self.gradient(slice(8))

    def saturate(self) -> None:
        """Make the softmax certain, of right and of wrong classes, as long training does."""
        self.model.scale *= SATURATED

    def class_passes(self) -> None:
        """The plain way: one forward pass, then one backward pass a class over all parameters."""
        passed = self.model.run(self.queries, self.classes)
        residual = passed.logits()
        cross_entropy(residual, self.y)
        for c in range(self.n_classes):
            passed.backward(residual * (self.y == c)[:, None], self.of_loss)

    def slow_shift(self) -> np.ndarray:
        """A thriftier slow way: each class's own samples only, the K x P matrix, then the formula."""
        gradients = np.empty((self.n_classes, len(self.of_loss)), np.float32)
        for c in range(self.n_classes):
            passed = self.model.run(self.queries[self.y == c], self.classes)
            residual = passed.logits()
            cross_entropy(residual, self.y[self.y == c])
            residual /= len(residual)
            passed.backward(residual, gradients[c])
        u = self.arms.batch / (len(self.y) + self.arms.batch)
        gradients -= gradients.mean(0)  # balanced: g_D = g_B
        gradients *= u
        return np.square(gradients).sum(1)

    def shift(self) -> GradientShift:
        """δ² of all classes as it is now."""
        return GradientShift(self.views, self.y, n_classes=self.n_classes, batch=self.arms.batch)

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
                    note="" if epochs else "random start",
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
    figures.append(_saturated())
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


def _saturated() -> Figure:
    start, saturated = Setting(*SHAPES[0]), Setting(*SHAPES[0])
    saturated.saturate()
    at_start, then = alternating([start.gradient, saturated.gradient], REPEAT)
    residual = saturated.model(saturated.queries, saturated.classes)
    residual -= residual.max(1, keepdims=True)
    tiny = np.finfo(np.float32)
    share = ((residual < np.log(tiny.tiny)) & (residual > np.log(tiny.smallest_subnormal))).mean()
    note = f"{100 * share:.0f} % of the probabilities would be denormal numbers"
    return Figure("gradient of a saturated softmax to one at the start", then / at_start, 1.3, note=note)


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
