"""The whole story on the built-in task: every way to use the same examples, side by side.

A fit gets the task, which holds the given messages only, and the vectors of what it may see. Test
messages are looked at once the classifier is finished.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.compare import LinearProbe, Similarity, TrainingData
from adamab.demo import demo_generator, load_demo, synthetic_samples
from adamab.engines import Engine
from adamab.evaluation import statistics
from adamab.evaluation.statistics import Bootstrap, Interval, percent, points
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedder
from adamab.providers.embedders.stored import MemoryEmbedder
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe

POLICIES = ("random", "round-robin", "adamab")
SIMILARITY, PROBE, RECIPE = "similarity", "probe", "recipe"


@dataclass(frozen=True)
class Plan:
    """What is compared. `per_class` are synthetic samples per class on average, ascending."""

    seeds: tuple[int, ...] = (0, 1, 2)
    per_class: tuple[int, ...] = (5, 10)
    recipe: Recipe = field(default_factory=Recipe)
    workers: int | None = None  # processes; None means up to two, 0 means this one

    def jobs(self) -> list[Job]:
        """Every fit, the longest first so that no process waits for another at the end."""
        amounts = sorted(self.per_class, reverse=True)
        augmented = [Job(p, n, s) for n in amounts for s in self.seeds for p in reversed(POLICIES)]
        return augmented + [Job("none", 0, seed) for seed in self.seeds]


@dataclass(frozen=True)
class Job:
    """One fit of the recipe; baselines on the same samples are measured beside it."""

    policy: str
    per_class: int
    seed: int


@dataclass(frozen=True)
class Measurement:
    """One method, trained once, on all test messages."""

    method: str  # similarity, probe or recipe
    policy: str
    seed: int
    synthetic: int
    correct: NDArray[np.bool_]  # (n,)
    seconds: float
    samples_by_class: dict[str, int]  # given and synthetic
    estimate: tuple[float, float, float] | None = None  # out-of-fold accuracy and its interval


@dataclass(frozen=True)
class Materials:
    """What jobs need: the training side, and apart from it the test messages."""

    task: Task
    recipe: Recipe
    training: MemoryEmbedder
    class_views: dict[str, NDArray[np.float32]]
    test: tuple[Sample, ...]
    test_views: dict[str, NDArray[np.float32]]


def gather(embedder: Embedder, recipe: Recipe) -> Materials:
    """Embed every text once.

    Args:
        embedder: Embeds the texts.
        recipe: Says which of its views are used.

    Returns:
        What jobs need.
    """
    data, views = load_demo(), recipe.views or embedder.views
    queries = list(dict.fromkeys(sample.text for sample in (*data.task.samples, *synthetic_samples())))
    wordings = [data.task.prompts.class_text(spec) for spec in data.task.classes]
    training = MemoryEmbedder(embedder)  # of a closed set: asking for a test message is a mistake
    training.put(queries, "query", run_sync(embedder.embed(queries, kind="query", views=views)))
    classes = run_sync(embedder.embed(wordings, kind="class", views=views))
    training.put(wordings, "class", classes)
    training.views = tuple(views)
    test = run_sync(embedder.embed([s.text for s in data.test], kind="query", views=views))
    return Materials(data.task, recipe, training, classes.views, data.test, test.views)


def measure(
    plan: Plan, materials: Materials, *, on_job: Callable[[], None] = lambda: None
) -> Iterator[Measurement]:
    """Run the plan.

    Args:
        plan: What is compared.
        materials: Task, vectors and test messages.
        on_job: Called when a job has ended.

    Yields:
        Measurements as jobs end, in no particular order.
    """
    workers = min(2, os.cpu_count() or 1) if plan.workers is None else plan.workers
    with Engine(jobs=workers).workers(run_job, materials) as map_items:
        for _, measurements in map_items(plan.jobs()):
            yield from measurements
            on_job()


def run_job(job: Job, materials: Materials) -> list[Measurement]:
    """Fit the recipe, and the baselines that belong beside it.

    Args:
        job: What is fitted.
        materials: Task, vectors and test messages.

    Returns:
        The recipe first; the probe where a policy spreads samples evenly; zero-shot where nothing is
        generated.
    """
    from adamab.run.fit import fit_task

    task = materials.task
    started = time.perf_counter()
    fit = fit_task(
        task,
        materials.training,
        generator=None if job.policy == "none" else demo_generator(seed=job.seed),
        policy=job.policy,
        recipe=materials.recipe,
        budget=job.per_class * len(task.classes),
        seed=job.seed,
    )
    seconds = time.perf_counter() - started
    samples = (*task.samples, *fit.synthetic)
    by_class = Counter(sample.class_name for sample in samples)
    counts = {name: by_class[name] for name in task.class_names}
    truth = np.array([sample.class_name for sample in materials.test])

    def measured(method: str, predicted: Sequence[str], seconds: float) -> Measurement:
        right = np.asarray(predicted) == truth
        return Measurement(method, job.policy, job.seed, len(fit.synthetic), right, seconds, counts)

    texts = [sample.text for sample in samples]
    predicted = fit.classifier.predict(materials.test_views, [sample.text for sample in materials.test])
    first = measured(RECIPE, predicted, seconds)
    if fit.estimate is not None:
        first = replace(first, estimate=(fit.estimate.accuracy, fit.estimate.low, fit.estimate.high))
    measurements = [first]
    if job.policy not in ("none", "round-robin"):
        return measurements
    data = TrainingData(
        views=run_sync(materials.training.embed(texts)).views,
        labels=[sample.class_name for sample in samples],
        classes=task.class_names,
        texts=texts,
        class_views=materials.class_views,
    )
    view = materials.training.views[0]
    baselines: dict[str, LinearProbe | Similarity] = {PROBE: LinearProbe(view=view, random_state=job.seed)}
    if job.policy == "none":
        baselines[SIMILARITY] = Similarity(view=view)
    for method, baseline in baselines.items():
        started = time.perf_counter()
        predicted = baseline.fit(data).predict(materials.test_views)
        measurements.append(measured(method, predicted, time.perf_counter() - started))
    return measurements


NAMES = {"random": "random", "round-robin": "round-robin", "adamab": "ADAMAB"}
INTERVALS = statistics.INTERVALS.format(samples="messages")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    policy: str
    synthetic: int
    accuracy: Interval
    difference: Interval | None  # to the linear probe with as many samples; None for the probe itself
    by_seed: tuple[float, ...]
    seconds: float  # median of the fits

    @property
    def label(self) -> str:
        """The method in words."""
        if self.method == SIMILARITY:
            return "zero-shot similarity"
        source = "given only" if self.policy == "none" else NAMES[self.policy]
        return f"{'linear probe' if self.method == PROBE else 'calibrator'}, {source}"


@dataclass(frozen=True)
class Summary:
    """Everything that the table, the figures and the files need."""

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    n_given: int
    n_test: int
    classes: tuple[str, ...]
    samples_by_class: dict[str, list[list[int]]]  # policy -> seed -> class, at the largest number
    estimate: Interval | None  # out-of-fold, of the first seed's classifier on the given examples
    against: dict[str, Interval]  # policy -> ADAMAB's lead over it, at the largest number

    @property
    def most(self) -> int:
        """The largest number of synthetic samples."""
        return max(row.synthetic for row in self.rows)

    @property
    def same_samples(self) -> bool:
        """ADAMAB has round-robin's samples: equal counts, and each seed has one order per class."""
        return self.samples_by_class["adamab"] == self.samples_by_class["round-robin"]

    def table(self) -> list[Row]:
        """Rows without any synthetic sample and with the most of them; others are for the figure."""
        return [row for row in self.rows if row.synthetic in (0, self.most)]

    def row(self, method: str, policy: str, synthetic: int) -> Row:
        """One row; KeyError if there is none.

        Args:
            method: what was fitted, such as `RECIPE`.
            policy: what chose the synthetic samples; `none` where there are only given ones.
            synthetic: how many of them there are.
        """
        return {(r.method, r.policy, r.synthetic): r for r in self.rows}[method, policy, synthetic]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **asdict(self),
            "same_samples": self.same_samples,
            "intervals": INTERVALS,
            "findings": findings(self),
        }


