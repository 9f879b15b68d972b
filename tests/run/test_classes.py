"""Classes renamed, merged, split, removed and described anew: what was bought goes along, or waits."""

import json
import shutil
from collections import Counter
from dataclasses import replace

import pytest

from adamab.errors import RunError, TaskError
from adamab.model import load
from adamab.providers.generators.variations import NoiseGenerator
from adamab.providers.metering import Budget
from adamab.run.classes import (
    Addition,
    edit_class,
    edit_task,
    merge_classes,
    remove_class,
    rename_class,
    with_class,
)
from adamab.run.directory import read_task
from adamab.run.examples import label_examples
from adamab.run.fit import resume_run
from adamab.serving import _run_view
from adamab.serving.run_reader import RunReader
from adamab.task.spec import Sample, Task
from tests.run.conftest import DESCRIPTIONS, GIVEN, Died


def labelled(path):
    """The classes of the synthetic samples, by text."""
    rows = map(json.loads, (path / "synthetic.jsonl").read_text("utf-8").splitlines())
    return {row["text"]: row["label"] for row in rows}


def task_of(given, **descriptions):
    return Task.from_mapping(given, descriptions={n: DESCRIPTIONS.get(n) or descriptions[n] for n in given})


REFUND, PRAISE, OUTAGE = (GIVEN[name] for name in ("refund", "praise", "outage"))
# What the task file says then, and where the samples of each class go.
BY_HAND = {
    "renamed": (
        task_of({"money": REFUND, "praise": PRAISE, "outage": OUTAGE}, money="wants money back"),
        {"refund": "money", "praise": "praise", "outage": "outage"},
    ),
    "merged": (
        task_of({"contact": REFUND + PRAISE, "outage": OUTAGE}, contact="writes to us"),
        {"refund": "contact", "praise": "contact", "outage": "outage"},
    ),
    "merged into one of them": (
        task_of({"praise": PRAISE + REFUND, "outage": OUTAGE}),
        {"refund": "praise", "praise": "praise", "outage": "outage"},
    ),
    "removed": (
        task_of({"praise": PRAISE, "outage": OUTAGE}),
        {"praise": "praise", "outage": "outage"},
    ),
    "split": (
        task_of(
            {"praise": PRAISE, "down": OUTAGE[:1], "empty": OUTAGE[1:], "refund": REFUND}, down="d", empty="e"
        ),
        {"praise": "praise", "refund": "refund"},
    ),
    "described anew": (
        Task.from_mapping(GIVEN, descriptions=DESCRIPTIONS | {"praise": "says something nice"}),
        {name: name for name in GIVEN},
    ),
    "examples swapped": (
        task_of({"praise": REFUND, "refund": PRAISE, "outage": OUTAGE}),
        {name: name for name in GIVEN},
    ),
}


@pytest.mark.parametrize("change", BY_HAND)
@pytest.mark.parametrize("stopped", [4, None], ids=["stopped", "complete"])
def test_a_changed_task_is_fitted_again_and_takes_along_what_was_bought(both, change, stopped):
    both.recipe = both.recipe.with_options(augmentation_rounds=None, rounds=None, rounds_per_class=2)
    if stopped is None:
        both.fit()
    else:
        both.fit_until(stopped)
    bought = {text: e.data["record"]["chosen"] for e in both.events("round") for text in e.data["texts"]}
    task, homes = BY_HAND[change]
    other = both.path.with_name("other")
    shutil.copytree(both.path, other)
    asked = both.asked("chat/completions")
    summary = both.fit(both.order(task=task), other)
    again = both.asked("chat/completions")[len(asked) :]
    assert not set(again).intersection(asked)
    expected = {text: homes[name] for text, name in bought.items() if name in homes}
    assert expected.items() <= labelled(other).items()
    assert not labelled(other).keys() & (bought.keys() - expected.keys())
    assert summary["reused"] == dict(Counter(expected.values()))
    assert sum(summary["set_aside"].values()) == len(bought) - len(expected)
    assert load(other).classes == task.class_names
    rounds = len(list(both.events("round")))
    for round_ in range(rounds + 1, both.left(other)["rounds"][-1]):
        both.fit_until(round_, both.order(task=task), on_start=lambda s: setattr(s, "checkpoint_rounds", 1))
    both.fit(both.order(task=task))
    assert both.left() == both.left(other)
    assert both.fit(both.order(task=task))["complete"]


