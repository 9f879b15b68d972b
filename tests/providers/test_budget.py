from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adamab.errors import RecipeError
from adamab.providers.metering import Budget


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("200 samples, 1.50 usd, 500 calls", Budget(200, Decimal("1.50"), 500)),
        ("500 calls,200 samples ,1.50 usd", Budget(200, Decimal("1.50"), 500)),
        ("  1 call ", Budget(calls=1)),
        ("1 sample", Budget(samples=1)),
        ("2 USD", Budget(usd=Decimal(2))),
        ("0.000000001usd", Budget(usd=Decimal("1e-9"))),
        ("0 calls", Budget(calls=0)),
        ("120", Budget(samples=120)),
        (120, Budget(samples=120)),
        (np.int64(7), Budget(samples=7)),
        (None, Budget()),
        (Budget(calls=3), Budget(calls=3)),
    ],
)
def test_a_budget_is_read_from_words(text, budget):
    assert Budget.parse(text) == budget


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ",", "5 calls,", "usd", "1.5 samples", "1.5", "1.0 calls", "-1 calls", "+1 calls",
        "1e3 calls", "nan usd", "inf usd", "1_000 calls", "1,000 calls", "٣ calls", "³ calls", "２ usd",
        "1 eur", "$5", "1 2 usd", "0.0000000001 usd", "1. usd", ".5 usd", "5 calls, 3",
        "9999999999999 calls", "5 calls; 2 usd", "5\ncalls\n\nx",
        -1, True, 1.5, float("nan"), ["5 calls"],
    ],
)  # fmt: skip
def test_what_is_no_budget_is_refused_in_one_line(text):
    with pytest.raises(RecipeError) as caught:
        Budget.parse(text)
    assert "\n" not in str(caught.value)


def test_the_message_shows_the_part_and_a_form_that_works():
    with pytest.raises(RecipeError, match="'3 eur' needs samples, usd or calls, such as"):
        Budget.parse("5 calls, 3 eur")
    with pytest.raises(RecipeError, match=r"'1\.5 samples' must be a whole number of samples"):
        Budget.parse("1.5 samples, 3 usd")
    with pytest.raises(RecipeError, match="caps calls twice"):
        Budget.parse("1 call, 2 calls")


@pytest.mark.parametrize(
    "wrong", [{"calls": -1}, {"samples": -5}, {"usd": Decimal("NaN")}, {"usd": Decimal("inf")}]
)
def test_impossible_caps_are_refused(wrong):
    with pytest.raises(RecipeError, match="not possible"):
        Budget(**wrong)


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(), "no cap"),
        (Budget(200, Decimal("1.5"), 500), "200 samples, 1.50 usd, 500 calls"),
        (Budget(1, None, 1), "1 sample, 1 call"),
        (Budget(usd=Decimal("1E+3")), "1000.00 usd"),
        (Budget(usd=Decimal("0.00012500")), "0.000125 usd"),
        (Budget(usd=Decimal(0)), "0.00 usd"),
    ],
)
def test_a_budget_is_shown_in_words(budget, text):
    assert str(budget) == text


counts = st.none() | st.integers(0, 10**9)
amounts = st.none() | st.decimals(0, 10**6, places=9)


@given(counts, amounts, counts)
def test_what_is_shown_can_be_read_again(samples, usd, calls):
    budget = Budget(samples, usd, calls)
    if budget != Budget():
        assert Budget.parse(str(budget)) == budget


def test_money_is_counted_in_billionths_and_never_rounded_up():
    assert Budget.parse("1.50 usd").nano_usd == 1_500_000_000
    assert Budget(usd=Decimal("0.0000000019")).nano_usd == 1
    assert Budget().nano_usd is None
