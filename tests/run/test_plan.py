"""What a dry run foretells, held against what the same fit then does over real sockets."""

import json
from decimal import Decimal

import pytest

from adamab.cli.summaries import print_plan, verdict
from adamab.errors import GeneratorError, RecipeError, TaskError
from adamab.providers.metering import Budget, Price
from adamab.providers.registry import open_embedder, open_generator
from adamab.run.gate import Holdout
from adamab.run.plan import plan_fit
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.testing import Fault, PixelEmbedder
from tests.fitting import Order, fit_run

TEXTS = {
    "refund": ["money back please", "send my money back", "I want the money returned"],
    "login": ["cannot sign in today", "sign in fails", "the sign in page is broken"],
    "praise": ["likes it a lot", "she likes it"],
    "other": [],
}
IMAGES = "/images/generations"
PRICES = {"chat": Price(Decimal("0.15"), Decimal("0.60")), "vectors": Price(Decimal("0.02"))}


@pytest.fixture(autouse=True)
def _no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "cache.sqlite"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "VOYAGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def task_of(**prompts):
    samples = tuple(Sample(text, name) for name, texts in TEXTS.items() for text in texts)
    classes = tuple(ClassSpec(name, f"about {name}") for name in TEXTS)
    return Task(classes, samples, name="toy", prompts=Prompts(**prompts))


def order_for(server, *, options="", cache=False, **changes):
    base = f"base_url={server.url}/v1"
    spec = f"openai:vectors?{base}{options}"
    values = {
        "task": task_of(),
        "embedder": open_embedder(spec, cache=cache),
        "embedder_spec": spec,
        "generator": f"openai:chat?{base}",
        "prices": PRICES,
        **changes,
    }
    return Order(**values)


def plan_of(order):
    return plan_fit(order.set_up())


def shown(plan, capsys):
    capsys.readouterr()
    print_plan(plan)
    written = capsys.readouterr()
    return written.out, written.err


def spent(order, path):
    amounts = fit_run(order, path)["spent"]
    assert isinstance(amounts, dict)
    return amounts


@pytest.mark.parametrize("options", ["", "&batch=3", "&batch=1"])
def test_the_expected_calls_are_those_of_a_fit_in_which_nothing_goes_wrong(server, tmp_path, options):
    plan = plan_of(order_for(server, options=options))
    assert server.count() == 0
    real = spent(order_for(server, options=options), tmp_path / "run")
    assert plan.expected.calls == real["calls"] == server.count()
    for party in plan.parties:
        part = real["by_purpose"][party.purpose]
        assert party.expected.calls == part["calls"]
        assert 0.3 < party.expected.usage.input_tokens / part["input_tokens"] < 3


@pytest.mark.parametrize(
    "fault",
    ["duplicates", "empty", "refusal"],
)
def test_the_most_is_never_below_what_a_bad_generator_makes_a_fit_spend(server, tmp_path, fault):
    plan = plan_of(order_for(server, prefetch=2))
    server.add_fault(Fault(fault, path="/chat/completions", times=1000))
    _at_least(plan, spent(order_for(server, prefetch=2), tmp_path / "run"))


def _at_least(plan, real):
    assert plan.at_most.nano_usd is not None
    assert plan.at_most.nano_usd / 1e9 >= real["usd"]
    for party in plan.parties:
        part = real["by_purpose"][party.purpose]
        assert party.at_most.calls >= part["calls"]
        assert party.at_most.usage.input_tokens >= part["input_tokens"]
        assert party.at_most.usage.output_tokens >= part["output_tokens"]
        assert party.at_most.calls >= party.expected.calls


def test_wordings_that_quote_examples_are_embedded_twice(server, tmp_path):
    task = task_of(with_examples=True)
    plan = plan_of(order_for(server, task=task))
    assert plan.expected.calls == spent(order_for(server, task=task), tmp_path / "run")["calls"]
    assert plan.expected.calls == plan_of(order_for(server)).expected.calls + 1


def test_a_cap_on_samples_sets_the_rounds_and_the_size_of_the_last(server, tmp_path):
    budget = Budget(samples=12)
    plan = plan_of(order_for(server, budget=budget))
    assert (plan.rounds, plan.samples) == (3, 12)
    assert plan.expected.calls == spent(order_for(server, budget=budget), tmp_path / "run")["calls"]