_Key = tuple[str, str, int]


def summarise(measurements: Sequence[Measurement]) -> Summary:
    """The table in the order of the story: nothing generated, then ever more."""
    groups: dict[_Key, list[Measurement]] = {}
    for m in sorted(measurements, key=lambda m: m.seed):
        groups.setdefault((m.method, m.policy, m.synthetic), []).append(m)
    correct = {key: np.stack([m.correct for m in group]).astype(np.float64) for key, group in groups.items()}
    first = groups[RECIPE, "none", 0]
    bootstrap = Bootstrap(*correct[RECIPE, "none", 0].shape)
    most = max(key[2] for key in groups)
    best = correct[RECIPE, "adamab", most]
    return Summary(
        rows=tuple(_row(key, groups[key], correct, bootstrap) for key in sorted(groups, key=_order)),
        seeds=tuple(m.seed for m in first),
        n_given=sum(first[0].samples_by_class.values()),
        n_test=len(first[0].correct),
        classes=tuple(first[0].samples_by_class),
        samples_by_class={
            p: [list(m.samples_by_class.values()) for m in groups[RECIPE, p, most]] for p in POLICIES
        },
        estimate=None if first[0].estimate is None else Interval(*first[0].estimate),
        against={p: bootstrap(best - correct[RECIPE, p, most]) for p in POLICIES if p != "adamab"},
    )


