"""What a fit keeps about how sure its classifier may be."""

import numpy as np
import pytest

from adamab.errors import TaskError
from adamab.model.confidence import confidence_of
from adamab.model.predictor import Inference
from adamab.providers.generators.base import Batch, Generator
from adamab.run.fit import fit_task, fit_vectors
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.testing import HashEmbedder

GIVEN = {
    "refund": ["give me my money back", "i want a refund of the fee", "refund the double charge"],
    "praise": ["what a lovely product", "i love your lovely team", "great work, lovely"],
    "outage": ["the site is down again", "nothing loads, site down", "down for an hour now"],
}
FAST = Recipe(checkpoints=(0, 5, 20), batch=2, rounds_per_class=2, synthetic_weight=0.5)


class Writer(Generator):
    """Other texts of the class each time."""

    fingerprint = "writer"

    async def generate(self, request):
        have = len(request.existing)
        return Batch(tuple(f"{request.spec.name} text {have + i} {i}" for i in range(request.count)))


def fit(given=GIVEN, recipe=FAST, **options):
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
    told, without = more.classifier.confidence, alone.classifier.confidence
    assert told.n == without.n == 9
    assert (told.temperature, told.surprise) == (without.temperature, without.surprise)
    assert told.strangeness != without.strangeness  # by folds that are as steep as the classifier
    assert without.seen == (3.0, 3.0, 3.0)
    assert told.seen == tuple(3 + 0.5 * more.synthetic_by_class[name] for name in GIVEN)
    held_out = alone.held_out
    again = confidence_of(
        held_out.logits, held_out.class_index, np.full(3, 3), held_out.scale(), prior_exponent=0.0
    )
    assert again == without  # nothing else goes into it


@pytest.mark.parametrize(
    ("given", "recipe"),
    [
        ({name: texts[:1] for name, texts in GIVEN.items()}, FAST),
        (GIVEN, FAST.with_options(folds=0)),
        (GIVEN, Recipe.preset("paper").with_options(rounds=3, augmentation_rounds=0)),
    ],
    ids=["one each", "no folds", "paper"],
)
def test_without_folds_there_are_shares_only(given, recipe):
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


def test_vectors_have_a_confidence_too():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 5)
    x = (np.eye(3, 8)[y] + 0.3 * rng.standard_normal((15, 8))).astype(np.float32)
    result = fit_vectors(x, y, classes=[ClassSpec(name) for name in "abc"], recipe=FAST)
    assert result.classifier.confidence.n == 15
    assert result.held_out.logits.shape == (15, 3)


def test_stating_what_is_true_does_no_harm_where_counts_differ():
    """Twenty samples of one class and four of the others; new ones are as many of each."""
    rng, better = np.random.default_rng(0), []
    for _ in range(6):
        centres = rng.standard_normal((4, 30))
        y, new = np.repeat(np.arange(4), [20, 4, 4, 4]), np.repeat(np.arange(4), 100)
        rows = [(centres[c] + 1.5 * rng.standard_normal((len(c), 30))).astype(np.float32) for c in (y, new)]
        classes = [ClassSpec(name) for name in "abcd"]
        model = fit_vectors(rows[0], y, classes=classes, recipe=Recipe(checkpoints=(0, 20))).classifier
        assert 0 <= model.confidence.prior_exponent <= 1
        plain, stated = (
            (model.predict_proba({"pooled": rows[1]}, priors=priors).argmax(axis=1) == new).mean()
            for priors in (None, dict.fromkeys("abcd", 0.25))
        )
        better.append(stated - plain)
    assert np.mean(better) > -0.005


def test_what_the_loss_alone_trained_follows_the_shares():
    assert fit(recipe=Recipe.preset("paper")).classifier.confidence.prior_exponent == 1
    assert fit().classifier.confidence.prior_exponent == 0  # as many of each class: nobody can say
