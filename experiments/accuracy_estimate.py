"""The accuracy that `fit` foretells, beside that on samples it never saw.

    python -m experiments accuracy-estimate --part development

Given samples are drawn anew for each seed. Accuracy is the mean over the classes, as in the estimate. The
recorded five of TREC are one draw that a language model wrote from, so they have a row of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
Row: TypeAlias = dict[str, Any]  # one fit: where, its estimate, and the true accuracy
ALL, API, VECTORS, RECORDED = "all views", "API views", "vectors", "TREC's recorded five"
GIVEN, SEEDS = (2, 5, 10), 10
_ABOUT = (
    "Estimate minus accuracy in points: mean over seeds with its standard error, and in how many draws the "
    "95 % interval holds the accuracy. No synthetic samples; classes weigh alike. All views and API views: "
    "the default recipe on texts with class descriptions. Vectors: `EmbeddingCalibrator` on the pooled "
    "vectors alone, without texts and descriptions. The last rows are not in the means."
)


def measure(data: DataSet, part: Part, seeds: int) -> Iterator[Row]:
    """The rows of one set."""
    embedder, spec = embedder_of(data, "local")
    known = MemoryEmbedder(embedder, lambda: embedder)
    most = max(data.most_given(part=part).values())
    for given in (count for count in GIVEN if count <= most):
        for seed in range(seeds):
            draw, place = data.draw(seed, given=given, part=part), {"set": data.name, "given": given}
            if spec is not None:  # texts, with descriptions
                pooled = Recipe().with_options(views=("pooled",))
                yield _of_task(place | {"inputs": ALL}, draw, known, Recipe())
                yield _of_task(place | {"inputs": API}, draw, known, pooled)
            yield _of_vectors(place | {"inputs": VECTORS}, draw, known)
    if data.name == "trec":
        draw = data.draw(0, given=5, generator="recorded", part=part)
        yield _of_task({"set": RECORDED, "given": 5, "inputs": ALL}, draw, known, Recipe())


def _of_task(place: Row, draw: Draw, known: Embedder, recipe: Recipe) -> Row:
    fit = fit_task(draw.task, known, recipe=recipe, seed=draw.seed)
    logits = Inference(fit.classifier, known).logits(draw.test)
    return place | _figures(draw, fit.estimate, np.array(fit.classifier.classes)[logits.argmax(axis=1)])


def _of_vectors(place: Row, draw: Draw, known: Embedder) -> Row:
    labels = [sample.class_name for sample in draw.task.samples]
    x, test = (_vectors(known, samples, draw) for samples in (draw.task.samples, draw.test))
    model = EmbeddingCalibrator(random_state=draw.seed).fit(x, labels)
    return place | _figures(draw, model.estimate_, model.predict(test))


def _vectors(known: Embedder, samples: Sequence[Sample], draw: Draw) -> NDArray[np.float32]:
    items = [embedder_key(sample, known, draw.task.prompts) for sample in samples]
    return run_sync(known.embed(items)).views["pooled"]


def _figures(draw: Draw, estimate: Estimate | None, answers: NDArray[np.str_]) -> Row:
    assert estimate is not None  # two samples per class or more
    truth = np.array([sample.class_name for sample in draw.test])
    accuracy = float(np.mean([(answers[truth == name] == name).mean() for name in np.unique(truth)]))
    return {"seed": draw.seed, **asdict(estimate), "true": accuracy}


def table(rows: Sequence[Row]) -> Table:
    """A line per set, one of all draws, and one of the recorded samples."""
    frame = pd.DataFrame(rows)
    frame["bias"] = 100 * (frame["accuracy"] - frame["true"])
    frame["holds"] = (frame["low"] <= frame["true"]) & (frame["true"] <= frame["high"])
    drawn = frame[frame["set"] != RECORDED]
    inputs = [name for name in (ALL, API, VECTORS) if name in set(drawn["inputs"])]
    groups = [(str(name), of_set) for name, of_set in frame.groupby("set", sort=False)]
    groups.sort(key=lambda group: group[0] == RECORDED)
    groups.insert(drawn["set"].nunique(), ("mean of the draws", drawn))
    lines = tuple(
        (
            name,
            *(_mean(of["bias"][of["inputs"] == one]) for one in inputs),
            *(_mean(of["bias"][of["given"] == given]) for given in GIVEN),
            _mean(of["bias"]),
            f"{of['holds'].sum()} of {len(of)}",
        )
        for name, of in groups
    )
    given = (f"{n} given" for n in GIVEN)
    return Table("", ("Set", *inputs, *given, "estimate - accuracy", "within the interval"), lines)


def _mean(values: pd.Series[float]) -> str:
    error = f" ± {values.sem():.1f}" if len(values) > 1 else ""
    return f"{values.mean():+.1f}{error}" if len(values) else ""


def main(arguments: Sequence[str]) -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(f"python -m experiments {NAME}")
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--part", choices=("development", "test"), default="development")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=list(SETS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    folder, part = data_directory(options.data), options.part
    sets = (load_data_set(name, folder) for name in options.sets)
    rows = [row for data in sets for row in measure(data, part, options.seeds)]
    command, figures = f"python -m experiments {NAME} --part {part}", table(rows).markdown()
    made = f"Made by `{command}` with the code of commit `{commit()}`; {options.seeds} draws of each set."
    page = options.output / (NAME + ("" if part == "test" else "-development"))
    text = f"# The accuracy that a fit foretells\n\n{_ABOUT}\n\n{made}\n\n{figures}\n"
    page.with_suffix(".md").write_text(text, encoding="utf-8")
    document = {"command": command, "commit": commit(), **pd.DataFrame(rows).to_dict("list")}
    page.with_suffix(".json").write_text(as_document(document), encoding="utf-8")
    print(figures)
