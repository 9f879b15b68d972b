"""A whole fit and prediction with ten thousand classes: memory, time against a thousand, and its estimate.

Made-up vectors: class means around 100 topics, three samples of each class to fit and one to test. Each size
is measured in a process of its own, and time is that of the processor. The estimate that a fit gives of its
own accuracy must not flatter. It may be too low: whatever is held out leaves its class with fewer samples.

`python -m benchmarks.many_classes K` prints CPU seconds of fit and prediction, peak MB, estimate, accuracy.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

from adamab import EmbeddingCalibrator
from benchmarks.memory import peak
from benchmarks.report import Figure, Group, Table

FEW, MANY, GIVEN, WIDTH, TOPICS = 1_000, 10_000, 3, 384, 100
NOISE = 3.0
MOST_MEGABYTES = 2_500  # samples by classes alone would be 1,200 MB, and a fit has five folds of them
MOST_GROWTH = 40.0  # ten times the classes and the samples: a hundred times the products
MOST_FLATTERY = 0.02


@dataclass(frozen=True)
class Point:
    """One size, measured."""

    fit: float
    predict: float
    megabytes: float
    estimate: float
    accuracy: float


def run() -> Group:
    few, many = (_measured(k) for k in (FEW, MANY))
    figures = [
        Figure(f"{MANY:,} classes, peak MB of a fit and prediction", many.megabytes, MOST_MEGABYTES),
        Figure(
            f"{MANY:,} classes to {FEW:,}, CPU time of a fit",
            many.fit / few.fit,
            MOST_GROWTH,
            note=f"{many.fit:.0f} s against {few.fit:.1f} s",
        ),
        Figure(
            f"{MANY:,} classes, estimate beyond test accuracy",
            many.estimate - many.accuracy,
            MOST_FLATTERY,
            note=f"{100 * many.estimate:.1f} % and {100 * many.accuracy:.1f} %",
        ),
    ]
    rows = [
        [
            f"{k:,}",
            f"{point.fit:.1f}",
            f"{point.predict:.2f}",
            f"{point.megabytes:.0f}",
            f"{100 * point.estimate:.1f}",
            f"{100 * point.accuracy:.1f}",
        ]
        for k, point in ((FEW, few), (MANY, many))
    ]
    header = ["classes", "fit, CPU s", "prediction, CPU s", "peak MB", "estimate, %", "test accuracy, %"]
    return Group(figures, [Table(f"{GIVEN} samples of each class, {WIDTH} wide", header, rows)])


def _measured(n_classes: int) -> Point:
    command = [sys.executable, "-m", "benchmarks.many_classes", str(n_classes)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Point(*map(float, output.split()))


def _main(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((TOPICS, WIDTH), dtype=np.float32)
    means = topics[np.arange(n_classes) % TOPICS] + rng.standard_normal((n_classes, WIDTH), dtype=np.float32)
    y = np.tile(np.arange(n_classes), GIVEN + 1)
    x = means[y] + NOISE * rng.standard_normal((len(y), WIDTH), dtype=np.float32)
    given = len(y) - n_classes
    calibrator = EmbeddingCalibrator(random_state=0)
    start = time.process_time()
    calibrator.fit(x[:given], y[:given])
    fitted = time.process_time()
    accuracy = calibrator.score(x[given:], y[given:])
    predicted = time.process_time()
    print(fitted - start, predicted - fitted, peak(), calibrator.estimate_.accuracy, accuracy)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
