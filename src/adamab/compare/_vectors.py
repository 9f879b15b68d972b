"""Baselines on vectors: nothing but arrays and scikit-learn."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from adamab.compare.methods import POOLED, Baseline, Floats, TrainingData
from adamab.errors import TaskError
from adamab.method.numerics import cross_entropy
from adamab.method.training import Optimiser
from adamab.providers.embedders.base import Item

Ints: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.float64]  # (n, d)
Splits: TypeAlias = Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]]
Setting = TypeVar("Setting")
FOLDS = 5
STRENGTHS, DEFAULT_STRENGTH = tuple(10.0**power for power in range(-2, 5)), 10.0
NEIGHBOURS = (1, 3, 5, 7, 9, 15)
ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
BETAS = (1.0, 3.0, 5.5, 10.0, 20.0)
ALPHA, BETA = 1.0, 5.5  # that keys are trained with, and used where there is nothing to choose by
EPOCHS, RATE, DECAY, EPSILON, BATCH = 20, 1e-3, 1e-2, 1e-4, 256  # of AdamW
_TIE = 1e-6  # what nearness counts beside a vote: it decides between equal counts only
_BLOCK = 2**22  # similarities at a time


def unit(x: Floats) -> Rows:
    """Rows of length one; a row of zeros stays what it is."""
    rows = np.asarray(x, dtype=np.float64)
    units: Rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return units


def in_columns(known: NDArray[np.floating], columns: Ints, n_classes: int) -> Rows:
    """(n, K) with `known` in its columns; a class without samples keeps its own, at zero."""
    all_columns = np.zeros((len(known), n_classes))
    all_columns[:, columns] = known
    return all_columns


def folds(y: Ints, random_state: int) -> Splits:
    """Rows to learn from and rows to score, five times or less; none where a class has one sample."""
    from sklearn.model_selection import StratifiedKFold

    smallest = int(np.unique(y, return_counts=True)[1].min(initial=FOLDS))
    if len(y) == 0 or smallest < 2:
        return []
    return list(StratifiedKFold(smallest, shuffle=True, random_state=random_state).split(y, y))


def cross_validated(
    settings: Iterable[Setting], y: Ints, splits: Splits, predict: Callable[[Setting, Ints, Ints], Ints]
) -> dict[Setting, float]:
    """The mean accuracy over the folds of `predict(setting, learned_from, scored)`."""
    return {
        setting: float(np.mean([(predict(setting, *split) == y[split[1]]).mean() for split in splits]))
        for setting in settings
    }


def best(scores: Mapping[Setting, float], distance: Callable[[Setting], float]) -> Setting:
    """The setting of the highest score; of equals the one at the least distance from the default."""
    return max(scores, key=lambda setting: (round(scores[setting], 9), -distance(setting)))


def samples_of(data: TrainingData, view: str, name: str) -> tuple[Rows, Ints]:
    """Unit vectors of the samples and the numbers of their classes."""
    rows, index = unit(data.views[view]), data.class_index()
    if not len(rows):
        raise TaskError(f"{name}: samples are needed; add some")
    return rows, index


@dataclass(kw_only=True, eq=False)
class Similarity(Baseline):
    """Cosine of a text's pooled embedding and that of a class's wording.

    Labels and samples are ignored. `scale` turns cosines into logits; it changes the probabilities
    and never the prediction.
    """

    view: str = POOLED
    scale: float = 10.0

    name = "zero-shot similarity"
    centre_: Rows | float = 0.0
    known_: NDArray[np.bool_] | bool = True  # classes without samples keep their column, at zero

    def _fit(self, data: TrainingData) -> None:
        if self.view not in data.class_views:
            raise TaskError(f"{self.name}: the classes have no vectors of view {self.view!r}; describe them")
        self.vectors_ = unit(data.class_views[self.view])

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> Rows:
        queries = unit(np.asarray(views[self.view], dtype=np.float64) - self.centre_)
        logits = np.where(self.known_, self.scale * queries @ self.vectors_.T, -np.inf)
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)


class ClassMean(Similarity):
    """Cosine of a sample's embedding and the mean of each class's unit vectors (nearest centroid).

    Example:
        >>> baseline = ClassMean().fit([[0.0, 1.0], [0.2, 1.0], [1.0, 0.0]], ["praise", "praise", "refund"])
        >>> baseline.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "nearest class mean"

    def _fit(self, data: TrainingData) -> None:
        rows, index = samples_of(data, self.view, self.name)
        sums = np.zeros((len(data.classes), rows.shape[1]))
        np.add.at(sums, index, rows)
        self.vectors_ = unit(sums)
        self.known_ = np.bincount(index, minlength=len(data.classes)) > 0


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
        super()._fit(data)
        classes = np.asarray(data.class_views[self.view], dtype=np.float64)
        rows = np.asarray(data.views.get(self.view, ()), dtype=np.float64)
        self.centre_ = rows.mean(axis=0) if len(rows) else 0.0
        self.vectors_ = unit(classes - classes.mean(axis=0))


