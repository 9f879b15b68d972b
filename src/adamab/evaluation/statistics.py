"""Means over seeds and test samples: their bootstrap intervals and paired tests.

What is averaged is a matrix with a row per seed and a column per test sample, of hits or of differences
between the hits of two methods. Both are drawn at random, so both count as sources of chance. A seed that
does not score a sample has NaN there: seeds may share all test samples, some of them or none. The mean is
that of the seeds' own means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr
from scipy.stats import t as student

DRAWS = 2000
INTERVALS = (
    "Intervals hold 95 % of a bootstrap that resamples test {samples} and seeds; "
    "differences use the same draws on both sides."
)
_NO_VARIANCE = 1e-18
_LOG_STEP = 0.02  # a sum over equal steps of a logarithm is exact to eight digits or more here
_LOG_GRID = np.arange(-45.0, 5.0, _LOG_STEP)
Matrix: TypeAlias = NDArray[np.floating[Any]]  # (seeds, samples), NaN where a seed lacks a sample


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

    A sample that is drawn counts in every seed that scored it.
    """

    def __init__(self, n_seeds: int, n_test: int) -> None:
        rng = np.random.default_rng(0)
        self._seeds = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), DRAWS) / n_seeds
        self._tests = rng.multinomial(n_test, np.full(n_test, 1 / n_test), DRAWS) / n_test

    def __call__(self, values: Matrix) -> Interval:
        """Of the mean of a (seeds, samples) matrix."""
        return interval_of(float(np.nanmean(values, axis=1).mean()), self.draws(values))

    def draws(self, values: Matrix) -> NDArray[np.float64]:
        """(draws,) the mean of the matrix in each draw."""
        known, means = ~np.isnan(values), np.nanmean(values, axis=1)
        drawn = self._tests @ known.T.astype(np.float64)  # (draws, seeds) what each seed got of a draw
        sums = self._tests @ np.where(known, values, 0.0).T
        # A seed with few samples may get none of a draw, and then says nothing new.
        by_seed = np.where(drawn > 0, sums / np.where(drawn > 0, drawn, 1.0), means)
        drawn_means: NDArray[np.float64] = (self._seeds * by_seed).sum(axis=1)
        return drawn_means


def interval_of(mean: float, draws: NDArray[np.float64]) -> Interval:
    """A mean and the range of the middle 95 % of its draws.

    Args:
        mean: of the data.
        draws: (draws,) the mean in each draw of a bootstrap.
    """
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def paired_p(differences: Matrix) -> float:
    """Two-sided p-value of a mean difference of zero; 1 where all differences are zero.

    Seeds and test samples are crossed random effects, as readers and cases are in studies of diagnosis.
    The variance of the mean is that of the seeds' means over their number, plus what the samples that
    seeds share add to it: the mean covariance of two seeds, or nothing if that is negative. With the same
    samples in all seeds that is (MS_seeds + max(MS_samples - MS_both, 0)) / (seeds x samples).

    A few seeds tell their own variance badly: now and then they agree by luck. So p is averaged over what
    that variance may be given the seeds, as in the Behrens-Fisher test. Without a shared sample this is
    Student's test of the seeds' means. Far in the tail, where the correction of many comparisons begins, it
    must not reject too often: of made-up differences of five seeds without a lead, at most 0.15 % are below
    0.001. A sign test of five seeds could not go below 1/16. With one seed the samples alone are random.

    Example:
        >>> paired_p(np.zeros((5, 40)))
        1.0
    """
    values = np.asarray(differences, dtype=np.float64)
    known, means = ~np.isnan(values), np.nanmean(values, axis=1)
    mean, n_seeds = float(means.mean()), len(values)
    if n_seeds == 1:
        alone = values[known]
        variance = float(alone.var(ddof=1)) / len(alone) if len(alone) > 1 else 0.0
        if variance <= _NO_VARIANCE:
            return _p_of_constant(mean)
        return float(2 * student.sf(abs(mean) / np.sqrt(variance), len(alone) - 1))
    of_seeds = float(means.var(ddof=1)) / n_seeds
    of_samples = max(_mean_covariance(np.where(known, values - means[:, None], 0.0), known), 0.0)
    if of_seeds + of_samples <= _NO_VARIANCE:
        return _p_of_constant(mean)
    return _averaged_p(abs(mean), of_seeds, of_samples, n_seeds - 1)


def _mean_covariance(centred: NDArray[np.float64], known: NDArray[np.bool_]) -> float:
    """Of the means of two seeds, over all pairs: by the samples that both of them scored."""
    scored = known.astype(np.float64)
    shared = scored @ scored.T  # (seeds, seeds) how many samples
    sums = centred @ scored.T  # of one seed over what it shares with the other
    products = centred @ centred.T - sums * sums.T / np.maximum(shared, 1.0)
    own = np.diag(shared)
    covariance = products / np.maximum(shared - 1, 1.0) * shared / np.outer(own, own)
    pairs = len(own) * (len(own) - 1)
    return float(covariance.sum() - np.trace(covariance)) / pairs


def _averaged_p(size: float, of_seeds: float, of_samples: float, freedom: int) -> float:
    """The normal p-value of a mean, averaged over the seeds' variance: of_seeds x freedom / chi-squared."""
    logs = np.log(freedom) + _LOG_GRID
    chi_squared, half = np.exp(logs), freedom / 2
    weights = np.exp(half * (logs - np.log(2)) - chi_squared / 2 - gammaln(half)) * _LOG_STEP
    deviations = np.sqrt(of_seeds * freedom / chi_squared + of_samples)
    return min(1.0, float(weights @ (2 * ndtr(-size / deviations))))


def _p_of_constant(mean: float) -> float:
    return 1.0 if abs(mean) < 1e-12 else 0.0
