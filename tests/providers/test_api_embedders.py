"""Embedders behind an API, against a server that speaks their protocols and has their faults."""

import asyncio
import copy
from decimal import Decimal

import numpy as np
import pytest

from adamab.errors import ApiError, BudgetError, CacheError, EmbedderError, ProviderError
from adamab.providers.cache import CachedEmbedder, VectorCache
from adamab.providers.embedders.api import ApiEmbedder
from adamab.providers.embedders.base import TextError
from adamab.providers.metering import Budget, Ledger, Price
from adamab.providers.registry import resolve_embedder
from adamab.testing import Fault, ProviderServer, check_embedder
from adamab.testing._provider_endpoints import vector

PLACES = {"openai": "/v1", "voyage": "/voyage/v1", "cohere": "/cohere"}
TEXTS = [f"text number {n} with words of its own" for n in range(40)]
NAMES = pytest.mark.parametrize("name", PLACES)


def make(server, name="openai", **options):
    given = {"batch": "8", "first_wait": "0.001", "longest_wait": "0.002", **options}
    written = "&".join(f"{option}={value}" for option, value in given.items())
    embedder = resolve_embedder(f"{name}:model?base_url={server.url}{PLACES[name]}&{written}")
    assert isinstance(embedder, ApiEmbedder)
    return embedder


def expected(texts, kind=""):
    return np.array([vector(text, 16, kind) for text in texts], np.float32)


def sizes(server):
    return [len(seen.body.get("input", seen.body.get("texts"))) for seen in server.seen]


def paid(embedder, budget=None):
    embedder.api.ledger, embedder.api.price = Ledger(Budget.parse(budget)), Price(Decimal(1))
    return embedder.api.ledger


@NAMES
def test_conformance(server, name):
    check_embedder(make(server, name))
    check_embedder(make(server, name, dimensions=4, batch=1))


@NAMES
async def test_requests_are_packed_and_order_is_kept(server, name):
    server.jitter = 0.02  # answers come back in another order than they were asked for
    kinds = {
        "openai": ("", ""),
        "voyage": ("query", "document"),
        "cohere": ("search_query", "search_document"),
    }
    embedder = make(server, name)
    answer = await embedder.embed(TEXTS[:37])
    np.testing.assert_allclose(answer.views["pooled"], expected(TEXTS[:37], kinds[name][0]), atol=1e-6)
    assert sorted(sizes(server), reverse=True) == [8, 8, 8, 8, 5]
    assert not answer.overlong.any()
    answer = await embedder.embed(TEXTS[:3], kind="class")
    np.testing.assert_allclose(answer.views["pooled"], expected(TEXTS[:3], kinds[name][1]), atol=1e-6)


@NAMES
@pytest.mark.parametrize("limit", [{"items": 3}, {"bytes": 300}, {"items": 3, "status": 400}])
async def test_what_is_too_large_is_split(server, name, limit):
    server.add_fault(Fault("too_large", times=None, **limit))  # type: ignore[arg-type]
    answer = await make(server, name).embed(TEXTS)
    plain = ProviderServer(width=16)
    with plain:
        reference = await make(plain, name).embed(TEXTS)
    np.testing.assert_array_equal(answer.views["pooled"], reference.views["pooled"])
    assert not answer.overlong.any()


async def test_a_text_that_is_too_long_is_cut_and_flagged(server):
    long = "word " * 20_000
    answer = await make(server).embed(["short", long, "also short"])
    assert answer.overlong.tolist() == [False, True, False]
    sent = [seen.body["input"] for seen in server.seen if seen.status == 200]
    (cut,) = next(texts for texts in sent if texts[0].startswith("word"))
    assert len(cut) == 3 * 8192
    np.testing.assert_allclose(answer.views["pooled"][1], vector(cut, 16), atol=1e-6)
    server.add_fault(Fault("too_large", times=None, bytes=500))  # a server that takes less than the provider
    assert (await make(server).embed([TEXTS[0], "täglich " * 500])).overlong.tolist() == [False, True]


async def test_a_text_that_stays_too_large_is_named_by_its_number(server, tmp_path):
    server.add_fault(Fault("too_large", times=None, contains="secret"))
    texts = ["a", "b", "a", "the secret text"]
    cached = CachedEmbedder(make(server), VectorCache(tmp_path / "v.sqlite"))
    await cached.embed(["a"])
    for embedder in (make(server), cached):
        with pytest.raises(
            TextError, match="openai:model: text 3 is refused as too large; shorten it"
        ) as caught:
            await embedder.embed(texts)
        assert "secret" not in str(caught.value)
    assert str(copy.copy(caught.value)) == str(caught.value)


