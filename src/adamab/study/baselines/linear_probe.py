"""What most people would do first: logistic regression on the embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score

from adamab.errors import TaskError
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData

STRENGTHS = tuple(10.0**power for power in range(-2, 5))
DEFAULT_STRENGTH = 10.0
FOLDS = 5


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

    def _chosen(self, x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
        smallest = int(np.unique(y, return_counts=True)[1].min())
        if smallest < 2:
            return DEFAULT_STRENGTH
        folds = StratifiedKFold(min(FOLDS, smallest), shuffle=True, random_state=self.random_state)
        scores = {c: float(cross_val_score(_model(c), x, y, cv=folds).mean()) for c in STRENGTHS}
        return max(scores, key=lambda c: (round(scores[c], 9), -abs(np.log10(c / DEFAULT_STRENGTH))))

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[str]) -> NDArray[np.float64]:
        # A class without samples keeps its column, at probability zero.
        known = self.model_.predict_proba(np.asarray(views[self.view], dtype=np.float64))
        probabilities = np.zeros((len(known), len(self.classes_)))
        probabilities[:, self.model_.classes_] = known
        return probabilities


def _model(strength: float) -> LogisticRegression:
    # Weak regularisation converges slowly; a thousand iterations are not always enough.
    return LogisticRegression(C=strength, max_iter=10_000)
