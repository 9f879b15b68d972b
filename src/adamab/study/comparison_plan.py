"""What a comparison would call and cost, worked out without sending anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from adamab.providers.embedders.api import ApiEmbedder
from adamab.providers.embedders.base import Embedder
from adamab.providers.prices import check_prices
from adamab.run.fit_run import Order
from adamab.run.plan import Party, Plan, plan_fit, remote_party
from adamab.run.resolve import embedder_key
from adamab.study.baselines.base import TrainingData, items_of
from adamab.study.baselines.registry import make_baseline
from adamab.study.baselines.remote import RemoteBaseline
from adamab.study.comparison import unseen
from adamab.study.comparison_methods import CALIBRATOR, NONE, Method
from adamab.task.spec import Sample


def plan_comparison(order: Order, test: Sequence[Sample], methods: Sequence[Method]) -> Plan:
    """The calls of all methods together; needs no key and touches nothing.

    Policies that ask for the same batch share its answer, and fits share vectors, so that this is an
    upper bound where there are several. What caches hold of the test samples is not subtracted.
    """
    test = unseen(order.task, test)
    plans = [_of_policy(order, policy) for policy in dict.fromkeys([NONE, *(m.policy for m in methods)])]
    parties = [party for plan in plans for party in plan.parties]
    parties += _test_vectors(order, test)
    parties += _plain_wordings(order, methods)
    parties += [party for method in methods for party in _baseline(order, method, test)]
    check_prices(order.caps, {p.spec: p.price for p in parties if p.host is not None})
    # A policy's fits embed the given samples again only where they quote them otherwise.
    return replace(
        plans[0],
        rounds=sum(plan.rounds for plan in plans),
        samples=sum(plan.samples for plan in plans),
        parties=tuple(parties),
        budget=order.caps,
        ending=None,
    )


def _of_policy(order: Order, policy: str) -> Plan:
    if policy == NONE:
        return plan_fit(replace(order, policy=NONE, generator=None, generator_spec=NONE, prefetch=0))
    plan = plan_fit(replace(order, policy=policy, prefetch=0))
    return replace(plan, parties=tuple(replace(p, purpose=f"{policy}: {p.purpose}") for p in plan.parties))


def _test_vectors(order: Order, test: Sequence[Sample]) -> Iterator[Party]:
    embedder = _innermost(order.embedder)
    if not isinstance(embedder, ApiEmbedder) or embedder.api is None:
        return
    keys = [embedder_key(sample, order.embedder, order.task.prompts) for sample in test]
    usages = embedder.requests_for(list(dict.fromkeys(keys)))
    yield remote_party("embed the test data", embedder.api, ("the test samples",), usages, order.prices)


def _plain_wordings(order: Order, methods: Sequence[Method]) -> Iterator[Party]:
    """Where wordings quote examples, baselines are given those that quote nothing as well."""
    embedder, task = _innermost(order.embedder), order.task
    asked = task.prompts.with_examples and any(method.spec != CALIBRATOR for method in methods)
    if not asked or not isinstance(embedder, ApiEmbedder) or "text" not in embedder.modalities:
        return
    usages = embedder.requests_for([task.prompts.class_text(spec) for spec in task.classes])
    sends = ("the classes' wordings",)
    yield remote_party("embed wordings without examples", embedder.api, sends, usages, order.prices)


def _baseline(order: Order, method: Method, test: Sequence[Sample]) -> Iterator[Party]:
    if method.spec == CALIBRATOR:
        return
    baseline = make_baseline(method.spec, seed=order.seed)
    if not isinstance(baseline, RemoteBaseline):
        return
    given = ("the given samples",) if order.task.prompts.with_examples else ()
    sends = ("the classes' wordings", *given, "the test samples")
    usages = baseline.planned(TrainingData.of_task(order.task), items_of(test))
    yield remote_party(str(method), baseline.api, sends, usages, order.prices)


def _innermost(embedder: Embedder) -> Embedder:
    from adamab.providers.cache import CachedEmbedder

    while isinstance(embedder, CachedEmbedder):
        embedder = embedder.embedder
    return embedder
