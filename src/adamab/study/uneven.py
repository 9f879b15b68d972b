"""What if some classes have many samples and the others few? Fits with even and with uneven counts.

    python -m adamab.study.uneven demo --seeds 4
    python -m adamab.study.uneven demo --seeds 12 --most 15 --least 2 --classes 5

Development parts only: accuracy in %, with standard errors, for no class with many samples, one, 30 %,
60 % and all of them; first as the classifier answers, then with the shares of the classes in the part
stated as priors. `--classes` takes some of the set's classes, drawn by seed. `--folds 0` takes the
weights of views that are not evidence, `--typical 0` evidence alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from adamab.errors import AdamabError
from adamab.providers.embedders.base import Embedder
from adamab.run.fit import fit_task
from adamab.run.inference import Inference
from adamab.run.resolve import open_embedder
from adamab.study.datasets.base import DataSet, Draw, data_directory, load_data_set
from adamab.task.recipe import Recipe


@dataclass(frozen=True)
class Uneven:
    """A fit in which `rich` classes of `among` have all samples of the draw and the others few."""

    rich: int
    among: int
    accuracy: float
    stated: float  # the accuracy where the classes' shares among the test samples are stated


def accuracies(
    draw: Draw, embedder: Embedder, recipe: Recipe, *, least: int = 1, n_classes: int | None = None
) -> Iterator[Uneven]:
    """One fit for each number of classes that have all samples of the draw, the others having `least`."""
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
        yield Uneven(rich, len(order), plain, stated)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adamab.study.uneven")
    parser.add_argument("set")
    parser.add_argument("--seeds", type=_positive, default=4)
    parser.add_argument("--most", type=_positive, default=5, help="samples of the richer classes")
    parser.add_argument("--least", type=_positive, default=1, help="samples of the others")
    parser.add_argument("--classes", type=_positive)
    parser.add_argument("--folds", type=int, default=Recipe().folds)
    parser.add_argument("--typical", type=float, default=Recipe().typical)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    try:
        data = load_data_set(options.set, Path() if options.set == "demo" else data_directory(options.data))
        recipe = Recipe().with_options(folds=options.folds, typical=options.typical)
        _show(data, data.embedder() or open_embedder("local"), recipe, options)
    except AdamabError as error:
        parser.error(str(error))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _show(data: DataSet, embedder: Embedder, recipe: Recipe, options: argparse.Namespace) -> None:
    found: dict[tuple[int, int], list[Uneven]] = {}
    for seed in range(options.seeds):
        draw = data.draw(seed, given=options.most, part="development")
        fits = accuracies(draw, embedder, recipe, least=options.least, n_classes=options.classes)
        for fit in fits:
            found.setdefault((fit.rich, fit.among), []).append(fit)
    for (rich, among), alike in found.items():
        told = f"{options.most} samples of {rich:3} of {among} classes, {options.least} of the others"
        plain, stated = _mean([fit.accuracy for fit in alike]), _mean([fit.stated for fit in alike])
        print(f"{told}   {plain}   shares stated {stated}")


def _mean(shares: Sequence[float]) -> str:
    """In %, with its standard error if there is one."""
    figures = 100 * np.array(shares)
    error = f" ± {np.std(figures, ddof=1) / np.sqrt(len(figures)):.1f}" if len(figures) > 1 else ""
    return f"{figures.mean():5.1f}{error}"


if __name__ == "__main__":
    _main()
