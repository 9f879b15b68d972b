"""Baselines that see every view, words and descriptions, as the default recipe does.

Each view is centred, samples on their own mean and the classes' wordings on theirs, and its rows are brought
to length one. A wording is one more row of its class, so a class without samples can be predicted.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from adamab.compare._vectors import DEFAULT_STRENGTH, FOLDS, Ints, Rows, in_columns, unit
from adamab.compare.methods import POOLED, Baseline, Floats, TrainingData
from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.task.words import Vocabulary

Inputs: TypeAlias = Literal["all", "api"]
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # rising, each starting from where the last one ended
TOLERANCE = 1e-3  # of the gradient, as a share of that at the start: with many classes all of them are small
MANY = 1000  # rows beyond which one fold judges
WORDS = "words"
_RANK = 1e-10  # of the largest eigenvalue: less is rounding


class _View:
    """The transform of one view, and its training rows."""

    def __init__(self, rows: Floats, described: Floats | None) -> None:
        self._centre = np.asarray(rows, dtype=np.float64).mean(axis=0)
        self.rows = self(rows)  # (n, d)
        self.described: Rows | None = None  # (K, d)
        if described is not None:
            classes = np.asarray(described, dtype=np.float64)
            self.described = unit(classes - classes.mean(axis=0))

    def __call__(self, rows: Floats) -> Rows:
        return unit(np.asarray(rows, dtype=np.float64) - self._centre)


class _Regression:
    """Logistic regression with classes weighted alike and its strength chosen by cross-validation.

    Samples are held out while another row of their class stays, be it its wording, and the strength of the
    least log loss wins. There is an intercept where no class has less than half as many samples as another:
    beyond that it favours classes by their counts, which cost up to 14 points of accuracy on development
    parts. Only the span of the rows matters to a penalised linear model, so wide rows are first written in
    coordinates of it, which changes nothing.
    """

    def __init__(self, samples: Rows, y: Ints, described: Rows | None, strength: float | None, seed: int):
        n_classes = 0 if described is None else len(described)
        rows = samples if described is None else np.concatenate([samples, described])
        labels = np.concatenate([y, np.arange(n_classes)])
        self._basis: Rows | None = None
        if rows.shape[1] > len(rows):
            values, axes = np.linalg.eigh(rows @ rows.T)
            kept = values > _RANK * values[-1]
            self._basis = rows.T @ (axes[:, kept] / np.sqrt(values[kept]))  # (d, r), orthonormal
            rows = axes[:, kept] * np.sqrt(values[kept])
        counts = np.bincount(labels) - (n_classes > 0)
        self._intercept = bool(2 * counts.min() >= counts.max())
        self.strength = strength or self._chosen(rows, labels, _folds(y, n_classes > 0, seed))
        self.model = _fitted(_model(self._intercept), self.strength, rows, labels)
        self.n_parameters = self.model.coef_.size + (self.model.intercept_.size if self._intercept else 0)

    def _chosen(self, rows: Rows, labels: Ints, fold: Ints) -> float:
        losses = np.zeros(len(STRENGTHS))
        numbers = np.unique(fold[fold >= 0])
        for number in numbers[:1] if len(rows) > MANY else numbers:
            held_out = np.zeros(len(rows), np.bool_)
            held_out[: len(fold)] = fold == number
            model = _model(self._intercept)
            for place, strength in enumerate(STRENGTHS):
                _fitted(model, strength, rows[~held_out], labels[~held_out])
                shares = in_columns(
                    model.predict_proba(rows[held_out]), model.classes_, int(labels.max()) + 1
                )
                true = shares[np.arange(len(shares)), labels[held_out]]
                losses[place] -= np.log(np.maximum(true, 1e-12)).sum()
        return STRENGTHS[int(losses.argmin())] if len(numbers) else DEFAULT_STRENGTH

    def shares(self, rows: Rows, n_classes: int) -> Rows:
        """(n, K) probabilities."""
        shares = self.model.predict_proba(rows if self._basis is None else rows @ self._basis)
        return in_columns(shares, self.model.classes_, n_classes)


def _model(intercept: bool) -> LogisticRegression:
    return LogisticRegression(
        class_weight="balanced", fit_intercept=intercept, max_iter=1000, warm_start=True
    )


def _fitted(model: LogisticRegression, strength: float, rows: Rows, labels: Ints) -> LogisticRegression:
    classes, column, counts = np.unique(labels, return_inverse=True, return_counts=True)
    pull = np.eye(len(classes))[column] - 1 / len(classes)
    start = rows.T @ (pull / (len(classes) * counts[column])[:, None])  # the gradient without any weights
    model.set_params(C=strength, tol=max(TOLERANCE * float(np.abs(start).max()), 1e-12))
    with warnings.catch_warnings():
        # Two rows per class make scikit-learn ask whether the classes are numbers to regress on.
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        return model.fit(rows, labels)


def _folds(y: Ints, described: bool, seed: int) -> Ints:
    """(n,) fold of each sample, drawn within its class; -1 for one that its class cannot spare."""
    rng, fold = np.random.default_rng(seed), np.full(len(y), -1)
    for number in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == number))
        if described or len(rows) > 1:
            fold[rows] = (np.arange(len(rows)) + rng.integers(FOLDS)) % FOLDS
    return fold


@dataclass(kw_only=True, eq=False)
class JointProbe(Baseline):
    """Logistic regression on all views side by side, with the classes' wordings as further rows.

    `inputs="api"` takes what there is beside an API embedder: the pooled embedding and the words.

    Example:
        >>> joint = JointProbe().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> joint.predict([[0.9, 0.2]])
        ['refund']
    """

    inputs: Inputs = "all"
    words: bool = True
    strength: float | None = None
    random_state: int = 0

    name = "joint probe"

    def _fit(self, data: TrainingData) -> None:
        y = data.class_index()
        if not len(y):
            raise TaskError(f"{self.name}: samples are needed; add some")
        self._vocabulary: Vocabulary | None = None
        self._views = {name: _View(*rows) for name, rows in self._learned_from(data)}
        if len(np.unique(y)) < 2 and all(view.described is None for view in self._views.values()):
            raise TaskError(f"{self.name}: samples of at least two classes are needed; add some")
        self._models = self._trained(y)
        self.n_parameters_ = sum(model.n_parameters for model in self._models)

    def _learned_from(self, data: TrainingData) -> Iterator[tuple[str, tuple[Any, Any]]]:
        pooled = POOLED if POOLED in data.views else next(iter(data.views))
        for name, rows in data.views.items():
            if self.inputs == "all" or name == pooled:
                yield name, (rows, data.class_views.get(name))
        if self.words and len(data.texts) == len(data.labels):
            wordings = [data.prompts.class_text(spec) for spec in data.specs]
            self._vocabulary = Vocabulary.learn([*data.texts, *wordings])
            described = self._worded(wordings) if wordings and data.class_views else None
            yield WORDS, (self._worded(data.texts), described)

    def _worded(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._vocabulary is None:
            raise ValueError("no vocabulary was learned")
        rows: NDArray[np.float32] = self._vocabulary.transform(texts).toarray()
        return rows

    def _trained(self, y: Ints) -> list[_Regression]:
        views = list(self._views.values())
        described: Rows | None = None
        if any(view.described is not None for view in views):
            n_classes = next(len(view.described) for view in views if view.described is not None)
            described = np.hstack(
                [
                    np.zeros((n_classes, view.rows.shape[1])) if view.described is None else view.described
                    for view in views
                ]
            )
        rows = np.hstack([view.rows for view in views])
        return [_Regression(rows, y, described, self.strength, self.random_state)]

    def _queries(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> list[Rows]:
        """The rows of each view."""
        queries = [view(views[name]) for name, view in self._views.items() if name != WORDS]
        if self._vocabulary is not None:
            said = [text for text in texts if isinstance(text, str)]
            if len(said) != len(queries[0]):
                raise TaskError(f"{self.name}: it was fitted on words, and texts are lacking; pass them")
            queries.append(self._views[WORDS](self._worded(said)))
        return queries

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> Rows:
        (model,) = self._models
        return model.shares(np.hstack(self._queries(views, texts)), len(self.classes_))


class SoftVote(JointProbe):
    """The mean probability of one such regression per view, each with a strength of its own.

    Example:
        >>> vote = SoftVote().fit([[0.0, 1.0], [1.0, 0.0]], ["praise", "refund"])
        >>> vote.predict([[0.9, 0.2]])
        ['refund']
    """

    name = "soft vote"

    def _trained(self, y: Ints) -> list[_Regression]:
        if len(np.unique(y)) < 2:  # a view without wordings has nothing to tell one class from
            self._views = {name: view for name, view in self._views.items() if view.described is not None}
        return [
            _Regression(view.rows, y, view.described, self.strength, self.random_state)
            for view in self._views.values()
        ]

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> Rows:
        queries, n_classes = self._queries(views, texts), len(self.classes_)
        shares = [model.shares(rows, n_classes) for model, rows in zip(self._models, queries, strict=True)]
        return np.asarray(np.mean(shares, axis=0), dtype=np.float64)
