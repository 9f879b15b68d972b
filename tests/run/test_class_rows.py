"""The rows of a class that comes later are those that a fit has folded into the heads."""

from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import RecipeError
from adamab.method.views import View
from adamab.model.new_class import NewClass
from adamab.model.predictor import Inference
from adamab.providers.async_bridge import run_sync
from adamab.run._arrays import heads_of_fit
from adamab.run.fit import fit_task, fit_vectors
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.testing import HashEmbedder
from tests.fitting import Writer
from tests.method.fitting import fit_on
from tests.run.conftest import DESCRIPTIONS
from tests.run.conftest import THREE as GIVEN

# A class that comes later has no trained vector of its own, so none is trained here.
FAST = Recipe(batch=2, rounds_per_class=2, calibrator=True, free_vectors=False)


def views_of(embedder, texts, kind="query"):
    return dict(run_sync(embedder.embed(texts, kind=kind)).views)


def as_new(result, task, embedder, spec):
    """A class of the fit as if it came later."""
    classifier, side = result.classifier, result.new_class
    given = [s.text for s in task.samples_of(spec.name)]
    texts = given + [s.text for s in result.synthetic if s.class_name == spec.name]
    wording = side.class_text(spec.name, spec.description, given)
    described, examples = views_of(embedder, [wording], "class"), views_of(embedder, texts)
    if classifier.vocabulary is not None:
        described["words"] = classifier.vocabulary.transform([wording])
        examples["words"] = classifier.vocabulary.transform(texts)
    views = side.described_views(classifier)
    described = {view: row for view, row in described.items() if view in (*views, "words")}
    return NewClass(name=spec.name, described=described, examples=examples, n=len(texts))


def assert_same_rows(classifier, side, index, new):
    """A class of the fit that is added once more has the same row again."""
    grown = side.extended(classifier, replace(new, name="once more"))
    for head, one_more in zip(classifier.heads, grown.heads, strict=True):
        width = head.linear.shape[1]
        assert one_more.linear.shape[1] == width  # the samples of the fit span it
        for part in ("linear", "hidden", "bias"):
            rows = getattr(head, part)
            if rows is not None:
                size = max(np.abs(rows).max(), np.abs(head.linear).max())
                np.testing.assert_allclose(getattr(one_more, part)[-1], rows[index], atol=1e-4 * size)


WAYS = {
    "text with words": {},
    "several views": {"views": ("pooled", "layers")},
    "pooled only": {"recipe": FAST.with_options(words=False)},
    "no descriptions": {"descriptions": {}},
    "descriptions as class input": {"recipe": FAST.with_options(class_input="description")},
    "means as class input": {"recipe": FAST.with_options(class_input="mean")},
    "one given a class": {"n": 1},
    "descriptions alone": {"n": 0},
    "descriptions alone, none of words": {"n": 0, "recipe": FAST.with_options(described_views=("pooled",))},
    "one layer": {"recipe": FAST.with_options(layers=1)},
    "four layers, gelu": {"recipe": FAST.with_options(layers=4, activation="gelu")},
    "random last layer": {"recipe": FAST.with_options(zero_last=False, activation="tanh")},
    "no calibrator": {"recipe": FAST.with_options(calibrator=False)},
    "not centred": {"recipe": FAST.with_options(centre=False, normalise=False)},
    "wordings that quote": {"prompts": Prompts(described="{name} ({description})", with_examples=True)},
    "synthetic samples": {"generator": Writer()},
    "paper": {"recipe": Recipe.preset("paper").with_options(batch=2, rounds=8, augmentation_rounds=0)},
    "paper, synthetic samples": {
        "recipe": Recipe.preset("paper").with_options(batch=2, rounds=8, augmentation_rounds=4),
        "generator": Writer(),
    },
    "rounds without a refit": {"recipe": FAST.with_options(refit=False, rounds=6), "policy": "none"},
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_the_classes_of_a_fit(way):
    options = dict(WAYS[way])
    n = options.pop("n", 3)
    given = {name: texts[:n] for name, texts in GIVEN.items()}
    embedder = HashEmbedder(width=24, views=options.pop("views", ("pooled",)))
    task = Task.from_mapping(
        given,
        descriptions=options.pop("descriptions", DESCRIPTIONS),
        prompts=options.pop("prompts", None),
    )
    result = fit_task(task, embedder, seed=1, **{"recipe": FAST, **options})
    for index, spec in enumerate(task.classes):
        assert_same_rows(result.classifier, result.new_class, index, as_new(result, task, embedder, spec))


IGNORED = {"run_dir": "run", "holdout": "new.txt", "reject": ("no",), "cache": True, "prices": {"m": "1"}}


@pytest.mark.parametrize("name", IGNORED)
def test_a_fit_on_vectors_refuses_settings_that_it_cannot_follow(name):
    vectors, classes = np.eye(2, dtype=np.float32), [ClassSpec("a"), ClassSpec("b")]
    with pytest.raises(RecipeError, match=f"no use for {name};"):
        fit_vectors(vectors, np.arange(2), classes=classes, **{name: IGNORED[name]})


def test_trained_vectors_of_single_classes_are_replaced_by_their_mean():
    rng = np.random.default_rng(1)
    index = np.arange(30) % 3
    vectors = (rng.standard_normal((30, 20)) + 2 * np.eye(3, 20)[index]).astype(np.float32)
    classes = np.eye(3, 20, dtype=np.float32)
    recipe = Recipe(calibrator=True, weight_ridge=2400.0)
    fitted = fit_on([View("pooled", vectors, classes)], index, 3, recipe)
    _, (head, matching) = heads_of_fit(fitted, recipe)
    free = fitted.views[0].calibrator.free
    np.testing.assert_allclose(matching.free, free.mean(axis=0), atol=1e-7)
    assert np.abs(free).max() > 1e-3
    for k in range(3):
        own = replace(matching, free=free[k])
        grown = own.extended(head, classes[k : k + 1], vectors[index == k])
        np.testing.assert_allclose(grown.linear[3], head.linear[k], atol=1e-4)
        np.testing.assert_allclose(grown.hidden[3], head.hidden[k], atol=1e-4)


def test_examples_of_one_class_alone_do_not_spoil_the_descriptions():
    """They have nothing to be compared with, and centred on their own mean they look like no description."""
    classes = tuple(ClassSpec(name, description) for name, description in DESCRIPTIONS.items())
    texts = [Sample(text, "") for text in ("i want money back", "she is happy", "the site is down again")]
    some = tuple(Sample(text, "refund") for text in GIVEN["refund"])
    embedder, answers = HashEmbedder(), []
    for given in ((), some):
        fit = fit_task(Task(classes, given), embedder)
        answers.append(Inference(fit.classifier, embedder).predict_proba(texts))
    assert answers[0].argmax(axis=1).tolist() == [0, 1, 2]
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-6)
