"""What if some classes have five samples and the others one? Fits with even and with uneven counts.

    python -m adamab.study.uneven demo --seeds 4

Development parts only: accuracy in %, with standard errors. `--folds 0` takes the weights of views that are
not evidence, `--typical 0` evidence alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from adamab.errors import AdamabError
from adamab.providers.embedders.base import Embedder
from adamab.run.fit import fit_task
from adamab.run.inference import Inference
from adamab.run.resolve import open_embedder
from adamab.study.datasets.base import Draw, data_directory, load_data_set
from adamab.task.recipe import Recipe

MOST, SHARES = 5, (0.0, 0.3, 0.6, 1.0)  # samples of the richer classes, and their shares


def accuracies(draw: Draw, embedder: Embedder, recipe: Recipe) -> Iterator[tuple[float, float]]:
    """The share of classes with all samples of the draw, the others having one, and the accuracy."""
    task, truth = draw.task, np.array([sample.class_name for sample in draw.test])
    order = np.random.default_rng(draw.seed).permutation([known.name for known in task.classes]).tolist()
    for share in SHARES:
        rich = set(order[: round(share * len(order))])
        kept = (task.samples_of(name)[: None if name in rich else 1] for name in order)
        fewer = replace(task, samples=tuple(sample for of_class in kept for sample in of_class))
        classifier = fit_task(fewer, embedder, recipe=recipe, seed=draw.seed).classifier
        best = Inference(classifier, embedder).predict_proba(draw.test).argmax(axis=1)
        yield share, float((np.array(classifier.classes)[best] == truth).mean())


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adamab.study.uneven")
    parser.add_argument("set")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--folds", type=int, default=Recipe().folds)
    parser.add_argument("--typical", type=float, default=Recipe().typical)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    try:
        data = load_data_set(options.set, Path() if options.set == "demo" else data_directory(options.data))
        embedder = data.embedder() or open_embedder("local")
        recipe = Recipe().with_options(folds=options.folds, typical=options.typical)
    except AdamabError as error:
        parser.error(str(error))
    found: dict[float, list[float]] = {}
    for seed in range(options.seeds):
        for share, accuracy in accuracies(data.draw(seed, given=MOST, part="development"), embedder, recipe):
            found.setdefault(share, []).append(100 * accuracy)
    for share, figures in found.items():
        told = f"{MOST} samples of {share:4.0%} of the classes, 1 of the others   {np.mean(figures):5.1f}"
        if len(figures) > 1:
            told += f" ± {np.std(figures, ddof=1) / np.sqrt(len(figures)):.1f}"
        print(told)


if __name__ == "__main__":
    _main()
