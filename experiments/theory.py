"""The first theorem's bound and the lemmas as functions; the bound checked where constants are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Analysis:
    """What the constants depend on: T, d and G.

    Example:
        >>> Analysis(rounds=1, dimension=2, gradient_bound=1.0).log_term  # log 4
        1.3862943611198906
    """

    rounds: int  # T
    dimension: int  # d
    gradient_bound: float  # G

    def __post_init__(self) -> None:
        """The formulas mean nothing outside of these."""
        if self.rounds < 1 or self.dimension < 1 or not self.gradient_bound > 0:
            raise ValueError("rounds and dimension are at least 1 and gradient_bound is above 0")

    @property
    def log_term(self) -> float:
        """log(2 d T⁴): each of d entries, on both sides, may fail with probability 1 / (d T⁴)."""
        return math.log(2 * self.dimension) + 4 * math.log(self.rounds)

    @property
    def squared_norm(self) -> float:
        """d G², what the entries' bound says of the squared norm of a gradient."""
        return self.dimension * self.gradient_bound**2


def mean_radius(n: ArrayLike, analysis: Analysis, *, events: int = 1) -> Floats:
    """Confidence radius of the mean of n gradients (Lemma 1, "Vector Hoeffding's Inequality").

        ε = sqrt(2 d G² log(2 d T⁴ · events) / n)

    The mean of n independent gradients is farther than ε from its expectation with a probability of at
    most 1 / (events · T⁴). With events = K it is the ε_C of the second theorem's proof.

    Example:
        >>> float(mean_radius(4, Analysis(rounds=1, dimension=2, gradient_bound=1.0)).round(4))  # sqrt(log 4)
        1.1774
    """
    squares = 2 * analysis.squared_norm * (analysis.log_term + math.log(events))
    return np.asarray(np.sqrt(squares / np.asarray(n, dtype=np.float64)))


def class_radius(counts: ArrayLike, analysis: Analysis, *, tight: bool = False) -> Floats:
    """ε₁(C), what not knowing the class's gradient adds to the doubt about δ_t(C) (eq. "eps").

        relaxed  ε₁(C)  = sqrt(2 d G² log(2 d T⁴) / n_C) / sqrt(n + 1)
        tight    ε₁*(C) = sqrt(2 d G² log(2 d T⁴) / n_C) / (n + 1)

    The weight of the class's gradient is 1/(n+1), so the tight form is the one that follows from the
    lemma; the paper relaxes it (its last remark), which is allowed, being larger. With Δn samples per round
    the weight is Δn/(n+Δn), and the relaxed form is an upper bound only while Δn² ≤ n + Δn.

    Example:
        >>> one = Analysis(rounds=1, dimension=2, gradient_bound=1.0)
        >>> class_radius([1, 2], one).round(4)  # sqrt(4 log 4 / 4), and with n_C = 2
        array([1.1774, 0.8326])
        >>> class_radius([1, 2], one, tight=True).round(4)
        array([0.5887, 0.4163])
    """
    n_c = np.asarray(counts, dtype=np.float64)
    following = float(n_c.sum()) + 1
    return mean_radius(n_c, analysis) / (following if tight else math.sqrt(following))


def balanced_radius(counts: ArrayLike, analysis: Analysis) -> float:
    """ε₂, the doubt about the balanced gradient (eq. "eps"); the same for every class.

        ε₂ = (1/K) Σ_C sqrt(2 d G² log(2 d K T⁴) / n_C)

    Example:
        >>> round(balanced_radius([1, 4], Analysis(rounds=1, dimension=2, gradient_bound=1.0)), 4)
        2.163
    """
    n_c = np.asarray(counts, dtype=np.float64)
    return float(mean_radius(n_c, analysis, events=len(n_c)).mean())


def shift_radius(counts: ArrayLike, analysis: Analysis, *, tight: bool = False) -> Floats:
    """ε_t(C), the confidence radius of δ_t²(C) for every class.

        ε_t(C) = 4 sqrt(d) G (ε₁(C) + ε₂)

    δ_t and its estimate are at most 2 sqrt(d) G each (eq. "delta_bound"), so their squares differ by at
    most 4 sqrt(d) G times what they differ by.

    Example:
        >>> one = Analysis(rounds=1, dimension=1, gradient_bound=1.0)
        >>> shift_radius([1, 1], one).round(3)  # 4 (sqrt(2 log 2 / 3) + sqrt(2 log 4))
        array([9.38, 9.38])
    """
    factor = 4 * math.sqrt(analysis.squared_norm)
    return factor * (class_radius(counts, analysis, tight=tight) + balanced_radius(counts, analysis))


