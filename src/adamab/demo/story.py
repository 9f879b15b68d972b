"""The whole story on the built-in task: every way to use the same examples, side by side.

A fit gets the task, which holds the given messages only, and the vectors of what it may see. Test
messages are looked at once the classifier is finished.

Its files: `demo.md` for people, `demo.json` with the raw figures, and drawings as PNG and SVG.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.compare import LinearProbe, Similarity, TrainingData
from adamab.demo import demo_generator, load_demo, synthetic_samples
from adamab.engines import Engine
from adamab.errors import MissingExtraError
from adamab.evaluation import statistics
from adamab.evaluation.statistics import Bootstrap, Interval, percent, points
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedder
from adamab.providers.embedders.stored import MemoryEmbedder
from adamab.task import Sample, Task
from adamab.task.prompts import spoken
from adamab.task.recipe import Recipe
from adamab.version import __version__

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


# The page and the drawings.

COLOURS = {"adamab": "#D55E00", "round-robin": "#0072B2", "random": "#009E73", PROBE: "#555555"}
MARKERS = {"adamab": "o", "round-robin": "s", "random": "^", PROBE: "D"}
GIVEN, QUIET = "#BBBBBB", "#777777"
_STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "svg.fonttype": "none",  # text stays text: searchable, and small files
    "svg.hashsalt": "adamab",  # the same figure is the same file
}


def check_matplotlib() -> None:
    """Fail before the work, not after it."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots")


def draw_accuracy(summary: Summary, directory: Path) -> list[Path]:
    """Accuracy against synthetic samples, one line per policy, with intervals.

    Args:
        summary: What was measured.
        directory: Where the figure goes.

    Returns:
        The files that were written.
    """
    with new_figure(figsize=(8.6, 5.2)) as (figure, plt):
        axes = figure.subplots()
        for place, name in enumerate((PROBE, *POLICIES)):
            _curve(axes, summary, name, (place - 1.5) * summary.most / 90)
        zero_shot = 100 * summary.row(SIMILARITY, "none", 0).accuracy.mean
        label = f"zero-shot {zero_shot:.1f} %"
        axes.axhline(zero_shot, color=QUIET, linewidth=1.2, linestyle=":", label=label)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=10)
        percent_axis(axes, plt)
        amounts = sorted({row.synthetic for row in summary.rows} - {0})
        per_class = [f"{n}\n({n / len(summary.classes):g} per class)" for n in amounts]
        axes.set_xticks([0, *amounts], ["0\n(given examples only)", *per_class])
        axes.set_xlabel("Synthetic samples")
        axes.set_xlim(-0.06 * summary.most, 1.04 * summary.most)
        axes.set_title(_accuracy_title(summary), loc="left", fontsize=12.5, pad=14)
        note = f"{summary.n_given} given examples, {summary.n_test} test messages; bars: 95 % intervals."
        if summary.same_samples:
            note += " ADAMAB and round-robin end with the same samples."
        figure.text(0.01, 0.012, note, color=QUIET, fontsize=9)
        figure.subplots_adjust(left=0.09, right=0.68, bottom=0.17, top=0.87)
        return _save(figure, directory, "accuracy")


def draw_samples(summary: Summary, directory: Path) -> list[Path]:
    """Samples of each class, one panel per policy: given in grey, synthetic in the policy's colour.

    Args:
        summary: What was measured.
        directory: Where the figure goes.

    Returns:
        The files that were written.
    """
    with new_figure(figsize=(10.5, 5.6)) as (figure, _):
        panels = figure.subplots(1, len(POLICIES), sharey=True, sharex=True)
        for axes, policy in zip(panels, POLICIES, strict=True):
            _panel(axes, summary, policy)
        panels[0].set_yticks(range(len(summary.classes)), [spoken(c) for c in summary.classes])
        panels[0].invert_yaxis()
        panels[1].set_xlabel("Training samples of the class (grey: given, colour: synthetic)")
        title = f"Who gets the {summary.most} synthetic samples? Seed {summary.seeds[0]}, by policy"
        figure.suptitle(title, x=0.01, ha="left", fontsize=13)
        figure.subplots_adjust(left=0.16, right=0.98, bottom=0.12, top=0.83, wspace=0.1)
        return _save(figure, directory, "samples")


