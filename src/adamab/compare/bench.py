"""Several methods on one task: fitted on the same samples, judged on the same test samples.

Training sees the task and what a generator writes for it. Test samples are embedded beforehand, so that one
without a vector is reported before anything is fitted, and looked at once a method is finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adamab.compare.methods import (
    CALIBRATOR,
    NEEDS_CLASS_VECTORS,
    NONE,
    Floats,
    Method,
    TrainingData,
    items_of,
    make_baseline,
    method_name,
    reference_of,
)
from adamab.compare.remote import RemoteBaseline, metered
from adamab.errors import AdamabError, StoppedError, TaskError
from adamab.evaluation.metrics import Evaluation, Figure, evaluate
from adamab.model import Classifier
from adamab.providers.async_bridge import run_sync
from adamab.providers.cache import CachedEmbedder
from adamab.providers.embedders.api import ApiEmbedder
from adamab.providers.metering import Budget, CallContext, check_prices
from adamab.providers.registry import embedder_key
from adamab.providers.services import host_of, is_loopback
from adamab.run.gate import Holdout
from adamab.run.plan import Party, Plan, plan_fit, remote_party
from adamab.run.samples import TaskEmbedder
from adamab.run.settings import FitSetup, set_up
from adamab.task.recipe import Recipe
from adamab.task.spec import Sample, Task

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient
    from adamab.run.fit import FitResult

CHUNK = 512
DRAWS = 2000  # of the bootstrap of a difference


@dataclass(frozen=True)
class Row:
    """The figures of one method. `difference` is its accuracy minus the reference's, on the same samples."""

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
        judged = asdict(self.evaluation)
        return {
            "method": self.method,
            "samples": self.samples,
            **{key: judged[key] for key in ("accuracy", "macro_f1", "calibration_error")},
            "difference": None if self.difference is None else vars(self.difference),
            "fit_seconds": self.fit_seconds,
            "predict_seconds": self.predict_seconds,
            "n_parameters": self.n_parameters,
        }


