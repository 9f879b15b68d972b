"""The contract of a baseline: fit on training samples, then probabilities of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec, Sample, Task

Floats: TypeAlias = NDArray[np.floating[Any]]
POOLED = "pooled"


@dataclass(frozen=True)
class TrainingData:
    """Everything a baseline may learn from; there is no place for test samples.

    `classes` fixes the order of the probabilities' columns. `class_views` are the vectors of the
    classes' wordings, one row per class, where the embedder has them: the caller decides whether the
    wordings quote given examples (`prompts.with_examples`), and so whether similarity to them is
    zero-shot or few-shot. Where they do, `plain_class_views` are those of wordings that quote nothing,
    for choices by held-out samples. `items` are the texts or images themselves, for baselines that
    send them on; `texts` are theirs where they have words. The first `given` samples are given ones, and
    the only ones that a prompt may quote; None means all.
    """

    views: Mapping[str, Floats]  # (n, d) each
    labels: Sequence[str]  # (n,)
    classes: tuple[str, ...]
    texts: Sequence[str] = ()
    class_views: Mapping[str, Floats] = field(default_factory=dict)  # (K, d) each
    specs: tuple[ClassSpec, ...] = ()  # (K,) names and descriptions
    prompts: Prompts = field(default_factory=Prompts)
    items: Sequence[Item] = ()  # (n,)
    given: int | None = None
    plain_class_views: Mapping[str, Floats] = field(default_factory=dict)  # (K, d) each

    @classmethod
    def of_task(
        cls,
        task: Task,
        added: Sequence[Sample] = (),
        *,
        views: Mapping[str, Floats] | None = None,
        class_views: Mapping[str, Floats] | None = None,
        plain_class_views: Mapping[str, Floats] | None = None,
    ) -> TrainingData:
        """The task's samples and those `added` to them; a plan needs no vectors of them.

        Args:
            task: with its given samples.
            added: synthetic samples.
            views: vectors of all samples, by view.
            class_views: vectors of the classes' wordings.
            plain_class_views: those of wordings that quote no example.

        Returns:
            What a baseline is fitted on.
        """
        samples = [*task.samples, *added]
        items = items_of(samples)
        return cls(
            views=views or {},
            labels=[sample.class_name for sample in samples],
            classes=task.class_names,
            texts=[item for item in items if isinstance(item, str)],
            class_views=class_views or {},
            specs=task.classes,
            prompts=task.prompts,
            items=items,
            given=len(task.samples),
            plain_class_views=plain_class_views or {},
        )

    def class_index(self) -> NDArray[np.int64]:
        """(n,) the labels as numbers."""
        index = {name: i for i, name in enumerate(self.classes)}
        unknown = [label for label in self.labels if label not in index]
        if unknown:
            raise TaskError(f"label {unknown[0]!r} is not among the classes; add it to them")
        return np.array([index[label] for label in self.labels], dtype=np.int64)


def items_of(samples: Sequence[Sample]) -> list[Item]:
    """The texts or images themselves."""
    return [sample.image or sample.text for sample in samples]


class Baseline(ABC):
    """A classifier to compare with. An implementation sets `name` and writes two methods.

    `fit` takes `TrainingData`, or a matrix of pooled vectors and their labels; `predict` takes
    views, or a matrix of pooled vectors. `texts` are for baselines that read the words, or look at
    the images. After `fit`, `n_parameters_` counts the numbers that were trained. `version` is raised
    with every change that may change predictions.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    n_parameters_: int = 0
    answered_: NDArray[np.bool_] | None = None  # of the last prediction; None where all samples always are

    def fit(self, data: TrainingData | ArrayLike, y: Sequence[str] | None = None) -> Self:
        """Learn from training samples and nothing else.

        Args:
            data: training data, or a matrix of pooled vectors.
            y: labels of a matrix.

        Returns:
            Itself.
        """
        if not isinstance(data, TrainingData):
            if y is None:
                raise TaskError(f"{self.name}: vectors without labels; pass both")
            labels = [str(label) for label in y]
            data = TrainingData({POOLED: np.asarray(data)}, labels, tuple(sorted(set(labels))))
        self.classes_ = data.classes
        self._fit(data)
        return self

    def predict_proba(
        self, views: Mapping[str, Floats] | ArrayLike, texts: Sequence[Item] = ()
    ) -> NDArray[np.float64]:
        """Probabilities of classes.

        Args:
            views: vectors of the samples by view, or a matrix of pooled vectors.
            texts: the samples themselves, for baselines that read them.

        Returns:
            (n, K) probabilities, columns in the order of `classes_`.
        """
        known = views if isinstance(views, Mapping) else {POOLED: np.asarray(views)}
        if known and not any(map(len, known.values())):
            return np.zeros((0, len(self.classes_)))  # which scikit-learn would refuse
        return self._predict_proba(known, texts)

    def predict(self, views: Mapping[str, Floats] | ArrayLike, texts: Sequence[Item] = ()) -> list[str]:
        """The most probable class of each sample; of equals, the first.

        Args:
            views: vectors of the samples by view, or a matrix of pooled vectors.
            texts: the samples themselves, for baselines that read them.

        Returns:
            A class per sample.
        """
        return [self.classes_[i] for i in np.argmax(self.predict_proba(views, texts), axis=1)]

    @property
    def fingerprint(self) -> str:
        """What predictions depend on beside options and data: a model, if there is one.

        To work it out nothing is loaded and nobody is asked.
        """
        return ""

    def report(self) -> dict[str, int]:
        """How often the last prediction was answered with something else than a class, by kind."""
        return {}

    @abstractmethod
    def _fit(self, data: TrainingData) -> None:
        """Learn."""

    @abstractmethod
    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        """(n, K) probabilities."""
