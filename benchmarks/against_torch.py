"""Fits of the paper's shapes and the choice of a class in NumPy, against the same in torch, in one run.

The torch code (`benchmarks._torch_reference`) starts from the same weights, takes the samples in the same
order and computes as the package did before it moved to NumPy: autograd, fused Adam, denormal numbers
flushed, one thread for small products and all for large ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from adamab.providers.metering import CallContext
from adamab.run import _arrays
from adamab.run._arrays import fit_arrays
from adamab.run._loop_model import JointModel
from adamab.run.fit import sample_source
from adamab.run.samples import DescribedClasses, TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from benchmarks._torch_reference import TorchCalibrator, TorchJointModel, TorchShift, TorchTerms
from benchmarks.choosing import SHAPES, Setting
from benchmarks.paper_run import Around, stored, unit
from benchmarks.report import Figure, Group, Table, alternating

MOST = 1.5
REPEAT = 3


@dataclass(frozen=True)
class Shape:
    """One of the paper's data sets."""

    recipe: str
    n_classes: int
    width: int
    given: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.recipe} shape, K={self.n_classes} d={self.width}"


FITS = (Shape("paper:trec", 50, 384, 5), Shape("paper:trec", 50, 1536, 5), Shape("paper:cub200", 200, 768, 2))


@contextmanager
def loop_model(kind: type[JointModel]) -> Iterator[None]:
    """Fits use that model as long as this lasts."""
    before, _arrays.JointModel = _arrays.JointModel, kind  # type: ignore[misc]
    try:
        yield
    finally:
        _arrays.JointModel = before  # type: ignore[misc]


def one_fit(shape: Shape, *, seed: int = 0, noise: float = 1.0) -> tuple[float, float]:
    """Seconds of a fit, and its accuracy on new vectors."""
    rng = np.random.default_rng(seed)
    classes = unit(rng.standard_normal((shape.n_classes, shape.width))).astype(np.float32)
    described = DescribedClasses((), {"pooled": classes})
    samples = TrainingSet(shape.n_classes, lambda _: described, has_texts=False)
    y = np.repeat(np.arange(shape.n_classes), shape.given)
    samples.add(y.tolist(), {"pooled": stored(classes[y], rng, noise)}, given=True)
    recipe = Recipe.preset(shape.recipe)
    specs = [ClassSpec(str(c)) for c in range(shape.n_classes)]
    source = sample_source(Around(classes, noise), specs, samples, recipe, CallContext())
    start = time.perf_counter()
    outcome = fit_arrays(samples, recipe, source, "adamab", seed=seed)
    seconds = time.perf_counter() - start
    new = np.repeat(np.arange(shape.n_classes), 20)
    logits = outcome.heads[0].logits(stored(classes[new], rng, noise))
    return seconds, float((logits.argmax(1) == new).mean())


class TorchSetting:
    """The same calibrator and samples as a setting's, in torch."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.model = setting, TorchCalibrator(setting.model)
        self.queries, self.classes = torch.from_numpy(setting.queries), torch.from_numpy(setting.classes)
        self.y = torch.from_numpy(setting.y)

    def gradient(self) -> None:
        """One full-batch gradient by autograd."""
        self.model.zero_grad()
        torch.nn.functional.cross_entropy(self.model(self.queries, self.classes), self.y).backward()

    def choose(self) -> None:
        """Choose a class as a round did."""
        terms = TorchTerms(self.model, self.queries, self.classes)
        arms = self.setting.arms
        shift = TorchShift([terms], self.y, n_classes=self.setting.n_classes, batch=arms.batch)
        self.setting.policy.choose(arms, rng=np.random.default_rng(0), shift=shift)


def run() -> Group:
    figures, rows = [], []
    for shape in FITS:
        seconds: dict[type[JointModel], list[float]] = {JointModel: [], TorchJointModel: []}
        for seed in range(REPEAT):
            for kind, own in seconds.items():
                with loop_model(kind):
                    own.append(one_fit(shape, seed=seed)[0])
        numpy, of_torch = (np.array(own) for own in seconds.values())
        ratio = float(np.median(numpy / of_torch))
        note = f"{np.median(numpy):.2f} s against {np.median(of_torch):.2f} s; aim 1.1"
        figures.append(Figure(f"fit, {shape.name}, NumPy to torch", ratio, MOST, note=note))
    for n_classes, width, n in SHAPES:
        for epochs in (0, 20):
            setting = Setting(n_classes, width, n)
            setting.train(epochs)
            other = TorchSetting(setting)
            times = alternating([setting.gradient, other.gradient, setting.choose, other.choose], 8)
            rows.append(
                [
                    *(str(v) for v in (n_classes, width, n, epochs)),
                    *(f"{1e3 * t:.1f}" for t in times),
                    f"{times[0] / times[1]:.2f}",
                    f"{times[2] / times[3]:.2f}",
                ]
            )
    header = [
        "K",
        "d",
        "n",
        "epochs",
        "gradient, ms",
        "in torch",
        "choosing, ms",
        "in torch",
        "gradient, ratio",
        "choosing, ratio",
    ]
    return Group(figures, [Table("Gradient and choice, NumPy and torch", header, rows)])