class MeanAndText(CentredSimilarity):
    """Cosine with the mean of each class's samples plus its wording, both sides centred.

    Both count alike, as unit vectors. A class without samples has its wording alone, and where wordings have
    no vectors a class has its mean.

    Example:
        >>> baseline = MeanAndText().fit([[0.0, 1.0], [0.2, 1.0], [1.0, 0.0]], ["up", "up", "right"])
        >>> baseline.predict([[0.9, 0.2]])
        ['right']
    """

    name = "mean and text"

    def _fit(self, data: TrainingData) -> None:
        _, index = samples_of(data, self.view, self.name)
        rows, n_classes = np.asarray(data.views[self.view], dtype=np.float64), len(data.classes)
        self.centre_ = rows.mean(axis=0)
        sums = np.zeros((n_classes, rows.shape[1]))
        np.add.at(sums, index, unit(rows - self.centre_))
        described = data.class_views.get(self.view)
        self.known_ = True
        if described is None:
            self.vectors_ = unit(sums)
            self.known_ = np.bincount(index, minlength=n_classes) > 0
        else:
            classes = np.asarray(described, dtype=np.float64)
            self.vectors_ = unit(unit(sums) + unit(classes - classes.mean(axis=0)))


@dataclass(kw_only=True, eq=False)
class Linear(Baseline):
    """A linear model on one view. An implementation writes `_trained`, which fits one of a strength C.

    It may try fewer `strengths`, and judge by fewer folds where there are more than `many` samples.
    The strength is chosen by cross-validated accuracy. Of equal ones that nearest to 10 wins, which is also
    the strength where a class has a single sample and there is nothing to cross-validate on.
    """

    view: str = POOLED
    strength: float | None = None
    random_state: int = 0

    strengths: ClassVar[tuple[float, ...]] = STRENGTHS
    many: ClassVar[float] = math.inf

    @abstractmethod
    def _trained(self, strength: float, x: Rows, y: Ints) -> Any:
        """A fitted model of scikit-learn."""

    @abstractmethod
    def _shares(self, x: Rows) -> Rows:
        """(n, k) probabilities of the classes that have samples."""

    def _fit(self, data: TrainingData) -> None:
        x, y = np.asarray(data.views[self.view], dtype=np.float64), data.class_index()
        if len(np.unique(y)) < 2:
            raise TaskError(f"{self.name}: samples of at least two classes are needed; add some")
        self.strength_ = self._chosen(x, y) if self.strength is None else self.strength
        self.model_ = self._trained(self.strength_, x, y)
        self.n_parameters_ = self.model_.coef_.size + self.model_.intercept_.size

    def _chosen(self, x: Rows, y: Ints) -> float:
        splits = folds(y, self.random_state)
        if not splits:
            return DEFAULT_STRENGTH

        def predict(strength: float, learned_from: Ints, scored: Ints) -> Ints:
            model = self._trained(strength, x[learned_from], y[learned_from])
            return np.asarray(model.predict(x[scored]), dtype=np.int64)

        splits = splits[:1] if len(y) > self.many else splits
        scores = cross_validated(self.strengths, y, splits, predict)
        return best(scores, lambda strength: abs(float(np.log10(strength / DEFAULT_STRENGTH))))

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> Rows:
        shares = self._shares(np.asarray(views[self.view], dtype=np.float64))
        return in_columns(shares, self.model_.classes_, len(self.classes_))


