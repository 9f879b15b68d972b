"""A cache of training samples whose keys are trained, in the manner of Tip-Adapter-F."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.run import torch_required
from adamab.study.baselines.base import POOLED, Baseline, Floats, TrainingData
from adamab.study.baselines.vectors import Ints, best, folds, unit

ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
BETAS = (1.0, 3.0, 5.5, 10.0, 20.0)
ALPHA, BETA = 1.0, 5.5  # that keys are trained with, and used where there is nothing to choose by
EPOCHS, RATE, BATCH = 20, 1e-3, 256
Wordings: TypeAlias = NDArray[np.float64] | None  # (K, d) their vectors, where there are any


@dataclass(frozen=True)
class _Cache:
    """Trained keys and the classes that they stand for."""

    keys: NDArray[np.float64]  # (n, d)
    values: NDArray[np.float64]  # (n, K) one in the sample's class

    def logits(self, queries: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
        affinity = np.exp(-beta * (1 - queries @ self.keys.T))
        found: NDArray[np.float64] = affinity @ self.values
        return found


class CacheAdapter(Baseline):
    """Logits: `scale` x cosine with the classes' wordings + α Σ exp(-β (1 - key . text)) over the samples.

    A sum over the samples of each class; keys start as their unit vectors and are trained by cross-entropy
    (AdamW, 20 epochs). With trained keys α and β are chosen by cross-validated accuracy on the training
    samples; where a class has a single sample they are 1 and 5.5. Without vectors of the wordings the
    samples stand alone: α is then a mere scale, and a class without samples is never predicted. Wordings
    that quote training samples quote the folds' held-out ones too, which makes α come out low: the folds
    use wordings that quote nothing (`plain_class_views`) where the training data has them.

    Example:
        >>> adapter = CacheAdapter().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> adapter.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "cache adapter"

    def __init__(self, *, view: str = POOLED, scale: float = 10.0, random_state: int = 0) -> None:
        self.view = view
        self.scale = scale
        self.random_state = random_state

    def _fit(self, data: TrainingData) -> None:
        rows, y = unit(data.views[self.view]), data.class_index()
        described = data.class_views.get(self.view)
        plain = data.plain_class_views.get(self.view, described)
        if not len(rows):
            raise TaskError(f"{self.name}: samples are needed; add some")
        self.vectors_ = None if described is None else unit(described)
        unquoted = None if plain is None else unit(plain)
        self.known_ = np.bincount(y, minlength=len(data.classes)) > 0
        self.alpha_, self.beta_ = self._chosen(rows, y, unquoted)
        self.cache_ = self._trained(rows, y, self.vectors_)
        self.n_parameters_ = self.cache_.keys.size

    def _chosen(self, rows: NDArray[np.float64], y: Ints, vectors: Wordings) -> tuple[float, float]:
        """α and β by the folds' held-out samples, with keys that were trained without them."""
        pairs = [(alpha, beta) for alpha, beta in product(self._alphas(), BETAS)]
        default = (ALPHA if self.vectors_ is not None else self.scale, BETA)
        hits = dict.fromkeys(pairs, 0)
        for learned_from, scored in folds(y, self.random_state):
            cache = self._trained(rows[learned_from], y[learned_from], vectors)
            for alpha, beta in pairs:
                logits = self._logits(rows[scored], cache, alpha, beta, vectors)
                hits[alpha, beta] += int((np.argmax(logits, axis=1) == y[scored]).sum())

        def from_default(pair: tuple[float, float]) -> float:
            return sum(abs(float(np.log(one / other))) for one, other in zip(pair, default, strict=True))

        return best(pairs, lambda pair: float(hits[pair]), from_default)

    def _alphas(self) -> tuple[float, ...]:
        return ALPHAS if self.vectors_ is not None else (self.scale,)

    def _trained(self, rows: NDArray[np.float64], y: Ints, vectors: Wordings) -> _Cache:
        values = np.eye(len(self.classes_))[y]
        similarity = self._similarity(rows, vectors)
        alpha = ALPHA if vectors is not None else self.scale
        with torch_required():
            keys = _trained_keys(rows, values, similarity, y, alpha, self.random_state)
        return _Cache(keys, values)

    def _similarity(self, rows: NDArray[np.float64], vectors: Wordings) -> NDArray[np.float64]:
        if vectors is None:
            return np.zeros((len(rows), len(self.classes_)))
        cosines: NDArray[np.float64] = self.scale * rows @ vectors.T
        return cosines

    def _logits(
        self, rows: NDArray[np.float64], cache: _Cache, alpha: float, beta: float, vectors: Wordings
    ) -> NDArray[np.float64]:
        logits = self._similarity(rows, vectors) + alpha * cache.logits(rows, beta)
        reachable = self.known_ if vectors is None else np.ones_like(self.known_)
        return np.where(reachable, logits, -np.inf)

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        rows = unit(views[self.view])
        logits = self._logits(rows, self.cache_, self.alpha_, self.beta_, self.vectors_)
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)


def _trained_keys(
    rows: NDArray[np.float64],  # (n, d)
    values: NDArray[np.float64],  # (n, K)
    similarity: NDArray[np.float64],  # (n, K) logits of the wordings
    y: Ints,
    alpha: float,
    seed: int,
) -> NDArray[np.float64]:
    import torch

    chance = torch.Generator().manual_seed(seed)
    x, v, s = (torch.tensor(a, dtype=torch.float32) for a in (rows, values, similarity))
    labels = torch.tensor(y)
    keys = torch.nn.Parameter(x.clone())
    optimiser = torch.optim.AdamW([keys], lr=RATE, eps=1e-4)
    steps = EPOCHS * -(-len(x) // BATCH)
    schedule: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(x), generator=chance), BATCH):
            affinity = torch.exp(-BETA * (1 - x[batch] @ keys.T))
            loss = torch.nn.functional.cross_entropy(s[batch] + alpha * affinity @ v, labels[batch])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return keys.detach().numpy().astype(np.float64)
