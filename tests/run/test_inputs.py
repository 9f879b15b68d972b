"""What binds a run, and what may change."""

import json
from dataclasses import asdict, replace
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
            embedder=SimpleNamespace(fingerprint=embedder, code=""),
            generator=SimpleNamespace(fingerprint=generator, code=""),
            holdout=holdout and SimpleNamespace(digest=holdout),
        )
    )


def test_they_come_back_from_the_journal():
    made = inputs(budget=Budget(10, Decimal("1.10"), 5), recipe=Recipe.preset("paper:trec"))
    assert Inputs.from_json(json.loads(json.dumps(asdict(made)))) == made
    assert words(made, made) == []


def test_no_text_is_in_them():
    said = json.dumps(asdict(inputs()))
    for text in ("never", "sure thing", "not now", "declines", "agrees"):
        assert text not in said


def words(then, now, **options):
    return list(then.changes_to(now, **options).words)


MAYBE, NAY = ClassSpec("maybe", "hesitates"), ClassSpec("nay", "declines")
OF_NO = (SAMPLES[0], SAMPLES[2])


def moved(name, samples=OF_NO):
    return tuple(replace(sample, class_name=name) for sample in samples)


CHANGES = {
    "a sample more": (
        {"samples": (*SAMPLES, Sample("why not", "yes"))},
        ["1 given sample of class 'yes' added"],
    ),
    "a sample less": ({"samples": SAMPLES[1:]}, ["1 given sample of class 'no' removed"]),
    "another text": (
        {"samples": (*SAMPLES[:1], Sample("yep", "yes"), SAMPLES[2])},
        ["1 given sample of class 'yes' changed"],
    ),
    "another id": (
        {"samples": (*SAMPLES[:2], Sample("not now", "no", id="8"))},
        ["1 given sample of class 'no' changed"],
    ),
    "another class": ({"classes": (MAYBE, *CLASSES)}, ["class 'maybe' added"]),
    "another description": (
        {"classes": (CLASSES[0], ClassSpec("yes", "nods"))},
        ["description of class 'yes' changed"],
    ),
    "a class less": (
        {"classes": (CLASSES[1], MAYBE), "samples": SAMPLES[1:2]},
        ["class 'no' removed", "class 'maybe' added"],
    ),
    "another name": (
        {"classes": (NAY, CLASSES[1]), "samples": (*moved("nay"), SAMPLES[1])},
        ["class 'no' renamed to 'nay'"],
    ),
    "one class of two": (
        {"classes": (CLASSES[1], MAYBE), "samples": (*moved("yes"), SAMPLES[1])},
        ["class 'no' merged into 'yes'", "class 'maybe' added"],
    ),
    "two classes of one": (
        {
            "classes": (CLASSES[1], MAYBE, NAY),
            "samples": (SAMPLES[1], *moved("nay", OF_NO[:1]), *moved("maybe", OF_NO[1:])),
        },
        ["class 'no' removed", "class 'maybe' added", "class 'nay' added"],
    ),
    "all samples of a class": (
        {"classes": (*CLASSES, NAY), "samples": (*moved("nay"), SAMPLES[1])},
        ["class 'nay' added", "2 given samples of class 'no' removed"],
    ),
    "one sample in another class": (
        {"samples": (SAMPLES[0], SAMPLES[1], *moved("yes", OF_NO[1:]))},
        ["1 given sample of class 'no' removed", "1 given sample of class 'yes' added"],
    ),
    "classes turned round": (
        {"classes": CLASSES[::-1]},
        ["order of the classes or of the given samples changed"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_task_is_said_in_words(change):
    options, expected = CHANGES[change]
    assert words(inputs(), inputs(**options)) == expected


def test_one_example_does_not_carry_a_class_along():
    one_left = inputs(classes=(CLASSES[1], MAYBE), samples=(*moved("yes", OF_NO[:1]), SAMPLES[1]))
    assert inputs().changes_to(one_left).moved == {}
    all_left = inputs(classes=(CLASSES[1], MAYBE), samples=(*moved("yes"), SAMPLES[1]))
    assert inputs().changes_to(all_left).moved == {"no": "yes"}
    assert inputs().changes_to(all_left, guess=False).moved == {}
    assert inputs().changes_to(all_left, moved={"no": None}).moved == {}


def test_a_class_without_samples_is_known_by_its_description_or_by_what_was_said():
    then = inputs(samples=SAMPLES[1:2])
    renamed = inputs(classes=(NAY, CLASSES[1]), samples=SAMPLES[1:2])
    assert then.changes_to(renamed).moved == {"no": "nay"}
    other = inputs(classes=(CLASSES[1], MAYBE), samples=SAMPLES[1:2])
    assert then.changes_to(other).moved == {}
    assert words(then, other, moved={"no": "maybe"}) == [
        "class 'no' renamed to 'maybe'",
        "description of class 'maybe' changed",
    ]
    assert then.changes_to(other, moved={"no": "gone again"}).moved == {}


def test_budgets_in_words():
    raised = inputs(budget=Budget(20, Decimal(2)))
    assert words(inputs(budget=Budget(10, Decimal("1.5"), 9)), raised) == [
        "budget raised from 10 samples, 1.50 usd, 9 calls to 20 samples, 2.00 usd"
    ]
    assert words(inputs(budget=Budget(usd=Decimal("1.5"))), inputs(budget=Budget(usd=Decimal("1.50")))) == []


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
    assert words(inputs(budget=then), inputs(budget=now)) == [f"budget changed from {then} to {now}"]


OTHERS = {
    "a recipe's option": ({"recipe": Recipe(dropout=0.1)}, r"recipe: dropout \('0\.5', now '0\.1'\)"),
    "a preset": ({"recipe": Recipe.preset("paper")}, r"recipe: \w+ \("),
    "the policy": ({"policy": "random"}, r"policy \('adamab', now 'random'\)"),
    "the seed": ({"seed": 1}, r"seed \('0', now '1'\)"),
    "the embedder": ({"embedder": "f"}, r"embedder \('e', now 'f'\)"),
    "the generator": ({"generator": "none"}, r"generator \('g', now 'none'\)"),
    "a holdout": ({"holdout": "0af" * 10 + "19"}, r"held-out texts \(--holdout\);"),
}


@pytest.mark.parametrize("change", OTHERS)
def test_any_other_change_is_one_line_that_names_it_once_samples_were_bought(change):
    options, message = OTHERS[change]
    with pytest.raises(RunError, match=message) as caught:
        inputs().changes_to(inputs(**options))
    assert "\n" not in str(caught.value)
    assert "add --overwrite to start over" in str(caught.value)
    assert len(words(inputs(), inputs(**options), bought=False)) == 1


def test_long_values_are_shown_from_where_they_differ():
    with pytest.raises(RunError, match=r"embedder \('…e{12}f', now '…e{12}g'\);"):
        inputs(embedder="e" * 80 + "f").changes_to(inputs(embedder="e" * 80 + "g"))


def test_every_option_of_a_recipe_binds():
    recipe = Recipe()
    for key, value in recipe.model_dump().items():
        now = inputs()
        other = now.recipe | {key: "something else"}
        changed = Inputs(**{**vars(now), "recipe": other})
        with pytest.raises(RunError, match=f"recipe: {key} .*now 'something else'"):
            now.changes_to(changed)
        assert value is None or key in now.recipe
