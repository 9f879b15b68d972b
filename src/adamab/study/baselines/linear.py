"""What linear classifiers on one view share: a strength chosen by cross-validation on training samples."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.study.baselines.base import POOLED, Baseline, TrainingData
from adamab.study.baselines.vectors import Ints, accuracies, best, folds

STRENGTHS = tuple(10.0**power for power in range(-2, 5))
DEFAULT_STRENGTH = 10.0


class Linear(Baseline):
    """An implementation writes `_trained`, which fits a scikit-learn model of a strength C.

    It may try fewer `strengths`, and judge by fewer folds where there are more than `many` samples.
    The strength is chosen by cross-validated accuracy. Of equal ones that nearest to 10 wins, which is also
    the strength where a class has a single sample and there is nothing to cross-validate on.
    """

    strengths: ClassVar[tuple[float, ...]] = STRENGTHS
    many: ClassVar[float] = math.inf

    def __init__(self, *, view: str = POOLED, strength: float | None = None, random_state: int = 0) -> None:
        self.view = view
        self.strength = strength
        self.random_state = random_state

    @abstractmethod
    def _trained(self, strength: float, x: NDArray[np.float64], y: Ints) -> Any:
        """A fitted model."""

    def _fit(self, data: TrainingData) -> None:
        x, y = np.asarray(data.views[self.view], dtype=np.float64), data.class_index()
        if len(np.unique(y)) < 2:
            raise TaskError(f"{self.name}: samples of at least two classes are needed; add some")
        self.strength_ = self._chosen(x, y) if self.strength is None else self.strength
        self.model_ = self._trained(self.strength_, x, y)
        self.n_parameters_ = self.model_.coef_.size + self.model_.intercept_.size

    def _chosen(self, x: NDArray[np.float64], y: Ints) -> float:
        splits = folds(y, self.random_state)
        if len(y) > self.many:
            splits = splits[:1]
        if not splits:
            return DEFAULT_STRENGTH

        def accuracy(strength: float) -> float:
            def predict(learned_from: Ints, scored: Ints) -> Ints:
                model = self._trained(strength, x[learned_from], y[learned_from])
                return np.asarray(model.predict(x[scored]), dtype=np.int64)

            return float(np.mean(list(accuracies(y, splits, predict))))

        return best(self.strengths, accuracy, _from_default)


def _from_default(strength: float) -> float:
    """How far a strength is from the default, in powers of ten."""
    return abs(float(np.log10(strength / DEFAULT_STRENGTH)))
