"""The first theorem on problems whose smoothness is known: does the bound hold, and how near is it?

Logistic regression has β = σ_max(X)² / 4m, where σ_max is the largest singular value of the m rows. A
bias is added to each gradient, so δ_t² is known. On L(w) = β w²/2 the bound at T = 1 is an equality when
η = 1/β, and false for every larger rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adamab.study.theory import biased_descent_bound

Floats = NDArray[np.float64]
Bias = Callable[[int, Floats], Floats]  # what is added to the gradient, from the round (from 0) and w
STEPS = 2000
OPPOSED = 0.01  # δ² of the bias that opposes every gradient


@dataclass(frozen=True)
class Logistic:
    """Mean logistic loss of m samples; β-smooth with the β of `smoothness`, and at least 0.

    Example:
        >>> Logistic(np.array([[2.0], [0.0]]), np.array([1.0, -1.0])).smoothness  # 2² / (4 · 2)
        0.5
    """

    x: Floats  # (m, d)
    y: Floats  # (m,) of -1 and 1

    @property
    def smoothness(self) -> float:
        """σ_max(X)² / 4m: the second derivative of log(1 + exp(−z)) is at most 1/4."""
        return float(np.linalg.norm(self.x, 2) ** 2 / (4 * len(self.x)))

    def loss(self, w: Floats) -> float:
        """L(w)."""
        return float(np.logaddexp(0.0, -self.y * (self.x @ w)).mean())

    def gradient(self, w: Floats, rows: slice = slice(None)) -> Floats:
        """∇L(w), of some of the samples if asked."""
        x, y = self.x[rows], self.y[rows]
        share = np.exp(-np.logaddexp(0.0, y * (x @ w)))
        return np.asarray(-(x * (y * share)[:, None]).mean(0))


@dataclass(frozen=True)
class Check:
    """Both sides of the first theorem for T = 1, 2, ..."""

    name: str
    left: Floats  # smallest ‖∇L(w_t)‖² so far
    right: Floats  # the bound

    @property
    def holds(self) -> bool:
        """Whether the bound is true at every T, up to rounding."""
        return bool((self.left <= self.right * (1 + 1e-12)).all())

    @property
    def factor(self) -> float:
        """How many times the left side the right one is at the last T."""
        return float(self.right[-1] / self.left[-1])


def noisy_line(*, seed: int = 0, m: int = 200, d: int = 5) -> Logistic:
    """A random problem whose labels are partly wrong, so that the minimum is finite."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(m, d))
    y = np.where(x @ rng.normal(size=d) + rng.logistic(size=m) > 0, 1.0, -1.0)
    return Logistic(x, y)


def biased_descent(problem: Logistic, bias: Bias, *, rate: float, steps: int, name: str = "") -> Check:
    """Gradient descent from 2 in every entry, with `bias` (round, w) added to each gradient."""
    w = np.full(problem.x.shape[1], 2.0)
    first, slopes, shifts = problem.loss(w), np.empty(steps), np.empty(steps)
    for t in range(steps):
        true, added = problem.gradient(w), bias(t, w)
        slopes[t], shifts[t] = true @ true, added @ added
        w = w - rate * (true + added)
    return Check(
        name, np.minimum.accumulate(slopes), biased_descent_bound(first, np.full(steps, rate), shifts)
    )


def logistic_checks(*, steps: int = STEPS, factor: float = 1.0) -> list[Check]:
    """No bias, that of a training set which grows by a sample a round, and one that opposes the gradient.

    The last is the worst of its size: the descent stalls where it cancels the gradient, and the bound
    tends to the very same value. The rate is `factor` / β.
    """
    problem = noisy_line()
    m = len(problem.x)

    def growing(t: int, w: Floats) -> Floats:
        return problem.gradient(w, slice(min(10 + t, m))) - problem.gradient(w)

    def opposed(_: int, w: Floats) -> Floats:
        true = problem.gradient(w)
        return np.asarray(-np.sqrt(OPPOSED) * true / np.linalg.norm(true))

    biases: dict[str, Bias] = {
        "no bias": lambda _, w: np.zeros_like(w),
        "training set that grows": growing,
        "bias against the gradient": opposed,
    }
    rate = factor / problem.smoothness
    return [biased_descent(problem, bias, rate=rate, steps=steps, name=name) for name, bias in biases.items()]


def quadratic_check(factor: float, *, smoothness: float = 2.0, steps: int = 1) -> Check:
    """Descent on β w²/2 from 1 with the rate `factor` / β and no bias.

    Example:
        >>> quadratic_check(1.0).factor, quadratic_check(1.25).holds
        (1.0, False)
    """
    rate, w = factor / smoothness, (1 - factor) ** np.arange(steps)
    slopes = np.minimum.accumulate((smoothness * w) ** 2)
    right = biased_descent_bound(smoothness / 2, np.full(steps, rate), np.zeros(steps))
    return Check(f"rate {factor:g} / β", slopes, right)
