"""Shapes of a task beside equal counts: uneven counts, classes without samples, names that say nothing.

| shape | samples of a class |
| --- | --- |
| even | the number given |
| uneven | five of three classes in ten, drawn by the seed; one of each other |
| drawn | a number from 1 to 15, drawn for each class |
| unseen | none of a fifth of the classes, drawn by the seed; the number given of the others |
| codes | the number given, of classes that are called c01, c02 and so on, without descriptions |
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from adamab.task import ClassSpec
from experiments.datasets.base import Draw

Shape = Literal["even", "uneven", "drawn", "unseen", "codes"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
EVEN: Shape = "even"
RICH, MANY, FEW = 0.3, 5, 1  # of `uneven`: the share of the classes with many samples, many and few
MOST = 15  # of `drawn`
UNSEEN = 0.2  # of `unseen`: the share of classes without samples
_ALL = 1_000_000


def shaped(draw: Draw, shape: Shape) -> Draw:
    """The draw with fewer given samples, or with other names; what it could add is left out."""
    if shape == EVEN:
        return draw
    task, names = draw.task, list(draw.task.class_names)
    digest = hashlib.sha256(f"{draw.digest} {shape}".encode()).hexdigest()
    other = replace(draw, pool={}, recorded={}, images={}, digest=digest)
    if shape == "codes":
        codes = {name: f"c{number:02}" for number, name in enumerate(names, 1)}
        samples, test = (
            tuple(replace(sample, class_name=codes[sample.class_name]) for sample in of)
            for of in (task.samples, draw.test)
        )
        classes = tuple(ClassSpec(codes[name]) for name in names)
        return replace(other, task=replace(task, classes=classes, samples=samples), test=test)
    counts = dict(zip(names, _counts(shape, len(names), draw.seed), strict=True))
    kept = tuple(sample for name in names for sample in task.samples_of(name)[: counts[name]])
    return replace(other, task=replace(task, samples=kept))


def _counts(shape: Shape, n_classes: int, seed: int) -> list[int]:
    """The most samples of each class."""
    rng = np.random.default_rng([SHAPES.index(shape), seed])
    if shape == "drawn":
        return [int(count) for count in rng.integers(1, MOST, n_classes, endpoint=True)]
    rank = rng.permutation(n_classes)
    if shape == "uneven":
        return [MANY if place < round(RICH * n_classes) else FEW for place in rank]
    return [0 if place < UNSEEN * n_classes else _ALL for place in rank]
