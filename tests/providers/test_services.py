"""Each provider that has a name, over real sockets: embedding, writing and choosing a class, and faults."""

import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from adamab.compare import TrainingData
from adamab.compare.remote import ChatBaseline, chat_from_spec
from adamab.errors import ApiError, ProviderError, TaskError
from adamab.providers.generators.base import Request
from adamab.providers.metering import Budget, Ledger, Price, find_price
from adamab.providers.registry import EMBEDDERS, GENERATORS, remembered, resolve_embedder
from adamab.providers.registry import resolve_generator as resolve
from adamab.providers.services import PROVIDERS, service_of
from adamab.task.spec import ClassSpec
from adamab.testing import Fault, ProviderServer, check_embedder, check_generator
from adamab.testing._provider_endpoints import vector

KEY = "sk-very-secret-0123456789"
PLACES = {"azure": "/azure", "anthropic": "/anthropic/v1", "jina": "/jina/v1", "tei": "/tei"} | {
    "voyage": "/voyage/v1",
    "cohere": "/cohere",
}
CHATS = [name for name, provider in PROVIDERS.items() if provider.chats]
EMBEDS = [name for name, provider in PROVIDERS.items() if provider.embeds]
REFUND = Request(ClassSpec("refund", "wants money back"), 0, 5, given=("send my money back",), existing=())
SPECS = (ClassSpec("refund", "wants money back"), ClassSpec("crash", "the app stops or freezes"))


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for provider in PROVIDERS.values():
        monkeypatch.setenv(provider.key_env, KEY)
        monkeypatch.delenv(provider.url_env or "ADAMAB_NOTHING", raising=False)
    return monkeypatch


@pytest.fixture(name="server")
def _server():
    with ProviderServer(width=16, key=KEY) as running:
        yield running


def spec(server, name, model="m", **options):
    given = {"base_url": server.url + PLACES.get(name, "/v1"), "first_wait": 0.001, "longest_wait": 0.002}
    return f"{name}:{model}?" + "&".join(f"{key}={value}" for key, value in (given | options).items())


def chat(server, name, **options):
    baseline = chat_from_spec(spec(server, name, **options))
    return baseline.fit(TrainingData({}, [], tuple(one.name for one in SPECS), specs=SPECS))


@pytest.mark.parametrize("name", EMBEDS)
async def test_embedders(server, name):
    embedder = resolve_embedder(spec(server, name, "model", batch=4))
    check_embedder(embedder)
    answer = await embedder.embed(["money back", "it froze", "  "] * 3)
    kind = {"voyage": "query", "cohere": "search_query", "jina": "retrieval.query"}.get(name, "")
    np.testing.assert_allclose(answer.views["pooled"][0], vector("money back", 16, kind), atol=1e-6)
    assert all(seen.has_key for seen in server.seen)
    assert str(embedder) == f"{name}:model"


@pytest.mark.parametrize("name", CHATS)
async def test_generators(server, name):
    writer = resolve(spec(server, name))
    writer.api.ledger, writer.api.price = Ledger(Budget()), Price(Decimal(1))
    batch = await writer.generate(REFUND)
    assert (len(batch), batch.refused, batch.closed) == (5, False, None)
    bound, spent = writer.most_calls(REFUND)[0], writer.api.ledger.spent()
    assert 0 < spent.input_tokens <= bound.input_tokens
    assert 0 < spent.output_tokens <= bound.output_tokens
    assert server.count() == 1, "the first form of a request is one that it understands"


@pytest.mark.parametrize("name", CHATS)
def test_chat_models_as_baselines(server, name):
    baseline = chat(server, name)
    assert baseline.predict({}, ["money please", "the app freezes"]) == ["refund", "crash"]
    assert str(baseline) == ("chat:m" if name == "openai" else f"chat:{name}:m")
    assert server.count() == 2


def test_a_model_with_a_colon_is_no_model_of_the_service_of_that_name():
    url = "http://localhost:11434/v1"
    theirs, own = (chat_from_spec(f"chat:{name}:7b", base_url=url) for name in ("mistral", "openai:mistral"))
    assert (theirs.judge.model, own.judge.model) == ("7b", "mistral:7b")
    assert (str(theirs), str(own)) == ("chat:mistral:7b", "chat:openai:mistral:7b")
    assert theirs.fingerprint != own.fingerprint


