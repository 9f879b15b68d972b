"""What most people would do first: logistic regression on the embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from adamab.providers.embedders.base import Item
from adamab.study.baselines.base import Floats
from adamab.study.baselines.linear import Linear
from adamab.study.baselines.vectors import Ints, in_columns


class LinearProbe(Linear):
    """Logistic regression on one view.

    Example:
        >>> probe = LinearProbe().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> probe.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "linear probe"

    def _trained(self, strength: float, x: NDArray[np.float64], y: Ints) -> LogisticRegression:
        # Weak regularisation converges slowly; a thousand iterations are not always enough.
        return LogisticRegression(C=strength, max_iter=10_000).fit(x, y)

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        known = self.model_.predict_proba(np.asarray(views[self.view], dtype=np.float64))
        return in_columns(known, self.model_.classes_, len(self.classes_))
