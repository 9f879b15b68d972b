"""What chooses classes while a run generates: the classifier of the samples so far.

With closed-form heads (`StackedModel`) that is the classifier itself; in the paper's recipe it is the
networks that the loop trains (`JointModel`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.method.heads import FittedView, FittedViews, Kind
from adamab.method.linear_shift import LinearShift
from adamab.method.numerics import ROUNDS, START, Array, cross_entropy, random_stream, threads_for
from adamab.method.training import EpochReport, RoundTrainer
from adamab.method.views import PreparedView, Rows, class_inputs, class_means, prepare
from adamab.run.samples import WORDS, GrowingRows, TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.words import Vocabulary

Floats = NDArray[np.float32]
BLOCK = 1_000_000  # logits of a block of samples whose loss is looked at


class _PreparedSamples:
    """The samples of a run in the coordinates of some views, which were learned at the start.

    How a view is prepared (centre, span, vocabulary) stays for the whole loop, so that δ² compares like
    with like from round to round; class means move with the samples.
    """

    def __init__(
        self,
        samples: TrainingSet,
        recipe: Recipe,
        prepared: Mapping[str, PreparedView],
        vocabulary: Vocabulary | None,
    ) -> None:
        self._samples, self._recipe, self._prepared = samples, recipe, dict(prepared)
        self.vocabulary = vocabulary
        self.target_share: NDArray[np.float64] | float = 1.0  # (K,)
        self._queries: dict[str, Floats] = {}
        self._growing: dict[str, GrowingRows[np.float32]] = {}  # what the queries are the filled part of
        self.follow()

    def follow(self) -> None:
        """Include the samples that were added since the last call."""
        for name, prepared in self._prepared.items():
            known = len(self._queries.get(name, ()))
            if known < len(self._samples):
                rows = {view: matrix[known:] for view, matrix in self._samples.views.items()}
                new = prepared.transform(self._rows(name, rows, self._samples.texts[known:]))
                growing = self._growing.setdefault(name, GrowingRows(new[:0]))
                self._queries[name] = growing.add(new)

    def _rows(self, name: str, views: Mapping[str, Floats], texts: Sequence[str]) -> Rows:
        if name == WORDS and self.vocabulary is not None:
            return self.vocabulary.transform(texts)
        return views[name]

    def _transformed(self, views: Mapping[str, Floats], texts: Sequence[str]) -> dict[str, Floats]:
        return {name: p.transform(self._rows(name, views, texts)) for name, p in self._prepared.items()}

    def _sample_weight(self, more: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        weight = np.where(self._samples.given, 1.0, self._recipe.synthetic_weight)
        if more is None:
            return weight
        counts = np.maximum(self._samples.counts(), 1)
        return np.asarray(weight * (1 + more / counts)[self._samples.class_index])

    def threads(self) -> AbstractContextManager[Any]:
        """As many threads as the work of a round is worth."""
        width = max(queries.shape[1] for queries in self._queries.values())
        n, n_classes = len(self._samples), self._samples.n_classes
        return threads_for(n, width, max(width // self._recipe.bottleneck, n_classes))


class StackedModel(_PreparedSamples):
    """The closed-form classifier of the samples so far.

    Covariances and the weights of the heads are those of the samples at the start; class means and their
    reliability follow the samples.
    """

    def __init__(
        self, samples: TrainingSet, recipe: Recipe, fitted: FittedViews, vocabulary: Vocabulary | None
    ) -> None:
        views = [view for view in fitted.views if any(view.weights.values())]
        self._views: dict[str, FittedView] = {view.name: view for view in views}
        super().__init__(samples, recipe, {view.name: view.prepared for view in views}, vocabulary)
        if fitted.held_out is not None and recipe.difficulty:
            self.target_share = fitted.held_out.target_share(recipe.difficulty_prior)
        self._rows_of_classes: dict[str, tuple[Floats, Floats]] = {}
        self._learn()

    def _learn(self) -> None:
        weight_of = self._sample_weight()
        counts = np.bincount(self._samples.class_index, weight_of, self._samples.n_classes).astype(np.float64)
        for name, view in self._views.items():
            weight, of_class = view.weights["examples"], self._samples.class_index
            means = class_means(self._queries[name], of_class, weight_of, len(counts))
            linear, bias = (weight * part for part in view.discriminant.shared.class_rows(means, counts))
            if view.prepared.described is not None:
                linear = linear + view.weights["description"] * view.prepared.described
            self._rows_of_classes[name] = linear.astype(np.float32), bias.astype(np.float32)

    def epoch(self, round_: int) -> EpochReport:
        """Learn the classes again from all samples."""
        self._learn()
        losses, step = [], max(1, BLOCK // self._samples.n_classes)
        for start in range(0, len(self._samples), step):
            rows = np.arange(start, min(start + step, len(self._samples)))
            losses.append(cross_entropy(self._logits(rows), self._samples.class_index[rows]))
        return EpochReport(float(np.concatenate(losses).mean()))

    def _logits(self, rows: NDArray[np.intp] | slice) -> Array:
        return self._joint({name: queries[rows] for name, queries in self._queries.items()})

    def _joint(self, queries: Mapping[str, Floats]) -> Array:
        parts = [queries[name] @ linear.T + bias for name, (linear, bias) in self._rows_of_classes.items()]
        return np.asarray(np.sum(parts, axis=0))

    def logits(self, views: Mapping[str, Floats], texts: Sequence[str]) -> Array:
        """(m, K) what the model says of new samples."""
        return self._joint(self._transformed(views, texts))

    def shift(self, batch: int, more: NDArray[np.int64] | None = None) -> LinearShift:
        """δ² of every class for a batch of that size.

        With `more` (K,), as it would be with so many more samples of each class like those it has.
        """
        kind: Kind = "examples"
        if not any(view.weights["examples"] for view in self._views.values()):
            kind = "description"  # their part of the logits is linear too, without a bias
        features = [np.zeros((len(self._samples), 0), np.float32)]
        for name, view in self._views.items():
            if weight := view.weights.get(kind, 0.0):
                features.append(np.float32(weight) * self._queries[name])
                if kind == "examples":
                    features.append(np.full((len(self._samples), 1), weight, np.float32))
        return LinearShift(
            np.hstack(features),
            self._logits,
            self._samples.class_index,
            n_classes=self._samples.n_classes,
            batch=batch * self._recipe.synthetic_weight,
            sample_weight=self._sample_weight(more),
        )

    def state(self) -> dict[str, Array]:
        """Nothing: all follows from the samples."""
        return {}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Learn from the samples that are there."""
        self._learn()