def test_every_name_has_its_own_fingerprint_address_and_price(keys):
    keys.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com")
    names = [*{resolve_embedder(f"{name}:m").fingerprint for name in EMBEDS}]
    assert len(names) == len(EMBEDS)
    assert ({*EMBEDS} <= {*EMBEDDERS}, {*CHATS} <= {*GENERATORS}) == (True, True)
    models = {
        "openai": "gpt-4o-mini", "azure": "gpt-4o-mini", "anthropic": "claude-3-5-haiku-latest",
        "gemini": "gemini-2.5-flash", "mistral": "mistral-small-latest", "groq": "llama-3.3-70b-versatile",
        "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo", "openrouter": "openai/gpt-4o-mini",
    }  # fmt: skip
    assert find_price("ollama", "m", address=service_of("ollama").base_url) == Price(Decimal(0))
    assert find_price("ollama", "m", address="https://ollama.example.com/v1") is None
    assert {*CHATS} - {*models} == {"ollama"}
    for name, model in models.items():
        assert find_price(name, model, address=service_of(name).base_url) is not None, name


def test_the_page_has_the_same_table():
    page = (Path(__file__).parents[2] / "docs/providers/services.md").read_text()
    rows = [line.strip("| \n").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    told = {}
    for name, key, embeds, chats, address in rows:
        place = address.split("`")[1].replace("AZURE_OPENAI_ENDPOINT", "")
        told[name.strip("`").partition(":")[0]] = (key.split("`")[1], "yes" in embeds, "yes" in chats, place)
    assert told == {
        name: (known.key_env, bool(known.embeds), bool(known.chats), known.base_url.partition("://")[2])
        for name, known in PROVIDERS.items()
    }


def test_azure_is_asked_at_a_deployment_and_in_a_version(server, keys):
    keys.setenv("AZURE_OPENAI_ENDPOINT", f"{server.url}/azure/")
    assert chat_from_spec("azure:my-4o?api_version=2025-01-01-preview").judge.api.service.private
    baseline = ChatBaseline(chat_from_spec("azure:my-4o?api_version=2025-01-01-preview").judge)
    baseline.fit(TrainingData({}, [], tuple(one.name for one in SPECS), specs=SPECS))
    assert baseline.predict({}, ["money please"]) == ["refund"]
    (seen,) = server.seen
    assert seen.path == "/azure/openai/deployments/my-4o/chat/completions?api-version=2025-01-01-preview"
    assert remembered("azure:e", "embedder", "it") == "azure:e", "the address is whoever uses the model's own"
    with pytest.raises(ProviderError, match="names a server of its own"):
        remembered("azure:e?base_url=https://me.openai.azure.com", "embedder", "it")
    with pytest.raises(ProviderError, match="api_version is no version; write for example 2024-10-21"):
        chat_from_spec("azure:m?api_version=a b")


def test_anthropic_keeps_the_contract_of_generators(server):
    check_generator(lambda: resolve(spec(server, "anthropic")), REFUND, calls=3)


async def test_anthropic_is_asked_for_a_tool_or_for_lines(server):
    writer = resolve(spec(server, "anthropic", temperature=0.5))
    await writer.generate(REFUND)
    (seen,) = server.seen
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.body["tool_choice"] == {"type": "tool", "name": "write_texts"}
    assert (seen.body["temperature"], seen.body["max_tokens"] > 0) == (0.5, True)
    assert "seed" not in seen.body
    server.add_fault(Fault("no_schema", times=None))
    assert len(await resolve(spec(server, "anthropic", temperature=1.5)).generate(REFUND)) == 5
    assert "tools" not in server.seen[-1].body
    assert "temperature" not in server.seen[-1].body, "it takes none above 1"


@pytest.mark.parametrize(
    ("fault", "refused", "texts"),
    [
        (Fault("refusal"), True, 0),
        (Fault("refusal", how="filter"), True, 0),
        (Fault("refusal", how="text"), True, 0),
        (Fault("empty", how="content"), False, 5),
        (Fault("no_usage"), False, 5),
        (Fault("truncate"), False, 5),
        (Fault("reset"), False, 5),
        (Fault("garbage"), False, 5),
        (Fault("status", status=529, times=2), False, 5),
        (Fault("status", status=500), False, 5),
        (Fault("status", retry_after=0.01), False, 5),
    ],
    ids=lambda value: f"{value.kind}{value.how}{value.status or ''}" if isinstance(value, Fault) else "",
)
async def test_anthropics_faults(server, fault, refused, texts):
    server.add_fault(fault)
    writer = resolve(spec(server, "anthropic"))
    writer.api.ledger, writer.api.price = Ledger(Budget()), Price(Decimal(1))
    batch = await writer.generate(REFUND)
    assert (batch.refused, len(batch)) == (refused, texts)
    assert writer.api.ledger.spent().unsettled == 0


async def test_an_answer_of_anthropics_that_is_cut_gives_the_whole_texts_in_it(server):
    writer = resolve(spec(server, "anthropic", max_tokens=60))
    batch = await writer.generate(REFUND)
    assert 0 < len(batch) <= 5
    assert server.count() > 1, "the rest is asked for again"


def test_images_reach_anthropic(server, images):
    baseline = chat(server, "anthropic")
    baseline.predict({}, images[:1])
    image, text = sorted(server.seen[0].body["messages"][0]["content"], key=lambda part: part["type"])
    assert image["source"]["media_type"] == "image/png"
    assert (image["type"], text["type"]) == ("image", "text")
    assert server.seen[0].status == 200


async def test_dialects_of_embeddings(server):
    await resolve_embedder(spec(server, "jina", "jina-embeddings-v3")).embed(["a"], kind="class")
    older = resolve_embedder(spec(server, "jina", "jina-embeddings-v2-base-en"))
    assert len((await older.embed(["a", "b"])).views["pooled"]) == 2
    tasks = [seen.body.get("task") for seen in server.seen]
    assert tasks == ["retrieval.passage", "retrieval.query", None]
    server.reset()
    tei = resolve_embedder(spec(server, "tei", batch=50))
    answer = await tei.embed([f"text {n}" for n in range(40)] + ["word " * 20_000])
    assert answer.overlong.tolist() == [False] * 40 + [True]
    assert np.isfinite(answer.views["pooled"]).all()
    sizes = [len(seen.body["inputs"]) for seen in server.seen if seen.status == 200]
    assert max(sizes) <= 32, "what is refused as too large is halved"


async def asked(server, name, **options):
    if PROVIDERS[name].embeds:
        return await resolve_embedder(spec(server, name, **options)).embed(["a private text"])
    return await resolve(spec(server, name, **options)).generate(REFUND)


FINAL = {
    401: "the key in {key} was refused",
    404: "no (model|deployment) 'm' at",
    500: "no answer after 2 attempts .last: 500",
    529: "no answer after 2 attempts .last: 529",
}


@pytest.mark.parametrize("status", FINAL)
@pytest.mark.parametrize("name", ["mistral", "azure", "anthropic", "jina", "tei"])
async def test_faults_that_stay_are_one_line_without_key_or_text(server, name, status):
    server.add_fault(Fault("status", status=status, times=None))
    told = FINAL[status].format(key=PROVIDERS[name].key_env)
    with pytest.raises(ApiError, match=rf"{name}: {told}") as caught:
        await asked(server, name, retries=1)
    assert not re.search(rf"\n|{KEY}|private|money", str(caught.value))
    assert server.count() == (1 if status < 500 else 2)


def test_a_name_that_is_no_chat_model():
    with pytest.raises(ProviderError, match="voyage: has no chat models; those who have: openai, azure"):
        chat_from_spec("voyage:rerank-2.5")
    with pytest.raises(
        TaskError, match=r"unknown service 'antropic'; did you mean 'anthropic'\? \(chat:MODEL"
    ):
        chat_from_spec("antropic:claude")
    assert chat_from_spec("ft:gpt-4o-mini:org::id").judge.model == "ft:gpt-4o-mini:org::id"
    assert chat_from_spec("ollama:mistral:7b").judge.api.limits.timeout == 600
