"""The loop's own calibrators: trained on the joint loss, they score classes and choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.method.calibrator import Calibrator, FixedLogits
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.method.heads import FittedViews
from adamab.method.numerics import ROUNDS, START, Array, random_stream, threads_for
from adamab.method.stacking import HeldOut
from adamab.method.training import EpochReport, RoundTrainer
from adamab.method.views import (
    PreparedView,
    Rows,
    class_inputs,
    class_means,
    learned_span,
    needs_span,
    prepare,
)
from adamab.run.samples import WORDS, GrowingRows, TrainingSet
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]


class JointModel:
    """One calibrator per view and the fixed weights of the views.

    How a view is prepared (centre, span, vocabulary) is learned from the samples at the start and
    stays for the whole loop, so that δ² compares like with like from round to round; class means
    move with the samples.
    """

    def __init__(
        self,
        samples: TrainingSet,
        recipe: Recipe,
        fitted: FittedViews | None,
        held_out: HeldOut | None = None,  # given samples that say how difficult a class is
        *,
        seed: int,
        rounds: int,
    ):
        self._samples, self._recipe = samples, recipe
        learned = np.ones(len(samples), dtype=np.bool_)
        self._prepared: dict[str, PreparedView] = {}
        self._queries: dict[str, Floats] = {}
        self._growing: dict[str, GrowingRows[np.float32]] = {}  # what the queries are the filled part of
        self.target_share: NDArray[np.float64] | float = 1.0  # (K,)
        if held_out is not None and recipe.difficulty:
            self.target_share = held_out.target_share(recipe.difficulty_prior)
        views, self.vocabulary = samples.fold_views(recipe, [learned])
        self._weights = _weights(fitted, [view.name for view in views if not view.is_wide])
        self._similarity = {} if fitted is None else fitted.weights("similarity")
        for view in views:
            if fitted is not None and not (self._weights.get(view.name) or self._similarity.get(view.name)):
                continue
            ((x, described),) = view.rows
            basis, width = None, recipe.max_width
            if width is not None and needs_span(x, width):
                basis = learned_span(x, described, learned, recipe, width)
            prepared = prepare(x, described, samples.class_index, learned, samples.n_classes, recipe, basis)
            self._prepared[view.name], self._queries[view.name] = prepared, prepared.queries
        self._seed = seed
        rng = random_stream(seed, START)
        self.calibrators = {
            name: Calibrator(p.queries.shape[1], samples.n_classes, recipe, rng=rng)
            for name, p in self._prepared.items()
            if fitted is None or self._weights.get(name)
        }
        self._trainer = RoundTrainer(list(self.calibrators.values()), recipe, rounds)

    def follow(self) -> None:
        """Include the samples that were added since the last call."""
        for name, prepared in self._prepared.items():
            known = len(self._queries[name])
            if known < len(self._samples):
                growing = self._growing.setdefault(name, GrowingRows(self._queries[name]))
                rows = {view: matrix[known:] for view, matrix in self._samples.views.items()}
                texts = self._samples.texts[known:]
                self._queries[name] = growing.add(prepared.transform(self._rows(name, rows, texts)))

    def shift(self, batch: int, more: NDArray[np.int64] | None = None) -> GradientShift:
        """δ² of every class for a batch of that size.

        With `more` (K,), as it would be with so many more samples of each class like those it has.
        """
        weight = self._sample_weight()
        if more is not None:
            counts = np.maximum(self._samples.counts(), 1)
            weight = weight * (1 + more / counts)[self._samples.class_index]
        return GradientShift(
            self._terms(),
            self._samples.class_index,
            n_classes=self._samples.n_classes,
            batch=batch * self._recipe.synthetic_weight,
            sample_weight=weight,
            fixed_logits=self._fixed(self._queries),
        )

    def epoch(self, round_: int) -> EpochReport:
        """One round of training; `round_` seeds its order and dropout."""
        with self.threads():
            return self._trainer.epoch(
                self._terms(),
                self._samples.class_index,
                self._sample_weight(),
                self._fixed(self._queries),
                random_stream(self._seed, ROUNDS, round_),
            )

    def logits(self, views: Mapping[str, Floats], texts: Sequence[str]) -> Floats:
        """(m, K) what the model says of new samples."""
        queries = {
            name: view.transform(self._rows(name, views, texts)) for name, view in self._prepared.items()
        }
        terms = [
            self._weights.get(name, 1.0) * calibrator(queries[name], self._class_inputs(name))
            for name, calibrator in self.calibrators.items()
        ]
        fixed = self._fixed(queries)
        if fixed is not None:
            terms.append(fixed(slice(None)))
        return np.asarray(np.sum(terms, axis=0))

    def _rows(self, name: str, views: Mapping[str, Floats], texts: Sequence[str]) -> Rows:
        if name == WORDS and self.vocabulary is not None:
            return self.vocabulary.transform(texts)
        return views[name]

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

    def prepared(self, name: str) -> PreparedView:
        """The view as it is now, class inputs included."""
        start = self._prepared[name]
        return replace(start, queries=self._queries[name], classes=self._class_inputs(name))

    def threads(self) -> AbstractContextManager[Any]:
        """As many threads as the work of a round is worth."""
        width = max(queries.shape[1] for queries in self._queries.values())
        n, n_classes = len(self._samples), self._samples.n_classes
        return threads_for(n, width, max(width // self._recipe.bottleneck, n_classes))

    def _terms(self) -> list[ViewTerms]:
        return [
            ViewTerms(
                calibrator,
                self._queries[name],
                self._class_inputs(name),
                self._weights.get(name, 1.0),
            )
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

    def _sample_weight(self) -> NDArray[np.float64]:
        return np.where(self._samples.given, 1.0, self._recipe.synthetic_weight)

    def _fixed(self, queries: Mapping[str, Floats]) -> FixedLogits | None:
        """Weighted logits of the views without parameters."""
        matches = []
        for name, view in self._prepared.items():
            weight = self._similarity.get(name)
            if weight and view.described is not None:
                scaled = np.float32(weight * self._recipe.similarity_scale) * view.described
                matches.append((queries[name], scaled))
        return FixedLogits(tuple(matches)) if matches else None


def _weights(fitted: FittedViews | None, trainable: Sequence[str]) -> dict[str, float]:
    """Weights of the trained views; all equal if none was trained or the evidence silenced every one."""
    if fitted is None:
        return {}
    weights = fitted.weights("calibrator")
    if not any(weights.values()):
        # Of one undescribed sample per class no calibrator was trained. More samples will come.
        views = list(weights) or trainable
        return dict.fromkeys(views, 1 / len(views))
    return weights
