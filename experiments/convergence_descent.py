"""The descents of the second theorem: populations of real texts, steps whose true gradients are known,
and what descents of one problem say together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from adamab.errors import TaskError, short, suggestion
from adamab.evaluation.statistics import Interval
from adamab.method.calibrator import Calibrator
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.method.numerics import START, cross_entropy, random_stream
from adamab.method.policies import Arms, Policy, make_policy
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedder, Kind
from adamab.task.recipe import Recipe
from experiments.datasets.base import ByClass, DataSet, data_directory, load_data_set
from experiments.datasets.text_sets import ANALYSED, SCENARIOS
from experiments.theory import (
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

TEXTS = ANALYSED  # of each class
DEMO = "demo"
RESERVED = {f"hwu64-{group}": scenarios for group, scenarios in SCENARIOS.items()}
NAMES = (*RESERVED, DEMO)


def population_of(
    name: str, data: Path | None, *, embedder: Embedder | None = None, texts: int = TEXTS
) -> Population:
    """`texts` texts of each class of the population `name` (of `NAMES`).

    Those of HWU64 are in no other experiment: neither given nor drawn, neither developed on nor tested.
    `demo` is for a look without a folder of data sets: its texts are those that its own examples and
    samples come from. `data` may be None for it, and otherwise where `data_directory` finds the folder.
    """
    if name not in NAMES:
        raise TaskError(f"convergence: no population {short(name)}; {suggestion(name, NAMES)}")
    data_set, of_class = _demo() if name == DEMO else _reserved(RESERVED[name], data_directory(data))
    specs = [spec for spec in data_set.specs if spec.name in of_class]
    fewest = min(len(members) for members in of_class.values())
    if fewest < texts:
        raise TaskError(f"convergence: a class of {name} has {fewest} texts, not {texts}; ask for fewer")
    chosen = [of_class[spec.name][:texts] for spec in specs]
    wordings = [data_set.prompts.class_text(spec) for spec in specs]
    queries = [data_set.prompts.query_text(text) for row in chosen for text in row]
    embedder = embedder or _local()
    return Population(
        name=name,
        class_names=tuple(spec.name for spec in specs),
        queries=_vectors(queries, "query", embedder).reshape(len(specs), texts, -1),
        classes=_vectors(wordings, "class", embedder),
        digest=hashlib.sha256(json.dumps([wordings, chosen]).encode()).hexdigest(),
    )


def _reserved(scenarios: Sequence[str], directory: Path) -> tuple[DataSet, ByClass]:
    """What HWU64 keeps for this study, of the classes of some scenarios."""
    data_set = load_data_set("hwu64", directory)
    wanted = {name: texts for name, texts in data_set.analysis.items() if name.partition("_")[0] in scenarios}
    return data_set, wanted


def _demo() -> tuple[DataSet, ByClass]:
    """No test texts: the 20 messages per class that examples are drawn from, and the recorded ones."""
    data_set = load_data_set(DEMO, Path())
    source = data_set.material("pool", "readme").source
    recorded = data_set.material("recorded", "readme").recorded or {}
    return data_set, {name: (*texts, *recorded[name]) for name, texts in source.items()}


def _local() -> Embedder:
    from adamab.providers.registry import open_embedder

    return open_embedder("local")


def _vectors(texts: Sequence[str], kind: Kind, embedder: Embedder) -> NDArray[np.float32]:
    view = embedder.views[0]
    return run_sync(embedder.embed(list(texts), kind=kind, views=(view,))).views[view]


Floats = NDArray[np.float64]
ORACLE, PRODUCT = "oracle", "product"
POLICIES = ("oracle", "adamab", "product", "tight", "greedy", "round-robin", "random")
DRAWS, CHOICES = 11, 12  # purposes of random numbers, besides those of training
EXTREMES = ("gradient_bound", "gradient_norm", "curvature")  # G, B and a lower bound of β
BLOCK = 4_000_000  # numbers of a block of single samples' gradients
DIFFERENCE = 1e-4  # length of a step whose change of the gradient shows the curvature along it


@dataclass(frozen=True)
class Population:
    """All texts of a distribution as vectors, the same number of every class."""

    name: str
    class_names: tuple[str, ...]
    queries: NDArray[np.float32]  # (K, m, d)
    classes: NDArray[np.float32]  # (K, d) vectors of the descriptions
    digest: str = ""  # sha256 of texts and classes


@dataclass(frozen=True)
class Setting:
    """What all descents of a study share."""

    calibrator: str = "default"  # the preset whose network is trained
    rate: float = 0.2
    rounds: int = 120
    given: int = 2  # samples per class before the first round
    alpha: float = 100.0  # of the paper's experiments: on δ² itself, which is what the theorem is about
    marks: int = 3  # rounds at which curvature and all single samples' gradients are looked at


@dataclass(frozen=True)
class Trace:
    """One descent, round by round; t is the round, w_t the parameters before its step."""

    policy: str
    seed: int
    chosen: NDArray[np.int64]  # (T,) class C_t
    counts: NDArray[np.int64]  # (T, K) samples of each class before the round
    shift: Floats  # (T,) δ_t², of the gradient that the step took
    expected: Floats  # (T,) δ_t²(C_t), with the class's mean in place of the sample that was drawn
    best: Floats  # (T,) the smallest δ_t²(C)
    slope: Floats  # (T,) ‖∇L(w_t)‖²
    loss: Floats  # (T,) L(w_t)
    scale: Floats  # (T,) what a relative δ² is divided by; NaN where the policy estimates no δ²
    extremes: Mapping[str, float]  # by EXTREMES; of one policy only

    @property
    def regret(self) -> Floats:
        """(T,) δ_t²(C_t) above the smallest, on the policy's own path."""
        return self.expected - self.best

    @property
    def chosen_ratio(self) -> Floats:
        """(T,) samples of the chosen class to those of the smallest, when it is chosen."""
        of_chosen = self.counts[np.arange(len(self.chosen)), self.chosen]
        return np.asarray(of_chosen / self.counts.min(1), dtype=np.float64)

    @property
    def count_ratio(self) -> Floats:
        """(T,) samples of the largest class to those of the smallest, before the round."""
        return np.asarray(self.counts.max(1) / self.counts.min(1), dtype=np.float64)


