import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adamab.errors import RecipeError
from adamab.providers.metering import (
    Budget,
    Price,
    Usage,
    _dearest,
    _listed,
    _snapshot,
    check_prices,
    find_price,
)

MINI = Price(Decimal("0.15"), Decimal("0.60"))


def info_of(service, model):
    return _snapshot().find_provider_model(model, None, service, None)[1]


@pytest.mark.parametrize(
    ("service", "model", "price"),
    [
        ("openai", "gpt-4o-mini", MINI),
        ("openai", "text-embedding-3-small", Price(Decimal("0.02"))),
        ("voyage", "voyage-3.5", Price(Decimal("0.06"))),
        ("cohere", "embed-v4.0", Price(Decimal("0.12"))),
        ("openai", "gpt-image-1", Price(Decimal(5), Decimal(40))),
    ],
)
def test_the_packaged_list_knows_common_models(service, model, price):
    assert find_price(service, model) == price


@pytest.mark.parametrize(
    ("service", "model"),
    [
        ("openai", "SmolLM2-135M-Instruct"),
        ("openai", "tts-1"),  # by characters, not by tokens
        ("openai", "moderation"),  # listed without a price
        ("perplexity", "sonar"),  # costs something a request as well
        ("nobody", "gpt-4o-mini"),
        ("127.0.0.1:8000/openai", "gpt-4o-mini"),
    ],
)
def test_what_is_not_known_stays_unknown(service, model):
    assert find_price(service, model) is None


def test_the_list_is_asked_about_whoever_is_at_the_address():
    own = {"openai:gpt-4o-mini": Price(Decimal(9))}
    for service, model, address in [
        ("openai", "gpt-4o-mini", "https://api.openai.com/v1"),
        ("voyage", "voyage-3.5", "https://api.voyageai.com/v1"),
        ("cohere", "embed-v4.0", "https://api.cohere.com"),
    ]:
        assert find_price(service, model, address=address) == find_price(service, model) is not None
    assert find_price("openai", "mistral-small-latest") is None
    assert find_price("openai", "mistral-small-latest", address="https://api.mistral.ai/v1") is not None
    local = "http://127.0.0.1:8000/openai/v1"
    assert find_price("openai", "gpt-4o-mini", address=local) is None
    assert find_price("openai", "gpt-4o-mini", own, address=local) == Price(Decimal(9))


def test_the_users_own_price_comes_first():
    own = {"gpt-4o-mini": Price(Decimal(1)), "openai:here": Price(Decimal(2)), "here": Price(Decimal(3))}
    assert find_price("openai", "gpt-4o-mini", own) == Price(Decimal(1))
    assert find_price("openai", "here", own) == Price(Decimal(2))
    assert find_price("voyage", "here", own) == Price(Decimal(3))


def test_a_price_by_the_hour_counts_as_the_dearest_of_the_day():
    night, noon = (datetime(2026, 1, 5, hour, tzinfo=UTC) for hour in (20, 12))
    info = info_of("deepseek", "deepseek-chat")
    assert info.get_prices(night).input_mtok < info.get_prices(noon).input_mtok  # else this tests nothing
    assert _listed("deepseek", "deepseek-chat", night) == _listed("deepseek", "deepseek-chat", noon)
    assert _listed("deepseek", "deepseek-chat", night).input == info.get_prices(noon).input_mtok


def test_no_listed_price_is_below_what_genai_prices_computes():
    from genai_prices import Usage as TheirUsage

    now, checked = datetime.now(UTC), 0
    for provider in _snapshot().providers:
        if provider.id not in ("openai", "cohere", "voyageai", "mistral"):
            continue
        for info in provider.models:
            price = _dearest([info.get_prices(now)])
            if price is None:
                continue
            theirs = info.calc_price(
                TheirUsage(input_tokens=1000, output_tokens=500), provider, genai_request_timestamp=now
            )
            ours = price.nano_usd(Usage(1000, 500))
            assert ours >= theirs.total_price * 10**9
            checked += 1
    assert checked > 100


