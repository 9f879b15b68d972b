"""The accuracy that `fit` foretells, beside that on samples it never saw.

    python -m experiments accuracy-estimate --part development

Given samples are drawn anew for each seed. Accuracy is the mean over the classes, as in the estimate. The
recorded five of TREC are one draw that a language model wrote from, so they have a row of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.estimator import EmbeddingCalibrator
from adamab.method.stacking import Estimate
from adamab.model.predictor import Inference
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedder
from adamab.providers.embedders.stored import MemoryEmbedder
from adamab.providers.registry import embedder_key
from adamab.run.fit import fit_task
from adamab.task import Sample
from adamab.task.recipe import Recipe
from experiments.datasets.base import DataSet, Draw, Part, data_directory, load_data_set
from experiments.measure import embedder_of
from experiments.pages import Table, as_document
from experiments.quality import commit
from experiments.quality_plan import SETS

NAME = "accuracy-estimate"
ALL, API, VECTORS, RECORDED = "all views", "API views", "vectors", "TREC's recorded five"
GIVEN, SEEDS = (2, 5, 10), 10
_ABOUT = (
    "Estimate minus accuracy in points: mean over seeds with its standard error, and in how many draws the "
    "95 % interval holds the accuracy. No synthetic samples; classes weigh alike. All views and API views: "
    "the default recipe on texts with class descriptions. Vectors: `EmbeddingCalibrator` on the pooled "
    "vectors alone, without texts and descriptions. The last rows are not in the means."
)


@dataclass(frozen=True)
class Row:
    """One fit."""

    set: str
    inputs: str
    given: int
    seed: int
    n: int  # samples that were held out
    estimate: float
    low: float
    high: float
    accuracy: float

    @property
    def bias(self) -> float:
        """In points."""
        return 100 * (self.estimate - self.accuracy)

    @property
    def holds(self) -> bool:
        """Whether the interval holds the accuracy."""
        return self.low <= self.accuracy <= self.high


def measure(data: DataSet, part: Part, seeds: int) -> Iterator[Row]:
    """The rows of one set."""
    embedder, spec = embedder_of(data, "local")
    known = MemoryEmbedder(embedder, lambda: embedder)
    described = spec is not None
    most = max(data.most_given(part=part).values())
    for given in (count for count in GIVEN if count <= most):
        for seed in range(seeds):
            draw = data.draw(seed, given=given, part=part)
            if described:
                yield _of_task(data.name, ALL, given, draw, known, Recipe())
                yield _of_task(data.name, API, given, draw, known, Recipe().with_options(views=("pooled",)))
            yield _of_vectors(data.name, given, draw, known)
    if data.name == "trec":
        draw = data.draw(0, given=5, generator="recorded", part=part)
        yield _of_task(RECORDED, ALL, 5, draw, known, Recipe())


def _of_task(name: str, inputs: str, given: int, draw: Draw, known: Embedder, recipe: Recipe) -> Row:
    fit = fit_task(draw.task, known, recipe=recipe, seed=draw.seed)
    logits = Inference(fit.classifier, known).logits(draw.test)
    return _row(name, inputs, given, draw, fit.estimate, logits.argmax(axis=1), fit.classifier.classes)


def _of_vectors(name: str, given: int, draw: Draw, known: Embedder) -> Row:
    samples = draw.task.samples
    x, test = _vectors(known, samples, draw), _vectors(known, draw.test, draw)
    model = EmbeddingCalibrator(random_state=draw.seed).fit(x, [sample.class_name for sample in samples])
    classes = list(model.classes_)
    answers = np.array([classes.index(label) for label in model.predict(test)])
    return _row(name, VECTORS, given, draw, model.estimate_, answers, classes)


def _vectors(known: Embedder, samples: Sequence[Sample], draw: Draw) -> NDArray[np.float32]:
    items = [embedder_key(sample, known, draw.task.prompts) for sample in samples]
    return run_sync(known.embed(items)).views["pooled"]


def _row(
    name: str,
    inputs: str,
    given: int,
    draw: Draw,
    estimate: Estimate | None,
    answers: NDArray[np.int64],
    classes: Sequence[str],
) -> Row:
    if estimate is None:
        raise TaskError(f"{name}: nothing was held out")
    truth = np.array([classes.index(sample.class_name) for sample in draw.test])
    accuracy = np.mean([(answers[truth == c] == c).mean() for c in np.unique(truth)])
    figures = (estimate.n, estimate.accuracy, estimate.low, estimate.high, float(accuracy))
    return Row(name, inputs, given, draw.seed, *figures)


def table(rows: Sequence[Row]) -> Table:
    """A line per set, of all draws, of all but the recorded ones, and of those."""
    drawn = [row for row in rows if row.set != RECORDED]
    inputs = [name for name in (ALL, API, VECTORS) if any(row.inputs == name for row in drawn)]
    header = ("Set", *inputs, *(f"{n} given" for n in GIVEN), "estimate - accuracy", "within the interval")

    def line(name: str, of: Sequence[Row]) -> tuple[str, ...]:
        parts = [[row for row in of if row.inputs == inputs_] for inputs_ in inputs]
        parts += [[row for row in of if row.given == given] for given in GIVEN]
        held = f"{sum(row.holds for row in of)} of {len(of)}"
        return (name, *(_mean(part) for part in parts), _mean(of), held)

    names = dict.fromkeys(row.set for row in drawn)
    lines = [line(name, [row for row in drawn if row.set == name]) for name in names]
    lines.append(line("mean of the draws", drawn))
    recorded = [row for row in rows if row.set == RECORDED]
    if recorded:
        lines.append(line(RECORDED, recorded))
    return Table("", header, tuple(lines))


def _mean(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    values = [row.bias for row in rows]
    error = "" if len(values) < 2 else f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1f}"
    return f"{np.mean(values):+.1f}{error}"


def main(arguments: Sequence[str]) -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(f"python -m experiments {NAME}")
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--part", choices=("development", "test"), default="development")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=list(SETS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    folder = data_directory(options.data)
    rows: list[Row] = []
    for name in options.sets:
        rows += measure(load_data_set(name, folder), options.part, options.seeds)
        print(table([row for row in rows if row.set in (name, RECORDED)]).markdown(), flush=True)
    suffix = "" if options.part == "test" else "-development"
    command = f"python -m experiments {NAME} --part {options.part}"
    made = f"Made by `{command}` with the code of commit `{commit()}`; {options.seeds} draws of each part."
    page = f"# The accuracy that a fit foretells\n\n{_ABOUT}\n\n{made}\n\n{table(rows).markdown()}\n"
    (options.output / f"{NAME}{suffix}.md").write_text(page, encoding="utf-8")
    document = {"command": command, "commit": commit(), "rows": [asdict(row) for row in rows]}
    (options.output / f"{NAME}{suffix}.json").write_text(as_document(document), encoding="utf-8")