class Bench:
    """The vectors that all methods share, and the fits that give them synthetic samples."""

    def __init__(
        self,
        setup: FitSetup,
        test: Sequence[Sample],
        holdout: Holdout,
        calls: CallContext,
        on_api: Callable[[ApiClient], None],
    ) -> None:
        self.setup, self.test, self.calls, task = setup, test, calls, setup.task
        self._holdout, self._on_api = holdout, on_api
        self.notes: list[str] = []
        self._fits: dict[str, tuple[FitResult, float] | AdamabError] = {}
        index = {name: number for number, name in enumerate(task.class_names)}
        self._truth = np.array([index[sample.class_name] for sample in test], np.int64)
        with calls.connected(setup.embedder, None):
            self._embedder = TaskEmbedder(task, setup.embedder, setup.recipe, setup.images)
            self._given = self._embedder.training_set()
            described = self._given.describe_classes(self._given.given)
            self._class_views = {} if described is None else described.views
            self._test_views, overlong = self._embedded_test()
        self.overlong = self._embedder.overlong + overlong

    def row(self, method: Method) -> Row:
        """Fit one method and judge it."""
        if method.spec == CALIBRATOR:
            probabilities, measured = self._calibrator(method.policy)
        else:
            probabilities, measured = self._baseline(method)
        judged = evaluate(probabilities, self._truth, self.setup.task.class_names)
        correct = np.argmax(probabilities, axis=1) == self._truth
        return Row(method=str(method), evaluation=judged, correct=correct, **measured)

    def _calibrator(self, policy: str) -> tuple[Floats, dict[str, Any]]:
        fit, seconds = self._fit(policy)
        started = time.perf_counter()
        texts = [sample.text for sample in self.test]
        probabilities = fit.classifier.predict_proba(self._test_views, texts)
        return probabilities, {
            "samples": len(self._given) + sum(fit.synthetic_by_class.values()),
            "fit_seconds": seconds,
            "predict_seconds": time.perf_counter() - started,
            "n_parameters": n_parameters(fit.classifier, self.setup.recipe),
        }

    def _baseline(self, method: Method) -> tuple[Floats, dict[str, Any]]:
        name = method_name(method.spec)
        if name in NEEDS_CLASS_VECTORS and not self._class_views:
            raise TaskError(
                "the embedder has no vectors of the classes' wordings, which this method compares"
            )
        baseline = make_baseline(method.spec, seed=self.setup.settings.seed, view=self._given.pooled)
        if isinstance(baseline, RemoteBaseline):
            self._on_api(baseline.api)
        data = self._training_data(method.policy)
        with metered(baseline, self.calls):
            started = time.perf_counter()
            baseline.fit(data)
            fitted = time.perf_counter()
            probabilities: Floats = baseline.predict_proba(self._test_views, items_of(self.test))
        seconds = time.perf_counter() - fitted
        others = ", ".join(f"{count} {what}" for what, count in baseline.report().items() if count)
        if others:
            self.notes.append(
                f"{method}: of its answers {others}; an answer that names no class counts as wrong"
            )
        if baseline.answered_ is not None:
            # No answer is a wrong one: it counts as the class after the true one.
            silent = np.flatnonzero(~baseline.answered_)
            probabilities[silent] = 0.0
            probabilities[silent, (self._truth[silent] + 1) % probabilities.shape[1]] = 1.0
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
        fit = self._fits[policy]
        if isinstance(fit, AdamabError):
            raise fit
        return fit

    def _fit_now(self, policy: str) -> tuple[FitResult, float]:
        from adamab.run.fit import build_classifier

        started = time.perf_counter()
        changes = {"embedder": self.setup.embedder, "policy": policy, "holdout": self._holdout}
        if policy == NONE:
            changes |= {"generator": "none", "budget": Budget()}
        settings = self.setup.settings.model_copy(update=changes)
        # Set up again: a recording gives each of its samples once, so every policy needs its own.
        setup = set_up(self.setup.task, settings, images=self.setup.images)
        if setup.generator is not None and setup.generator.api is not None:
            self._on_api(setup.generator.api)
        fit = build_classifier(setup, self.calls)
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
                with self.calls.connected(self.setup.embedder, None):
                    new = self._embedder.embed([sample.text for sample in added])
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
        with self.calls.connected(self.setup.embedder, None):
            described = self._given.describe_classes(np.zeros(len(self._given), dtype=np.bool_))
        return {} if described is None else described.views

    def _embedded_test(self) -> tuple[dict[str, NDArray[np.float32]], int]:
        setup, embedder = self.setup, self.setup.embedder
        keys = [embedder_key(sample, embedder, setup.task.prompts) for sample in self.test]
        views = setup.recipe.views or embedder.views
        parts = [
            run_sync(embedder.embed(keys[start : start + CHUNK], kind="query", views=views))
            for start in range(0, len(keys), CHUNK)
        ]
        overlong = sum(int(part.overlong.sum()) for part in parts)
        return {view: np.concatenate([part.views[view] for part in parts]) for view in views}, overlong


def _generation_notes(policy: str, fit: FitResult) -> Iterator[str]:
    added = sum(fit.synthetic_by_class.values())
    held_out = sum(record.rejected.get("held out", 0) for record in fit.history)
    if held_out:
        were = "sample was" if held_out == 1 else "samples were"
        yield f"policy {policy}: {held_out} synthetic {were} kept out because the test data has them"
    if fit.ended:
        yield f"policy {policy}: generation ended early, after {added} samples: {fit.ended}"
    elif fit.closed:
        yield f"policy {policy}: the generator has no more for {len(fit.closed)} of the classes"


@dataclass(frozen=True)
class Comparison:
    """The table and what has to be said about it."""

    task: str
    modality: str
    classes: int
    given: int
    n_test: int
    left_out: int  # test samples that are also given
    overlong: int
    reference: str | None
    rows: tuple[Row, ...]
    failed: Mapping[str, str]  # method -> why there is no row of it
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "rows": [row.to_json() for row in self.rows], "notes": list(self.notes)}


