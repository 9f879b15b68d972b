"""`openai:MODEL` over real sockets: what is asked, how answers are read, and what is asked again."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from decimal import Decimal

import pytest

from adamab.errors import ApiError, BudgetError, GeneratorError, ProviderError
from adamab.providers.cache import MemoryReplies, Reply
from adamab.providers.generators.base import Batch, Request, Settings, clipped
from adamab.providers.generators.chat_protocol import output_bound, reply_of
from adamab.providers.generators.openai import MORE_ASKS, OpenAIGenerator
from adamab.providers.metering import AHEAD, Budget, Ledger, Price
from adamab.providers.registry import resolve_generator
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.task.words import normalised_text
from adamab.testing import Fault, ProviderServer, check_generator

REFUND = Request(
    ClassSpec("refund_request", "wants their money back"),
    0,
    5,
    given=("please send my money back", "I want a refund for order 17"),
    existing=(),
)


ALIVE: list[OpenAIGenerator] = []  # a client's connections close with its event loop, not before


def generator(server, model="test", **options):
    quick = {"retries": 2, "first_wait": 0.01, "base_url": f"{server.url}/v1"}
    made = OpenAIGenerator(model, **{**quick, **options})
    ALIVE.append(made)
    return made


def bodies(server):
    return [seen.body for seen in server.seen]


def prompt(body):
    return str(body["messages"][0]["content"])


def checked(batch, request=REFUND):
    keys = [normalised_text(text) for text in (*request.given, *request.existing, *batch.texts)]
    assert len(set(keys)) == len(keys)
    assert len(batch) <= request.count
    return batch


@pytest.mark.parametrize("style", ["schema", "lines", "bullets", "fenced"])
async def test_one_request_gives_all_texts_whatever_the_style(style):
    with ProviderServer(style=style) as server:
        batch = checked(await generator(server).generate(REFUND))
        assert (len(batch), batch.closed, batch.refused) == (5, None, False)
        assert server.billed("/chat/completions") == 1
        assert not any(text.startswith(("1", "-", '"', "Sure", "Here")) for text in batch.texts)


async def test_what_is_asked(server):
    server.add_fault(Fault("reset"))
    await generator(server, temperature="0.9").generate(replace(REFUND, existing=("give it back",)))
    assert server.billed() == 1, "under its key an answer that was lost costs nothing"
    body, again = bodies(server)
    assert body == again
    assert body["model"] == "test"
    assert body["temperature"] == 0.9
    assert body["max_tokens"] == output_bound(5, REFUND.given)
    assert 0 <= body["seed"] < 2**31
    form = body["response_format"]["json_schema"]
    assert (form["strict"], form["schema"]["required"]) == (True, ["texts"])
    assert [message["role"] for message in body["messages"]] == ["user"]
    for text in (*REFUND.given, "give it back", "refund request", "wants their money back", "5 new ones"):
        assert text in prompt(body)


async def test_too_few_texts_are_asked_for_again(server):
    server.add_fault(Fault("duplicates", how="given"))
    assert len(checked(await generator(server, seed=1).generate(REFUND))) == 5
    assert server.count() == 2, "what the prompt shows counts as missing"
    server.reset()
    server.add_fault(Fault("duplicates"))
    batch = checked(await generator(server).generate(REFUND))
    assert len(batch) == 5
    assert batch.rejected["repeat"] >= 1
    first, second = bodies(server)
    assert "5 new ones" in prompt(first)
    assert "4 new ones" in prompt(second)
    assert batch.texts[0] in prompt(second)  # what it wrote just now is shown
    assert first["seed"] != second["seed"]


@pytest.mark.parametrize("how", ["", "content"])
async def test_empty_answers_are_asked_again_a_bounded_number_of_times(server, how):
    server.add_fault(Fault("empty", how=how, times=None))
    batch = await generator(server).generate(REFUND)
    assert (batch.texts, batch.refused) == ((), False)
    assert batch.closed == "openai:test gave nothing new in 3 answers"
    assert server.count() == 1 + MORE_ASKS
    server.clear_faults()
    server.add_fault(Fault("empty", how=how))
    assert len(checked(await generator(server, seed=1).generate(REFUND))) == 5


@pytest.mark.parametrize(
    "fault",
    [
        Fault("refusal", times=None),
        Fault("refusal", how="text", times=None),
        Fault("refusal", how="filter", times=None),
        Fault("refusal_status", times=None),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.how}",
)
async def test_a_refusal_ends_the_batch_and_is_remembered(server, fault):
    server.add_fault(fault)
    asking = generator(server)
    assert replace(await asking.generate(REFUND), rejected={}) == Batch(refused=True)
    assert server.count() == 1
    assert replace(await asking.generate(REFUND), rejected={}) == Batch(refused=True)
    assert server.count() == 1


class Scripted(MemoryReplies):
    """Answers that are there already."""

    def __init__(self, *contents):
        super().__init__()
        self.contents = list(contents)

    def get(self, ask):
        content = self.contents[min(ask.number, len(self.contents) - 1)]
        return content if isinstance(content, Reply) else Reply(content)


def scripted(*contents):
    asking = OpenAIGenerator("test", base_url="http://127.0.0.1:1/v1", retries=0)
    asking.replies = Scripted(*contents)
    return asking


@pytest.mark.parametrize(
    ("content", "texts", "refused"),
    [
        ("I'm sorry, but I can't assist with that.\n\nLet me know if you need anything else.", (), True),
        ('{"texts": ["I cannot help with that.", "I cannot assist with that."]}', (), True),
        ("<think>easy</think>I cannot write such content.", (), True),
        ("I can't write hateful texts, but here are some:\n1. money!\n2. back!", ("money!", "back!"), False),
        (Reply('{"texts": ["money!", "back', refused=True), ("money!",), True),
        (Reply('{"texts": ["money!", "back', cut=True), ("money!",), False),
        ('<think>["no"]</think>["money!"]', ("money!",), False),
        ("I'm sorry but I can't log in", ("I'm sorry but I can't log in",), False),
    ],
)
async def test_answers_that_were_kept(content, texts, refused):
    assert replace(await scripted(content).generate(REFUND), rejected={}) == Batch(texts, refused=refused)
    complaints = replace(REFUND, given=("I'm sorry, but I can't assist with that.",))
    if refused and isinstance(content, str):
        assert (await scripted(content).generate(complaints)).texts, "a class of refusals may be written"


async def test_more_room_after_an_answer_that_was_cut_before_its_first_text(server):
    class AllThoughts(MemoryReplies):
        def get(self, ask):
            return Reply("<think>so, the user", cut=True) if ask.number == 0 else super().get(ask)

    asking = generator(server)
    asking.replies = AllThoughts()
    assert len(await asking.generate(REFUND)) == 5
    (body,) = bodies(server)
    assert body["max_tokens"] == 4 * output_bound(5, REFUND.given)


@pytest.mark.parametrize("style", ["schema", "lines"])
async def test_a_server_without_structured_output_is_remembered(style):
    with ProviderServer(style=style, faults=[Fault("no_schema", times=None)]) as server:
        asking = generator(server)
        assert len(checked(await asking.generate(REFUND))) == 5
        assert len(await asking.generate(replace(REFUND, number=1))) == 5
        assert ["response_format" in body for body in bodies(server)] == [True, False, False]


async def test_a_model_that_wants_the_other_limit(server):
    asking = generator(server, "o3-mini")
    assert len(await asking.generate(REFUND)) == 5
    assert len(await asking.generate(replace(REFUND, number=1))) == 5
    last = bodies(server)[-1]
    assert "max_completion_tokens" in last
    assert "max_tokens" not in last
    assert "response_format" in last  # only what is unknown was given up
    assert len({seen.idempotency_key for seen in server.seen}) == server.count()


async def test_an_error_that_quotes_the_prompt_is_not_asked_about_for_ever(server):
    server.add_fault(Fault("status", status=400, times=None))
    request = replace(REFUND, spec=ClassSpec("heating", "is about the temperature parameter"))
    with pytest.raises(ApiError, match="does not take") as caught:
        await generator(server).generate(request)
    assert "heating" not in str(caught.value)
    assert server.count() == len({json.dumps(body) for body in bodies(server)}) <= 11  # each dialect once


async def test_texts_that_are_paid_for_survive_the_end_of_the_budget(server):
    server.add_fault(Fault("duplicates"))
    asking = generator(server)
    asking.api.ledger = Ledger(Budget(calls=1))
    batch = await asking.generate(REFUND)
    assert (len(batch), batch.closed) == (1, None)
    token = AHEAD.set(True)  # half a batch is no use to what runs ahead
    try:
        with pytest.raises(BudgetError):
            await asking.generate(REFUND)
    finally:
        AHEAD.reset(token)


def test_it_conforms(server):
    check_generator(lambda: generator(server), REFUND, calls=6)


def test_a_run_sets_what_the_user_left_open_and_the_fingerprint_tells_what_matters(server):
    settings = Settings(Prompts(generate="{count} new {class} {existing}"), 7, Recipe(temperature=1.0))
    plain, loose, firm = generator(server), generator(server), generator(server, temperature="0.2", shown="9")
    loose.configure(settings)
    assert (loose.seed, loose.temperature, loose.shown) == (7, 1.0, Recipe().prompt_examples)
    firm.configure(settings)
    assert (firm.seed, firm.temperature, firm.shown) == (7, 0.2, 9)
    other = resolve_generator("openai:other", base_url=f"{server.url}/v1")
    assert other is not None
    assert len({made.fingerprint for made in (plain, loose, firm, other)}) == 4
    again = pickle.loads(pickle.dumps(generator(server, seed=3)))
    assert again.fingerprint == plain.fingerprint, "the seed is in the requests"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": "hot"}, "temperature='hot': give a number from 0 to 2"),
        ({"temperature": "nan"}, "from 0 to 2"),
        ({"max_tokens": "0"}, "max_tokens='0': give a whole number from 1 on"),
        ({"seed": "x"}, "seed='x'"),
        ({"temprature": 1}, "temprature"),
        ({"base_url": "nowhere"}, "base_url"),
    ],
)
def test_bad_options_are_one_line(options, message):
    with pytest.raises(ProviderError) as caught:
        OpenAIGenerator("test", **options)
    assert message in str(caught.value)
    with pytest.raises(GeneratorError, match="no model"):
        OpenAIGenerator(" ")


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ({"choices": []}, Reply("")),
        ({"choices": [None]}, Reply("")),
        ({"choices": [{"message": {"content": None}}]}, Reply("")),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, Reply("a")),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "length"}]}, Reply("a", cut=True)),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}, Reply("", True)),
        ({"choices": [{"message": {"content": None, "refusal": "no"}}]}, Reply("", True)),
        ({"choices": [{"message": {"content": "a", "refusal": None}}]}, Reply("a")),
        ({"choices": [{"message": {"content": [{"type": "text", "text": "a"}, "b", 3, {}]}}]}, Reply("ab")),
        ({"choices": [{"message": {"content": [{"type": "refusal", "refusal": "no"}]}}]}, Reply("", True)),
    ],
)
def test_shapes_of_answers(answer, reply):
    assert reply_of(answer) == reply
    with pytest.raises(ValueError, match="without choices"):
        reply_of({**answer, "choices": None})


async def test_long_and_many_texts_are_bounded_in_the_prompt(server):
    request = replace(
        REFUND,
        given=tuple(f"given {n} " + "x" * 5000 for n in range(50)),
        existing=tuple(f"existing number {n} " + "y" * 3000 for n in range(300)),
    )
    await generator(server, shown=10).generate(request)
    (body,) = bodies(server)
    assert prompt(body).count('"given ') == 20
    assert prompt(body).count('"existing ') == 10
    assert '"existing number 299 ' in prompt(body)
    assert len(prompt(body)) < 35_000
    assert body["max_tokens"] == 5 * len(clipped("z" * 5000).encode()) + 200


LONG = replace(
    REFUND,
    given=tuple(f"given number {n} {'word ' * 60}" for n in range(20)),
    existing=tuple(f"existing number {n} {'word ' * 60}" for n in range(40)),
)


async def test_a_server_with_less_room_for_answers(server):
    server.add_fault(Fault("too_large", times=None, tokens=400))
    asking = generator(server)
    asking.replies = MemoryReplies()
    assert len(checked(await asking.generate(LONG), LONG)) == 5
    limits = [body["max_tokens"] for body in bodies(server)]
    assert limits == [output_bound(5, LONG.given) >> n for n in range(len(limits))]
    assert limits[-1] <= 400 < limits[-2]
    assert len({prompt(body) for body in bodies(server)}) == 1, "the prompt is not to blame"
    await asking.generate(replace(LONG, number=1))
    assert bodies(server)[-1]["max_tokens"] == limits[-1], "it is remembered"
    assert server.count() == len(limits) + 1
    again = generator(server)  # as after a crash: the answer is known under the whole question's name
    again.replies = asking.replies
    await again.generate(LONG)
    assert server.count() == len(limits) + 1


async def test_a_server_with_a_small_context(server):
    server.add_fault(Fault("too_large", times=None, status=400, bytes=4000))
    asking = generator(server)
    assert len(checked(await asking.generate(LONG), LONG)) == 5
    counts = [(prompt(b).count('"given '), prompt(b).count('"existing ')) for b in bodies(server)]
    assert counts[-3:] == [(20, 10), (10, 5), (4, 2)]
    before = server.count()
    await asking.generate(replace(LONG, number=1))
    assert server.count() == before + 1, "it is remembered"


async def test_a_request_that_stays_too_large(server):
    server.add_fault(Fault("too_large", times=None))
    asking = generator(server)
    asking.api.ledger, asking.api.price = Ledger(), Price(Decimal(1), Decimal(1))
    with pytest.raises(
        ApiError, match=r"too large \(413.*\?max_tokens=, --set prompt_examples= .*the examples"
    ) as caught:
        await asking.generate(LONG)
    assert (caught.value.too_large, caught.value.status) == (True, 413)
    assert "\n" not in str(caught.value)
    assert "word" not in str(caught.value)
    assert server.count() == 1 + 4 + 4
    assert asking.api.ledger.spent().nano_usd == 0
    with pytest.raises(ApiError, match="too large"):
        await generator(server, max_tokens=100).generate(REFUND)
    assert server.count() == 10, "the same question is not asked twice"
