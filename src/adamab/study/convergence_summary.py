"""What the descents of one problem say: figures a policy, and the constants of the analysis beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from adamab.method.calibrator import Calibrator
from adamab.study.convergence_descent import (
    POLICIES,
    PRODUCT,
    Floats,
    Population,
    Setting,
    Trace,
    start_model,
)
from adamab.study.theory import (
    AdamabBound,
    Analysis,
    adamab_bound,
    biased_descent_bound,
    norm_alpha,
    ratio_bound,
    ratio_bound_of,
    theorem_alpha,
    tight_count_limit,
)
from adamab.task.recipe import Recipe

ROUND_ROBIN, ADAMAB = "round-robin", "adamab"


@dataclass(frozen=True)
class Problem:
    """A set of texts and how a calibrator learns on it."""

    set: str
    setting: Setting

    @property
    def name(self) -> str:
        """Short, for messages and files."""
        return f"{self.set}, calibrator of `{self.setting.calibrator}`"


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval (Student's t)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class PolicyFigures:
    """One policy over all seeds."""

    policy: str
    mean_shift: float  # δ_t², mean over rounds and seeds
    last_shift: float  # δ_t², mean over the last K rounds and the seeds
    against_round_robin: Interval  # mean δ_t² over round-robin's of the same seed, less one
    mean_regret: float
    chosen_ratio: float  # largest, see Trace
    count_ratio: float  # largest
    fewest: float  # share of rounds that chose a class with the fewest samples
    like_adamab: float  # share of rounds that chose what ADAMAB chose
    first_theorem: bool  # held at every T, every seed
    smallest_slope: float  # smallest ‖∇L‖², mean over seeds
    bound: float  # the first theorem's for it, mean over seeds


@dataclass(frozen=True)
class Constants:
    """The analysis's constants on this problem, from what was met on ADAMAB's paths."""

    analysis: Analysis
    gradient_norm: float  # B
    curvature: float  # the largest that was met: β is no less
    alpha: float  # of the paper, which the descents use
    product_alpha: float  # of the default recipe, on δ² relative to its scale
    product_alpha_here: tuple[float, float]  # the same on δ² itself, in the first and the last round
    theorem_alpha: float
    norm_alpha: float
    ratio_bound: float  # M
    ratio_bound_any_rounds: float
    ratio_bound_of_alpha: float  # of the paper's α
    tight_count_limit: float
    second_theorem: AdamabBound


@dataclass(frozen=True)
class Summary:
    """Everything about one problem."""

    problem: Problem
    population: Population
    traces: tuple[Trace, ...]
    policies: tuple[PolicyFigures, ...]
    constants: Constants

    def of(self, policy: str) -> PolicyFigures:
        """The figures of one policy."""
        return next(figures for figures in self.policies if figures.policy == policy)

    def curve(self, policy: str, attribute: str) -> Floats:
        """(seeds, T) one attribute of the policy's traces."""
        return np.stack([getattr(t, attribute) for t in self.traces if t.policy == policy])

    def to_json(self) -> dict[str, object]:
        """The summary, and means over seeds round by round."""
        constants = asdict(self.constants)
        constants["second_theorem"]["total"] = self.constants.second_theorem.total
        return {
            "set": self.problem.set,
            **asdict(self.problem.setting),
            "seeds": len({t.seed for t in self.traces}),
            "classes": list(self.population.class_names),
            "texts_a_class": self.population.queries.shape[1],
            "population_sha256": self.population.digest,
            "constants": constants,
            "policies": [asdict(figures) for figures in self.policies],
            "by_round": {p: self._by_round(p) for p in POLICIES},
        }

    def _by_round(self, policy: str) -> dict[str, list[float]]:
        kinds = ("shift", "regret", "best", "slope", "loss", "chosen_ratio", "count_ratio")
        means = {kind: self.curve(policy, kind).mean(0) for kind in kinds}
        return {kind: [float(f"{value:.5g}") for value in values] for kind, values in means.items()}


def summarise(problem: Problem, population: Population, traces: Sequence[Trace]) -> Summary:
    """Figures from the traces of all policies, on the same seeds."""
    of = {(t.policy, t.seed): t for t in traces}
    seeds = sorted({t.seed for t in traces})
    policies = [
        _figures([of[policy, s] for s in seeds], of, len(population.class_names), problem.setting)
        for policy in POLICIES
    ]
    model = start_model(population, problem.setting, seed=0)
    by_policy = {policy: [of[policy, s] for s in seeds] for policy in (ADAMAB, PRODUCT)}
    constants = _constants(problem, population, model, by_policy)
    return Summary(problem, population, tuple(traces), tuple(policies), constants)