@NAMES
@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", times=3),
        Fault("few_vectors"),
        Fault("empty"),
        Fault("wrong_width", how="last"),
        Fault("nan"),
        Fault("nan", how="null"),
        Fault("shuffled", times=None),
        Fault("no_usage", times=None),
    ],
    ids=lambda fault: f"{fault.kind}{fault.how}",
)
async def test_faults_that_pass_change_nothing(server, name, fault):
    server.idempotent = False
    reference = await make(server, name).embed(TEXTS)
    server.add_fault(fault)
    embedder = make(server, name)
    ledger = paid(embedder)
    answer = await embedder.embed(TEXTS)
    np.testing.assert_array_equal(answer.views["pooled"], reference.views["pooled"])
    assert ledger.spent().calls == server.count() - 5
    assert ledger.spent().unsettled == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("few_vectors", times=None), "7 vectors for 8 texts"),
        (Fault("many_vectors", times=None), "9 vectors for 8 texts"),
        (Fault("empty", times=None), "0 vectors for 8 texts"),
        (Fault("wrong_width", times=None, how="last"), "vectors that are not numbers of one width"),
        (Fault("wrong_width", times=None), "vectors of another width than 16"),
        (Fault("nan", times=None), "a vector that is not finite"),
        (Fault("garbage", times=None), "an answer that is no JSON"),
    ],
    ids=str,
)
async def test_faults_that_stay_are_one_line(server, fault, message):
    embedder = make(server)
    await embedder.embed(["the width is known now"])
    server.add_fault(fault)
    with pytest.raises(
        ApiError, match=rf"openai: no .*answer after \d attempts \(last: {message}\); "
    ) as caught:
        await embedder.embed(TEXTS[:8])
    assert TEXTS[0] not in str(caught.value)


@pytest.mark.parametrize("how", ["numbers", "unknown"])
async def test_servers_that_know_no_base64(server, how, monkeypatch):
    from adamab.testing import _provider_endpoints, _provider_protocol

    def numbers_only(body, options, fault):
        if how == "unknown" and "encoding_format" in body:
            raise _provider_protocol.Refused(400, "Unrecognized request argument: encoding_format")
        plain = {key: value for key, value in body.items() if key != "encoding_format"}
        return _provider_endpoints.openai_embeddings(plain, options, fault)

    monkeypatch.setitem(_provider_endpoints.ROUTES, "/v1/embeddings", numbers_only)
    answer = await make(server).embed(TEXTS)
    np.testing.assert_allclose(answer.views["pooled"], expected(TEXTS), atol=1e-6)


@NAMES
async def test_dimensions(server, name):
    narrow, wide = make(server, name, dimensions=4), make(server, name)
    assert (await narrow.embed(["a"])).views["pooled"].shape == (1, 4)
    assert narrow.fingerprint != wide.fingerprint
    server.add_fault(Fault("no_schema"))
    with pytest.raises(EmbedderError, match="leave out dimensions=9999"):
        await make(server, name, dimensions=9999).embed(["a"])
    server.add_fault(Fault("wrong_width", times=None))
    with pytest.raises(ApiError, match="another width than 4"):
        await make(server, name, dimensions=4).embed(["b"])


@NAMES
async def test_empty_texts_get_a_vector(server, name):
    answer = await make(server, name).embed(["", " \n\t", "a", "half \ud800 a character"])
    assert np.isfinite(answer.views["pooled"]).all()
    np.testing.assert_array_equal(answer.views["pooled"][0], answer.views["pooled"][1])
    sent = server.seen[0].body.get("input", server.seen[0].body.get("texts"))
    assert sent == [".", ".", "a", "half ? a character"]


async def test_fingerprints(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    specs = {
        "openai:m": "openai:m",
        "openai:m?rpm=5&tpm=10&concurrency=2&retries=1&timeout=3&batch=4&key_env=A_KEY": "openai:m",
        "openai:m?dimensions=8": "openai:m:8",
        "openai:m?base_url=https://api.openai.com/v1/": "openai:m",
        "openai:m?base_url=http://localhost:8000/v1": "openai:m@localhost:8000/v1",
        "voyage:m": "voyage:m",
        "cohere:m": "cohere:m",
    }
    assert {spec: resolve_embedder(spec).fingerprint for spec in specs} == specs
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    assert resolve_embedder("openai:m").fingerprint == "openai:m@localhost:8000/v1"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("openai:", "write openai:MODEL"),
        ("voyage", "write voyage:MODEL"),
        ("openai:m?rmp=5", "openai: option 'rmp' is unknown; did you mean 'rpm'"),
        ("openai:m?rpm", "'m\\?rpm' is no model's name; options are written openai:MODEL\\?option=value"),
        ("openai:m?rpm=5&rpm=6", "names an option twice"),
        ("openai:m?dimensions=wide", "option dimensions='wide' is not a whole number"),
        ("openai:m?dimensions=0", "dimensions is 0; use 1 or more"),
        ("cohere:m?batch=0", "batch is 0; use 1 or more"),
    ],
)
def test_bad_specs_are_one_line(spec, message):
    with pytest.raises(ProviderError, match=message) as caught:
        resolve_embedder(spec)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_nothing_is_paid_for_what_cannot_be_stored(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path, tmp_path / "file", tmp_path / "file" / "v.sqlite"):
        with pytest.raises(CacheError) as caught:
            await CachedEmbedder(make(server), VectorCache(place, strict=True)).embed(["a"])
        assert "\n" not in str(caught.value)
    assert server.count() == 0