def test_a_class_that_comes_back_has_its_samples_again_and_a_new_one_of_an_old_name_has_not(runs):
    runs.fit()
    first = labelled(runs.path)
    runs.fit(runs.order(task=task_of({name: GIVEN[name] for name in ("praise", "outage")})))
    assert set(labelled(runs.path).values()) == {"praise", "outage"}
    runs.fit()
    assert first.items() <= labelled(runs.path).items()
    rename_class(runs.path, "praise", "love")
    summary = runs.fit(runs.order(task=read_task(runs.path)))
    assert summary["changes"] == ["class 'praise' renamed to 'love'"]
    assert summary["spent"]["by_class"].keys() == {"refund", "love", "outage"}
    with RunReader(runs.path) as reader:
        assert reader.spending()["by_class"] == summary["spent"]["by_class"]
        shown = {row["class"]: row for row in _run_view.figures(reader, 0, 9)["classes"]}
    assert shown.keys() == {"refund", "love", "outage"}
    assert shown["love"]["counts"][-1] == shown["love"]["samples"] > len(PRAISE)
    asked = runs.asked("chat/completions")
    given = GIVEN | {"love": PRAISE, "praise": ["he praises the day", "praise before the evening"]}
    runs.fit(runs.order(given, descriptions=DESCRIPTIONS | {"love": "is happy", "praise": "of the day"}))
    new = runs.asked("chat/completions")[len(asked) :]
    assert new
    assert all("of the day" in body for body in new)
    homes = {name: "love" if name == "praise" else name for name in GIVEN}
    now = labelled(runs.path)
    assert {text: homes[name] for text, name in first.items()}.items() <= now.items()
    assert not {text for text, name in now.items() if name == "praise"} & first.keys()


def test_vectors_of_noise_go_along(runs):
    runs.recipe = runs.recipe.with_options(views=("pooled",), words=False, batch=3)

    def fit(path, samples, **hooks):
        options = {"generator": NoiseGenerator(seed=0), "budget": Budget(samples=samples)}
        return runs.fit(runs.order(task=read_task(path), **options), path, own_task=True, **hooks)

    options = {"generator": NoiseGenerator(seed=0), "budget": Budget(samples=17)}
    runs.fit(runs.order(task=task_of(GIVEN), **options))
    merge_classes(runs.path, ["refund", "praise"], "contact")
    praise = Addition("praise", "is happy", (Sample("quite another thing", "praise"),))
    edit_task(runs.path, lambda task: with_class(task, praise))
    other = runs.path.with_name("other")
    shutil.copytree(runs.path, other)
    summary = fit(other, 31)
    assert sum(summary["reused"].values()) == 17
    assert "praise" not in summary["reused"]
    assert summary["synthetic"] == 31

    def die(record):
        raise Died

    with pytest.raises(Died):
        fit(runs.path, 31, on_round=die)
    fit(runs.path, 31)
    assert runs.left() == runs.left(other)


@pytest.mark.parametrize("generator", [None, "api"])
def test_where_nothing_was_bought_everything_may_change(both, generator):
    order = both.order(generator=None)
    both.fit(order)
    changed = order.changed(seed=3, task=BY_HAND["merged"][0])
    if generator:
        changed = both.order(seed=3, task=BY_HAND["merged"][0])
    summary = both.fit(changed)
    assert "another seed" in " ".join(summary["changes"])
    if not generator:
        other = both.path.with_name("other")
        both.fit(changed, other)
        assert both.left() == both.left(other)
    assert both.fit(changed)["complete"]


def test_an_example_that_was_synthetic_is_given_now(runs):
    runs.fit()
    text, name = next(iter(labelled(runs.path).items()))
    target = next(other for other in GIVEN if other != name)
    runs.fit(runs.order(GIVEN | {target: [*GIVEN[target], text]}))
    assert text not in labelled(runs.path)


# Changes of the run's own task


