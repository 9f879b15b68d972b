"""A run as its user orders it: the budget it keeps, what the gate asks the model, what is left behind."""

from dataclasses import replace

import pytest

from adamab.errors import BudgetError, RecipeError, TaskError
from adamab.providers.cache import MemoryReplies
from adamab.providers.metering import Budget
from adamab.run.gate import Holdout
from adamab.testing import Fault


def calls(count):
    return Budget(calls=count)


def test_a_run_that_goes_on_keeps_its_budget(runs, server):
    runs.fit_until(1, runs.order(budget=calls(3)))
    summary = runs.fit(runs.order())  # names none
    assert summary["budget"] == "3 calls"
    assert summary["changes"] == []
    assert server.count() == 3


def test_a_raised_budget_makes_up_for_every_round_that_it_ended(both, server, tmp_path):
    both.fit(both.order(), tmp_path / "whole")
    whole, asked = both.left(tmp_path / "whole"), server.count()
    first = both.fit(both.order(budget=calls(2)))
    assert "the budget of 2 calls is spent" in first["ended"]
    assert first["synthetic"] == 4
    second = both.fit(both.order(budget=calls(100)))
    assert second["changes"] == ["budget raised from 2 calls to 100 calls"]
    assert second["ended"] is None
    assert second["synthetic"] == len(whole["samples"])
    assert server.count() == 2 * asked  # nothing was bought twice, and nothing is missing


def test_a_budget_too_small_for_the_given_samples_is_one_line(runs):
    runs = replace(runs, local=False)
    with pytest.raises(
        BudgetError, match="1 call is spent, and the task's own samples are not embedded yet; raise"
    ):
        runs.fit(runs.order(budget=calls(1)))


def test_money_without_a_price_is_told_before_the_first_call(runs, server):
    order = runs.order(budget=Budget.parse("1 usd"))
    elsewhere = "openai:m?base_url=https://models.example.com/v1"
    with pytest.raises(RecipeError, match="--price 'openai:m="):
        runs.fit(order.changed(generator=elsewhere))
    assert server.count() == 0
    assert not runs.path.exists()
    summary = runs.fit(order.changed(prices={"openai:m": "1/2"}))
    assert 0 < summary["spent"]["usd"] < 1
    assert summary["spent"]["usd"] == pytest.approx(
        (summary["spent"]["input_tokens"] + 2 * summary["spent"]["output_tokens"]) / 1e6
    )


def test_the_gate_asks_the_model_of_the_round(both):
    """Also in a round of several steps, when samples are there that the model has not seen yet."""
    recipe = both.recipe.with_options(max_label_rank=1, batch=3)
    summary = both.fit(both.order(recipe=recipe))
    loose = both.fit(both.order(recipe=recipe.with_options(max_label_rank=3)), both.path.with_name("loose"))
    assert sum(loose["rejected"].get(name, {}).get("inconsistent", 0) for name in loose["rejected"]) == 0
    assert summary["synthetic"] <= loose["synthetic"]


def test_given_samples_among_the_held_out_are_refused(runs, server):
    with pytest.raises(TaskError, match="1 of the given samples, the first of class 'refund'"):
        runs.fit(runs.order(holdout=Holdout(["Give me my money back!"])))
    assert server.count() == 0


def test_held_out_texts_do_not_enter(runs):
    runs.fit(path=runs.path.with_name("free"))
    held_out = runs.texts(runs.path.with_name("free"))[:2]
    summary = runs.fit(runs.order(holdout=Holdout(held_out)))
    assert not set(held_out) & set(runs.texts())
    assert sum(reasons.get("held out", 0) for reasons in summary["rejected"].values()) >= 2


def test_providers_are_left_as_they_were(runs):
    order = replace(runs, local=False).order(budget=calls(30))
    replies = order.generator.replies
    assert isinstance(replies, MemoryReplies)
    runs.fit(order)
    assert order.generator.replies is replies
    for api in (order.embedder.api, order.generator.api):
        assert (api.ledger, api.stop, api.price) == (None, None, None)


def test_nothing_is_begun_after_the_last_round(runs, server):
    """A class that is never chosen is fetched for ahead, and asked for once."""
    runs = replace(runs, local=False)
    order = runs.order(prefetch=16, budget=Budget(samples=4))
    summary = runs.fit(order)
    unused = summary["unused_batches"]
    assert server.count("chat/completions") <= 2 + max(unused, 1)
    assert order.generator.api.stop is None


def test_a_budget_of_samples_means_samples(runs, server):
    """Rounds that come short are made up for, and a raise by less than a batch counts."""
    server.add_fault(Fault("refusal", path="chat", times=2))
    short = runs.fit(runs.order(budget=Budget(samples=3)))  # batches of two
    assert short["synthetic"] == 3
    assert sum(short["refused"].values()) == 2
    more = runs.fit(runs.order(budget=Budget(samples=4)))
    assert more["synthetic"] == 4
