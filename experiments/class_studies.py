"""Two studies on development parts: class counts that differ, and a class that is added after the fit.

    python -m experiments uneven demo --seeds 12 --most 15 --least 2 --classes 5
    python -m experiments added-classes demo --seeds 4 --left-out 12

Both print accuracy in % with standard errors. `uneven` gives no class many samples, one, 30 %, 60 % and all
of them; first as the classifier answers, then with the shares of the classes in the part stated as priors.
`added-classes` leaves one class out of a fit and adds it: accuracy on the class, the others and all.
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
from adamab.task.recipe import Recipe
from experiments.datasets.base import DataSet, Draw, data_directory, load_data_set

GIVEN, ADDED = 5, (0, 1, 5)


def uneven_accuracies(
    draw: Draw, embedder: Embedder, recipe: Recipe, *, least: int = 1, n_classes: int | None = None
) -> Iterator[tuple[str, float, float]]:
    """One fit for each number of classes that have all samples of the draw, the others having `least`.

    Yields what was fitted, its accuracy, and that where the classes' shares in the test part are stated.
    """
    order = np.random.default_rng(draw.seed).permutation([known.name for known in draw.task.classes]).tolist()
    order = order[:n_classes]
    classes = tuple(known for known in draw.task.classes if known.name in order)
    test = [sample for sample in draw.test if sample.class_name in order]
    truth = np.array([sample.class_name for sample in test])
    for rich in sorted({0, 1, round(0.3 * len(order)), round(0.6 * len(order)), len(order)}):
        kept = (
            draw.task.samples_of(name)[: None if rank < rich else least] for rank, name in enumerate(order)
        )
        samples = tuple(sample for of_class in kept for sample in of_class)
        fewer = replace(draw.task, classes=classes, samples=samples)
        classifier = fit_task(fewer, embedder, recipe=recipe, seed=draw.seed).classifier
        model, names = Inference(classifier, embedder), np.array(classifier.classes)
        plain, stated = (
            float((names[model.predict_proba(test, priors=priors).argmax(axis=1)] == truth).mean())
            for priors in (None, {name: float((truth == name).mean()) for name in classifier.classes})
        )
        yield f"many samples of {rich:3} of {len(order)} classes, {least} of the others", plain, stated


def added_accuracies(
    draw: Draw, embedder: Embedder, recipe: Recipe, most: int
) -> Iterator[tuple[str, float, float, float]]:
    """Of each way and of up to `most` classes: accuracy on the class, the others and all."""
    task, truth = draw.task, np.array([sample.class_name for sample in draw.test])
    whole = fit_task(task, embedder, recipe=recipe, seed=draw.seed).classifier
    for name in np.random.default_rng(draw.seed).permutation(np.unique(truth))[:most].tolist():
        (spec,) = (known for known in task.classes if known.name == name)
        classes = tuple(known for known in task.classes if known is not spec)
        others = tuple(sample for sample in task.samples if sample.class_name != name)
        rest = replace(task, classes=classes, samples=others)
        fitted = fit_task(rest, embedder, recipe=recipe, seed=draw.seed)
        model, bare = Inference(fitted.classifier, embedder), replace(fitted.new_class, reference=None)
        ways = {f"fit with it, {GIVEN} examples": whole}
        for n in ADDED:
            examples = task.samples_of(name)[:n]
            ways[f"added, {n} examples"] = extended(model, fitted.new_class, spec, examples)
            ways[f"added and not settled, {n} examples"] = extended(model, bare, spec, examples)
        for way, classifier in ways.items():
            best = Inference(classifier, embedder).predict_proba(draw.test).argmax(axis=1)
            right, own = np.array(classifier.classes)[best] == truth, truth == name
            yield way, float(right[own].mean()), float(right[~own].mean()), float(right.mean())


def uneven(arguments: Sequence[str]) -> None:
    """The first study."""
    parser = _parser("uneven", seeds=4)
    parser.add_argument("--most", type=_positive, default=GIVEN, help="samples of the richer classes")
    parser.add_argument("--least", type=_positive, default=1, help="samples of the others")
    parser.add_argument("--classes", type=_positive, help="some of the set's classes, drawn by seed")
    parser.add_argument("--folds", type=int, default=Recipe().folds, help="0: weights without evidence")
    parser.add_argument("--prior-evidence", type=float, default=Recipe().prior_evidence, help="0: no prior")
    options = parser.parse_args(arguments)
    data, embedder = _opened(options)
    recipe = Recipe().with_options(folds=options.folds, prior_evidence=options.prior_evidence)
    rows = [
        row
        for seed in range(options.seeds)
        for row in uneven_accuracies(
            data.draw(seed, given=options.most, part="development"),
            embedder,
            recipe,
            least=options.least,
            n_classes=options.classes,
        )
    ]
    _show(rows, ("accuracy", "shares stated"))


def added(arguments: Sequence[str]) -> None:
    """The second study."""
    parser = _parser("added-classes", seeds=2)
    parser.add_argument("--left-out", type=_positive, default=8, help="classes per seed")
    parser.add_argument("--recipe", default="default")
    options = parser.parse_args(arguments)
    (data, embedder), recipe = _opened(options), Recipe.preset(options.recipe)
    rows = [
        row
        for seed in range(options.seeds)
        for row in added_accuracies(
            data.draw(seed, given=GIVEN, part="development"), embedder, recipe, options.left_out
        )
    ]
    _show(rows, ("the class", "the others", "all"))


def _parser(name: str, *, seeds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"python -m experiments {name}")
    parser.add_argument("set")
    parser.add_argument("--seeds", type=_positive, default=seeds)
    parser.add_argument("--data", type=Path, help="folder of data sets; ADAMAB_DATA or ../shared/data")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _opened(options: argparse.Namespace) -> tuple[DataSet, Embedder]:
    data = load_data_set(options.set, Path() if options.set == "demo" else data_directory(options.data))
    return data, data.embedder() or open_embedder("local")


def _show(rows: Sequence[tuple[object, ...]], columns: Sequence[str]) -> None:
    """Means over seeds and classes with their standard errors, in %; one fit alone has none."""
    groups = pd.DataFrame(rows, columns=["", *columns]).groupby("", sort=False)
    means, errors = (100 * figures for figures in (groups.mean(), groups.sem()))
    texts = means.map("{:.1f}".format) + errors.map(lambda e: "" if np.isnan(e) else f" ± {e:.1f}")
    print(texts.to_string())
