"""Means over seeds and test samples: their bootstrap intervals, paired tests and Holm's correction.

What is averaged is a matrix with a row a seed and a column a test sample, of hits or of differences
between the hits of two methods. Both are drawn at random, so both count as sources of chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

DRAWS = 2000
INTERVALS = (
    "Intervals hold 95 % of a bootstrap that draws test {samples} and seeds anew; "
    "differences use the same draws on both sides."
)
TESTS = (
    "P-values are of paired tests on the same seeds and test samples, in which both are random "
    "(two-way analysis of variance, degrees of freedom by Hillis), corrected by Holm for {n} comparisons."
)
Matrix: TypeAlias = NDArray[np.floating[Any]]  # (seeds, samples)


@dataclass(frozen=True)
class Interval:
    """A mean and the range that holds 95 % of its bootstrap."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What a difference says: nothing, as long as zero is inside."""
        return "ahead of" if self.low > 0 else "behind" if self.high < 0 else "level with"


def points(interval: Interval) -> str:
    """A difference in percentage points.

    Example:
        >>> points(Interval(0.031, -0.004, 0.066))
        '+3.1 points, -0.4 to +6.6'
    """
    return f"{100 * interval.mean:+.1f} points, {100 * interval.low:+.1f} to {100 * interval.high:+.1f}"


def percent(interval: Interval) -> str:
    """An accuracy.

    Example:
        >>> percent(Interval(0.52, 0.48, 0.561))
        '52.0 % (48.0 to 56.1)'
    """
    return f"{100 * interval.mean:.1f} % ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


class Bootstrap:
    """One set of draws for everything of one shape, so that differences are paired.

    Where every seed has test samples of its own (`crossed` is false), each seed's are drawn apart.
    """

    def __init__(self, n_seeds: int, n_test: int, *, crossed: bool = True) -> None:
        rng = np.random.default_rng(0)
        self._seeds = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), DRAWS) / n_seeds
        repeats = 1 if crossed else n_seeds
        drawn = [rng.multinomial(n_test, np.full(n_test, 1 / n_test), DRAWS) / n_test for _ in range(repeats)]
        self._tests = drawn * (n_seeds // repeats)

    def __call__(self, values: Matrix) -> Interval:
        """Of the mean of a (seeds, samples) matrix."""
        by_seed = np.stack([w @ row for w, row in zip(self._tests, values, strict=True)], axis=1)
        means = (self._seeds * by_seed).sum(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        return Interval(float(values.mean()), float(low), float(high))


def paired_p(differences: Matrix, *, crossed: bool = True) -> float:
    """Two-sided p-value of a mean difference of zero; 1 where all differences are zero.

    Seeds and test samples are crossed random effects, as readers and cases are in studies of
    diagnosis: the variance of the mean is (MS_seeds + max(MS_samples - MS_both, 0)) / (seeds x samples),
    with Hillis's degrees of freedom. A sign test of five seeds could not go below 1/16. With one seed
    the samples alone are random; where they differ by seed (not `crossed`) the seeds' means alone are.

    Example:
        >>> paired_p(np.zeros((5, 40)))
        1.0
    """
    values = np.asarray(differences, dtype=np.float64)
    n_seeds, n_test = values.shape
    mean = float(values.mean())
    if n_seeds == 1:
        return _p(mean, float(values.var(ddof=1)) / n_test if n_test > 1 else 0.0, n_test - 1)
    ms_seeds = n_test * float(values.mean(axis=1).var(ddof=1))
    if not crossed or n_test == 1:
        return _p(mean, ms_seeds / values.size, n_seeds - 1)
    ms_samples = n_seeds * float(values.mean(axis=0).var(ddof=1))
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + mean
    ms_both = float((rest**2).sum()) / ((n_seeds - 1) * (n_test - 1))
    total = ms_seeds + max(ms_samples - ms_both, 0.0)
    freedom = total**2 / (ms_seeds**2 / (n_seeds - 1)) if ms_seeds > 1e-12 else np.inf
    return _p(mean, total / values.size, freedom)


def _p(mean: float, variance: float, freedom: float) -> float:
    if variance <= 1e-18:
        return 1.0 if abs(mean) < 1e-12 else 0.0
    return float(2 * student.sf(abs(mean) / np.sqrt(variance), freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, in the same order.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = so_far
    return corrected