def descend(population: Population, policy: str, *, seed: int, setting: Setting) -> Trace:
    """One descent; with the same seed all policies share start, given samples and each class's draws."""
    return _Descent(population, policy, seed, setting).run()


def gradients(
    model: Calibrator,
    queries: Floats,  # (B, m, d)
    class_index: NDArray[np.int64],  # (B, m)
    classes: Floats,  # (K, d)
) -> tuple[Floats, Floats]:
    """Mean loss (B,) and its gradient (B, P) of each of B groups of samples, in one pass."""
    groups, size, _ = queries.shape
    passed = model.run(queries, classes)
    residual = passed.logits()  # (B, m, K)
    losses = cross_entropy(residual.reshape(groups * size, -1), class_index.ravel())
    residual /= size
    of_vectors = passed.factor * (residual.mT @ passed.query.output)  # (B, K, d)
    towers = ((passed.query, residual @ passed.vectors), (passed.class_, of_vectors))
    parts = [
        upstream.mT @ inputs
        for tower, of_output in towers
        for upstream, inputs in zip(tower.upstream(of_output), tower.inputs, strict=True)
    ]
    parts += [of_vectors] if passed.has_free else []
    return losses.reshape(groups, size).mean(1), np.concatenate([p.reshape(groups, -1) for p in parts], 1)


def start_model(population: Population, setting: Setting, *, seed: int) -> Calibrator:
    """The preset's calibrator before any training, as smooth as the theorem asks.

    So GELU takes the place of ReLU, and there is no dropout: the theorem's gradient is that of one function.
    In double precision, in which differences of gradients show the curvature.
    """
    recipe = Recipe.preset(setting.calibrator).with_options(activation="gelu", dropout=0.0)
    width, n_classes = population.queries.shape[2], len(population.class_names)
    return Calibrator(width, n_classes, recipe, rng=random_stream(seed, START), dtype=np.float64)