class LinearProbe(Linear):
    """Logistic regression on one view.

    Example:
        >>> probe = LinearProbe().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> probe.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "linear probe"

    def _trained(self, strength: float, x: Rows, y: Ints) -> LogisticRegression:
        # Weak regularisation converges slowly; a thousand iterations are not always enough.
        return LogisticRegression(C=strength, max_iter=10_000).fit(x, y)

    def _shares(self, x: Rows) -> Rows:
        return np.asarray(self.model_.predict_proba(x))


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

    def _trained(self, strength: float, x: Rows, y: Ints) -> LinearSVC:
        with warnings.catch_warnings():
            # Where classes can be separated, a weak penalty takes long to settle and changes nothing.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return LinearSVC(C=strength, dual=True, random_state=self.random_state).fit(x, y)

    def _shares(self, x: Rows) -> Rows:
        values = self.model_.decision_function(x)
        if values.ndim == 1:  # of two classes there is one value
            values = np.stack([-values, values], axis=1)
        return np.asarray(softmax(values, axis=1))


@dataclass(kw_only=True, eq=False)
class NearestNeighbours(Baseline):
    """A vote of the k training samples of the highest cosine; equal counts go to the nearer ones.

    k is chosen by cross-validated accuracy, the smallest of equals; it is 1 where a class has a single
    sample. Probabilities are shares of the vote.

    Example:
        >>> neighbours = NearestNeighbours(k=1).fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> neighbours.predict([[0.9, 0.2]])
        ['refund']
    """

    view: str = POOLED
    k: int | None = None
    random_state: int = 0

    name = "nearest neighbours"

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise TaskError(f"{self.name}: k is {self.k}; at least one neighbour is needed")

    def _fit(self, data: TrainingData) -> None:
        self.rows_, self.index_ = samples_of(data, self.view, self.name)
        self.k_ = min(self._chosen() if self.k is None else self.k, len(self.rows_))

    def _chosen(self) -> int:
        splits = folds(self.index_, self.random_state)
        if not splits:
            return NEIGHBOURS[0]

        def predict(k: int, learned_from: Ints, scored: Ints) -> Ints:
            return np.asarray(np.argmax(self._votes(self.rows_[scored], learned_from, k), axis=1))

        fewest = min(len(learned_from) for learned_from, _ in splits)
        usable = [k for k in NEIGHBOURS if k <= fewest]
        return best(cross_validated(usable, self.index_, splits, predict), float)

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> Rows:
        queries, size = unit(views[self.view]), max(1, _BLOCK // len(self.rows_))
        everything = np.arange(len(self.rows_))
        starts = range(0, len(queries), size)
        return np.concatenate([self._votes(queries[i : i + size], everything, self.k_) for i in starts])

    def _votes(self, queries: Rows, rows: Ints, k: int) -> Rows:
        """(n, K) shares; a class without samples gets no vote."""
        cosines = queries @ self.rows_[rows].T
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        weights = 1 + _TIE * np.take_along_axis(cosines, nearest, axis=1)
        votes = np.zeros((len(queries), len(self.classes_)))
        np.add.at(votes, (np.arange(len(queries))[:, None], self.index_[rows][nearest]), weights)
        shares: Rows = votes / votes.sum(axis=1, keepdims=True)
        return shares


@dataclass(kw_only=True, eq=False)
class CacheAdapter(Baseline):
    """Tip-Adapter (Zhang et al., 2022): a cache of the samples beside the classes' wordings.

    Logits: `scale` x cosine with the classes' wordings + α Σ exp(-β (1 - key . text)) over the samples.

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

    view: str = POOLED
    scale: float = 10.0
    random_state: int = 0

    name = "cache adapter"

    def _fit(self, data: TrainingData) -> None:
        rows, y = samples_of(data, self.view, self.name)
        described = data.class_views.get(self.view)
        plain = data.plain_class_views.get(self.view, described)
        self.vectors_ = None if described is None else unit(described)
        self.known_ = np.bincount(y, minlength=len(data.classes)) > 0
        self.alpha_, self.beta_ = self._chosen(rows, y, None if plain is None else unit(plain))
        self.keys_, self.values_ = self._trained(rows, y, self.vectors_)
        self.n_parameters_ = self.keys_.size

    def _chosen(self, rows: Rows, y: Ints, vectors: Rows | None) -> tuple[float, float]:
        """α and β by the folds' held-out samples, with keys that were trained without them."""
        alpha, alphas = (self.scale, (self.scale,)) if vectors is None else (ALPHA, ALPHAS)
        hits = dict.fromkeys(product(alphas, BETAS), 0.0)
        for learned_from, scored in folds(y, self.random_state):
            cache = self._trained(rows[learned_from], y[learned_from], vectors)
            for pair in hits:
                logits = self._logits(rows[scored], cache, *pair, vectors)
                hits[pair] += float((np.argmax(logits, axis=1) == y[scored]).sum())
        return best(hits, lambda pair: float(np.abs(np.log(np.array(pair) / (alpha, BETA))).sum()))

    def _trained(self, rows: Rows, y: Ints, vectors: Rows | None) -> tuple[Rows, Rows]:
        """Keys, and (n, K) the classes that they stand for."""
        values = np.eye(len(self.classes_))[y]
        alpha = self.scale if vectors is None else ALPHA
        similarity = self._similarity(rows, vectors)
        return _trained_keys(rows, values, similarity, y, alpha, self.random_state), values

    def _similarity(self, rows: Rows, vectors: Rows | None) -> Rows:
        if vectors is None:
            return np.zeros((len(rows), len(self.classes_)))
        return np.asarray(self.scale * rows @ vectors.T)

    def _logits(
        self, rows: Rows, cache: tuple[Rows, Rows], alpha: float, beta: float, vectors: Rows | None
    ) -> Rows:
        keys, values = cache
        affinity = np.exp(-beta * (1 - rows @ keys.T))
        logits = self._similarity(rows, vectors) + alpha * (affinity @ values)
        return logits if vectors is not None else np.where(self.known_, logits, -np.inf)

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> Rows:
        cache = self.keys_, self.values_
        logits = self._logits(unit(views[self.view]), cache, self.alpha_, self.beta_, self.vectors_)
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)


def _trained_keys(
    rows: Rows,  # (n, d)
    values: Rows,  # (n, K)
    similarity: Rows,  # (n, K) logits of the wordings
    y: Ints,
    alpha: float,
    seed: int,
) -> Rows:
    rng = np.random.default_rng(seed)
    x, v, s = (a.astype(np.float32) for a in (rows, values, similarity))
    keys = x.copy()
    optimiser = Optimiser(keys.reshape(-1), decay=DECAY, decoupled=True, epsilon=EPSILON)
    gradient = optimiser.gradient.reshape(keys.shape)
    steps, done = EPOCHS * -(-len(x) // BATCH), 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for batch in (order[start : start + BATCH] for start in range(0, len(x), BATCH)):
            affinity = np.exp(-BETA * (1 - x[batch] @ keys.T))
            logits = s[batch] + alpha * affinity @ v
            cross_entropy(logits, y[batch])
            of_products = (logits @ v.T) * affinity * (alpha * BETA / len(batch))
            np.matmul(of_products.T, x[batch], out=gradient)
            optimiser.step(RATE * (1 + math.cos(math.pi * done / steps)) / 2)
            done += 1
    return keys.astype(np.float64)
