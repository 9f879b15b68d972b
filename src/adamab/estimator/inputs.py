"""What scikit-learn hands over, checked and turned into what the rest of the house knows; and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_random_state

from adamab.classifier import UNKNOWN, Answers
from adamab.errors import TaskError
from adamab.providers.prices import Price
from adamab.task.image_folders import image_at
from adamab.task.images import Image
from adamab.task.messages import checked
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Modality, Sample, Task

LARGEST = 1e12  # of a number in X: squares of many of them, or of inverses, are far from the limits


def images_of(X: Sequence[Any]) -> list[Image]:
    """The pictures that a list of paths names."""
    if isinstance(X, str | PathLike):
        raise TaskError("X is one path; give a list of paths")
    for i, path in enumerate(X):
        if not isinstance(path, str | PathLike):
            raise TaskError(f"X[{i}] is {type(path).__name__}, not a path; give paths of pictures")
    return [image_at(Path(path)) for path in X]


def texts_of(X: Sequence[Any]) -> list[str]:
    """The texts, checked one by one."""
    if isinstance(X, str):
        raise TaskError("X is one string; give a list of texts")
    texts = list(X)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TaskError(f"X[{i}] is {type(text).__name__}, not a text; ADAMABClassifier takes raw texts")
        checked(text, f"X[{i}]", "the text")
    return texts


def check_magnitude(vectors: NDArray[np.float32]) -> None:
    """Refuse vectors whose squares a computer cannot hold in single precision."""
    most = float(np.abs(vectors).max(initial=0))
    if most > LARGEST or 0 < most < 1 / LARGEST:
        raise ValueError(
            f"the largest number of X is {most:.3g}; scale X so that it is between {1 / LARGEST:g} and "
            f"{LARGEST:g}"
        )


def check_labels(labels: NDArray[Any]) -> None:
    """Refuse labels that are none."""
    for i, label in enumerate(labels.tolist()):
        if label is None:
            raise TaskError(f"y[{i}] is None; give every sample a label or leave it out")
    with warnings.catch_warnings():
        # With one or two samples a class, which is what this is for, it asks whether numbers are meant.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        check_classification_targets(labels)


def new_label(label: Any, known: NDArray[Any]) -> NDArray[Any]:  # (1,)
    """A label that comes later, of the type of the others."""
    if label is None:
        raise TaskError("the label is None; name the new class")
    new = np.array([label], dtype=object if known.dtype == object else None)
    if new.shape != (1,) or new.dtype.kind != known.dtype.kind:
        raise TaskError(
            f"label {label!r} is of type {type(label).__name__}, and the others are of {known.dtype}; "
            "give one of their type"
        )
    return new


def task_of(
    rows: Sequence[Sample],
    labels: NDArray[Any],
    classes: NDArray[Any],
    descriptions: Mapping[Any, str],
    modality: Modality,
) -> Task:
    """The same as a task; labels of any type become names."""
    unknown = [label for label in descriptions if label not in classes]
    if unknown:
        raise TaskError(f"description of {unknown[0]!r}, which is not among the labels")
    specs = tuple(ClassSpec(str(label), descriptions.get(label)) for label in classes.tolist())
    samples = tuple(
        replace(row, class_name=str(label)) for row, label in zip(rows, labels.tolist(), strict=True)
    )
    return Task(specs, samples, modality=modality)


def prices_of(prices: Mapping[str, str] | None) -> dict[str, Price]:
    """Prices by model, as users write them."""
    return dict(Price.parse(f"{model}={price}") for model, price in (prices or {}).items())


def recipe_of(recipe: str | Recipe) -> Recipe:
    """A recipe, by its name or as it is."""
    return Recipe.preset(recipe) if isinstance(recipe, str) else recipe


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn allows: None, a number, or a RandomState."""
    if isinstance(random_state, (int, np.integer)):
        if not 0 <= random_state < 2**32:
            raise ValueError(f"random_state is {random_state}; give a number from 0 to 2**32 - 1")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def by_name(priors: Mapping[Any, float] | None) -> dict[str, float] | None:
    """By the names that the classifier has for the labels."""
    if not isinstance(priors, Mapping):  # None, or something that is refused where it is asked for
        return priors
    return {str(label): share for label, share in priors.items()}


def labels_of(estimator: Any, told: Answers) -> NDArray[Any]:
    """The most probable labels, and "unknown" where that was asked for."""
    labels: NDArray[Any] = estimator.classes_[told.indices[:, 0]]
    if told.unknown is None:
        return labels
    if labels.dtype.kind != "U":  # numbers leave no room for a word
        labels = labels.astype(object)
    return np.where(told.unknown, UNKNOWN, labels)


def sets_of(estimator: Any, told: Answers) -> list[NDArray[Any]]:
    """The labels of each prediction set."""
    return [estimator.classes_[found] for found in told.sets or ()]