class JointModel(_PreparedSamples):
    """One calibrator per view, trained together on the joint loss."""

    def __init__(self, samples: TrainingSet, recipe: Recipe, *, seed: int, rounds: int):
        views, vocabulary = samples.head_views(recipe)
        super().__init__(samples, recipe, {view.name: prepare(view, recipe) for view in views}, vocabulary)
        self._seed = seed
        rng = random_stream(seed, START)
        self.calibrators = {
            name: Calibrator(queries.shape[1], samples.n_classes, recipe, rng=rng)
            for name, queries in self._queries.items()
        }
        self._trainer = RoundTrainer(list(self.calibrators.values()), recipe, rounds)

    def shift(self, batch: int, more: NDArray[np.int64] | None = None) -> GradientShift:
        """δ² of every class for a batch of that size.

        With `more` (K,), as it would be with so many more samples of each class like those it has.
        """
        return GradientShift(
            self._terms(),
            self._samples.class_index,
            n_classes=self._samples.n_classes,
            batch=batch * self._recipe.synthetic_weight,
            sample_weight=self._sample_weight(more),
        )

    def epoch(self, round_: int) -> EpochReport:
        """One round of training; `round_` seeds its order and dropout."""
        rng = random_stream(self._seed, ROUNDS, round_)
        with self.threads():
            return self._trainer.epoch(self._terms(), self._samples.class_index, self._sample_weight(), rng)

    def logits(self, views: Mapping[str, Floats], texts: Sequence[str]) -> Array:
        """(m, K) what the model says of new samples."""
        queries = self._transformed(views, texts)
        terms = [c(queries[name], self._class_inputs(name)) for name, c in self.calibrators.items()]
        return np.asarray(np.sum(terms, axis=0))

    def state(self) -> dict[str, Array]:
        """Everything that training has changed, as arrays by name."""
        parameters = {f"view/{name}": c.parameters.copy() for name, c in self.calibrators.items()}
        return parameters | {f"trainer/{name}": array for name, array in self._trainer.state().items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take back what `state` gave."""
        for name, calibrator in self.calibrators.items():
            calibrator.parameters[:] = arrays[f"view/{name}"]
        prefix = "trainer/"
        of_trainer = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        self._trainer.restore(of_trainer)

    def prepared(self, name: str) -> tuple[PreparedView, Floats]:
        """The view as it is now, and the inputs (K, r) of its class tower."""
        return replace(self._prepared[name], queries=self._queries[name]), self._class_inputs(name)

    def _terms(self) -> list[ViewTerms]:
        return [
            ViewTerms(calibrator, self._queries[name], self._class_inputs(name))
            for name, calibrator in self.calibrators.items()
        ]

    def _class_inputs(self, name: str) -> Floats:
        queries, described = self._queries[name], self._prepared[name].described
        if described is not None and self._recipe.class_input == "description":
            return described  # no need to work out class means every round
        # Samples of the round that is under way are not among the queries yet.
        everything = np.ones(len(queries), dtype=np.bool_)
        of_class = self._samples.class_index[: len(queries)]
        means = class_means(queries, of_class, everything, self._samples.n_classes)
        return class_inputs(means, described, self._recipe.class_input)


LoopModel: TypeAlias = StackedModel | JointModel
