"""What needs no training at all: the class whose samples lie nearest on average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData
from adamab.study.baselines.vectors import unit


class ClassMean(Baseline):
    """Cosine of a sample's embedding and the mean of each class's unit vectors.

    `scale` turns cosines into logits; it changes the probabilities and never the prediction.

    Example:
        >>> baseline = ClassMean().fit([[0.0, 1.0], [0.2, 1.0], [1.0, 0.0]], ["praise", "praise", "refund"])
        >>> baseline.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "nearest class mean"

    def __init__(self, *, view: str = POOLED, scale: float = 10.0) -> None:
        self.view = view
        self.scale = scale

    def _fit(self, data: TrainingData) -> None:
        rows, index = unit(data.views[self.view]), data.class_index()
        if not len(rows):
            raise TaskError(f"{self.name}: samples are needed; add some")
        sums = np.zeros((len(data.classes), rows.shape[1]))
        np.add.at(sums, index, rows)
        self.vectors_ = unit(sums)
        self.known_ = np.bincount(index, minlength=len(data.classes)) > 0

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        # A class without samples keeps its column, at probability zero.
        logits = np.where(self.known_, self.scale * unit(views[self.view]) @ self.vectors_.T, -np.inf)
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)
