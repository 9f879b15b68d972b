"""A linear support vector machine on the embedding, one class against the others."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData
from adamab.study.baselines.linear_probe import DEFAULT_STRENGTH, STRENGTHS, from_default
from adamab.study.baselines.vectors import Ints, accuracies, best, folds, in_columns


class LinearSVM(Baseline):
    """Its strength C is chosen as the linear probe's: by cross-validated accuracy, 10 where that is no help.

    Probabilities are the softmax of the decision values: right in their order, and not calibrated.

    Example:
        >>> machine = LinearSVM().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> machine.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "linear SVM"

    def __init__(self, *, view: str = POOLED, strength: float | None = None, random_state: int = 0) -> None:
        self.view = view
        self.strength = strength
        self.random_state = random_state

    def _fit(self, data: TrainingData) -> None:
        x, y = np.asarray(data.views[self.view], dtype=np.float64), data.class_index()
        if len(np.unique(y)) < 2:
            raise TaskError(f"{self.name}: samples of at least two classes are needed; add some")
        self.strength_ = self._chosen(x, y) if self.strength is None else self.strength
        self.model_ = self._trained(self.strength_, x, y)
        self.n_parameters_ = self.model_.coef_.size + self.model_.intercept_.size

    def _chosen(self, x: NDArray[np.float64], y: Ints) -> float:
        splits = folds(y, self.random_state)
        if not splits:
            return DEFAULT_STRENGTH

        def accuracy(strength: float) -> float:
            def predict(learned_from: Ints, scored: Ints) -> Ints:
                model = self._trained(strength, x[learned_from], y[learned_from])
                return np.asarray(model.predict(x[scored]), dtype=np.int64)

            return float(np.mean(list(accuracies(y, splits, predict))))

        return best(STRENGTHS, accuracy, from_default)

    def _trained(self, strength: float, x: NDArray[np.float64], y: Ints) -> LinearSVC:
        with warnings.catch_warnings():
            # Where classes can be separated, a weak penalty takes long to settle and changes nothing.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return LinearSVC(C=strength, dual=True, random_state=self.random_state).fit(x, y)

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        values = self.model_.decision_function(np.asarray(views[self.view], dtype=np.float64))
        if values.ndim == 1:  # of two classes there is one value
            values = np.stack([-values, values], axis=1)
        return in_columns(softmax(values, axis=1), self.model_.classes_, len(self.classes_))