@pytest.mark.parametrize("changes", [{"policy": "none"}, {"generator": None}, {"budget": Budget(samples=0)}])
def test_without_generation_only_the_given_samples_and_the_classes_are_sent(server, tmp_path, changes):
    plan = plan_of(order_for(server, **changes))
    assert (plan.rounds, plan.expected.calls, plan.at_most.calls) == (0, 2, 2)
    assert spent(order_for(server, **changes), tmp_path / "run")["calls"] == 2


def test_vectors_in_the_cache_cost_nothing(server, tmp_path, capsys):
    before = plan_of(order_for(server, cache=True))
    fit_run(order_for(server, cache=True), tmp_path / "run")
    stored = (tmp_path / "cache.sqlite").read_bytes()
    after = plan_of(order_for(server, cache=True))
    assert (before.cached, after.cached) == (0, 8 + 4)
    assert after.expected.calls == before.expected.calls - 2
    assert "12 known texts have vectors in the cache already" in shown(after, capsys)[0]
    assert (tmp_path / "cache.sqlite").read_bytes() == stored
    server.reset()
    other = {"cache": True, "seed": 1}  # other questions, the same given samples
    real = spent(order_for(server, **other), tmp_path / "second")
    assert real["calls"] == plan_of(order_for(server, cache=True, seed=1)).expected.calls


def test_a_dry_run_needs_no_key_touches_nothing_and_says_what_is_lacking(tmp_path, capsys):
    order = Order(
        task_of(),
        open_embedder("voyage:voyage-3.5"),
        generator="openai:gpt-4o-mini",
    )
    plan = plan_of(order)
    out, err = shown(plan, capsys)
    assert list(tmp_path.iterdir()) == []
    assert "go to api.voyageai.com" in out
    assert "go to api.openai.com" in out
    assert plan.expected.nano_usd  # both prices are on the list
    assert "OPENAI_API_KEY" in err
    assert "VOYAGE_API_KEY" in err


def test_a_cap_on_calls_ends_generation_about_where_the_plan_says(server, tmp_path):
    budget = Budget(calls=9)
    plan = plan_of(order_for(server, budget=budget))
    assert plan.ending is not None
    assert (plan.ending.rounds, plan.ending.samples) == (3, 15)
    assert "the budget of 9 calls ends generation after about 3 of 8 rounds (15 samples)" in verdict(plan)
    summary = fit_run(order_for(server, budget=budget), tmp_path / "run")
    assert summary["synthetic"] == plan.ending.samples
    assert summary["ended"]


def test_a_cap_on_money_counts_what_is_reserved(server, tmp_path):
    free = plan_of(order_for(server))
    assert free.expected.nano_usd is not None
    budget = Budget(usd=Decimal(free.expected.nano_usd) / 10**9)
    plan = plan_of(order_for(server, budget=budget))
    assert plan.ending is not None  # the last call may cost more than it should
    assert plan.ending.rounds is not None
    assert 0 < plan.ending.rounds < plan.rounds
    summary = fit_run(order_for(server, budget=budget), tmp_path / "run")
    assert summary["spent"]["usd"] <= budget.usd
    assert 0 < summary["synthetic"] < plan.samples


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("1 call", "does not suffice for the given samples, so a fit would fail"),
        ("2 calls", "ends generation before the first of 8 rounds"),
        ("40 calls", "expected 18 calls and 0.00"),
        ("1 usd", "the budget of 1.00 usd allows it, even at most"),
        ("", "there is no cap on money or calls"),
    ],
)
def test_the_verdict_names_the_cap(server, budget, said):
    plan = plan_of(order_for(server, budget=Budget.parse(budget or None)))
    assert said in verdict(plan)
    assert ("even at most" in verdict(plan)) == (budget == "1 usd")


def test_an_unknown_price_is_shown_and_with_a_money_cap_it_is_an_error(server, capsys):
    plan = plan_of(order_for(server, prices={"chat": PRICES["chat"]}))
    assert plan.expected.nano_usd is None
    out, _ = shown(plan, capsys)
    assert "unknown" in out
    assert "the price of openai:vectors is unknown" in out
    assert plan.to_json()["by_purpose"]["generate"]["expected"]["usd"] > 0
    elsewhere = open_embedder("openai:vectors?base_url=https://models.example.com/v1")
    budget = Budget(usd=Decimal(1))
    with pytest.raises(RecipeError, match="no price is known for openai:vectors"):
        plan_of(order_for(server, prices={}, embedder=elsewhere, budget=budget))
    free = plan_of(order_for(server, prices={}, budget=budget))  # a server of this machine costs nothing
    assert free.at_most.nano_usd == 0
    assert server.count() == 0


