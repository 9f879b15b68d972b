import numpy as np
import pytest
import scipy.sparse as sp

from adamab.method.numerics import random_stream
from adamab.method.views import (
    View,
    class_inputs,
    class_means,
    learned_span,
    originals_of,
    prepare,
    spread,
)
from adamab.task.recipe import Recipe

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 40)).astype(np.float32) + 3
DESCRIBED = RNG.standard_normal((3, 40)).astype(np.float32)


def in_its_span(x, described, width=20):
    view = View("pooled", x, described)
    return prepare(view, Recipe(), learned_span(view, Recipe(), width))


def units(rows):
    centred = rows - rows.mean(axis=0)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def test_rows_keep_their_geometry_in_the_span():
    prepared = in_its_span(X, DESCRIBED)
    together = np.concatenate([prepared.queries, prepared.described])
    expected = np.concatenate([units(X), units(DESCRIBED)])  # descriptions have a centre of their own
    assert together.shape[1] <= 15
    np.testing.assert_allclose(together @ together.T, expected @ expected.T, atol=1e-5)


def test_a_narrower_span_keeps_the_strongest_directions():
    prepared = in_its_span(X, None, width=4)
    assert prepared.described is None
    strongest = np.linalg.svd(units(X), compute_uv=False)[:4] ** 2
    np.testing.assert_allclose(np.square(prepared.queries).sum(axis=0), strongest, rtol=1e-4)


def test_sparse_rows_give_what_dense_rows_give():
    dense = np.where(RNG.random((12, 40)) < 0.2, X, 0).astype(np.float32)
    a, b = in_its_span(dense, DESCRIBED), in_its_span(sp.csr_matrix(dense), sp.csr_matrix(DESCRIBED))
    np.testing.assert_allclose(a.queries @ a.described.T, b.queries @ b.described.T, atol=1e-5)
    new = np.where(RNG.random((5, 40)) < 0.2, 1, 0).astype(np.float32)
    scores_a, scores_b = a.transform(new) @ a.described.T, b.transform(sp.csr_matrix(new)) @ b.described.T
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


def test_class_means_are_weighted_and_zero_where_there_is_nothing():
    rows, weight = np.array([[1, 0], [4, 3], [7, 7]], np.float32), np.array([1, 0.5, 0])
    means = class_means(rows, np.array([0, 0, 2]), weight, 3)
    np.testing.assert_allclose(means, [[2, 1], [0, 0], [0, 0]])


def test_rows_that_are_all_alike_span_nothing():
    basis = learned_span(View("pooled", np.ones((3, 10), np.float32)), Recipe(), 4)
    assert basis.shape == (10, 1)
    assert not basis.any()


def drawn(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def originals(vectors, group=None):
    group = np.zeros(len(vectors), np.int64) if group is None else np.asarray(group)
    return originals_of(vectors, group, 1e-3 * spread(vectors))


@pytest.mark.parametrize(("n", "noise"), [(3000, 0), (50, 1e-5)])  # more than a block; a service's answers
@pytest.mark.parametrize("offset", [0, 1000])
def test_copies_have_one_original(n, noise, offset):
    once = drawn(n, 8)
    vectors = np.concatenate([once, once + noise * drawn(n, 8, 1)]) + np.float32(offset)
    copied_from = originals(vectors)
    np.testing.assert_array_equal(copied_from[:n], copied_from[n:])
    assert len(np.unique(copied_from)) == n
    np.testing.assert_array_equal(copied_from[copied_from], copied_from)


@pytest.mark.parametrize("factor", [1e4, 1e6])
def test_a_sample_far_away_does_not_make_the_others_copies(factor):
    vectors = drawn(60, 32)
    vectors[0] *= factor
    np.testing.assert_array_equal(originals(vectors), np.arange(60))


def test_another_group_has_no_copies_of_this_one():
    copied_from = originals(np.repeat(drawn(1, 5), 4, axis=0), [0, 2, 1, 1])
    assert len({copied_from[0], copied_from[1], copied_from[2]}) == 3
    assert copied_from[2] == copied_from[3]


def test_a_crowd_of_neighbours_is_not_one_sample():
    line = np.linspace(0, 1, 20_001, dtype=np.float32)[:, None]
    assert len(np.unique(originals(line))) > 1000


def test_streams_of_neighbouring_seeds_and_rounds_differ():
    first = {tuple(random_stream(*seed).integers(1000, size=5)) for seed in np.ndindex(4, 3, 4)}
    assert len(first) == 4 * 3 * 4
    assert random_stream(1, 2).random() == random_stream(1, 2).random()
