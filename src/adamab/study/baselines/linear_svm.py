"""A linear support vector machine on the embedding, one class against the others."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from adamab.providers.embedders.base import Item
from adamab.study.baselines.base import Floats
from adamab.study.baselines.linear import Linear
from adamab.study.baselines.vectors import Ints, in_columns


class LinearSVM(Linear):
    """Probabilities are the softmax of the decision values: right in their order, and not calibrated.

    Example:
        >>> machine = LinearSVM().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> machine.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "linear SVM"
    # Minutes a fit on thousands of samples of hundreds of classes. On development parts of Pets, HWU64 and
    # CUB200 strengths outside of this range were worse.
    strengths = (0.1, 1.0, 10.0)
    many = 1000

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