def findings(summary: Summary) -> list[str]:
    """What the table shows, in sentences made from its numbers."""
    best, given = summary.row(RECIPE, "adamab", summary.most), summary.row(RECIPE, "none", 0)
    compared = (("the given examples", given), (f"{summary.most} synthetic samples more", best))
    leads = [_lead(lead, NAMES[policy]) for policy, lead in reversed(summary.against.items())]
    sentences = [
        *(f"With {what} the calibrator is {_lead(r.difference, 'the probe')}." for what, r in compared),
        f"ADAMAB's choice of classes is {' and '.join(leads)} here.",
    ]
    if summary.same_samples:
        sentences.append(
            "ADAMAB and round-robin ended with the same number of samples of each class, and so with the "
            "same messages: the same classifier. A budget that does not go round evenly would tell them "
            "apart."
        )
    if summary.estimate is not None:
        sentences.append(
            f"Without a test set, the {summary.n_given} given examples alone foretold "
            f"{percent(summary.estimate)} for the first seed's calibrator; the {summary.n_test} test "
            f"messages say {100 * given.by_seed[0]:.1f} %."
        )
    sentences.append(
        f"A fit took {given.seconds:.1f} s without and {best.seconds:.1f} s with synthetic samples "
        "(median; two fits at a time, one thread each)."
    )
    return sentences


def _lead(difference: Interval | None, over: str) -> str:
    assert difference is not None  # only the probe's own rows have none
    return f"{difference.verdict} {over} ({points(difference)})"


def _row(
    key: _Key, group: list[Measurement], correct: dict[_Key, NDArray[np.float64]], bootstrap: Bootstrap
) -> Row:
    method, policy, synthetic = key
    probe = next(values for (m, _, n), values in correct.items() if m == PROBE and n == synthetic)
    return Row(
        method=method,
        policy=policy,
        synthetic=synthetic,
        accuracy=bootstrap(correct[key]),
        difference=None if method == PROBE else bootstrap(correct[key] - probe),
        by_seed=tuple(float(m.correct.mean()) for m in group),
        seconds=float(np.median([m.seconds for m in group])),
    )


def _order(key: _Key) -> tuple[int, int, int]:
    method, policy, synthetic = key
    place = ("none", *POLICIES).index(policy)
    return synthetic, (SIMILARITY, PROBE, RECIPE).index(method), place
