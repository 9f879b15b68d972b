"""`openai-image:MODEL` over real sockets: what is asked, what is stored, and what is never bought twice."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from decimal import Decimal

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")
from PIL import Image as Pillow

from adamab.errors import ApiError, BudgetError, GeneratorError, ProviderError, RunError
from adamab.providers.cache import MemoryReplies
from adamab.providers.generators.base import Request, Settings
from adamab.providers.generators.openai_image import MORE_ASKS, OpenAIImageGenerator, usage_of
from adamab.providers.image_store import ImageStore
from adamab.providers.metering import AHEAD, Budget, Ledger, Price, Usage
from adamab.providers.registry import resolve_generator
from adamab.run.run_log import Journal
from adamab.task.images import is_reference
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.testing import Fault, check_generator
from adamab.testing._provider_endpoints import ROUTES
from adamab.testing._provider_protocol import Refused

CAT = Request(ClassSpec("abyssinian_cat", "a cat with short ticked fur"), 0, 4, given=(), existing=())
OWN, OLDER, OTHER = "gpt-image-1-mini", "dall-e-3", "some/diffusion"
ALIVE: list[OpenAIImageGenerator] = []  # a client's connections close with its event loop, not before


def generator(server, store, model=OWN, **options):
    quick = {"retries": 2, "first_wait": 0.01, "base_url": f"{server.url}/v1"}
    made = OpenAIImageGenerator(model, **{**quick, **options})
    made.configure(Settings(Prompts(), 0, Recipe(), store))
    ALIVE.append(made)
    return made


def bodies(server):
    return [seen.body for seen in server.seen]


def checked(batch, store, request=CAT):
    known = [*request.given, *request.existing, *batch.texts]
    assert len(set(known)) == len(known)
    assert len(batch) <= request.count
    assert all(is_reference(text) and store.find(text).path.is_file() for text in batch.texts)
    return batch


def png(colour=0, *, blank=False):
    import io

    image, data = Pillow.new("RGB", (12, 12), (colour, 10, 20)), io.BytesIO()
    if not blank:
        image.putpixel((3, 3), (200, 100, 50))
    image.save(data, "PNG")
    return data.getvalue()


def written(*images):
    return [{"b64_json": base64.b64encode(data).decode()} for data in images]


@pytest.fixture
def answering(server, monkeypatch):
    """Has the server give these answers, the last of them for ever."""

    def answering(*answers):
        server.reset()
        remaining = list(answers)

        def handler(*_):
            answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if isinstance(answer, Refused):
                raise answer
            return answer

        monkeypatch.setitem(ROUTES, "/v1/images/generations", handler)

    return answering


# What is asked


async def test_a_task_of_texts_has_no_place_for_images(server, store):
    with pytest.raises(GeneratorError, match="makes images, but this task is of texts"):
        generator(server, store).configure(Settings(Prompts(), 0, Recipe()))
    with pytest.raises(GeneratorError, match="not configured"):
        await OpenAIImageGenerator(OWN, base_url=f"{server.url}/v1").generate(CAT)
    assert server.count() == 0


async def test_one_request_gives_all_images(server, store):
    server.add_fault(Fault("reset"))  # which is tried again, and billed once
    batch = checked(await generator(server, store).generate(CAT), store)
    assert (len(batch), batch.closed, batch.refused, dict(batch.rejected)) == (4, None, False, {})
    assert (server.count(), server.billed(), server.images()) == (2, 1, 4)
    body, _ = bodies(server)
    assert body.pop("prompt").count("a cat with short ticked fur") == 1
    assert body == {"model": OWN, "n": 4, "size": "1024x1024", "quality": "low"}
    assert all(store.thumbnail(store.find(text)).is_file() for text in batch.texts)
    check_generator(lambda: generator(server, store), CAT, calls=4, deterministic=False)


async def test_the_recipe_sets_size_and_quality_and_options_win(server, store):
    settings = Settings(Prompts(), 0, Recipe(image_size="1024x1536", image_quality="medium"), store)
    by_recipe, by_option = generator(server, store), generator(server, store, size="auto", quality="none")
    prints = {by_recipe.fingerprint, by_option.fingerprint}
    for one in (by_recipe, by_option):
        one.configure(settings)
        prints.add(one.fingerprint)
        await one.generate(replace(CAT, count=1))
    first, second = bodies(server)
    assert (first["size"], first["quality"]) == ("1024x1536", "medium")
    assert (second["size"], "quality" in second) == ("auto", False)
    assert len(prints) == 3  # what an option says is there from the start
    by_option.configure(replace(settings, prompts=Prompts(draw="{name}")))
    assert by_option.fingerprint not in prints


@pytest.mark.parametrize(
    ("fault", "count", "asked"), [(None, 23, [10, 10, 3]), (Fault("duplicates"), 4, [4, 3])]
)
async def test_missing_images_are_asked_for_with_another_prompt(server, store, fault, count, asked):
    if fault is not None:
        server.add_fault(fault)
    request = replace(CAT, count=count)
    batch = checked(await generator(server, store).generate(request), store, request)
    assert len(batch) == count
    assert [body["n"] for body in bodies(server)] == asked
    assert len({body["prompt"] for body in bodies(server)}) == len(asked)


async def test_a_model_that_makes_one_at_a_time_is_asked_one_by_one(server, store):
    batch = checked(await generator(server, store, OLDER).generate(CAT), store)
    assert (len(batch), [body["n"] for body in bodies(server)]) == (4, [1] * 4)
    assert {body["response_format"] for body in bodies(server)} == {"b64_json"}
    assert not any("quality" in body for body in bodies(server))
    server.reset()
    learner = generator(server, store, OLDER, n=10)  # told wrongly, it finds out
    assert len(await learner.generate(replace(CAT, number=1))) == 4
    assert [body["n"] for body in bodies(server)] == [4, 1, 1, 1, 1]
    assert len(await learner.generate(replace(CAT, number=2, count=2))) == 2
    assert [body["n"] for body in bodies(server)][5:] == [1, 1]


async def test_a_server_that_knows_fewer_parameters_is_asked_without_them(server, store, answering):
    unknown = Refused(400, "Unknown parameter: 'x'", code="unknown_parameter")
    answering(unknown, unknown, unknown, {"data": written(png(1))})
    one, request = generator(server, store, OTHER), replace(CAT, count=1)
    assert len(await one.generate(request)) == 1
    await one.generate(replace(request, number=1))
    seen = bodies(server)
    assert seen[0].keys() - {"response_format"} == seen[1].keys()
    assert seen[4].keys() == seen[3].keys() < seen[0].keys()  # learned
    answering(unknown)
    with pytest.raises(ApiError, match="does not take this request's parameters"):
        await generator(server, store, OTHER).generate(CAT)
    assert server.count() == len({json.dumps(body) for body in bodies(server)}) < 12


async def test_what_the_model_does_not_take_is_one_clear_line(server, store):
    with pytest.raises(ApiError, match=r"400 invalid_value.*size=640x640&quality=low") as caught:
        await generator(server, store, size="640x640").generate(CAT)
    assert "\n" not in str(caught.value)
    assert server.billed() == 0
    server.add_fault(Fault("too_large", times=None))
    with pytest.raises(ApiError, match="shorten the description of class 'abyssinian_cat'"):
        await generator(server, store).generate(CAT)


# What comes back


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault("empty", times=None), "empty"),
        (Fault("no_image", times=None), "unreadable"),
    ],
)
async def test_broken_images_are_counted_and_asked_for_again_so_many_times(server, store, fault, reason):
    server.add_fault(fault)
    batch = await generator(server, store).generate(CAT)
    assert (batch.texts, dict(batch.rejected)) == ((), {reason: 4 * (1 + MORE_ASKS)})
    assert batch.closed is not None
    assert server.count() == 1 + MORE_ASKS
    assert not store.directory.exists() or not any(p.is_file() for p in store.directory.iterdir())


async def test_repeats_count_once_whether_given_existing_or_in_the_batch(server, store, answering):
    server.add_fault(Fault("duplicates"))
    batch = checked(await generator(server, store).generate(CAT), store)
    assert (len(batch), dict(batch.rejected)) == (4, {"repeat": 3})
    answering({"data": written(png(1), png(2), png(3))})
    known = [store.put(png(1)).reference, store.put(png(2)).reference]
    request = replace(CAT, count=1, given=(known[0],), existing=(known[1],))
    batch = checked(await generator(server, store, OTHER).generate(request), store, request)
    assert (batch.texts, dict(batch.rejected)) == ((store.put(png(3)).reference,), {"repeat": 2})


async def test_an_image_of_one_colour_is_empty_and_images_may_come_as_data_urls(server, store, answering):
    (entry,) = written(png(5))
    odd = {"url": "data:image/png;base64," + entry["b64_json"]}
    blank, spaced = written(png(6, blank=True))[0], {"b64_json": f" {written(png(7))[0]['b64_json']}\n"}
    answering({"data": [odd, blank, spaced, {}, 5]})
    batch = checked(await generator(server, store, OTHER).generate(replace(CAT, count=2)), store)
    assert (len(batch), server.count()) == (2, 1)
    assert dict(batch.rejected) == {"empty": 1, "unreadable": 2}


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (OTHER, {"response_format": "none"}, "add ?response_format=b64_json"),
        (OWN, {}, "add ?response_format=b64_json"),
        (OTHER, {}, "use a server that can"),
    ],
)
async def test_addresses_are_never_fetched(server, store, model, options, said):
    server.add_fault(Fault("image_url", times=None))
    with pytest.raises(ApiError) as caught:
        await generator(server, store, model, **options).generate(CAT)
    assert said in str(caught.value)
    assert "images.invalid" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert server.count() == 1


@pytest.mark.parametrize("fault", [Fault("refusal"), Fault("refusal_status")])
async def test_a_refusal_ends_the_batch_and_is_remembered(server, store, fault):
    server.add_fault(fault)
    one = generator(server, store)
    batch = await one.generate(CAT)
    assert (batch.texts, batch.refused, batch.closed) == ((), True, None)
    assert server.count() == 1
    assert (await one.generate(CAT)).refused
    assert server.count() == 1  # not asked a second time
    assert len(await one.generate(replace(CAT, number=1))) == 4


# Money


def metered(one, budget, price=None):
    one.api.ledger, one.api.price = Ledger(Budget.parse(budget)), price
    return one.api.ledger


async def until_spent(one, batches=12):
    """Images that came before the budget ended; batches at once, as a run that fetches ahead has it."""

    async def images(number):
        try:
            return len(await one.generate(replace(CAT, number=number)))
        except BudgetError:
            return 0

    return sum(await asyncio.gather(*map(images, range(batches))))


@pytest.mark.parametrize("fault", [None, "no_usage", "duplicates"])
@pytest.mark.parametrize("price", [Price(Decimal(2), Decimal(8)), Price(Decimal(0), image=Decimal("0.011"))])
async def test_a_money_budget_is_never_exceeded(server, store, fault, price):
    if fault is not None:
        server.add_fault(Fault(fault, times=None))
    one = generator(server, store)
    budget = "0.10 usd" if price.image is None else "0.15 usd"
    ledger = metered(one, budget, price)
    assert await until_spent(one) > 0
    billed = sum(price.nano_usd(Usage(0, 272 * body["n"], body["n"])) for body in bodies(server))
    spent = ledger.spent().nano_usd
    assert billed <= spent <= Decimal(budget.split()[0]) * 10**9
    assert server.images() < 48


async def test_what_is_paid_is_kept_where_the_budget_ends_within_a_batch(server, store):
    server.add_fault(Fault("duplicates"))
    one = generator(server, store)
    metered(one, "1 call")
    assert len(await one.generate(CAT)) == 1
    token = AHEAD.set(True)
    try:
        with pytest.raises(BudgetError):
            await one.generate(CAT)
    finally:
        AHEAD.reset(token)


# Nothing is bought twice


async def test_a_kept_answer_is_used_and_never_holds_the_image(server, store, tmp_path):
    with Journal(tmp_path, writing=True) as journal:
        server.add_fault(Fault("duplicates"))
        first, second = generator(server, store), generator(server, ImageStore(store.directory))
        first.replies = second.replies = journal
        batch = await first.generate(CAT)
        calls = server.count()
        assert await second.generate(CAT) == batch  # the same rejections as well
        assert server.count() == calls
        kept = [row.data for row in journal.rows("replies", "")]
    for row in kept:
        content = json.loads(row["content"])
        assert all(is_reference(reference) for reference in content["images"])
        assert len(row["content"]) < 500


async def test_a_reply_is_kept_and_its_images_are_stored_before_the_call_is_settled(server, store):
    one = generator(server, store)
    ledger, order = metered(one, "9 calls"), list[str]()
    settle, put_reply, put_image = ledger.settle, one.replies.put, store.put

    def noted(name, function):
        return lambda *args, **options: (order.append(name), function(*args, **options))[1]

    ledger.settle = noted("settle", settle)  # type: ignore[method-assign]
    one.replies.put = noted("reply", put_reply)  # type: ignore[method-assign]
    store.put = noted("image", put_image)  # type: ignore[method-assign]
    await one.generate(CAT)
    assert order == ["image"] * 4 + ["reply", "settle"]


async def test_images_that_are_gone_are_asked_for_again_and_that_is_kept_too(server, store, tmp_path):
    with Journal(tmp_path, writing=True) as journal:
        first = generator(server, store)
        first.replies = journal
        batch = await first.generate(CAT)
        store.find(batch.texts[0]).path.unlink()
        for calls in (2, 2):  # once again, and not a third time
            again = generator(server, ImageStore(store.directory))
            again.replies = journal
            checked(await again.generate(CAT), store)
            assert server.count() == calls
    assert server.billed() == 1  # a service that knows the key gives the same again for nothing


async def test_a_run_that_died_between_the_questions_of_a_batch_goes_on_with_the_next(server, store):
    replies, request = MemoryReplies(), replace(CAT, count=5)
    first = generator(server, store, OLDER)
    first.replies = replies
    metered(first, "3 calls")
    assert len(await first.generate(request)) == 3
    # Another process has not learned yet that the model makes one at a time.
    second = generator(server, store, OLDER, n=10)
    second.replies = replies
    batch = checked(await second.generate(request), store, request)
    assert (len(batch), server.billed()) == (5, 5)


async def test_a_full_disk_is_an_error_of_the_run(server, tmp_path):
    (tmp_path / "images").write_text("no folder")
    one = generator(server, ImageStore(tmp_path / "images"))
    ledger = metered(one, "9 calls")
    with pytest.raises(RunError, match="images"):
        await one.generate(CAT)
    assert ledger.spent().unsettled == 0


# What a user writes


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("openai-image:", "openai-image:MODEL"),
        ("openai-image:m?size=big", "option size='big': give auto"),
        ("openai-image:m?quality=No 1", "option quality='No 1'"),
        ("openai-image:m?n=11", "from 1 to 10"),
        ("openai-image:m?response_format=url", "give b64_json or none"),
        ("openai-image:m?temperature=1", "option 'temperature' is unknown"),
    ],
)
def test_a_spec_that_cannot_be_used_is_one_line(spec, said):
    with pytest.raises(ProviderError) as caught:
        resolve_generator(spec)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_spec_is_resolved_and_the_fingerprint_tells_what_matters():
    specs = ["gpt-image-1", "gpt-image-1?size=auto", "gpt-image-1?quality=high", "gpt-image-1-mini"]
    specs.append("gpt-image-1?base_url=http://localhost:9/v1")
    made = [resolve_generator(f"openai-image:{spec}") for spec in specs]
    assert all(isinstance(one, OpenAIImageGenerator) and one.modality == "image" for one in made)
    assert len({one.fingerprint for one in made if one is not None}) == len(specs)
    slower = resolve_generator("openai-image:gpt-image-1?rpm=5&timeout=9&n=2")
    assert made[0] is not None
    assert slower is not None
    assert slower.fingerprint == made[0].fingerprint


@pytest.mark.parametrize(("made", "read"), [(7, Usage(5, 7, 2)), (0, None), (True, None), (-7, None)])
def test_usage_that_cannot_be_used_is_none(made, read):
    assert usage_of({"data": [{}, {}], "usage": {"input_tokens": 5, "output_tokens": made}}, 1) == read
