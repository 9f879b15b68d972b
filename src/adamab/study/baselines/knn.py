"""The classes of the nearest training samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData
from adamab.study.baselines.vectors import Ints, accuracies, best, folds, unit

NEIGHBOURS = (1, 3, 5, 7, 9, 15)
_TIE = 1e-6  # what nearness counts beside a vote: it decides between equal counts only
_BLOCK = 2**22  # similarities at a time


class NearestNeighbours(Baseline):
    """A vote of the k training samples of the highest cosine; equal counts go to the nearer ones.

    k is chosen by cross-validated accuracy, the smallest of equals; it is 1 where a class has a single
    sample. Probabilities are shares of the vote.

    Example:
        >>> neighbours = NearestNeighbours(k=1).fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> neighbours.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "nearest neighbours"

    def __init__(self, *, view: str = POOLED, k: int | None = None, random_state: int = 0) -> None:
        if k is not None and k < 1:
            raise TaskError(f"{self.name}: k is {k}; at least one neighbour is needed")
        self.view = view
        self.k = k
        self.random_state = random_state

    def _fit(self, data: TrainingData) -> None:
        self.rows_, self.index_ = unit(data.views[self.view]), data.class_index()
        if not len(self.rows_):
            raise TaskError(f"{self.name}: samples are needed; add some")
        self.k_ = min(self._chosen() if self.k is None else self.k, len(self.rows_))

    def _chosen(self) -> int:
        splits = folds(self.index_, self.random_state)
        if not splits:
            return NEIGHBOURS[0]
        fewest = min(len(learned_from) for learned_from, _ in splits)

        def accuracy(k: int) -> float:
            def predict(learned_from: Ints, scored: Ints) -> Ints:
                return np.asarray(np.argmax(self._votes(self.rows_[scored], learned_from, k), axis=1))

            return float(np.mean(list(accuracies(self.index_, splits, predict))))

        return best([k for k in NEIGHBOURS if k <= fewest], accuracy, float)

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        queries, size = unit(views[self.view]), max(1, _BLOCK // len(self.rows_))
        everything = np.arange(len(self.rows_))
        parts = [
            self._votes(queries[start : start + size], everything, self.k_)
            for start in range(0, len(queries), size)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes_)))

    def _votes(self, queries: NDArray[np.float64], rows: Ints, k: int) -> NDArray[np.float64]:
        """(n, K) shares; a class without samples gets no vote."""
        cosines = queries @ self.rows_[rows].T
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        weights = 1 + _TIE * np.take_along_axis(cosines, nearest, axis=1)
        votes = np.zeros((len(queries), len(self.classes_)))
        np.add.at(votes, (np.arange(len(queries))[:, None], self.index_[rows][nearest]), weights)
        shares: NDArray[np.float64] = votes / votes.sum(axis=1, keepdims=True)
        return shares