@contextmanager
def new_figure(**options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure in the house's style, closed at the end."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with matplotlib.rc_context(_STYLE):
        figure = plt.figure(facecolor="white", **options)
        try:
            yield figure, plt
        finally:
            plt.close(figure)


def _save(figure: Any, directory: Path, name: str) -> list[Path]:
    """As PNG and SVG."""
    paths = [directory / f"{name}.png", directory / f"{name}.svg"]
    figure.savefig(paths[0], dpi=130)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _curve(axes: Any, summary: Summary, name: str, shift: float) -> None:
    if name == PROBE:
        label, rows = "linear probe", [row for row in summary.rows if row.method == PROBE]
    else:  # all lines of the recipe start at the given examples alone
        label = f"calibrator, {NAMES[name]}"
        rows = [row for row in summary.rows if row.method == RECIPE and row.policy in ("none", name)]
    # Moved sideways a little, or intervals at the same number of samples hide each other.
    x = [row.synthetic + shift for row in rows]
    means, lows, highs = (
        100 * np.array([getattr(row.accuracy, end) for row in rows]) for end in ("mean", "low", "high")
    )
    style = {"color": COLOURS[name], "marker": MARKERS[name], "linestyle": "--" if name == PROBE else "-"}
    axes.errorbar(
        x,
        means,
        yerr=[means - lows, highs - means],
        label=f"{label} {means[-1]:.1f} %",
        linewidth=2,
        markersize=7,
        elinewidth=1.2,
        capsize=3,
        **style,
    )


def percent_axis(axes: Any, plt: Any) -> None:
    """Accuracies in percent on the vertical axis."""
    axes.yaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:.0f} %"))
    axes.set_ylabel("Accuracy on test messages")
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)


def _accuracy_title(summary: Summary) -> str:
    start = 100 * summary.row(RECIPE, "none", 0).accuracy.mean
    ends = [100 * summary.row(RECIPE, policy, summary.most).accuracy.mean for policy in POLICIES]
    span = f"{min(ends):.0f} to {max(ends):.0f}" if round(min(ends)) < round(max(ends)) else f"{ends[0]:.0f}"
    return (
        f"Calibrator: {start:.0f} % from the given examples, {span} % with {summary.most} synthetic samples"
    )


def _panel(axes: Any, summary: Summary, policy: str) -> None:
    counts = np.array(summary.samples_by_class[policy][0])
    given = summary.n_given // len(summary.classes)
    places = np.arange(len(counts))
    axes.barh(places, np.minimum(counts, given), color=GIVEN, height=0.7)
    axes.barh(places, counts - given, left=given, color=COLOURS[policy], height=0.7)
    for place, count in zip(places, counts, strict=True):
        axes.text(count + 0.5, place, str(count), va="center", fontsize=9.5, color="#333333")
    spread = f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else f"{counts.min()}"
    axes.set_title(f"{NAMES[policy]}\n{spread} samples per class", loc="left", fontsize=11.5)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.1, y=0.02)


HEADER = ("Method, samples by", "Added", "Accuracy, %", "Against the probe")


def cells(summary: Summary) -> list[tuple[str, ...]]:
    """The table's rows as text, short, so that it fits a terminal of 80 columns."""
    rows: list[tuple[str, ...]] = []
    for row in summary.table():
        a, d = row.accuracy, row.difference
        accuracy = f"{100 * a.mean:.1f} ({100 * a.low:.1f}–{100 * a.high:.1f})"
        lead = "" if d is None else f"{100 * d.mean:+.1f} ({100 * d.low:+.1f}, {100 * d.high:+.1f})"
        rows.append((row.label, str(row.synthetic), accuracy, lead))
    return rows


def caption(summary: Summary) -> str:
    """What the table's numbers are."""
    n = len(summary.seeds)
    return (
        f"{summary.n_given} given examples, {len(summary.classes)} classes, {summary.n_test} test messages; "
        f"mean of {n} seed{'s' if n > 1 else ''}. {INTERVALS} "
        "Added: synthetic samples. Against the probe: percentage points to the linear probe with as many "
        "samples."
    )


def write_report(summary: Summary, directory: Path, *, command: str) -> list[Path]:
    """Write page, raw figures and drawings.

    Args:
        summary: What was measured.
        directory: Where the files go; it is made.
        command: What made them, for the page.

    Returns:
        The files, the page first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    data = {"command": command, "adamab": __version__, **summary.to_json()}
    text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False)
    (directory / "demo.json").write_text(text + "\n", encoding="utf-8")
    (directory / "demo.md").write_text(_markdown(summary, command), encoding="utf-8")
    figures = [*draw_accuracy(summary, directory), *draw_samples(summary, directory)]
    return [directory / "demo.md", directory / "demo.json", *figures]


def _markdown(summary: Summary, command: str) -> str:
    rows = [HEADER, ("---", "---:", "---:", "---:"), *cells(summary)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    sentences = "\n".join(f"- {sentence}" for sentence in findings(summary))
    return (
        f"# Demo: the support-desk task\n\nMade by `{command}`; the raw figures are in `demo.json`.\n\n"
        f"{table}\n\n{caption(summary)}\n\n{sentences}\n\n"
        "![Accuracy against synthetic samples](accuracy.svg)\n\n![Samples of each class](samples.svg)\n"
    )