def compare(
    setup: FitSetup,
    test: Sequence[Sample],
    methods: Sequence[Method],
    *,
    against: str | None = None,
    calls: CallContext | None = None,
    on_method: Callable[[Method], None] = lambda method: None,
    on_api: Callable[[ApiClient], None] = lambda api: None,
) -> Comparison:
    """Fit and judge every method; one that cannot be fitted is named with the reason.

    Raises the error of the first where none can be fitted.

    Args:
        setup: the task, its embedder and generator, recipe, seed and caps.
        test: labelled samples; those that are also given ones are left out.
        methods: what to fit, in the order of the table.
        against: the method that the others are compared with.
        calls: meters the calls of all methods together, and keeps their answers.
        on_method: called before each method.
        on_api: called with each client before its first call.

    Returns:
        The table, the methods without a row, and notes.
    """
    reference = reference_of(methods, against)
    unseen_test = unseen(setup.task, test)
    holdout = Holdout([*(sample.text for sample in test), *(setup.holdout or ())])
    bench = Bench(setup, unseen_test, holdout, calls or setup.call_context(), on_api)
    rows: list[Row] = []
    failed: dict[str, AdamabError] = {}
    for method in methods:
        on_method(method)
        try:
            rows.append(bench.row(method))
        except StoppedError:
            raise
        except AdamabError as error:
            failed[str(method)] = error
    if not rows:
        raise next(iter(failed.values()))
    theirs = next((row.correct for row in rows if row.method == reference), None)
    return Comparison(
        task=setup.task.name,
        modality=setup.task.modality,
        classes=len(setup.task.classes),
        given=len(setup.task.samples),
        n_test=len(unseen_test),
        left_out=len(test) - len(unseen_test),
        overlong=bench.overlong,
        reference=None if theirs is None else reference,
        rows=tuple(
            row
            if theirs is None or row.method == reference
            else replace(row, difference=paired_difference(row.correct, theirs))
            for row in rows
        ),
        failed={name: str(error) for name, error in failed.items()},
        notes=tuple(bench.notes),
    )


def unseen(task: Task, test: Sequence[Sample]) -> list[Sample]:
    """The test samples that neither are given samples, nor contain one, nor are contained in one.

    Args:
        task: whose samples are given.
        test: the test samples.

    Returns:
        Those that a method cannot have learned from; an error where there is none.
    """
    given = Holdout(sample.text for sample in task.samples)
    held = Holdout(sample.text for sample in test)
    suspects = [sample.text for sample in task.samples if sample.text in held]
    kept = [
        sample
        for sample in test
        if sample.text not in given and not any(text in Holdout([sample.text]) for text in suspects)
    ]
    if not kept:
        raise TaskError(
            "every test sample is also a given one, so there is nothing to compare on; add others"
        )
    return kept


def paired_difference(ours: NDArray[np.bool_], theirs: NDArray[np.bool_], *, draws: int = DRAWS) -> Figure:
    """Accuracy of one minus that of the other, with the interval of a bootstrap over the samples.

    A sample is won, lost or neither; resampling the samples is drawing these three counts.

    Args:
        ours: (n,) whether the one method is right.
        theirs: (n,) whether the other is.
        draws: of the bootstrap.

    Returns:
        The difference with its 95 % interval.
    """
    won, lost, n = int((ours & ~theirs).sum()), int((theirs & ~ours).sum()), len(ours)
    counts = np.array([won, lost, n - won - lost])
    drawn = np.random.default_rng(0).multinomial(n, counts / n, draws)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [0.025, 0.975])
    return Figure((won - lost) / n, float(low), float(high))


