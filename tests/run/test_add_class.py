"""A class added to a run: known at once, kept for the next fit, which buys nothing again."""

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from adamab.errors import TaskError
from adamab.model import load
from adamab.model.new_class import load_new_class_model
from adamab.model.predictor import Inference
from adamab.providers.metering import Budget, Price
from adamab.providers.registry import resolve_embedder
from adamab.run import directory as folder
from adamab.run.add_class import Addition, add_class
from adamab.run.classes import edit_task, with_class
from adamab.run.directory import read_task
from adamab.task.image_folders import image_at
from adamab.task.spec import Sample
from adamab.testing import HashEmbedder, PixelEmbedder
from tests.fitting import fit_run

QUESTION = Addition(
    "question",
    "asks how something works",
    tuple(Sample(text, "question") for text in ("how does this work", "how do i change my name")),
)


def predicted(path, *texts):
    rows = [Sample(text, "") for text in texts]
    model = Inference.open(path, HashEmbedder())
    best = model.predict_proba(rows).argmax(axis=1)
    return [model.classifier.classes[index] for index in best]


def test_known_at_once_then_trained_in_without_buying_again(runs):
    runs.fit()
    before, asked, fitted = runs.left(), runs.asked(), load(runs.path)
    added = add_class(runs.path, QUESTION, embedder=HashEmbedder())
    assert (added.name, added.classes, added.examples, added.repeats) == ("question", 4, 2, 0)
    assert runs.asked() == asked
    assert predicted(runs.path, "how does my name work", "give the money back")[0] == "question"
    assert load(runs.path).confidence.seen == (*fitted.confidence.seen, 2.0)
    summary = folder.read_summary(runs.path)
    assert summary["added"] == ["question"]
    assert summary["classes"] == 3  # it tells of the fit
    assert runs.left()["samples"] == before["samples"]

    task = read_task(runs.path)
    assert task.class_names == ("refund", "praise", "outage", "question")
    assert task.samples_of("question") == QUESTION.examples
    summary = runs.fit(runs.order(task=task))
    assert summary["changes"] == ["class 'question' added"]
    assert "added" not in folder.read_summary(runs.path)
    new = runs.asked()[len(asked) :]
    assert new
    assert all("asks how something works" in body for body in new)
    assert set(before["samples"]) <= set(runs.left()["samples"])
    assert predicted(runs.path, "how does my name work") == ["question"]
    load_new_class_model(runs.path, load(runs.path))


def test_the_paper_recipe_and_several_classes_one_after_the_other(both):
    both.fit()
    add_class(both.path, replace(QUESTION, examples=()), embedder=HashEmbedder())
    add_class(both.path, Addition("spam", "sells things"), embedder=HashEmbedder())
    assert load(both.path).classes == ("refund", "praise", "outage", "question", "spam")
    assert folder.read_summary(both.path)["added"] == ["question", "spam"]
    probabilities = Inference.open(both.path, HashEmbedder()).predict_proba([Sample("hello", "")])
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=1e-5)
    assert read_task(both.path).class_names[-2:] == ("question", "spam")


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        (Addition("praise", "again"), "class 'praise' is there already"),
        (Addition("question"), "neither a description nor an example"),
        (Addition("  ", "blank"), "class"),
        (replace(QUESTION, examples=(Sample("", "question"),)), "is empty"),
        (replace(QUESTION, examples=(Sample("what a lovely product", "question"),)), "'praise'"),
    ],
)
def test_what_cannot_be_added(runs, addition, message):
    runs.fit()
    model, task = runs.left()["weights"], (runs.path / "task.json").read_bytes()
    with pytest.raises(TaskError, match=message):
        add_class(runs.path, addition, embedder=HashEmbedder())
    assert runs.left()["weights"] == model
    assert (runs.path / "task.json").read_bytes() == task
    assert "added" not in folder.read_summary(runs.path)


def test_a_class_that_waits_for_a_fit_is_added_once(runs):
    runs.fit()
    waiting = edit_task(runs.path, lambda task: with_class(task, QUESTION))
    assert edit_task(runs.path, lambda task: with_class(task, QUESTION)) == waiting
    for other in (Addition("question", "another"), replace(QUESTION, examples=QUESTION.examples[:1])):
        with pytest.raises(TaskError, match="is there already"):
            add_class(runs.path, other, embedder=HashEmbedder())
    assert read_task(runs.path) == waiting


def test_repeats_are_left_out(runs):
    runs.fit()
    twice = replace(QUESTION, examples=(*QUESTION.examples, QUESTION.examples[0]))
    added = add_class(runs.path, twice, embedder=HashEmbedder())
    assert (added.examples, added.repeats) == (2, 1)


@pytest.mark.parametrize("step", ["write_edited", "note_added", "save_new_class_model", "save"])
def test_a_process_that_dies_leaves_the_old_model_and_can_be_started_again(runs, monkeypatch, step):
    runs.fit()
    where = "adamab.run.directory.note_added" if step == "note_added" else f"adamab.run.add_class.{step}"

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, die)
        with pytest.raises(KeyboardInterrupt):
            add_class(runs.path, QUESTION, embedder=HashEmbedder())
    assert len(load(runs.path).classes) == 3
    load_new_class_model(runs.path, load(runs.path))
    assert add_class(runs.path, QUESTION, embedder=HashEmbedder()).classes == 4
    assert read_task(runs.path).samples_of("question") == QUESTION.examples
    assert folder.read_summary(runs.path)["added"] == ["question"]


def test_calls_count_in_the_budget_and_are_not_made_again(runs):
    paid = replace(runs, local=False)
    spec = f"openai:m?base_url={runs.server.url}/v1"
    price = {"openai:m": Price(Decimal(1))}  # which the run remembers: a cap on money needs it
    paid.fit(paid.order(embedder_spec=spec, budget=Budget.parse("60 calls, 1 usd"), prices=price))
    before, counts = len(paid.asked("/embeddings")), []
    add_class(paid.path, QUESTION, cache=False, on_calls=counts.append)
    asked = paid.asked("/embeddings")[before:]
    assert counts == [3]
    assert len(asked) == 2  # the wording, and the examples in one
    paid.fit(
        paid.order(
            task=read_task(paid.path),
            embedder_spec=spec,
            embedder=resolve_embedder(spec),
            budget=None,
            prices=price,
        )
    )
    after = "".join(paid.asked("/embeddings")[before + 2 :])
    assert "how does this work" not in after
    assert "asks how something works" not in after


def test_images(tmp_path, paint):
    from adamab.task import load_task
    from adamab.task.recipe import Recipe
    from tests.fitting import Order

    paint(tmp_path / "given", {"red": 3, "green": 3})
    task = load_task(str(tmp_path / "given"))
    order = Order(task, PixelEmbedder(), "pixels", recipe=Recipe())
    run = tmp_path / "run"
    fit_run(order, run)
    with pytest.raises(TaskError, match=r"by their examples only"):
        add_class(run, Addition("blue", "blue images"), embedder=PixelEmbedder())
    blue = [image_at(path) for path in paint(tmp_path / "more", {"blue": 4})]
    examples = tuple(Sample.of_image(image, "blue") for image in blue[:3])
    added = add_class(run, Addition("blue", None, examples), embedder=PixelEmbedder())
    assert added.examples == 3
    model = Inference.open(run, PixelEmbedder())
    best = model.predict_proba([Sample.of_image(blue[3], "")]).argmax()
    assert model.classifier.classes[best] == "blue"
    fit_run(order.changed(task=read_task(run)), run)
    assert json.loads((run / "fit.json").read_text())["classes"] == 3