def test_looking_up_a_price_opens_no_connection_and_follows_no_update():
    # Python reports every socket and every name look-up to the audit hook.
    script = (
        "import sys\n"
        "seen = []\n"
        "sys.addaudithook(lambda e, _: seen.append(e) if e.startswith('socket.') else None)\n"
        "from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot\n"
        "set_custom_snapshot(DataSnapshot(providers=[], from_auto_update=True))\n"
        "from adamab.providers.metering import find_price\n"
        "print(find_price('openai', 'gpt-4o-mini').input, find_price('openai', 'x'), seen)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0.15 None []"


def test_costs_are_rounded_up():
    assert MINI.nano_usd(Usage(1_000_000, 1_000_000)) == 750_000_000
    assert MINI.nano_usd(Usage(1, 0)) == 150
    assert Price(Decimal("0.0001")).nano_usd(Usage(1)) == 1
    assert Price(Decimal("0.0001")).nano_usd(Usage(11)) == 2
    assert MINI.nano_usd(Usage()) == 0
    assert Price(Decimal("0.000000001")).nano_usd(Usage(10**18)) == 10**12
    assert Price(Decimal("123456.123456789")).nano_usd(Usage(10**20 + 1)) == 12345612345678900000123456124


def test_images_are_billed_one_by_one_beside_the_tokens():
    by_image = Price.parse("m=0.011/image")[1]
    assert by_image.nano_usd(Usage(10**6, 10**6, 3)) == 33_000_000
    assert Price(Decimal(1), Decimal(2), Decimal("0.5")).nano_usd(Usage(10**6, 10**6, 2)) == 4 * 10**9
    assert MINI.nano_usd(Usage(0, 0, 100)) == 0
    assert Price(Decimal(0), image=Decimal("0.0000000001")).nano_usd(Usage(images=1)) == 1  # rounded up


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("gpt-4o-mini=0.15/0.60", ("gpt-4o-mini", MINI)),
        (" a/b:c = 1/2 ", ("a/b:c", Price(Decimal(1), Decimal(2)))),
        ("org/model=0.02", ("org/model", Price(Decimal("0.02")))),
        ("a=b=1/2", ("a=b", Price(Decimal(1), Decimal(2)))),
        ("free=0/0", ("free", Price(Decimal(0)))),
        ("dall-e-3=0.04/image", ("dall-e-3", Price(Decimal(0), image=Decimal("0.04")))),
        (" a/b = 1/image ", ("a/b", Price(Decimal(0), image=Decimal(1)))),
    ],
)
def test_a_price_is_read_from_words(text, read):
    assert Price.parse(text) == read


@pytest.mark.parametrize(
    "text",
    ["", "=", "m=", "=1/2", "m", "0.15/0.60", "m=-1/2", "m=1/-2", "m=1e3/2", "m=nan/1", "m=inf", "m=1/2/3",
     "m=1,5/2", "m=٣/1", "m=$1/2", "m=1 2", "m=1/", "m=/1", "m=1234567/1", "m=1.1234567891", "m\n=\n1/x",
     "m=image", "m=/image", "m=1/images", "m=1/2/image", "m=1 image", "m=-1/image", "m=1/IMAGE"],
)  # fmt: skip
def test_what_is_no_price_is_refused_in_one_line(text):
    with pytest.raises(RecipeError, match="MODEL=INPUT/OUTPUT") as caught:
        Price.parse(text)
    assert "\n" not in str(caught.value)


def test_a_cap_on_money_needs_every_price():
    prices = {"openai:gpt-4o-mini": MINI, "openai:my-model": None}
    with pytest.raises(
        RecipeError, match=r"no price is known for openai:my-model.*--price 'openai:my-model=0"
    ):
        check_prices(Budget.parse("1.50 usd"), prices)
    with pytest.raises(RecipeError, match="no price"):
        check_prices(Budget.parse("0 usd"), prices)
    with pytest.raises(RecipeError) as caught:
        check_prices(Budget.parse("1 usd"), prices)
    assert "/image" not in str(caught.value)
    with pytest.raises(RecipeError, match=r"or an image: --price 'openai:my-model=0\.04/image'"):
        check_prices(Budget.parse("1 usd"), prices, makes_images=["openai:my-model"])
    check_prices(Budget.parse("500 calls, 20 samples"), prices)
    check_prices(Budget.parse("1.50 usd"), {"openai:gpt-4o-mini": MINI})


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
