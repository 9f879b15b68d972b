"""δ² of a linear classifier against autograd: one backward pass a class."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from adamab.method import linear_shift
from adamab.method.linear_shift import LinearShift
from adamab.run._arrays import _views_of
from adamab.run._loop_model import StackedModel
from adamab.run.samples import TrainingSet
from adamab.task.recipe import Recipe
from tests.method.reference import cross_entropies, tensor

EPSILON = {np.float32: 1e-5, np.float64: 1e-10}


def problem(counts, width, dtype=np.float64, *, seed=0, spread=1.0, weighted=True):
    """Features, rows of the classes, terms that are not trained, classes and weights of the samples."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    features = rng.standard_normal((len(y), width)).astype(dtype)
    rows = (spread * rng.standard_normal((len(counts), width))).astype(dtype)
    fixed = rng.standard_normal((len(y), len(counts))).astype(dtype)
    return features, rows, fixed, y, rng.random(len(y)) + 0.05 if weighted else np.ones(len(y))


def shift_of(features, rows, fixed, y, weight, batch=3.0):
    def logits(samples):
        return features[samples] @ rows.T + fixed[samples]

    return LinearShift(features, logits, y, n_classes=len(rows), batch=batch, sample_weight=weight)


def reference(features, rows, fixed, y, weight, batch=3.0):
    """(K,) δ² and (u‖g_C‖ + ‖h‖)², zero for classes without samples; and the mean ‖g_C‖²."""
    parameters = tensor(rows.astype(np.float64)).requires_grad_()
    logits = tensor(features.astype(np.float64)) @ parameters.T + tensor(fixed.astype(np.float64))
    losses, weights = cross_entropies(logits, y), tensor(weight)

    def gradient(of_sample):
        return torch.autograd.grad((of_sample * losses).sum(), parameters, retain_graph=True)[0]

    of_class = {c: tensor((y == c) * weight / weight[y == c].sum()) for c in np.unique(y).tolist()}
    gradients = {c: gradient(of_sample) for c, of_sample in of_class.items()}
    total = float(weight.sum())
    u = batch / (total + batch)
    h = total / (total + batch) * gradient(weights / total) - sum(gradients.values()) / len(gradients)
    delta2, size = np.zeros((2, len(rows)))
    for c, g in gradients.items():
        delta2[c], size[c] = float((u * g + h).square().sum()), float((u * g.norm() + h.norm()) ** 2)
    return delta2, size, u**2 * np.mean([float(g.square().sum()) for g in gradients.values()])


def agree(dtype, *parts):
    shift = shift_of(*parts)
    expected, size, scale = reference(*parts)
    assert (np.abs(shift.lower - expected) <= EPSILON[dtype] * size).all()
    assert shift.scale == pytest.approx(scale, rel=EPSILON[dtype])
    np.testing.assert_array_equal(shift.present, np.bincount(parts[3], minlength=len(parts[1])) > 0)
    return shift


CASES = {
    "two classes": ([5, 2], 4),
    "one sample a class": ([1] * 9, 6),
    "classes without samples": ([0, 3, 0, 1, 5, 0], 5),
    "a single class with samples": ([0, 4, 0], 5),
    "heavily unbalanced": ([1, 400, 3], 8),
    "more classes than columns": ([2, 3] * 40, 7),
    "wide": ([2, 3, 4], 300),
}


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("counts", "width"), CASES.values(), ids=CASES)
def test_cases(dtype, weighted, counts, width):
    agree(dtype, *problem(counts, width, dtype, weighted=weighted))


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("spread", [0.0, 0.1, 10.0])
def test_flat_and_saturated_softmax(dtype, spread):
    agree(dtype, *problem([4, 1, 7, 3], 6, dtype, spread=spread))


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("most", [1, 100, 1000])  # numbers: a class at a time, or several
def test_blocks_of_residuals(dtype, most, monkeypatch):
    parts = problem([3, 1, 0, 4, 2, 5, 1] * 3, 9, dtype)
    whole = shift_of(*parts)
    monkeypatch.setattr(linear_shift, "MOST_RESIDUALS", most)
    blocked = agree(dtype, *parts)
    np.testing.assert_allclose(blocked.lower, whole.lower, rtol=10 * EPSILON[dtype])


def test_all_values_are_exact():
    shift = shift_of(*problem([5, 3, 5, 5], 6, weighted=False), batch=2.0)
    values, exact = shift.refine(np.array([2, 1]), np.zeros(2))
    assert exact.all()
    np.testing.assert_array_equal(values, shift.lower[[2, 1]])


def test_the_loops_classifier_has_the_shift_of_its_discriminants():
    """Every view has its sample and a one, times the weight of its head; synthetic samples count less."""
    rng, y, recipe = np.random.default_rng(0), np.arange(20) % 3, Recipe(synthetic_weight=0.5)
    vectors = {name: (np.eye(3, 8)[y] + rng.standard_normal((20, 8))).astype(np.float32) for name in "pq"}
    samples = TrainingSet(3, lambda _: None, has_texts=False)
    for rows, given in ((slice(12), True), (slice(12, 20), False)):
        samples.add(y[rows], {name: x[rows] for name, x in vectors.items()}, given=given)
    fitted, _ = _views_of(samples, recipe, 0)
    model = StackedModel(samples, recipe, fitted, None)
    queries = [(view.weights["examples"], view.prepared.queries) for view in fitted.views]
    features = np.hstack([weight * np.hstack([q, np.ones((20, 1))]) for weight, q in queries])
    logits, weight = model.logits(vectors, []), np.where(samples.given, 1.0, 0.5)
    more = np.array([0, 7, 14])
    for shift, weighed in (
        (model.shift(4), weight),
        (model.shift(4, more), weight * (1 + more / np.bincount(y))[y]),
    ):
        expected, size, _ = reference(features, np.zeros((3, 18)), logits, y, weighed, batch=4 * 0.5)
        assert (np.abs(shift.lower - expected) <= 1e-5 * size).all()
    # Where descriptions alone count there is no bias.
    alone = tuple(replace(view, weights={"examples": 0.0, "description": 2.0}) for view in fitted.views)
    described = tuple(
        replace(view, prepared=replace(view.prepared, described=view.discriminant.vectors.astype(np.float32)))
        for view in alone
    )
    model = StackedModel(samples, recipe, replace(fitted, views=described), None)
    features = 2 * np.hstack([view.prepared.queries for view in fitted.views])
    expected, size, _ = reference(
        features, np.zeros((3, 16)), model.logits(vectors, []), y, weight, batch=4 * 0.5
    )
    assert (np.abs(model.shift(4).lower - expected) <= 1e-5 * size).all()
    # Where a calibrator alone counts, which the loop does not follow, no class has a shift.
    alone = tuple(replace(view, weights={"examples": 0.0, "calibrator": 1.0}) for view in fitted.views)
    assert not StackedModel(samples, recipe, replace(fitted, views=alone), None).shift(4).lower.any()