def extremes(model: Calibrator, population: Population, *, texts: int = 10) -> tuple[float, float]:
    """The largest entry and norm of single samples' gradients, over this many texts per class: G and B."""
    some = population.queries[:, :texts].astype(np.float64)
    n_classes, size, width = some.shape
    queries, own = some.reshape(-1, 1, width), np.repeat(np.arange(n_classes), size)[:, None]
    classes = population.classes.astype(np.float64)
    rows = max(1, BLOCK // len(model.parameters))
    entry = norm = 0.0
    for start in range(0, len(queries), rows):
        block = slice(start, start + rows)
        _, by_sample = gradients(model, queries[block], own[block], classes)
        entry = max(entry, float(np.abs(by_sample).max()))
        norm = max(norm, float(np.linalg.norm(by_sample, axis=1).max()))
    return entry, norm


def curvature(model: Calibrator, population: Population, *, steps: int = 15) -> float:
    """The largest curvature of L in absolute value here, by power iteration: β is at least that."""
    n_classes, size, width = population.queries.shape
    queries = population.queries.reshape(1, -1, width).astype(np.float64)
    own, classes = np.repeat(np.arange(n_classes), size)[None], population.classes.astype(np.float64)
    start = model.parameters.copy()

    def slope_at(parameters: Floats) -> Floats:
        model.parameters[:] = parameters
        (gradient,) = gradients(model, queries, own, classes)[1]
        return np.asarray(gradient)

    vector, norm = np.random.default_rng(0).standard_normal(len(start)), 0.0
    for _ in range(steps):
        step = DIFFERENCE / np.linalg.norm(vector) * vector
        vector = (slope_at(start + step) - slope_at(start - step)) / (2 * DIFFERENCE)
        norm = float(np.linalg.norm(vector))
    model.parameters[:] = start
    return norm


def _chooser(policy: str, setting: Setting, seed: int) -> Policy | None:
    if policy == ORACLE:
        return None
    if policy == PRODUCT:
        usual = Recipe()
        return make_policy(
            "adamab",
            alpha=usual.alpha,
            relative=usual.relative_shift,
            max_batches_ahead=usual.max_batches_ahead,
        )
    return make_policy(policy, alpha=setting.alpha, relative=False, seed=seed)


class _Descent:
    def __init__(self, population: Population, policy: str, seed: int, setting: Setting) -> None:
        self._population, self._policy, self._seed, self._setting = population, policy, seed, setting
        self._chooser = _chooser(policy, setting, seed)
        self._scale = float("nan")
        self._rng = np.random.default_rng([seed, CHOICES])
        self._model = start_model(population, setting, seed=seed)
        self._everything = population.queries.astype(np.float64)  # (K, m, d)
        self._classes = population.classes.astype(np.float64)
        n_classes, size, _ = self._everything.shape
        self._own = np.repeat(np.arange(n_classes)[:, None], size, axis=1)
        most = setting.given + setting.rounds  # enough for a policy that chooses one class in every round
        self._queue = np.stack(
            [np.random.default_rng([seed, DRAWS, c]).integers(size, size=most) for c in range(n_classes)]
        )
        self._extremes: dict[str, float] = {}
        self._drawn: list[tuple[int, int]] = []  # class and row of each training sample
        self._counts = np.zeros(n_classes, dtype=np.int64)
        for c in np.repeat(np.arange(n_classes), setting.given):
            self._draw(int(c))

    def run(self) -> Trace:
        rows = [self._round(t) for t in range(self._setting.rounds)]
        return Trace(
            self._policy,
            self._seed,
            **{key: np.array([row[key] for row in rows]) for key in rows[0]},
            extremes=self._extremes,
        )

    def _look(self, round_: int) -> None:
        """What the constants need, at a few rounds of one policy: it costs more than a round."""
        marks = np.linspace(0, self._setting.rounds - 1, self._setting.marks).astype(int)
        if self._policy != "adamab" or round_ not in marks:
            return
        values = (*extremes(self._model, self._population), curvature(self._model, self._population))
        for key, value in zip(EXTREMES, values, strict=True):
            self._extremes[key] = max(value, self._extremes.get(key, 0.0))

    def _round(self, round_: int) -> dict[str, object]:
        self._look(round_)
        losses, of_class = gradients(self._model, self._everything, self._own, self._classes)
        true = of_class.mean(0)
        queries, class_index = self._samples()
        _, current = gradients(self._model, queries[None], class_index[None], self._classes)
        n = len(queries)
        # δ_t²(C) = ‖u g_C + rest‖², without another matrix of the size of all class gradients.
        rest, u, squares = n / (n + 1) * current[0] - true, 1 / (n + 1), np.linalg.norm(of_class, axis=1) ** 2
        shifts = np.asarray(u**2 * squares + 2 * u * (of_class @ rest) + rest @ rest)
        c, counts = self._choose(shifts, queries, class_index), self._counts.copy()
        self._draw(c)
        _, new = gradients(self._model, self._last(), np.array([[c]]), self._classes)
        step = ((n * current + new) / (n + 1))[0]
        self._model.parameters -= self._setting.rate * step
        return {
            "chosen": c,
            "counts": counts,
            "shift": float(((step - true) ** 2).sum()),
            "expected": shifts[c],
            "best": shifts.min(),
            "slope": float((true**2).sum()),
            "loss": float(losses.mean()),
            "scale": self._scale,
        }

    def _choose(self, shifts: Floats, queries: Floats, class_index: NDArray[np.int64]) -> int:
        if self._chooser is None:
            return int(np.argmin(shifts))
        arms = Arms(self._counts, np.ones(len(self._counts), dtype=np.bool_), batch=1)
        if not self._chooser.needs_shift:
            return self._chooser.choose(arms, rng=self._rng).arm
        terms = ViewTerms(self._model, queries, self._classes)
        shift = GradientShift([terms], class_index, n_classes=len(self._counts), batch=1)
        self._scale = shift.scale
        return self._chooser.choose(arms, rng=self._rng, shift=shift).arm

    def _draw(self, c: int) -> None:
        self._drawn.append((c, int(self._queue[c, self._counts[c]])))
        self._counts[c] += 1

    def _samples(self) -> tuple[Floats, NDArray[np.int64]]:
        class_index, rows = np.array(self._drawn).T
        return self._everything[class_index, rows], class_index

    def _last(self) -> Floats:
        c, row = self._drawn[-1]
        return np.asarray(self._everything[c, row][None, None])


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
    # −δ²/s + α b orders the classes as −δ² + α s b does, so the recipe's α is α s on δ² itself.
    first, last = (float(np.mean([t.scale[at] for t in by_policy[PRODUCT]])) for at in (0, -1))
    most = {key: max(t.extremes[key] for t in traces) for key in traces[0].extremes}
    setting, n_classes = problem.setting, len(population.class_names)
    dimension = len(model.parameters)
    analysis = Analysis(setting.rounds, dimension, most["gradient_bound"])
    return Constants(
        analysis=analysis,
        gradient_norm=most["gradient_norm"],
        curvature=most["curvature"],
        alpha=setting.alpha,
        product_alpha=Recipe().alpha,
        product_alpha_here=(first * Recipe().alpha, last * Recipe().alpha),
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


def interval(values: NDArray[np.float64]) -> Interval:
    """Mean and 95 % interval (Student's t) of one number per seed.

    Example:
        >>> mean = interval(np.array([1.0, 2.0, 3.0]))  # 2 ± 4.303 / sqrt(3)
        >>> round(mean.low, 3), mean.mean, round(mean.high, 3)
        (-0.484, 2.0, 4.484)
    """
    mean = float(values.mean())
    spread = float(values.std(ddof=1) / np.sqrt(len(values)) * stats.t.ppf(0.975, len(values) - 1))
    return Interval(mean, mean - spread, mean + spread)


def ratio_interval(ratios: NDArray[np.float64]) -> Interval:
    """Geometric mean of one ratio per seed, minus one, with a 95 % interval from the logarithms.

    Example:
        >>> ratio_interval(np.array([0.5, 1.0, 2.0])).mean
        0.0
    """
    logs = interval(np.log(ratios))
    return Interval(*(float(np.expm1(value)) for value in (logs.mean, logs.low, logs.high)))