def test_what_a_fit_would_refuse_a_dry_run_refuses(server, tmp_path):
    with pytest.raises(TaskError, match="--holdout"):
        plan_of(order_for(server, holdout=Holdout(["money back please"])))
    (tmp_path / "new.jsonl").write_text(json.dumps({"text": "x", "label": "nobody"}) + "\n")
    with pytest.raises(GeneratorError):
        plan_of(order_for(server, generator=open_generator(f"replay:{tmp_path / 'new.jsonl'}", seed=0)))


def images_for(server, folder, model="gpt-image-1-mini", **changes):
    """A task of images whose generator is behind an API and whose embedder is not."""
    pytest.importorskip("PIL", reason="Pillow is not installed")
    from adamab.task.image_folders import image_at
    from adamab.testing._provider_endpoints import draw_image

    samples = []
    for name in ("cat", "dog", "owl"):
        for number in range(2):
            path = folder / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(draw_image(name, number, (400, 300)))
            samples.append(Sample.of_image(image_at(path), name))
    classes = tuple(ClassSpec(name, f"a {name}") for name in ("cat", "dog", "owl"))
    spec = f"openai-image:{model}?base_url={server.url}/v1"
    values = {
        "task": Task(classes, tuple(samples), name="zoo", modality="image"),
        "embedder": PixelEmbedder(),
        "embedder_spec": "pixels",
        "generator": spec,
        "recipe": Recipe(near_duplicate=None, rounds_per_class=1),
        "prices": {
            "gpt-image-1-mini": Price(Decimal(2), Decimal(8)),
            "dall-e-3": Price(Decimal(0), image=Decimal("0.04")),
        },
        **changes,
    }
    return Order(**values)


@pytest.mark.parametrize(("model", "calls_a_round"), [("gpt-image-1-mini", 1), ("dall-e-3", 5)])
def test_images_are_foretold_by_number_and_price(server, tmp_path, model, calls_a_round):
    plan = plan_of(images_for(server, tmp_path, model))
    assert server.count() == 0
    real = spent(images_for(server, tmp_path, model), tmp_path / "run")
    assert plan.expected.calls == real["calls"] == calls_a_round * plan.rounds
    assert plan.expected.usage.images == server.images(IMAGES) == plan.samples
    assert plan.expected.nano_usd is not None
    if model == "dall-e-3":
        assert (
            plan.expected.nano_usd / 1e9 == pytest.approx(real["usd"]) == pytest.approx(0.04 * plan.samples)
        )
    assert plan.at_most.nano_usd is not None
    assert plan.at_most.nano_usd / 1e9 >= real["usd"]


@pytest.mark.parametrize("fault", ["duplicates", "no_image", "no_usage", "refusal"])
def test_the_most_is_never_below_what_bad_images_make_a_fit_spend(server, tmp_path, fault):
    plan = plan_of(images_for(server, tmp_path, prefetch=2))
    server.add_fault(Fault(fault, path=IMAGES, times=1000))
    real = spent(images_for(server, tmp_path, prefetch=2), tmp_path / "run")
    assert plan.at_most.nano_usd is not None
    assert plan.at_most.nano_usd / 1e9 >= real["usd"]
    assert plan.at_most.calls >= real["calls"]
    assert plan.at_most.usage.images >= server.images(IMAGES)


def test_images_that_an_embedder_is_sent_are_counted_too(server, tmp_path):
    def order():
        spec = f"voyage:voyage-multimodal-3?base_url={server.url}/voyage/v1"
        embedder = open_embedder(spec, cache=False)
        prices = {
            "gpt-image-1-mini": Price(Decimal(2), Decimal(8)),
            "voyage-multimodal-3": Price(Decimal("0.12")),
        }
        return images_for(server, tmp_path, embedder=embedder, embedder_spec=spec, prices=prices)

    plan = plan_of(order())
    assert plan.parties[0].sends == ("the given images", "the classes' wordings", "the new images")
    _at_least(plan, spent(order(), tmp_path / "run"))
    drawn = 1024 * 1024 * plan.samples / 560  # Voyage counts a token for 560 pixels
    assert plan.parties[0].expected.usage.input_tokens > drawn
