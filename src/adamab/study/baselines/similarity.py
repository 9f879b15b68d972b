"""Zero-shot: the class whose wording is nearest to the text, with nothing learned or with means only.

Whether that is the zero-shot or the few-shot setting is a matter of the wordings: where the caller
embedded ones that quote the given examples (`Prompts.with_examples`), similarity to them is few-shot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData
from adamab.study.baselines.vectors import unit


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
        self.vectors_ = unit(self._class_vectors(data))

    def _class_vectors(self, data: TrainingData) -> Floats:
        if self.view not in data.class_views:
            raise TaskError(f"{self.name}: the classes have no vectors of view {self.view!r}; describe them")
        return data.class_views[self.view]

    def _queries(self, views: Mapping[str, Floats]) -> NDArray[np.float64]:
        return unit(views[self.view])

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        cosines = self._queries(views) @ self.vectors_.T
        return np.asarray(softmax(self.scale * cosines, axis=1), dtype=np.float64)


class CentredSimilarity(Similarity):
    """The same with both sides centred: texts on the training samples' mean, wordings on their own.

    Wordings are alike and unlike the texts, so what all of them share says nothing about a class.
    Labels are ignored; without training samples the texts stay where they are.

    Example:
        >>> data = TrainingData(
        ...     {"pooled": np.array([[9.0, 1.0], [9.0, -1.0]])},
        ...     ["up", "down"],
        ...     ("up", "down"),
        ...     class_views={"pooled": np.array([[5.0, 2.0], [5.0, 1.0]])},
        ... )
        >>> CentredSimilarity().fit(data).predict([[9.0, 0.5], [9.0, -0.5]])
        ['up', 'down']
    """

    name = "centred similarity"

    def _fit(self, data: TrainingData) -> None:
        classes = np.asarray(self._class_vectors(data), dtype=np.float64)
        rows = np.asarray(data.views.get(self.view, np.zeros((0, 1))), dtype=np.float64)
        self.centre_ = rows.mean(axis=0) if len(rows) else np.zeros(classes.shape[1])
        self.vectors_ = unit(classes - classes.mean(axis=0))

    def _queries(self, views: Mapping[str, Floats]) -> NDArray[np.float64]:
        return unit(np.asarray(views[self.view], dtype=np.float64) - self.centre_)