def test_commands_one_after_the_other_are_one_change(runs):
    runs.fit()
    before = labelled(runs.path)
    rename_class(runs.path, "refund", "money")
    rename_class(runs.path, "praise", "refund")
    merge_classes(runs.path, ["money", "outage"], "trouble")
    task = read_task(runs.path)
    assert task.class_names == ("trouble", "refund")
    assert load(runs.path).classes == tuple(GIVEN)  # until the next fit
    summary = runs.fit(runs.order(task=task), own_task=True)
    assert summary["changes"][:3] == [
        "samples of class 'refund' moved to 'trouble'",
        "class 'praise' renamed to 'refund'",
        "class 'outage' merged into 'trouble'",
    ]
    homes = {"refund": "trouble", "outage": "trouble", "praise": "refund"}
    assert {text: homes[name] for text, name in before.items()}.items() <= labelled(runs.path).items()
    assert runs.fit(runs.order(task=task), own_task=True)["complete"]  # and is not done twice


def test_a_removed_class_goes_nowhere_though_examples_of_it_were_moved(runs):
    runs.fit()
    label_examples(runs.path, [Sample(text, "") for text in REFUND], "praise")
    remove_class(runs.path, "refund")
    summary = runs.fit(runs.order(task=read_task(runs.path)), own_task=True)
    assert "class 'refund' removed" in summary["changes"]
    assert summary["set_aside"]["refund"]


def test_a_task_that_would_take_a_change_back_is_refused_until_it_has_it(runs):
    runs.fit()
    remove_class(runs.path, "outage")
    with pytest.raises(RunError, match=r"'outage' was taken out of this run's own task.*leave TASK out"):
        runs.fit()
    runs.fit(runs.order(task=read_task(runs.path)), own_task=True)
    with pytest.raises(RunError, match=r"'outage' was taken out"):
        runs.fit()
    runs.fit(runs.order(task=task_of({name: GIVEN[name] for name in ("refund", "praise")})))
    assert set(labelled(runs.path).values()) == {"refund", "praise"}
    runs.fit()  # the file has said what it wanted
    assert set(labelled(runs.path).values()) == set(GIVEN)


def test_any_change_of_the_task_is_kept_for_the_next_fit(runs):
    runs.fit()
    more = Sample("the money never came", "refund")
    edit_task(runs.path, lambda task: replace(task, samples=(*task.samples, more)))
    with pytest.raises(RunError, match="an example of class 'refund' was added to"):
        runs.fit()
    summary = runs.fit(runs.order(task=read_task(runs.path)), own_task=True)
    assert summary["changes"] == ["1 given sample of class 'refund' added"]
    with_id = (*runs.order().task.samples, Sample("The  Money never came", "refund", id="7"))
    runs.fit(runs.order(task=replace(runs.order().task, samples=with_id)))  # a table's rows have ids
    edit_class(runs.path, "praise", "praise", "says something nice")
    with pytest.raises(RunError, match="the description of class 'praise' was changed in this run's own"):
        runs.fit()
    edit_class(runs.path, "praise", "praise", DESCRIPTIONS["praise"])
    runs.fit()


@pytest.mark.parametrize("own_task", [True, False])
def test_a_change_while_a_fit_starts_is_not_lost(runs, own_task):
    runs.fit()
    setup = runs.order(task=read_task(runs.path)).set_up(run_dir=runs.path)
    label_examples(runs.path, [Sample("the money never came", "")], "refund")
    changed = (runs.path / "task.json").read_bytes()
    with pytest.raises(RunError, match="start it again" if own_task else "leave TASK out"):
        resume_run(setup, own_task=own_task)
    assert (runs.path / "task.json").read_bytes() == changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda path: rename_class(path, "refunds", "money"),
            "'refunds' is not among .* did you mean 'refund'",
        ),
        (lambda path: rename_class(path, "refund", "praise"), "'praise' is there already; merge"),
        (lambda path: rename_class(path, "refund", "unknown"), "no class can be called 'unknown'"),
        (lambda path: merge_classes(path, ["refund"], "money"), "nothing to merge"),
        (lambda path: merge_classes(path, ["refund"], "refund"), "nothing to merge"),
        (lambda path: merge_classes(path, list(GIVEN), "all"), "at least two classes"),
        (lambda path: remove_class(path, "nothing"), "'nothing' is not among"),
    ],
)
def test_what_cannot_be_changed_leaves_the_task_alone(runs, change, message):
    runs.fit()
    kept = (runs.path / "task.json").read_bytes()
    with pytest.raises(TaskError, match=message):
        change(runs.path)
    assert (runs.path / "task.json").read_bytes() == kept
