"""How scoring, an epoch and prediction grow with the classes, the samples and the width, in bare products.

A bare product is X (n, d) times the classes (d, K), in blocks whose results are thrown away: what compares
every sample with every class cannot do without it. Each point is measured in a process of its own, once after
a round that does not count, beside its bare product. Memory is the rise of the kernel's `VmHWM` beyond the
data (see `benchmarks.memory`). The calibrator is that of the default recipe, two epochs from its start, and
samples are spread evenly over the classes, so δ² alone decides.

`python -m benchmarks.growth ACTION K N D` prints seconds, seconds of the bare product and MB.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adamab.model import Classifier, Head, PredictOptions
from adamab.task.recipe import Recipe
from benchmarks.choosing import Setting
from benchmarks.growth_figure import ACTIONS, draw
from benchmarks.memory import peak, peak_from_here
from benchmarks.report import Figure, Group, Table, alternating

SERIES = {
    "K": [(k, 30_000, 384) for k in (100, 1000, 3000, 10_000)],
    "n": [(1000, n, 384) for n in (1000, 10_000, 100_000)],
    "d": [(1000, 10_000, d) for d in (384, 768, 1536, 3072)],
}
MOST = {"scoring": 12, "epoch": 8, "prediction": 4}  # bare products at the largest K
MOST_MEGABYTES = 1200  # whatever the size
BLOCK = 12_500_000  # numbers of a block of the bare product: 50 MB
HEADER = [
    "K",
    "n",
    "d",
    "bare product, s",
    *(f"{a}, products" for a in ACTIONS),
    *(f"{a}, MB" for a in ACTIONS),
]


@dataclass(frozen=True)
class Point:
    """One size, measured."""

    size: tuple[int, int, int]  # K, n, d
    seconds: dict[str, float]
    products: dict[str, float]  # seconds of the bare product beside each action
    megabytes: dict[str, float]

    def ratio(self, action: str) -> float:
        """The action in bare products."""
        return self.seconds[action] / self.products[action]

    def row(self) -> list[str]:
        """Of the table."""
        return [
            *(f"{number:,}" for number in self.size),
            f"{min(self.products.values()):.3f}",
            *(f"{self.ratio(action):.1f}" for action in ACTIONS),
            *(f"{self.megabytes[action]:.0f}" for action in ACTIONS),
        ]


def run() -> Group:
    measured = {name: [_point(*size) for size in sizes] for name, sizes in SERIES.items()}
    largest, before = measured["K"][-1], measured["K"][1]
    figures = [
        Figure(f"growth, {action} at K=10,000 n=30,000 in bare products", largest.ratio(action), MOST[action])
        for action in ACTIONS
    ]
    figures.append(
        Figure(
            "growth, scoring in bare products, K=10,000 to K=1,000",
            largest.ratio("scoring") / before.ratio("scoring"),
            1.5,
        )
    )
    everything = [point for points in measured.values() for point in points]
    most = max(max(point.megabytes.values()) for point in everything)
    note = "of all points and actions; samples by classes would be 1,200 MB a matrix at K=10,000"
    figures.append(Figure("growth, most memory beyond the data, MB", most, MOST_MEGABYTES, note=note))
    tables = [
        Table(f"Growth with {name}", HEADER, [p.row() for p in points]) for name, points in measured.items()
    ]
    draw([table.rows for table in tables])
    return Group(figures, tables)


def _point(n_classes: int, n: int, width: int) -> Point:
    measured = {action: _measured(action, n_classes, n, width) for action in ACTIONS}
    parts = [{action: numbers[i] for action, numbers in measured.items()} for i in range(3)]
    return Point((n_classes, n, width), *parts)


def _measured(action: str, *size: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.growth", action, *map(str, size)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(number) for number in output.split()]


def _scoring(setting: Setting) -> Callable[[], object]:
    train = _epoch(setting)
    for _ in range(2):
        train()
    return setting.choose


def _epoch(setting: Setting) -> Callable[[], object]:
    return lambda: setting.train(1)


def _prediction(setting: Setting) -> Callable[[], object]:
    width, rng = setting.queries.shape[1], np.random.default_rng(0)
    hidden = width // 4

    def layer(*shape: int) -> np.ndarray:
        return rng.normal(size=shape, scale=0.05).astype(np.float32)

    head = Head(
        view="pooled",
        centre=layer(width),
        normalise=True,
        tower=(layer(hidden, width), layer(hidden, hidden)),
        activation="relu",
        linear=layer(setting.n_classes, width),
        hidden=layer(setting.n_classes, hidden),
    )
    classifier = Classifier(classes=tuple(f"c{i}" for i in range(setting.n_classes)), heads=(head,))
    return lambda: classifier.answers({"pooled": setting.queries}, None, PredictOptions())


def _bare(setting: Setting) -> Callable[[], object]:
    rows = max(1, BLOCK // setting.n_classes)

    def product() -> None:
        for start in range(0, len(setting.queries), rows):
            setting.queries[start : start + rows] @ setting.classes.T

    return product


def _main(action: str, n_classes: int, n: int, width: int) -> None:
    setting = Setting(n_classes, width, n, Recipe())
    setting.tiny_gradient()
    make = {"scoring": _scoring, "epoch": _epoch, "prediction": _prediction}[action]
    act = make(setting)
    start = peak_from_here()
    act()
    rise = peak() - start
    taken, bare = alternating([act, _bare(setting)], 1)
    print(taken, bare, rise)


if __name__ == "__main__":
    _main(sys.argv[1], *map(int, sys.argv[2:5]))