def theorem_alpha(analysis: Analysis) -> float:
    """The α with which the paper proves its second theorem.

        α = 4 d G² sqrt(2 log(2 d T⁴))

    With it the bonus α / sqrt((n+1) n_C) is the part 4 sqrt(d) G ε₁(C) of ε_t(C) that depends on the
    class; ε₂ is the same for all and cancels. The tight bound has the same α with the bonus
    α / ((n+1) sqrt(n_C)): as a relaxed one it would be α / sqrt(n+1), see `tight_alpha`.

    Example:
        >>> round(theorem_alpha(Analysis(rounds=1, dimension=2, gradient_bound=1.0)), 4)  # 8 sqrt(2 log 4)
        13.3209
    """
    return 4 * analysis.squared_norm * math.sqrt(2 * analysis.log_term)


def tight_alpha(analysis: Analysis, total: int) -> float:
    """The α of the relaxed bonus that equals the tight one when there are `total` samples: α / sqrt(n+1).

    Example:
        >>> round(tight_alpha(Analysis(rounds=1, dimension=2, gradient_bound=1.0), 3), 4)  # 13.3209 / 2
        6.6604
    """
    return theorem_alpha(analysis) / math.sqrt(total + 1)


def norm_alpha(gradient_norm: float, rounds: int) -> float:
    """Not in the paper: the same argument with a bound B of the gradients' norm instead of their entries.

        α = 4 B² sqrt(8 log(2 T⁴))

    Pinelis' inequality (1994) for independent vectors that are at most 2B from their mean gives the
    radius sqrt(8 B² log(2 T⁴) / n) whatever d is, and 4 B takes the place of 4 sqrt(d) G. It is what the
    analysis asks for at the least without knowing more about the gradients.

    Example:
        >>> round(norm_alpha(1.0, 1), 4)  # 4 sqrt(8 log 2)
        9.4193
    """
    return 4 * gradient_norm**2 * math.sqrt(8 * (math.log(2) + 4 * math.log(rounds)))


def ratio_bound(analysis: Analysis | None = None, *, dimension: int | None = None) -> float:
    """M, how many times the smallest class's count a class may have and still be chosen (eq. "bound_M").

        M = (1 + sqrt(2 / log(2 d T⁴)))²,   without T:  M = (1 + sqrt(2 / log(2 d)))²

    for the theorem's α. Give the analysis for the first, `dimension` alone for the second, which is larger
    and holds for every T. The paper says n_C / n_C' ≤ M of all pairs at all times; what it proves is this
    of the *chosen* C at the moment of the choice. Its new sample may break it: from (1, 1) to (2, 1) is a
    ratio of 2. See `smallest_count`.

    Example:
        >>> round(ratio_bound(Analysis(rounds=10, dimension=1000, gradient_bound=1.0)), 4)
        1.8088
        >>> round(ratio_bound(dimension=1000), 4)
        2.289
    """
    if (analysis is None) == (dimension is None):
        raise ValueError("give either the analysis or the dimension")
    log_term = analysis.log_term if analysis is not None else math.log(2 * (dimension or 1))
    return (1 + math.sqrt(2 / log_term)) ** 2


def ratio_bound_of(alpha: float, squared_norm: float) -> float:
    """M of any α > 0: the smallest that satisfies 8 d G² ≤ α sqrt(M+1) (1 − 1/sqrt(M)).

    `squared_norm` is d G² (or B², if the norms are known). This is the condition from which the paper
    simplifies its M, so for the theorem's α it is a little below `ratio_bound`.

    Example:
        >>> round(ratio_bound_of(16.0, 1.0), 4)  # sqrt(M+1) (1 − 1/sqrt(M)) = 1/2
        1.9814
    """
    wanted = 8 * squared_norm / alpha
    root = brentq(lambda m: math.sqrt(m + 1) * (1 - 1 / math.sqrt(m)) - wanted, 1.0, (wanted + 2) ** 2)
    return float(root)


def tight_count_limit(analysis: Analysis) -> float:
    """Samples of a class up to which the tight bonus can force its exploration (last remark).

        n_C' < log(2 d T⁴) / 2

    With the tight bonus the condition for M reads 8 d G² ≤ α (1 − 1/sqrt(M)) / sqrt(n_C'). No M satisfies
    it once n_C' has reached (α / 8 d G²)², so nothing keeps the other counts from growing with t.

    Example:
        >>> round(tight_count_limit(Analysis(rounds=10, dimension=1000, gradient_bound=1.0)), 3)
        8.406
    """
    return analysis.log_term / 2


