"""Classification by a chat model, over real sockets: what is asked, read, kept, paid for and reported."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adamab.compare.methods import TrainingData, make_baseline
from adamab.compare.remote import NO_CLASS, ChatBaseline, chat_from_spec, chosen, metered, read_number
from adamab.errors import ApiError, BudgetError, ProviderError, TaskError
from adamab.providers.cache import Reply
from adamab.providers.metering import Budget, CallContext, Price
from adamab.task.image_folders import image_at
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec
from adamab.testing import Fault

SPECS = (
    ClassSpec("refund", "wants money back"),
    ClassSpec("crash", "the app stops or freezes"),
    ClassSpec("praise"),
)
LABELS = ["refund", "crash", "praise", "praise"]
EXAMPLES = ["give me my dollars", "it hangs on start", "lovely work", "great stuff"]
TEXTS = ["money back now", "the app freezes", "praise for everyone", "the app freezes", "money please"]
WANTED = ["refund", "crash", "praise", "crash", "refund"]
PRICES = {"gpt-4o-mini": Price(Decimal(1), Decimal(2))}


@pytest.fixture
def make(server):
    def made(model="gpt-4o-mini", *, shots=False, **options):
        options = {"base_url": f"{server.url}/v1", "first_wait": 0.01, **options}
        return chat_from_spec(model, **options).fit(data(shots=shots))

    return made


def data(*, shots=False, **more):
    classes = tuple(spec.name for spec in SPECS)
    prompts = Prompts(with_examples=shots)
    return TrainingData({}, LABELS, classes, texts=EXAMPLES, specs=SPECS, prompts=prompts, **more)


def test_each_text_is_one_request_and_a_repeated_one_is_asked_once(server, make):
    baseline = make()
    assert baseline.predict({}, TEXTS) == WANTED
    assert server.count() == server.billed("/chat/completions") == len(set(TEXTS))
    body = server.seen[0].body
    assert body["temperature"] == 0
    assert "seed" not in body
    assert len(body["messages"]) == 1
    assert "-1" in body["messages"][0]["content"]
    assert baseline.n_parameters_ == 0
    assert baseline.report() == {"none": 0, "unparsed": 0, "refused": 0, "cut": 0}
    baseline.predict({}, TEXTS)
    assert server.count() == len(set(TEXTS))


def test_examples_are_shown_in_the_few_shot_setting_only(server, make):
    make(shots=True).predict({}, TEXTS[:1])
    make().predict({}, TEXTS[:1])
    few, zero = (seen.body["messages"][0]["content"] for seen in server.seen)
    assert [example in few for example in EXAMPLES] == [True] * 4
    assert not any(example in zero for example in EXAMPLES)
    assert all((spec.description or spec.name) in text for spec in SPECS for text in (few, zero))
    # An example can decide: "dollars" is no word of any description.
    assert make(shots=True).predict({}, ["dollars dollars"]) == ["refund"]


@pytest.mark.parametrize("how", ["", "chatter", "json", "fenced", "think"])
def test_chatter_around_the_number_is_no_matter(server, make, how):
    server.add_fault(Fault("answer", how=how, times=None))
    baseline = make()
    assert baseline.predict({}, TEXTS) == WANTED
    assert baseline.report()["unparsed"] == 0


@pytest.mark.parametrize(
    ("fault", "count"),
    [
        (Fault("answer", how="none"), "none"),
        (Fault("answer", how="garbage"), "unparsed"),
        (Fault("answer", how="two"), "unparsed"),
        (Fault("empty", how="content"), "unparsed"),
        (Fault("refusal"), "refused"),
        (Fault("refusal", how="text"), "refused"),
        (Fault("refusal", how="filter"), "refused"),
        (Fault("refusal_status"), "refused"),
    ],
)
def test_an_answer_without_a_class_is_counted_and_is_an_error_whatever_the_label(server, make, fault, count):
    server.add_fault(fault)
    baseline = make(concurrency=1)
    assert baseline.predict({}, TEXTS) == [NO_CLASS, *WANTED[1:]]
    assert baseline.report() == {"none": 0, "unparsed": 0, "refused": 0, "cut": 0, count: 1}
    assert baseline.answered_.tolist() == [False, True, True, True, True]
    assert baseline.predict_proba({}, TEXTS)[0] == pytest.approx([1 / 3] * 3)
    assert server.count() == len(set(TEXTS))  # it is kept, so never argued with


def test_an_answer_that_was_cut_may_end_in_half_a_number(server, make):
    server.add_fault(Fault("answer", how="chatter", times=None))
    baseline = make(max_tokens=7)  # what is left is "Sure! The best fit is class "
    baseline.predict({}, TEXTS[:1])
    assert baseline.report() == {"none": 0, "unparsed": 1, "refused": 0, "cut": 1}


def test_after_a_failure_nothing_more_is_begun_and_what_was_paid_for_is_kept(server, make):
    server.add_fault(Fault("status", status=401, after=2, times=1))
    baseline = make(concurrency=1)
    with pytest.raises(ApiError, match="key"):
        baseline.predict({}, TEXTS)
    assert server.count() == 3
    assert baseline.predict({}, TEXTS) == WANTED
    assert server.billed() == len(set(TEXTS))


def test_a_budget_of_money_is_never_exceeded_and_the_plan_is_an_upper_bound(server, make):
    baseline = make(concurrency=1)  # each call under way has its bound reserved
    planned = baseline.planned(data(), TEXTS)
    assert len(planned) == len(set(TEXTS))
    price = PRICES["gpt-4o-mini"]
    most = sum(price.nano_usd(bound) for _, bound in planned)
    cap = Budget(usd=Decimal(most // 2) / 10**9)
    call_context = CallContext(cap, prices=PRICES)
    with metered(baseline, call_context):
        baseline.predict({}, TEXTS)  # a bound is generous, so half of it is enough
        spent = call_context.spent()["classify", None]
    assert 0 < spent.nano_usd < most // 2
    assert spent.input_tokens <= sum(bound.input_tokens for _, bound in planned)
    small = make()
    with (
        metered(small, CallContext(Budget(usd=Decimal("0.0005")), prices=PRICES)),
        pytest.raises(BudgetError),
    ):
        small.predict({}, TEXTS)
    assert server.count() == len(set(TEXTS))


def test_images_are_asked_about_one_by_one(server, make, tmp_path, paint):
    names = ("red", "green", "blue")
    shown = [image_at(path) for path in paint(tmp_path, dict.fromkeys(names, 1))]
    specs = tuple(ClassSpec(name, f"something {name}") for name in names)
    baseline = make(concurrency=1).fit(TrainingData({}, [], names, specs=specs))
    assert baseline.predict({}, shown) == list(names)
    prompt, sample_image = server.seen[0].body["messages"][0]["content"]
    assert "the image that comes with this message" in prompt["text"]
    assert sample_image["image_url"]["url"].startswith("data:image/png;base64,")
    expected, most = baseline.judge.usage("which?", shown[0])
    assert most.input_tokens >= expected.input_tokens > 2833
    assert baseline.predict({}, shown) == list(names)
    assert server.count() == server.images("/chat/completions") == 3


def test_an_image_that_is_refused_is_named_and_a_prompt_that_is_too_large_told(server, make, tmp_path, paint):
    path = paint(tmp_path, {"red": 1})[0]
    server.add_fault(Fault("status", status=400))
    with pytest.raises(ProviderError, match=rf"{path.name}: openai: refuses .*; replace it or leave it out"):
        make(concurrency=1).predict({}, [image_at(path)])
    server.add_fault(Fault("too_large"))
    with pytest.raises(ApiError, match=r"too large .*; show fewer or shorter examples"):
        make(concurrency=1).predict({}, TEXTS)


def test_images_cannot_be_examples_and_vectors_need_their_samples(make):
    image = Image("0" * 64, Path("x.png"))
    with pytest.raises(TaskError, match="a wording cannot quote an image"):
        make().fit(data(shots=True, items=[image] * 4))
    with pytest.raises(TaskError, match="0 texts for 1 labels"):
        make().fit(TrainingData({}, ["a"], ("a",), prompts=Prompts(with_examples=True)))
    with pytest.raises(TaskError, match="0 samples for 2 vectors"):
        make().predict({"pooled": np.zeros((2, 3))})
    with pytest.raises(TaskError, match="not in the order"):
        make().fit(TrainingData({}, [], ("a", "b"), specs=(ClassSpec("b"), ClassSpec("a"))))
    assert make().predict({}, []) == []


def test_a_spec_says_where_and_how(server, monkeypatch):
    baseline = make_baseline(f"chat:gpt-4.1?base_url={server.url}/v1&max_tokens=9&rpm=1000")
    assert isinstance(baseline, ChatBaseline)
    assert (baseline.judge.model, baseline.judge.max_tokens) == ("gpt-4.1", 9)
    gemini = chat_from_spec("gemini-2.0-flash-lite", rpm=5)
    assert gemini.api.service.place == "generativelanguage.googleapis.com/v1beta/openai"
    assert (gemini.api.service.key_env, gemini.api.limits.rpm) == ("GEMINI_API_KEY", 5)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with (
        pytest.raises(ApiError, match="no key; set OPENAI_API_KEY"),
        metered(chat_from_spec("gpt-4o-mini"), CallContext()),
    ):
        pass
    for options in ({"temperature": "warm"}, {"max_tokens": 0}, {"rpmm": 1}):
        with pytest.raises(ProviderError, match=next(iter(options))):
            chat_from_spec("gpt-4o-mini", **options)
    with pytest.raises(ProviderError, match="no model's name"):
        chat_from_spec(" ")


THREE = (
    "3", " 3.\n", "**3**", "(3)", "Class-3", "class: 3", "The answer is 3.", "Answer: class 3 (refund)",
    "It is about 24 hours and 7 days.\n\n3", "3\n\nIt mentions 24 hours.", "3: it says 20 dollars",
    '{"class": "3", "confidence": 0.9}', "[3]", "```\n3\n```",
    'Here:\n```json\n{"class": 3}\n```\nIt fits 100 %.',
)  # fmt: skip
NO_NUMBER = (
    "", "three", "3 or 4", "class 3 or class 4", "3.5", "95%", "1-3", "3rd",
    '{"class": 3, "other": 4}', "true", "[" * 5000, "9" * 5000,
)  # fmt: skip
READINGS = {3: THREE, -1: ("-1", "\u22121", "None of them suits: -1."), None: NO_NUMBER}


@pytest.mark.parametrize(
    ("content", "number"), [(text, number) for number, texts in READINGS.items() for text in texts]
)
def test_numbers_are_read_strictly(content, number):
    assert read_number(content) == number


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply("5"), 4),
        (Reply("6"), "unparsed"),
        (Reply("0"), "unparsed"),
        (Reply("-2"), "unparsed"),
        (Reply("-1"), "none"),
        (Reply("<think>2 or 3?</think>4"), 3),
        (Reply("<think>surely 2, since"), "unparsed"),
        (Reply("2 or 3?\n</think>\n4"), 3),
        (Reply("3", refused=True), "refused"),
        (Reply("I'm sorry, but I can't assist with that."), "refused"),
        (Reply("Class 1", cut=True), "unparsed"),
        (Reply("1\n\nbecause of the", cut=True), 0),
    ],
)
def test_what_an_answer_means(reply, outcome):
    assert chosen(reply, 5) == outcome


@given(st.text(max_size=20), st.integers(-99, 99), st.text(max_size=20), st.integers(1, 12))
def test_no_answer_breaks_the_reader(before, number, after, classes):
    answer = chosen(Reply(f"{before}{number}{after}"), classes)
    assert answer in ("none", "unparsed", "refused") or 0 <= int(answer) < classes
