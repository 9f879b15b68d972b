"""Schedules, waits and options; no test waits for a clock."""

import email.utils
import random
import time

import pytest

from adamab.errors import ApiError, ProviderError
from adamab.providers.http import (
    MINUTE,
    Limits,
    Pace,
    backoff,
    connection,
    retry_after,
)
from adamab.providers.services import service_of


def most_in_a_minute(claims):
    return max(
        sum(amount for at, amount in claims if start <= at < start + MINUTE - 1e-6) for start, _ in claims
    )


def test_no_minute_has_more_than_it_may():
    pace, randomness = Pace(30), random.Random(3)
    now, claims = 0.0, []
    for _ in range(300):
        now += randomness.expovariate(1.0)  # twice as often as allowed
        claim = pace.claim(1, now)
        assert claim.start >= now
        claims.append((claim.start, 1.0))
    assert most_in_a_minute(claims) == 30
    assert claims == sorted(claims), "in the order of asking"
    # No slower than the limit either: each claim starts when the one 30 before it is a minute old.
    late = [(first, after) for (first, _), (after, _) in zip(claims, claims[30:], strict=False)]
    assert sum(after == pytest.approx(first + MINUTE) for first, after in late) > 200


def test_claims_are_corrected_to_what_was_used():
    pace = Pace(100)
    first = pace.claim(100, 0.0)
    pace.settle(first, 10)
    assert pace.claim(90, 1.0).start == 1.0
    assert pace.claim(1, 1.0).start == MINUTE
    pace.settle(first, 100)  # long out of the window
    assert pace.claim(5, 1000.0).start == 1000.0


def test_waits_grow_and_differ():
    limits, randomness = Limits(first_wait=1.0, longest_wait=8.0), random.Random(0)
    for attempt, longest in enumerate([1.0, 2.0, 4.0, 8.0, 8.0, 8.0]):
        waits = {backoff(limits, attempt, None, randomness) for _ in range(50)}
        assert len(waits) > 40
        assert longest / 2 <= min(waits) <= max(waits) <= longest
    assert backoff(limits, 5000, None, randomness) <= 8.0
    waits = {backoff(limits, attempt, 100.0, randomness) for attempt in range(10)}
    assert 100.0 <= min(waits) <= max(waits) <= 101.0, "what the service asks for is honoured"


def test_retry_after():
    date = email.utils.formatdate(time.time() + 90, usegmt=True)
    assert retry_after({"retry-after": date}) == pytest.approx(90, abs=5)
    past = email.utils.formatdate(time.time() - 90, usegmt=True)
    assert [retry_after({"retry-after": text}) for text in ("1.5", "-3", past)] == [1.5, 0.0, 0.0]
    assert [retry_after({"retry-after": text}) for text in ("", "soon", "nan", "99 Foo")] == [None] * 4
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert retry_after({"retry-after": "inf"}) == float("inf")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rpm": "many"}, "rpm='many': give a number above 0"),
        ({"rpm": "0"}, "give a number above 0"),
        ({"tpm": "inf"}, "give a number above 0"),
        ({"timeout": "nan"}, "give a number above 0"),
        ({"concurrency": "0"}, "give a whole number from 1 on"),
        ({"concurrency": "1.5"}, "give a whole number from 1 on"),
        ({"retries": "-1"}, "give a whole number from 0 on"),
        ({"rmp": "3"}, "'rmp' is unknown; did you mean 'rpm'"),
        ({"base_url": "ftp://x"}, "base_url cannot be used"),
        ({"base_url": "localhost:8000"}, "base_url cannot be used"),
        ({"base_url": "http://"}, "base_url cannot be used"),
        ({"base_url": "http://x:port"}, "base_url cannot be used"),
        ({"base_url": "http://x/v1?a=b"}, "base_url cannot be used"),
        ({"base_url": "http://x\\y/v1"}, "base_url cannot be used"),
        ({"base_url": "http://me:secret@x/v1"}, "holds a user name or password"),
        ({"key_env": "not a name"}, "is the name of an environment variable"),
        ({"key_env": "secret" * 4}, "is the name of an environment variable"),
        ({"key_env": "sk-secret_1"}, "is the name of an environment variable"),
        ({"key_env": "secret" + 35 * "_"}, "40 characters at most"),
        ({"key_env": "SECRET_\n"}, "is the name of an environment variable"),
    ],
)
def test_bad_options_are_one_line(options, message):
    with pytest.raises(ProviderError, match=message) as caught:
        connection("openai", options)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.fixture
def no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "VOYAGE_API_KEY", "COHERE_API_KEY", "CO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_keys_come_from_the_environment(no_keys):
    for name, variable in (
        ("openai", "OPENAI_API_KEY"),
        ("voyage", "VOYAGE_API_KEY"),
        ("cohere", "CO_API_KEY"),
    ):
        with pytest.raises(ApiError, match=f"{name}: no key; set [A-Z]+_API_KEY"):
            service_of(name).key()
        no_keys.setenv(variable, " sk-1\n")
        assert service_of(name).key() == "sk-1"
    no_keys.setenv("MY_KEY", "sk-2")
    assert service_of("cohere", key_env="MY_KEY").key() == "sk-2"
    no_keys.delenv("MY_KEY")
    with pytest.raises(ApiError, match="cohere: no key; set MY_KEY"):
        service_of("cohere", key_env="MY_KEY").key()


@pytest.mark.parametrize("key", ["sk-1\nX: y", "sk 1", "schlüssel"])
def test_a_key_that_cannot_be_one_is_not_shown(no_keys, key):
    no_keys.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ApiError, match="holds a character that no key has") as caught:
        service_of("openai").key()
    assert key not in str(caught.value)


def test_other_servers_need_no_key(no_keys):
    local, limits = connection("openai", {"base_url": "http://LOCALHOST:8000/v1/", "rpm": "0.5", "tpm": None})
    assert limits == Limits(rpm=0.5)
    assert (local.base_url, local.needs_key, local.key()) == ("http://localhost:8000/v1", False, None)
    no_keys.setenv("OPENAI_BASE_URL", "https://example.org/v1")
    assert service_of("openai").place == "example.org/v1"
    assert service_of("openai", base_url="http://127.0.0.1:1/v1").place == "127.0.0.1:1/v1"
    assert service_of("voyage").needs_key


def test_no_key_travels_in_the_clear(no_keys):
    no_keys.setenv("OPENAI_API_KEY", "sk-1")
    urls = ["http://192.168.1.5/v1", "http://localhost.example.org/v1", "http://127.0.0.1.example.org/v1"]
    assert [service_of("openai", base_url=url).key() for url in urls] == [None] * 3
    urls = ["https://192.168.1.5/v1", "http://127.0.0.1:9/v1", "http://[::1]:9/v1", "http://localhost/v1"]
    assert [service_of("openai", base_url=url).key() for url in urls] == ["sk-1"] * 4
    assert "sk-1" not in repr(service_of("openai"))
