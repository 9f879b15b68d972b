"""What a fit keeps about how sure its classifier may be."""

import numpy as np
import pytest

from adamab.errors import TaskError
from adamab.model.confidence import confidence_of
from adamab.model.predictor import Inference
from adamab.run.fit import fit_task
from adamab.task.recipe import Recipe
from adamab.task.spec import Sample, Task
from adamab.testing import HashEmbedder
from tests.fitting import Writer
from tests.run.conftest import THREE as GIVEN

RECIPE = Recipe(batch=2, rounds_per_class=2, synthetic_weight=0.5)


def fit(given=GIVEN, recipe=RECIPE, **options):
    task = Task.from_mapping(given, descriptions={"outage": "the site is down"})
    return fit_task(task, HashEmbedder(), recipe=recipe, seed=0, **options)


def test_the_temperature_is_in_the_heads_and_told(monkeypatch):
    plain = fit()
    confidence = plain.classifier.confidence
    assert confidence.temperature == pytest.approx(1 / plain.held_out.scale())
    assert confidence.temperature != 1
    monkeypatch.setattr("adamab.method.stacking.HeldOut.scale", lambda self: 1.0)
    untouched = fit()
    rows = [Sample("my money is down", "")]
    before, after = (Inference(r.classifier, HashEmbedder()).logits(rows) for r in (untouched, plain))
    np.testing.assert_allclose(after * confidence.temperature, before, rtol=1e-3, atol=1e-5)
    assert untouched.classifier.confidence.temperature == 1.0
    assert untouched.estimate == plain.estimate == plain.held_out.estimate()


def test_scores_of_sets_are_of_the_given_samples_alone_and_shares_of_all():
    alone, more = fit(), fit(generator=Writer())
    assert len(more.synthetic) == 12
    with_more, without = more.classifier.confidence, alone.classifier.confidence
    assert with_more.n == without.n == 9
    assert (with_more.temperature, with_more.surprise) == (without.temperature, without.surprise)
    assert with_more.strangeness != without.strangeness  # by heads that know as much as the classifier
    assert without.seen == (3.0, 3.0, 3.0)
    assert with_more.seen == tuple(3 + 0.5 * more.synthetic_by_class[name] for name in GIVEN)
    held_out = alone.held_out
    again = confidence_of(
        held_out.logits, held_out.class_index, np.full(3, 3), held_out.scale(), prior_exponent=0.0
    )
    assert again == without  # nothing else goes into it


@pytest.mark.parametrize(
    ("given", "recipe"),
    [
        ({name: texts[:1] for name, texts in GIVEN.items()}, RECIPE),
        (GIVEN, Recipe.preset("paper").with_options(rounds=3, augmentation_rounds=0)),
    ],
    ids=["one each", "paper"],
)
def test_where_nothing_is_held_out_there_are_shares_only(given, recipe):
    result = fit(given, recipe)
    confidence = result.classifier.confidence
    assert (result.held_out, confidence.n, confidence.temperature) == (None, 0, 1.0)
    assert confidence.seen == (float(len(given["refund"])),) * 3
    with pytest.raises(TaskError, match="two or more examples per class"):
        result.classifier.predict_sets({"pooled": np.zeros((1, 64), np.float32)}, ["x"])


def test_a_class_without_samples_counts_as_one():
    result = fit({**GIVEN, "outage": []})
    assert result.classifier.confidence.seen == (3.0, 3.0, 1.0)
    assert result.classifier.confidence.n == 6


def test_what_the_loss_alone_trained_follows_the_shares():
    assert fit(recipe=Recipe.preset("paper")).classifier.confidence.prior_exponent == 1
    assert fit().classifier.confidence.prior_exponent == 0  # as many of each class: nobody can say
