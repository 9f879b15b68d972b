"""How good is a class that is added after the fit? One class is left out of a fit, then added.

    python -m adamab.study.added_classes demo --seeds 4 --left-out 12

Development parts only: accuracy on the class, the others and all in %, with standard errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from adamab.errors import AdamabError
from adamab.providers.embedders.base import Embedder
from adamab.run.add_class import extended
from adamab.run.fit import fit_task
from adamab.run.inference import Inference
from adamab.run.resolve import open_embedder
from adamab.study.datasets.base import Draw, data_directory, load_data_set
from adamab.task.recipe import Recipe

GIVEN, ADDED = 5, (0, 1, 5)


def accuracies(
    draw: Draw, embedder: Embedder, recipe: Recipe, most: int
) -> Iterator[tuple[str, list[float]]]:
    """Of each way and of up to `most` classes: accuracy on the class, the others and all."""
    task, truth = draw.task, np.array([sample.class_name for sample in draw.test])
    whole = fit_task(task, embedder, recipe=recipe, seed=draw.seed).classifier
    for name in np.random.default_rng(draw.seed).permutation(np.unique(truth))[:most].tolist():
        (spec,) = (known for known in task.classes if known.name == name)
        classes = tuple(known for known in task.classes if known is not spec)
        others = tuple(sample for sample in task.samples if sample.class_name != name)
        rest = replace(task, classes=classes, samples=others)
        fitted = fit_task(rest, embedder, recipe=recipe, seed=draw.seed)
        model, bare = Inference(fitted.classifier, embedder), replace(fitted.class_side, reference=None)
        ways = {f"fit with it, {GIVEN} examples": whole}
        for n in ADDED:
            examples = task.samples_of(name)[:n]
            ways[f"added, {n} examples"] = extended(model, fitted.class_side, spec, examples)
            ways[f"added and not settled, {n} examples"] = extended(model, bare, spec, examples)
        for way, classifier in ways.items():
            best = Inference(classifier, embedder).predict_proba(draw.test).argmax(axis=1)
            right, own = np.array(classifier.classes)[best] == truth, truth == name
            yield way, [float(right[part].mean()) for part in (own, ~own, slice(None))]


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adamab.study.added_classes")
    parser.add_argument("set")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--left-out", type=int, default=8, help="classes a seed")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    try:
        data = load_data_set(options.set, Path() if options.set == "demo" else data_directory(options.data))
        embedder, recipe = data.embedder() or open_embedder("local"), Recipe.preset(options.recipe)
    except AdamabError as error:
        parser.error(str(error))
    found: dict[str, list[list[float]]] = {}
    for seed in range(options.seeds):
        draw = data.draw(seed, given=GIVEN, part="development")
        for way, of_class in accuracies(draw, embedder, recipe, options.left_out):
            found.setdefault(way, []).append(of_class)
    for way, rows in found.items():
        figures = 100 * np.array(rows)
        errors = figures.std(axis=0, ddof=1) / np.sqrt(len(figures))
        told = (f"{m:5.1f} ± {e:.1f}" for m, e in zip(figures.mean(axis=0), errors, strict=True))
        print(f"{way:36}", "   ".join(told))


if __name__ == "__main__":
    _main()
