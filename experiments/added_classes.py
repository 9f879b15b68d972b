"""A class that is added after the fit, on development parts.

    python -m experiments added-classes demo --seeds 4 --left-out 12

Leaves one class out of a fit and adds it: accuracy in % on the class, the others and all, with standard
errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from adamab.model.predictor import Inference
from adamab.providers.embedders.base import Embedder
from adamab.providers.registry import open_embedder
from adamab.run.add_class import extended
from adamab.run.fit import fit_task
from experiments.datasets.base import Draw, data_directory, load_data_set
from experiments.pages import means_with_errors

GIVEN, ADDED = 5, (0, 1, 5)


def added_accuracies(draw: Draw, embedder: Embedder, most: int) -> Iterator[tuple[str, float, float, float]]:
    """Of each way and of up to `most` classes: accuracy on the class, the others and all."""
    task, truth = draw.task, np.array([sample.class_name for sample in draw.test])
    whole = fit_task(task, embedder, seed=draw.seed).classifier
    for name in np.random.default_rng(draw.seed).permutation(np.unique(truth))[:most].tolist():
        (spec,) = (known for known in task.classes if known.name == name)
        classes = tuple(known for known in task.classes if known is not spec)
        others = tuple(sample for sample in task.samples if sample.class_name != name)
        rest = replace(task, classes=classes, samples=others)
        fitted = fit_task(rest, embedder, seed=draw.seed)
        model = Inference(fitted.classifier, embedder)
        ways = {f"fit with it, {GIVEN} examples": whole}
        for n in ADDED:
            examples = task.samples_of(name)[:n]
            ways[f"added, {n} examples"] = extended(model, fitted.new_class, spec, examples)
        for way, classifier in ways.items():
            best = Inference(classifier, embedder).predict_proba(draw.test).argmax(axis=1)
            right, own = np.array(classifier.classes)[best] == truth, truth == name
            yield way, float(right[own].mean()), float(right[~own].mean()), float(right.mean())


def main(arguments: Sequence[str]) -> None:
    """The study as a command."""
    parser = argparse.ArgumentParser("python -m experiments added-classes")
    parser.add_argument("set")
    parser.add_argument("--seeds", type=_positive, default=2)
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    parser.add_argument("--left-out", type=_positive, default=8, help="classes per seed")
    options = parser.parse_args(arguments)
    data = load_data_set(options.set, Path() if options.set == "demo" else data_directory(options.data))
    embedder = data.embedder() or open_embedder("local")
    draws = [data.draw(seed, given=GIVEN, part="development") for seed in range(options.seeds)]
    rows = [row for draw in draws for row in added_accuracies(draw, embedder, options.left_out)]
    figures = pd.DataFrame(rows, columns=["way", "the class", "the others", "all"])
    print(means_with_errors(figures, ["way"]).to_string())


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number