def smallest_count(total: ArrayLike, n_classes: int, ratio: float, *, whole: bool = True) -> Floats:
    """What the smallest class has at least, of `total` samples (eq. "num_sel_bound").

        paper   n / (M (K−1) + 1)
        whole   (n − (K−1)) / (M (K−1) + 1)

    Counts are whole numbers, so a class may have up to M n_C' + 1 samples after it was chosen; `whole`
    allows for that sample. The paper's form fails for (1, 1, 2): 4 / (2M + 1) > 1 for every M below 1.5.

    Example:
        >>> smallest_count([16, 27], 4, 1.5, whole=False).round(3)
        array([2.909, 4.909])
        >>> smallest_count([16, 27], 4, 1.5).round(3)
        array([2.364, 4.364])
    """
    others = n_classes - 1
    left = np.asarray(total, dtype=np.float64) - (others if whole else 0)
    return np.asarray(left / (ratio * others + 1))


def biased_descent_bound(first_loss: float, rates: ArrayLike, shifts: ArrayLike) -> Floats:
    """The right-hand side of the first theorem for every T = 1, 2, ... (eq. "conv").

        inf_{t≤T} ‖∇L(w_t)‖² ≤ ( 2 L(w_1) + Σ_{t≤T} η_t δ_t² ) / Σ_{t≤T} η_t

    It needs L ≥ 0, L β-smooth and every η_t ≤ 1/β. L(w_1) may be replaced by L(w_1) − inf L, which is
    what the proof uses.

    Example:
        >>> biased_descent_bound(1.0, [0.5, 0.5], [0.2, 0.4])  # (2 + 0.1) / 0.5, (2 + 0.3) / 1
        array([4.2, 2.3])
    """
    steps = np.asarray(rates, dtype=np.float64)
    biases = np.asarray(shifts, dtype=np.float64)
    return np.asarray((2 * first_loss + np.cumsum(steps * biases)) / np.cumsum(steps))


@dataclass(frozen=True)
class AdamabBound:
    """The right-hand side of the second theorem, term by term."""

    start: float  # 2 L(w_1) / (η T)
    regret: float  # mean over t of 2 ε_t(C)
    failure: float  # what the rounds cost in which a confidence bound fails; the paper leaves it out
    sampling: float  # a drawn sample is not its class's mean; the paper leaves it out
    least_shift: float  # sup_t inf_C δ_t²(C)

    @property
    def total(self) -> float:
        """Their sum."""
        return self.start + self.regret + self.failure + self.sampling + self.least_shift


def adamab_bound(
    analysis: Analysis,
    *,
    first_loss: float,
    rate: float,
    n_classes: int,
    n_start: int,
    least_shift: float,
) -> AdamabBound:
    """The right-hand side of the second theorem with its constants (eq. "adamab_conv").

    The paper writes O(1/T) + O(sqrt(log T / T)) + sup inf δ². The constants are those of its proof:
    2 L(w_1) / (η T), then the mean of 2 ε_t(C) with every count at `smallest_count`. Two terms
    are ours. A bound fails with probability (K+1)/T⁴ at most, and then costs at most 4 d G². And the
    step uses the sample that was drawn: E δ_t² is δ_t²(C) plus the class's variance, at most d G², over
    (n+1)². Both vanish faster than the others.

    Example:
        >>> small = Analysis(rounds=100, dimension=10, gradient_bound=0.01)
        >>> bound = adamab_bound(
        ...     small, first_loss=1.0, rate=0.5, n_classes=3, n_start=6, least_shift=0.001
        ... )
        >>> bound.start, round(bound.regret, 4)
        (0.04, 0.022)
    """
    squares = analysis.squared_norm
    ratio = ratio_bound(analysis)
    totals = n_start + np.arange(analysis.rounds)
    n_c = np.maximum(smallest_count(totals, n_classes, ratio), 1.0)
    of_class = mean_radius(n_c, analysis) / np.sqrt(totals + 1)
    radius = 4 * math.sqrt(squares) * (of_class + mean_radius(n_c, analysis, events=n_classes))
    return AdamabBound(
        start=2 * first_loss / (rate * analysis.rounds),
        regret=float((2 * radius).mean()),
        failure=4 * squares * (n_classes + 1) / analysis.rounds**4,
        sampling=float((squares / (totals + 1.0) ** 2).mean()),
        least_shift=least_shift,
    )


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
    """No bias, that of a training set which grows by a sample per round, and one that opposes the gradient.

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