def _figures(
    traces: Sequence[Trace], of: dict[tuple[str, int], Trace], n_classes: int, setting: Setting
) -> PolicyFigures:
    shifts = np.stack([t.shift for t in traces])
    reference = np.array([of[ROUND_ROBIN, t.seed].shift.mean() for t in traces])
    slopes = np.stack([np.minimum.accumulate(t.slope) for t in traces])
    rates = np.full(setting.rounds, setting.rate)
    bounds = np.stack([biased_descent_bound(float(t.loss[0]), rates, t.shift) for t in traces])
    same = [(t.chosen == of[ADAMAB, t.seed].chosen).mean() for t in traces]
    return PolicyFigures(
        policy=traces[0].policy,
        mean_shift=float(shifts.mean()),
        last_shift=float(shifts[:, -n_classes:].mean()),
        against_round_robin=ratio_interval(shifts.mean(1) / reference),
        mean_regret=float(np.mean([t.regret for t in traces])),
        chosen_ratio=float(max(t.chosen_ratio.max() for t in traces)),
        count_ratio=float(max(t.count_ratio.max() for t in traces)),
        fewest=float(np.mean([t.chosen_ratio == 1 for t in traces])),
        like_adamab=float(np.mean(same)),
        first_theorem=bool((slopes <= bounds).all()),
        smallest_slope=float(slopes[:, -1].mean()),
        bound=float(bounds[:, -1].mean()),
    )


def _constants(
    problem: Problem, population: Population, model: Calibrator, by_policy: Mapping[str, Sequence[Trace]]
) -> Constants:
    traces = by_policy[ADAMAB]
    most = {key: max(t.extremes[key] for t in traces) for key in traces[0].extremes}
    setting, n_classes = problem.setting, len(population.class_names)
    dimension = sum(p.numel() for p in model.parameters())
    analysis = Analysis(setting.rounds, dimension, most["gradient_bound"])
    return Constants(
        analysis=analysis,
        gradient_norm=most["gradient_norm"],
        curvature=most["curvature"],
        alpha=setting.alpha,
        product_alpha=Recipe().alpha,
        product_alpha_here=_on_shift_itself(by_policy[PRODUCT]),
        theorem_alpha=theorem_alpha(analysis),
        norm_alpha=norm_alpha(most["gradient_norm"], setting.rounds),
        ratio_bound=ratio_bound(analysis),
        ratio_bound_any_rounds=ratio_bound(dimension=dimension),
        ratio_bound_of_alpha=ratio_bound_of(setting.alpha, analysis.squared_norm),
        tight_count_limit=tight_count_limit(analysis),
        second_theorem=adamab_bound(
            analysis,
            first_loss=float(np.mean([t.loss[0] for t in traces])),
            rate=setting.rate,
            n_classes=n_classes,
            n_start=setting.given * n_classes,
            least_shift=float(max(t.best.max() for t in traces)),
        ),
    )


def _on_shift_itself(traces: Sequence[Trace]) -> tuple[float, float]:
    """−δ²/s + α b orders the classes as −δ² + α s b does, so the recipe's α is α s on δ² itself."""
    first, last = (Recipe().alpha * float(np.mean([t.scale[at] for t in traces])) for at in (0, -1))
    return first, last


def interval(values: NDArray[np.float64]) -> Interval:
    """Mean and 95 % interval of one number a seed.

    Example:
        >>> found = interval(np.array([1.0, 2.0, 3.0]))  # 2 ± 4.303 / sqrt(3)
        >>> round(found.low, 3), found.mean, round(found.high, 3)
        (-0.484, 2.0, 4.484)
    """
    mean = float(values.mean())
    spread = float(values.std(ddof=1) / np.sqrt(len(values)) * stats.t.ppf(0.975, len(values) - 1))
    return Interval(mean, mean - spread, mean + spread)


def ratio_interval(ratios: NDArray[np.float64]) -> Interval:
    """Geometric mean of one ratio a seed, less one, and its 95 % interval, by the interval of the logarithms.

    Example:
        >>> ratio_interval(np.array([0.5, 1.0, 2.0])).mean
        0.0
    """
    logs = interval(np.log(ratios))
    return Interval(*(float(np.expm1(value)) for value in (logs.mean, logs.low, logs.high)))