async def test_the_budget_stops_in_time(server, tmp_path):
    inner = make(server, batch=1)
    cached = CachedEmbedder(inner, VectorCache(tmp_path / "v.sqlite"))
    paid(inner, "7 calls")
    with pytest.raises(BudgetError, match="7 calls"):
        await cached.embed(TEXTS)
    assert server.count() == 7
    (entry,) = cached.cache.entries()
    assert entry.rows == 7, "and what it bought is kept"


class Died(BaseException):
    """A process that ends here writes nothing more."""


class DyingLedger(Ledger):
    """Its process ends just before the call number `last` is settled; those before it are."""

    last = 1

    def settle(self, *args):
        self.last -= 1
        if self.last <= 0:
            raise Died
        super().settle(*args)


@pytest.mark.parametrize("last", [1, 2])
async def test_what_is_bought_is_stored_before_it_is_settled(server, tmp_path, last):
    server.idempotent = False  # whatever is asked for again is billed again

    def stacked():
        inner = make(server, concurrency=1)
        shared = CachedEmbedder(inner, VectorCache(tmp_path / "shared.sqlite"))
        return inner, CachedEmbedder(shared, VectorCache(tmp_path / "run.sqlite", strict=True))

    inner, cached = stacked()
    inner.api.ledger = DyingLedger(path=tmp_path / "ledger.sqlite")
    inner.api.ledger.last = last
    with pytest.raises(Died):
        await cached.embed(TEXTS)
    assert server.count() == last
    for name in ("shared", "run"):
        assert VectorCache(tmp_path / f"{name}.sqlite").entries()[0].rows == 8 * last
    inner, cached = stacked()
    inner.api.ledger = Ledger(path=tmp_path / "ledger.sqlite")
    answer = await cached.embed(TEXTS)
    np.testing.assert_allclose(answer.views["pooled"], expected(TEXTS), atol=1e-6)
    assert (server.billed(), server.repeated()) == (5, 0)
    assert (inner.api.ledger.spent().calls, inner.api.ledger.spent().unsettled) == (5, 1)


class FullCache(VectorCache):
    """Has room for so many parts."""

    room = 1

    def put(self, *args):
        self.room -= 1
        if self.room < 0:
            raise CacheError("disk is full")
        super().put(*args)


async def test_where_one_cache_is_full_the_other_has_all_that_was_paid_for(server, tmp_path):
    server.latency = 0.02
    inner = make(server, concurrency=3)
    ledger = paid(inner)
    other = VectorCache(tmp_path / "shared.sqlite")
    cached = CachedEmbedder(CachedEmbedder(inner, other), FullCache(tmp_path / "run.sqlite", strict=True))
    with pytest.raises(CacheError, match="disk is full"):
        await cached.embed(TEXTS)
    bought = server.billed()
    assert other.entries()[0].rows == 8 * bought
    assert (ledger.spent().calls, ledger.spent().unsettled) == (bought, 0)
    assert bought < 5, "and nothing more was asked for"


async def test_who_leaves_early_waits_for_what_is_on_its_way(server, tmp_path):
    server.add_fault(Fault("slow", seconds=0.2, after=1, times=None))
    embedder = make(server, concurrency=3)
    ledger = paid(embedder)
    kept = []
    parts = embedder.parts(TEXTS, kind="query", views=["pooled"], keep=lambda rows, answer: kept.extend(rows))
    await anext(parts)
    while server.count() < 3:
        await asyncio.sleep(0.005)
    await parts.aclose()
    assert (server.billed(), len(kept)) == (3, 24)
    assert ledger.spent().unsettled == 0
    assert ledger.spent().input_tokens < 24 * 30, "what was used, not what was reserved"
