import numpy as np
import pytest
import scipy.sparse as sp

from adamab.method.views import (
    class_inputs,
    isometric,
    learned_span,
    prepare,
)
from adamab.task.recipe import Recipe

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 40)).astype(np.float32) + 3
DESCRIBED = RNG.standard_normal((3, 40)).astype(np.float32)
Y = np.arange(12) % 3
ALL = np.ones(12, dtype=bool)


def in_its_span(x, described, y, learned_from, recipe):
    basis = learned_span(x, described, learned_from, recipe, recipe.max_width)
    return prepare(x, described, y, learned_from, 3, recipe, basis)


def test_centre_and_length_are_learned_from_the_chosen_rows_only():
    some = ALL.copy()
    some[6:] = False
    changed = X.copy()
    changed[6:] *= 7
    first = prepare(X, DESCRIBED, Y, some, 3, Recipe())
    second = prepare(changed, DESCRIBED, Y, some, 3, Recipe())
    np.testing.assert_array_equal(first.transform.centre, second.transform.centre)
    np.testing.assert_array_equal(first.queries[:6], second.queries[:6])
    np.testing.assert_array_equal(first.classes, second.classes)
    np.testing.assert_allclose(first.transform.centre, X[:6].mean(axis=0), rtol=1e-6)


def test_training_rows_keep_their_geometry_in_the_span():
    prepared = in_its_span(X, DESCRIBED, Y, ALL, Recipe(max_width=20))
    centred = X - X.mean(axis=0)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    assert prepared.queries.shape[1] <= 15
    np.testing.assert_allclose(prepared.queries @ prepared.queries.T, units @ units.T, atol=1e-5)


def test_sparse_rows_give_what_dense_rows_give():
    dense = np.where(RNG.random((12, 40)) < 0.2, X, 0).astype(np.float32)
    recipe = Recipe(max_width=20)
    a = in_its_span(dense, DESCRIBED, Y, ALL, recipe)
    b = in_its_span(sp.csr_matrix(dense), sp.csr_matrix(DESCRIBED), Y, ALL, recipe)
    np.testing.assert_allclose(a.queries @ a.classes.T, b.queries @ b.classes.T, atol=1e-5)
    new = np.where(RNG.random((5, 40)) < 0.2, 1, 0).astype(np.float32)
    scores_a, scores_b = a.transform(new) @ a.classes.T, b.transform(sp.csr_matrix(new)) @ b.classes.T
    np.testing.assert_allclose(scores_a, scores_b, atol=1e-5)


@pytest.mark.parametrize("kind", ["description", "mean", "both"])
def test_class_inputs(kind):
    means = np.array([[2, 0], [0, 0]], np.float32)
    described = np.array([[0, 1], [1, 0]], np.float32)
    expected = {
        "description": [[0, 1], [1, 0]],
        "mean": [[1, 0], [0, 0]],
        "both": [[0.5**0.5, 0.5**0.5], [1, 0]],
    }
    np.testing.assert_allclose(class_inputs(means, described, kind), expected[kind], rtol=1e-6)


def test_isometric_coordinates_keep_every_inner_product():
    rotated, described = isometric(X, DESCRIBED)
    together, before = np.concatenate([rotated, described]), np.concatenate([X, DESCRIBED])
    assert rotated.shape[1] <= 15
    np.testing.assert_allclose(together @ together.T, before @ before.T, rtol=1e-4, atol=1e-3)


def test_rows_that_are_all_alike_span_nothing():
    basis = learned_span(np.ones((3, 10), np.float32), None, ALL[:3], Recipe(), 4)
    assert basis.shape == (10, 1)
    assert not basis.any()
