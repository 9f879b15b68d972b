"""What binds a run, and what may change."""

import json
from dataclasses import asdict
from decimal import Decimal
from types import SimpleNamespace

import pytest

from adamab.errors import RunError
from adamab.providers.metering import Budget
from adamab.run.resume import Inputs
from adamab.run.settings import FitSettings
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task

CLASSES = (ClassSpec("no", "declines"), ClassSpec("yes", "agrees"))
SAMPLES = (Sample("never", "no"), Sample("sure thing", "yes"), Sample("not now", "no", id="7"))


def inputs(classes=CLASSES, samples=SAMPLES, embedder="e", generator="g", holdout=None, **settings):
    chosen = FitSettings(**settings)
    return Inputs.of(
        SimpleNamespace(
            task=Task(classes, samples),
            settings=chosen,
            budget=chosen.budget or Budget(),
            embedder=SimpleNamespace(fingerprint=embedder),
            generator=SimpleNamespace(fingerprint=generator),
            holdout=holdout and SimpleNamespace(digest=holdout),
        )
    )


def test_they_come_back_from_the_journal():
    made = inputs(budget=Budget(10, Decimal("1.10"), 5), recipe=Recipe.preset("paper:trec"))
    assert Inputs.from_json(json.loads(json.dumps(asdict(made)))) == made
    assert made.changes_to(made) == []


def test_no_text_is_in_them():
    said = json.dumps(asdict(inputs()))
    for text in ("never", "sure thing", "not now", "declines", "agrees"):
        assert text not in said


def test_what_may_change_is_said_in_words():
    new = Sample("why not", "yes")
    assert inputs().changes_to(inputs(samples=(*SAMPLES, new))) == ["1 given sample of class 'yes' added"]
    third = ClassSpec("maybe", "hesitates")
    assert inputs().changes_to(inputs(classes=(third, *CLASSES))) == ["class 'maybe' added"]
    both = inputs(classes=(*CLASSES, third), samples=(*SAMPLES, Sample("let me think", "maybe"), new))
    assert inputs().changes_to(both) == ["class 'maybe' added", "1 given sample of class 'yes' added"]
    assert inputs().grown(both) == {"yes": 1, "maybe": 1}
    raised = inputs(budget=Budget(20, Decimal(2)))
    assert inputs(budget=Budget(10, Decimal("1.5"), 9)).changes_to(raised) == [
        "budget raised from 10 samples, 1.50 usd, 9 calls to 20 samples, 2.00 usd"
    ]
    assert (
        inputs(budget=Budget(usd=Decimal("1.5"))).changes_to(inputs(budget=Budget(usd=Decimal("1.50")))) == []
    )


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (Budget(samples=5), Budget(samples=4)),
        (Budget(), Budget(samples=4)),
        (Budget(calls=5), Budget(calls=9, samples=4)),
    ],
)
def test_a_budget_of_samples_is_never_lowered(then, now):
    with pytest.raises(RunError, match="can be raised, not lowered"):
        inputs(budget=then).changes_to(inputs(budget=now))


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (Budget(usd=Decimal(2)), Budget(usd=Decimal("1.99"))),
        (Budget(samples=5, calls=5), Budget(samples=50, calls=4)),
        (Budget(), Budget(calls=100)),
    ],
)
def test_a_tighter_cap_on_calls_or_money_is_a_change(then, now):
    assert inputs(budget=then).changes_to(inputs(budget=now)) == [f"budget changed from {then} to {now}"]


OTHERS = {
    "a recipe's option": ({"recipe": Recipe(dropout=0.1)}, r"recipe: dropout \('0\.5', now '0\.1'\)"),
    "a preset": ({"recipe": Recipe.preset("paper")}, r"recipe: \w+ \("),
    "the policy": ({"policy": "random"}, r"policy \('adamab', now 'random'\)"),
    "the seed": ({"seed": 1}, r"seed \('0', now '1'\)"),
    "the embedder": ({"embedder": "f"}, r"embedder \('e', now 'f'\)"),
    "the generator": ({"generator": "none"}, r"generator \('g', now 'none'\)"),
    "a holdout": ({"holdout": "0af" * 10 + "19"}, r"held-out texts \(--holdout\);"),
    "a description": ({"classes": (CLASSES[0], ClassSpec("yes", "nods"))}, "description of class 'yes'"),
    "no description": ({"classes": (CLASSES[0], ClassSpec("yes"))}, "description of class 'yes'"),
    "a class less": (
        {"classes": (CLASSES[1], ClassSpec("maybe", "hesitates")), "samples": SAMPLES[1:2]},
        "class 'no' is gone",
    ),
    "a sample less": ({"samples": SAMPLES[1:]}, "given sample of class 'no' is gone or was changed"),
    "another text": ({"samples": (*SAMPLES[:1], Sample("yep", "yes"), SAMPLES[2])}, "class 'yes' is gone or"),
    "another label": ({"samples": (Sample("never", "yes"), *SAMPLES[1:])}, "class 'no' is gone or"),
    "another id": ({"samples": (*SAMPLES[:2], Sample("not now", "no", id="8"))}, "class 'no' is gone or"),
    "classes turned round": ({"classes": CLASSES[::-1]}, "another order of the classes"),
    "samples turned round": ({"samples": SAMPLES[::-1]}, "another order of .* given samples"),
}


@pytest.mark.parametrize("change", OTHERS)
def test_any_other_change_is_one_line_that_names_it(change):
    options, words = OTHERS[change]
    with pytest.raises(RunError, match=words) as caught:
        inputs().changes_to(inputs(**options))
    assert "\n" not in str(caught.value)
    assert "start again as then" in str(caught.value) or "run" in str(caught.value)


def test_long_values_are_shown_from_where_they_differ():
    with pytest.raises(RunError, match=r"embedder \('…e{12}f', now '…e{12}g'\);"):
        inputs(embedder="e" * 80 + "f").changes_to(inputs(embedder="e" * 80 + "g"))


def test_long_names_of_classes_that_begin_alike_are_told_apart():
    first, second = (ClassSpec(f"{'a long name ' * 9}{n}", "agrees") for n in (1, 2))
    then = inputs(classes=(first, second), samples=())
    with pytest.raises(RunError, match="another description of class 'a long name"):
        then.changes_to(inputs(classes=(ClassSpec(first.name, "nods"), second), samples=()))


def test_every_option_of_a_recipe_binds():
    recipe = Recipe()
    for key, value in recipe.model_dump().items():
        now = inputs()
        other = now.recipe | {key: "something else"}
        changed = Inputs(**{**vars(now), "recipe": other})
        with pytest.raises(RunError, match=f"recipe: {key} .*now 'something else'"):
            now.changes_to(changed)
        assert value is None or key in now.recipe
