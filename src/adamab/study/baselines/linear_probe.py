"""What most people would do first: logistic regression on the embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData
from adamab.study.baselines.vectors import best, folds, in_columns

STRENGTHS = tuple(10.0**power for power in range(-2, 5))
DEFAULT_STRENGTH = 10.0


class LinearProbe(Baseline):
    """Logistic regression on one view, its strength C chosen by cross-validated accuracy.

    Of equal strengths the one nearest to 10 wins, which is also the strength where a class has a
    single sample and there is nothing to cross-validate on.

    Example:
        >>> probe = LinearProbe().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> probe.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "linear probe"

    def __init__(self, *, view: str = POOLED, strength: float | None = None, random_state: int = 0) -> None:
        self.view = view
        self.strength = strength
        self.random_state = random_state

    def _fit(self, data: TrainingData) -> None:
        x, y = np.asarray(data.views[self.view], dtype=np.float64), data.class_index()
        if len(np.unique(y)) < 2:
            raise TaskError(f"{self.name}: samples of at least two classes are needed; add some")
        self.strength_ = self._chosen(x, y) if self.strength is None else self.strength
        self.model_ = _model(self.strength_).fit(x, y)
        self.n_parameters_ = self.model_.coef_.size + self.model_.intercept_.size

    def _chosen(self, x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
        splits = folds(y, self.random_state)
        if not splits:
            return DEFAULT_STRENGTH
        return best(
            STRENGTHS, lambda c: float(cross_val_score(_model(c), x, y, cv=splits).mean()), from_default
        )

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        known = self.model_.predict_proba(np.asarray(views[self.view], dtype=np.float64))
        return in_columns(known, self.model_.classes_, len(self.classes_))


def from_default(strength: float) -> float:
    """How far a strength is from the default, in powers of ten."""
    return abs(float(np.log10(strength / DEFAULT_STRENGTH)))


def _model(strength: float) -> LogisticRegression:
    # Weak regularisation converges slowly; a thousand iterations are not always enough.
    return LogisticRegression(C=strength, max_iter=10_000)
