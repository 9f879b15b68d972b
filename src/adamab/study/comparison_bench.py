"""Where methods are fitted and judged: the vectors that all share, and the fits that give samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from adamab.errors import AdamabError, StoppedError, TaskError
from adamab.providers.budget import Budget
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.image_store import temporary_store
from adamab.providers.sync import run_sync
from adamab.run import torch_required
from adamab.run.holdout import Holdout
from adamab.run.outside import Outside
from adamab.run.resolve import embedder_key
from adamab.run.sample_side import SampleSide
from adamab.study.baselines.base import Baseline, TrainingData, items_of
from adamab.study.baselines.registry import NEEDS_CLASS_VECTORS, make_baseline, method_name
from adamab.study.baselines.remote import RemoteBaseline, metered
from adamab.study.comparison_methods import CALIBRATOR, NONE, Method
from adamab.study.evaluation import Evaluation, Figure, evaluate
from adamab.study.parameters import n_parameters
from adamab.task.recipe import Recipe
from adamab.task.spec import Sample, Task

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient
    from adamab.run.fit import FitResult

Floats: TypeAlias = NDArray[np.floating[Any]]
CHUNK = 512


@dataclass(frozen=True)
class Setup:
    """What all methods of a comparison share."""

    task: Task
    embedder: Embedder
    test: Sequence[Sample]
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    new_generator: Callable[[], Generator | None] = lambda: None  # a fresh one for each policy
    outside: Outside = field(default_factory=Outside)  # caps and spending of all of them together
    on_api: Callable[[ApiClient], None] = lambda api: None  # told of each client that is about to be used
    shared_images: Path | None = None  # where paid pictures are kept from run to run


@dataclass(frozen=True)
class Row:
    """One method, judged. `difference` is its accuracy minus the reference's, on the same samples."""

    method: str
    samples: int  # that it was fitted on
    evaluation: Evaluation
    fit_seconds: float
    predict_seconds: float
    n_parameters: int
    correct: NDArray[np.bool_]
    difference: Figure | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, without what is known of each sample."""
        judged = self.evaluation.to_json()
        return {
            "method": self.method,
            "samples": self.samples,
            **{key: judged[key] for key in ("accuracy", "macro_f1", "calibration_error")},
            "difference": None if self.difference is None else vars(self.difference),
            "fit_seconds": self.fit_seconds,
            "predict_seconds": self.predict_seconds,
            "n_parameters": self.n_parameters,
        }


@runtime_checkable
class HasReport(Protocol):
    """A baseline that may leave a sample without an answer."""

    answered_: NDArray[np.bool_]

    def report(self) -> Mapping[str, int]:
        """What its answers were beside classes, and how often."""


class Bench:
    """The vectors that all methods share, and the fits that give them synthetic samples."""

    def __init__(self, setup: Setup, holdout: Holdout) -> None:
        self.setup, task = setup, setup.task
        self._holdout = holdout
        self.recipe = setup.recipe.for_modality(task.modality)
        self.notes: list[str] = []
        _warm_up()
        self._images = temporary_store(shared=setup.shared_images) if task.modality == "image" else None
        self._fits: dict[str, tuple[FitResult, float] | AdamabError] = {}
        index = {name: number for number, name in enumerate(task.class_names)}
        self._truth = np.array([index[sample.class_name] for sample in setup.test], np.int64)
        self._items = items_of(setup.test)
        with setup.outside.connected(setup.embedder, None):
            self._side = SampleSide(task, setup.embedder, self.recipe, self._images)
            self._given = self._side.training_set()
            side = self._given.class_side(self._given.given)
            self._class_views = {} if side is None else side.views
            self._test_views, overlong = self._embedded_test()
        self.overlong = self._side.overlong + overlong

    def row(self, method: Method) -> Row:
        """Fit one method and judge it."""
        if method.spec == CALIBRATOR:
            probabilities, measured = self._calibrator(method.policy)
        else:
            probabilities, measured = self._baseline(method)
        judged = evaluate(probabilities, self._truth, self.setup.task.class_names)
        correct = np.argmax(probabilities, axis=1) == self._truth
        return Row(method=str(method), evaluation=judged, correct=correct, **measured)

    def same_samples(self) -> Iterator[str]:
        """Of policies that ended with the same samples: their rows can only be equal."""
        known: dict[frozenset[str], str] = {}
        for policy, fit in self._fits.items():
            if policy == NONE or isinstance(fit, AdamabError) or not fit[0].synthetic:
                continue
            first = known.setdefault(frozenset(sample.text for sample in fit[0].synthetic), policy)
            if first != policy:
                yield f"policies {first} and {policy} chose the same samples, so their rows are equal"

    def _calibrator(self, policy: str) -> tuple[Floats, dict[str, Any]]:
        fit, seconds = self._fit(policy)
        started = time.perf_counter()
        texts = [sample.text for sample in self.setup.test]
        probabilities = fit.classifier.predict_proba(self._test_views, texts)
        return probabilities, {
            "samples": len(self._given) + sum(fit.synthetic_by_class.values()),
            "fit_seconds": seconds,
            "predict_seconds": time.perf_counter() - started,
            "n_parameters": n_parameters(fit.classifier, self.recipe),
        }

    def _baseline(self, method: Method) -> tuple[Floats, dict[str, Any]]:
        name = method_name(method.spec)
        if name in NEEDS_CLASS_VECTORS and not self._class_views:
            raise TaskError(
                "the embedder has no vectors of the classes' wordings, which this method compares"
            )
        baseline = make_baseline(method.spec, seed=self.setup.seed, view=self._given.pooled)
        if isinstance(baseline, RemoteBaseline):
            self.setup.on_api(baseline.api)
        data = self._training_data(method.policy)
        with metered(baseline, self.setup.outside):
            started = time.perf_counter()
            baseline.fit(data)
            fitted = time.perf_counter()
            probabilities: Floats = baseline.predict_proba(self._test_views, self._items)
        seconds = time.perf_counter() - fitted
        self.notes += [f"{method}: {note}" for note in _answer_notes(baseline)]
        if isinstance(baseline, HasReport):
            probabilities = _answered(probabilities, self._truth, baseline.answered_)
        return probabilities, {
            "samples": len(data.labels),
            "fit_seconds": getattr(baseline, "fit_seconds_", fitted - started),
            "predict_seconds": seconds,
            "n_parameters": baseline.n_parameters_,
        }

    def _fit(self, policy: str) -> tuple[FitResult, float]:
        """The calibrator with a policy, fitted once; what it bought serves the baselines as well."""
        if policy not in self._fits:
            try:
                self._fits[policy] = self._fit_now(policy)
            except StoppedError:
                raise
            except AdamabError as error:
                self._fits[policy] = error
        found = self._fits[policy]
        if isinstance(found, AdamabError):
            raise found
        return found

    def _fit_now(self, policy: str) -> tuple[FitResult, float]:
        with torch_required():
            from adamab.run.fit import fit_task

        setup, started = self.setup, time.perf_counter()
        fit = fit_task(
            setup.task,
            setup.embedder,
            generator=None if policy == NONE else setup.new_generator(),
            policy=policy,
            recipe=setup.recipe,
            budget=setup.outside.budget if policy != NONE else Budget(),
            seed=setup.seed,
            holdout=self._holdout,
            outside=setup.outside,
            images=self._images,
        )
        if policy != NONE:
            self.notes += _generation_notes(policy, fit)
        return fit, time.perf_counter() - started

    def _training_data(self, policy: str) -> TrainingData:
        task, given = self.setup.task, self._given
        added: tuple[Sample, ...] = ()
        views: Mapping[str, Floats] = given.views
        if policy != NONE:
            fit, _ = self._fit(policy)
            if not fit.synthetic and any(fit.synthetic_by_class.values()):
                raise TaskError("the generator writes vectors, which only the calibrator is trained on")
            added = fit.synthetic
            if added:
                with self.setup.outside.connected(self.setup.embedder, None):
                    new = self._side.embed([sample.text for sample in added])
                views = {name: np.concatenate([x, new[name]]) for name, x in views.items()}
        return TrainingData.of_task(
            task,
            added,
            views=views,
            class_views=self._class_views,
            plain_class_views=self._plain_class_views if task.prompts.with_examples else None,
        )

    @cached_property
    def _plain_class_views(self) -> Mapping[str, Floats]:
        """Of wordings that quote no example."""
        with self.setup.outside.connected(self.setup.embedder, None):
            side = self._given.class_side(np.zeros(len(self._given), dtype=np.bool_))
        return {} if side is None else side.views

    def _embedded_test(self) -> tuple[dict[str, NDArray[np.float32]], int]:
        setup, embedder = self.setup, self.setup.embedder
        keys = [embedder_key(sample, embedder, setup.task.prompts) for sample in setup.test]
        views = self.recipe.views or embedder.views
        parts = [
            run_sync(embedder.embed(keys[start : start + CHUNK], kind="query", views=views))
            for start in range(0, len(keys), CHUNK)
        ]
        overlong = sum(int(part.overlong.sum()) for part in parts)
        return {view: np.concatenate([part.views[view] for part in parts]) for view in views}, overlong


def _warm_up() -> None:
    """Import torch now, so that its seconds are not counted for the first method that needs it."""
    with suppress(ModuleNotFoundError):  # a method that cannot do without will say so
        import torch

        import_module("adamab.run.fit")
        torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]).step()  # imports a good deal more


def _answered(probabilities: Floats, truth: NDArray[np.int64], answered: NDArray[np.bool_]) -> Floats:
    """No answer is a wrong one: it counts as the class after the true one."""
    silent = np.flatnonzero(~answered)
    told = probabilities.copy()
    told[silent] = 0.0
    told[silent, (truth[silent] + 1) % probabilities.shape[1]] = 1.0
    return told


def _answer_notes(baseline: Baseline) -> Iterator[str]:
    """What a chat model did beside naming classes."""
    counts = baseline.report() if isinstance(baseline, HasReport) else {}
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if told:
        yield f"of its answers {told}; an answer that names no class counts as wrong"


def _generation_notes(policy: str, fit: FitResult) -> Iterator[str]:
    added = sum(fit.synthetic_by_class.values())
    held_out = sum(counts.get("held out", 0) for counts in fit.history.rejected_by_class().values())
    if held_out:
        were = "sample was" if held_out == 1 else "samples were"
        yield f"policy {policy}: {held_out} synthetic {were} kept out because the test data has them"
    if fit.ended:
        yield f"policy {policy}: generation ended early, after {added} samples: {fit.ended}"
    elif fit.closed:
        yield f"policy {policy}: the generator has no more for {len(fit.closed)} of the classes"
