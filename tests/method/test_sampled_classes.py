"""Very many classes: groups of them, and no matrix of all samples by all classes."""

import math
import tracemalloc

import numpy as np
import pytest

from adamab.method import gradient_shift, heads, linear_shift
from adamab.method import training as sampled_classes
from adamab.method.training import class_groups
from adamab.run import _loop_model
from adamab.run._arrays import _views_of
from adamab.run._loop_model import JointModel, StackedModel
from adamab.run.samples import DescribedClasses, TrainingSet
from adamab.task.recipe import Recipe

Y = np.array([0, 3, 3, 1, 6, 2, 5, 5, 5, 0, 1])
RECIPE = Recipe(words=False)


def test_every_sample_meets_its_own_class_and_some_others(monkeypatch):
    monkeypatch.setattr(sampled_classes, "MOST_LOGITS", 15)
    groups = class_groups(Y, 7, np.random.default_rng(0))
    assert len(groups) > 1
    assert sorted(np.concatenate([group.rows for group in groups]).tolist()) == list(range(len(Y)))
    for group in groups:
        np.testing.assert_array_equal(group.classes[group.own], Y[group.rows])
        assert len(group.classes) >= 2
        assert group.others == pytest.approx(math.log(6 / (len(group.classes) - 1)))
    assert [group.classes.tolist() for group in groups] != [
        g.classes.tolist() for g in class_groups(Y, 7, np.random.default_rng(1))
    ]


def test_the_sum_over_classes_is_right_on_average(monkeypatch):
    monkeypatch.setattr(sampled_classes, "MOST_LOGITS", 15)
    order, times = np.random.default_rng(0), 2000
    logits, sums = order.standard_normal((len(Y), 7)), np.zeros(len(Y))
    own = logits[np.arange(len(Y)), Y]
    for _ in range(times):
        for group in class_groups(Y, 7, order):
            losses = group.losses(logits[group.rows][:, group.classes])
            sums[group.rows] += np.exp(losses + own[group.rows]) / times
    np.testing.assert_allclose(sums, np.exp(logits).sum(1), rtol=0.05)


@pytest.fixture
def many(monkeypatch):
    """800 classes of three samples, and bounds that are passed with them."""
    monkeypatch.setattr(sampled_classes, "MOST_LOGITS", 100_000)
    monkeypatch.setattr(heads, "MOST_EVIDENCE", 40_000)
    monkeypatch.setattr(heads, "LEAST_EVIDENCE", 2)
    monkeypatch.setattr(gradient_shift, "MOST_RESIDUALS", 100_000)
    monkeypatch.setattr(linear_shift, "MOST_RESIDUALS", 100_000)
    monkeypatch.setattr(_loop_model, "BLOCK", 100_000)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(800, 16)).astype(np.float32)
    y = np.repeat(np.arange(800), 3)
    described = DescribedClasses(tuple(map(str, range(800))), {"pooled": means})
    samples = TrainingSet(800, lambda learned: described)
    rows = means[y] + 0.4 * rng.normal(size=(len(y), 16)).astype(np.float32)
    samples.add(y.tolist(), {"pooled": rows}, given=True, texts=[f"text {i}" for i in range(len(y))])
    return samples


def peak_of(action):
    """Bytes that an action holds at once, and what it returns; NumPy reports its arrays to tracemalloc."""
    tracemalloc.start()
    try:
        returned = action()
        return tracemalloc.get_traced_memory()[1], returned
    finally:
        tracemalloc.stop()


def test_a_fit_holds_no_matrix_of_samples_by_classes(many):
    _views_of(many, RECIPE, 0)  # the first also imports what fits need, which takes memory of its own
    peak, (fitted, _) = peak_of(lambda: _views_of(many, RECIPE, 0))
    assert peak < 4 * len(many) * 800 / 2  # half of one such matrix
    assert len(fitted.held_out.class_index) == 40_000 // 800
    assert fitted.held_out.estimate().accuracy > 0.8


@pytest.mark.parametrize("kind", [JointModel, StackedModel])
def test_rounds_hold_no_matrix_of_samples_by_classes_and_scores_stay_exact(kind, many, monkeypatch):
    if kind is JointModel:
        model = JointModel(many, RECIPE, seed=0, rounds=3)
    else:
        model = StackedModel(many, RECIPE, *_views_of(many, RECIPE, 0))
    whole = 4 * len(many) * 800
    training, losses = peak_of(lambda: [model.epoch(round_).loss for round_ in range(1, 4)])
    scoring, shift = peak_of(lambda: model.shift(5))
    assert losses[-1] < losses[0] or kind is StackedModel  # which has nothing to train
    assert training < whole / 4
    assert scoring < whole / 4
    for module in (gradient_shift, linear_shift):
        monkeypatch.setattr(module, "MOST_RESIDUALS", 10**9)
    held = model.shift(5)
    np.testing.assert_allclose(shift.lower, held.lower, rtol=1e-4)
    some, nothing = np.array([0, 400, 799]), np.full(3, np.inf)
    np.testing.assert_allclose(shift.refine(some, nothing)[0], held.refine(some, nothing)[0], rtol=1e-4)
