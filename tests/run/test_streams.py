"""Fetching ahead changes the waiting and nothing else."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest

from adamab.errors import ApiError, BudgetError, RunError
from adamab.providers.generators.base import Batch, Generator
from adamab.providers.metering import AHEAD, NANO, Budget, Ledger
from adamab.run.prefetch import BatchPrefetcher
from adamab.task.spec import ClassSpec
from adamab.testing import ProviderServer

CLASSES = tuple(ClassSpec(name, f"is {name}") for name in ("red", "green", "blue"))


class Counting(Generator):
    """Numbered texts; keeps its requests, and waits or fails on demand."""

    fingerprint = "counting"

    def __init__(self):
        self.requests, self.ahead, self.fail, self.gate = [], [], {}, None

    async def generate(self, request):
        self.requests.append(request)
        self.ahead.append(AHEAD.get())
        if self.gate is not None:
            await self.gate.wait()
        error = self.fail.get((request.spec.name, request.number))
        if error is not None:
            raise error
        texts = tuple(f"{request.spec.name} {request.number}.{i}" for i in range(request.count))
        return Batch(texts)


class Memory(dict):
    """A log of batches."""

    def batch(self, name, number):
        return self.get((name, number))

    def put_batch(self, name, number, batch):
        assert (name, number) not in self
        self[name, number] = batch


def streams(generator, **options):
    return BatchPrefetcher(generator, CLASSES, batch=2, given=lambda c: (f"given {c}",), **options)


def settle(some):
    """Let what is on its way arrive."""
    some.__exit__(None)


def test_a_batch_depends_on_its_class_and_its_own_earlier_batches_only():
    alone, crowd = Counting(), Counting()
    one, many = streams(alone), streams(crowd)
    for _ in range(3):
        one.take(1)
    for _ in range(3):
        many.ahead([0, 1, 2, 1], 8, wanted=0)
        many.take(0)
        many.take(1)
    mine = [r for r in crowd.requests if r.class_index == 1]
    assert mine[:3] == alone.requests
    assert [r.existing for r in alone.requests] == [
        (),
        ("green 0.0", "green 0.1"),
        ("green 0.0", "green 0.1", "green 1.0", "green 1.1"),
    ]
    assert {r.given for r in mine} == {("given 1",)}


def test_no_more_than_the_limit_waits_besides_the_one_that_is_wanted():
    generator = Counting()
    some = streams(generator)
    for _ in range(4):
        some.ahead([1, 2, 1, 2, 1, 2], 3, wanted=0)
        settle(some)
    assert some.unused == 4
    assert some.take(0).batch.texts == ("red 0.0", "red 0.1")
    assert some.unused == 3
    some.ahead([1, 1, 1, 1], 3)
    settle(some)
    assert some.unused == 3


def test_a_failure_ahead_matters_to_nobody():
    generator = Counting()
    generator.fail["green", 0] = ApiError("green is down")
    some = streams(generator)
    some.ahead([1, 2], 2, wanted=0)
    settle(some)
    assert sum(request.spec.name == "green" for request in generator.requests) == 1
    assert some.take(0).batch.texts[0] == "red 0.0"
    assert some.take(2).batch.texts[0] == "blue 0.0"
    assert some.unused == 0
    some.ahead([1], 2)  # it is not asked again and again
    settle(some)
    assert sum(request.spec.name == "green" for request in generator.requests) == 1
    with pytest.raises(ApiError, match="green is down"):
        some.take(1)  # chosen, it is asked once more, and now it matters
    del generator.fail["green", 0]
    assert some.take(1).batch.texts[0] == "green 0.0"


def test_a_round_waits_for_reservations_of_calls_ahead_before_it_gives_up():
    class Dear(Counting):
        """Reserves ten and pays one, as a call does whose answer is shorter than it may be."""

        async def generate(self, request):
            number = self.ledger.reserve("generate", 10, ahead=AHEAD.get())
            await asyncio.sleep(0.2 if AHEAD.get() else 0)
            self.ledger.settle(number, 1, None)
            return Batch((f"{request.spec.name} {request.number}",))

    generator = Dear()
    generator.ledger = Ledger(Budget(usd=Decimal(15) / NANO))
    some = streams(generator)
    some.ahead([1], 2)  # holds ten of the fifteen
    assert some.take(0).batch.texts == ("red 0",)
    settle(some)
    for _ in range(3):
        some.take(0)
    assert generator.ledger.spent().nano_usd == 5
    with pytest.raises(BudgetError):  # what is really spent counts
        some.take(0), some.take(0)


def test_a_batch_is_written_down_before_anybody_sees_it():
    class Full(Memory):
        def put_batch(self, name, number, batch):
            raise RunError("the disk is full")

    some = streams(Counting(), log=Full())
    with pytest.raises(RunError, match="full"):
        some.take(0)
    assert some.unused == 0


def test_a_failed_embedding_costs_no_second_batch():
    failing = [True]

    async def embed(texts):
        if failing.pop() if failing else False:
            raise ApiError("no vectors")
        return None

    generator, log = Counting(), Memory()
    some = streams(generator, log=log, embed=embed)
    with pytest.raises(ApiError, match="no vectors"):
        some.take(0)
    assert some.take(0).batch.texts == ("red 0.0", "red 0.1")
    assert len(generator.requests) == 1


# Whole fits


@pytest.mark.parametrize("policy", ["adamab", "random", "round-robin"])
def test_prefetch_changes_neither_choices_nor_weights(both, tmp_path, policy):
    left, asked = {}, {}
    with ProviderServer(latency=0.002, jitter=0.015) as server:  # so that answers come in any order
        runs = replace(both, server=server, local=False)
        for prefetch in (0, 1, 16):
            path, before = tmp_path / str(prefetch), len(runs.asked())
            summary = runs.fit(runs.order(policy=policy, prefetch=prefetch), path)
            left[prefetch], asked[prefetch] = runs.left(path), set(runs.asked()[before:])
            assert summary["unused_batches"] <= prefetch
    assert left[0] == left[1] == left[16]
    assert asked[0] <= asked[1]  # each batch is the same, whoever asks for it and when
    assert asked[0] <= asked[16]
    assert len(asked[1] - asked[0]) <= 2 * 1
    assert len(asked[16] - asked[0]) <= 2 * 16


@pytest.mark.parametrize("budget", ["5 samples", "7 samples", "11 samples", "6 calls"])
def test_nor_does_it_where_a_budget_ends(runs, tmp_path, budget):
    """Within a batch or not; what runs ahead takes only what the planned rounds leave over."""
    for prefetch in (0, 3, 16):
        runs.fit(runs.order(prefetch=prefetch, budget=Budget.parse(budget)), tmp_path / str(prefetch))
    assert runs.left(tmp_path / "0") == runs.left(tmp_path / "3") == runs.left(tmp_path / "16")
    assert budget == "6 calls" or len(runs.texts(tmp_path / "0")) == int(budget.split()[0])


def test_what_waited_unused_serves_the_next_segment(runs, server):
    with ProviderServer() as server:
        mine = replace(runs, server=server)
        summary = mine.fit(mine.order(prefetch=16, policy="adamab", budget=Budget(samples=8)))
        unused, count = summary["unused_batches"], server.count("chat/completions")
        assert count == 4 + unused
        mine.fit(mine.order(prefetch=0, policy="adamab", budget=Budget(samples=40)))
        assert server.count("chat/completions") <= 20 + unused
        bodies = mine.asked("chat/completions")
        assert len(set(bodies)) == len(bodies)


def test_contrast_names_the_class_that_is_mistaken_whenever_a_batch_is_fetched(runs, tmp_path):
    """The given samples of two classes are alike, so held-out ones are mistaken for each other."""
    given = {
        "refund": ["money back for the fee", "the fee back as money", "money for the fee"],
        "charge": ["fee taken back as money", "the money for a fee", "fee of the money"],
        "praise": ["what a lovely product", "i love your lovely team", "lovely lovely people"],
    }
    described = {"refund": "wants MARK-R", "charge": "asks about MARK-C", "praise": "is MARK-P"}
    asked, left = {}, {}
    for contrast, prefetch in ((False, 0), (True, 0), (True, 16)):
        before, path = len(runs.asked()), tmp_path / f"{contrast}{prefetch}"
        recipe = runs.recipe.with_options(contrast=contrast)
        order = runs.order(given, descriptions=described, recipe=recipe, prefetch=prefetch)
        runs.fit(order, path)
        asked[contrast, prefetch] = runs.asked("chat/completions")[before:]
        left[contrast, prefetch] = runs.left(path)
    assert not [body for body in asked[False, 0] if body.count("MARK") != 1]
    both = [body for body in asked[True, 0] if "MARK-R" in body and "MARK-C" in body]
    assert both
    assert all("mistaken" in body for body in both)
    assert left[True, 0] == left[True, 16]
    assert set(asked[True, 0]) <= set(asked[True, 16])