def n_parameters(classifier: Classifier, recipe: Recipe) -> int:
    """Learned numbers of a finished classifier: towers without biases, free vectors, discriminants.

    Descriptions that samples are compared with count nothing.

    Args:
        classifier: whose heads are counted.
        recipe: that it was fitted with.

    Returns:
        How many there are.
    """
    total, networks = 0, recipe.calibrator or not recipe.refit
    for head in classifier.heads:
        if head.bias is not None:  # which only a discriminant has
            total += head.linear.size + head.bias.size
        elif head.tower or (networks and recipe.layers == 1):
            width: int = head.linear.shape[1]
            total += 2 * sum(a * b for a, b in pairwise([width, *map(len, head.tower), width]))
            total += len(head.linear) * width if recipe.free_vectors else 0
    return total


def plan_comparison(setup: FitSetup, test: Sequence[Sample], methods: Sequence[Method]) -> Plan:
    """The calls of all methods together; needs no key and touches nothing.

    Policies that ask for the same batch share its answer, and fits share vectors, so that this is an
    upper bound where there are several. What caches hold of the test samples is not subtracted.

    Args:
        setup: as `compare` takes it.
        test: the test samples.
        methods: what would be fitted.

    Returns:
        Calls, tokens and cost, by purpose.
    """
    test = unseen(setup.task, test)
    plans = [_of_policy(setup, policy) for policy in dict.fromkeys([NONE, *(m.policy for m in methods)])]
    parties = [party for plan in plans for party in plan.parties]
    parties += _vectors(setup, test, methods)
    parties += [party for method in methods for party in _baseline(setup, method, test)]
    elsewhere = (p for p in parties if p.host is not None and not is_loopback(host_of(f"//{p.host}")))
    check_prices(setup.budget, {p.spec: p.price for p in elsewhere})
    # A policy's fits embed the given samples again only where they quote them otherwise.
    return replace(
        plans[0],
        rounds=sum(plan.rounds for plan in plans),
        samples=sum(plan.samples for plan in plans),
        parties=tuple(parties),
        budget=setup.budget,
        ending=None,
    )


def _of_policy(setup: FitSetup, policy: str) -> Plan:
    settings = setup.settings.model_copy(update={"policy": policy})
    if policy == NONE:
        return plan_fit(replace(setup, settings=settings, generator=None))
    plan = plan_fit(replace(setup, settings=settings))
    return replace(plan, parties=tuple(replace(p, purpose=f"{policy}: {p.purpose}") for p in plan.parties))


def _vectors(setup: FitSetup, test: Sequence[Sample], methods: Sequence[Method]) -> Iterator[Party]:
    embedder, task, prices = setup.embedder, setup.task, setup.settings.prices
    while isinstance(embedder, CachedEmbedder):
        embedder = embedder.embedder
    if not isinstance(embedder, ApiEmbedder):
        return
    keys = [embedder_key(sample, setup.embedder, task.prompts) for sample in test]
    usages = embedder.requests_for(list(dict.fromkeys(keys)))
    yield remote_party("embed the test data", embedder.api, ("the test samples",), usages, prices)
    # Where wordings quote examples, baselines are given those that quote nothing as well.
    quoting = task.prompts.with_examples and any(method.spec != CALIBRATOR for method in methods)
    if quoting and "text" in embedder.modalities:
        usages = embedder.requests_for([task.prompts.class_text(spec) for spec in task.classes])
        sends = ("the classes' wordings",)
        yield remote_party("embed wordings without examples", embedder.api, sends, usages, prices)


def _baseline(setup: FitSetup, method: Method, test: Sequence[Sample]) -> Iterator[Party]:
    if method.spec == CALIBRATOR:
        return
    baseline = make_baseline(method.spec, seed=setup.settings.seed)
    if not isinstance(baseline, RemoteBaseline):
        return
    given = ("the given samples",) if setup.task.prompts.with_examples else ()
    sends = ("the classes' wordings", *given, "the test samples")
    usages = baseline.planned(TrainingData.of_task(setup.task), items_of(test))
    yield remote_party(str(method), baseline.api, sends, usages, setup.settings.prices)
