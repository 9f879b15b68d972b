"""Zero-shot: the class whose wording is nearest to the text, with nothing learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.errors import TaskError
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData


class Similarity(Baseline):
    """Cosine of a text's pooled embedding and that of a class's wording.

    Labels and samples are ignored. `scale` turns cosines into logits; it changes the probabilities
    and never the prediction.
    """

    name = "zero-shot similarity"

    def __init__(self, *, view: str = POOLED, scale: float = 10.0) -> None:
        self.view = view
        self.scale = scale

    def _fit(self, data: TrainingData) -> None:
        if self.view not in data.class_views:
            raise TaskError(f"{self.name}: the classes have no vectors of view {self.view!r}; describe them")
        self.vectors_ = _unit(data.class_views[self.view])

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[str]) -> NDArray[np.float64]:
        cosines = _unit(views[self.view]) @ self.vectors_.T
        return np.asarray(softmax(self.scale * cosines, axis=1), dtype=np.float64)


def _unit(x: Floats) -> NDArray[np.float64]:
    rows = np.asarray(x, dtype=np.float64)
    unit: NDArray[np.float64] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
