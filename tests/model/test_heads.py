"""A head's logits against its formula, dense and sparse."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from adamab.model import Head, heads
from tests.model.make_fixtures import head as random_head

ACTIVATIONS = {
    "relu": lambda a: np.maximum(a, 0),
    "gelu": lambda a: 0.5 * a * (1 + np.vectorize(math.erf, otypes=[float])(a / math.sqrt(2))),
    "silu": lambda a: a / (1 + np.exp(-a)),
    "tanh": np.tanh,
}


def formula(head, x):
    z = x.astype(np.float64)
    if head.centre is not None:
        z = z - head.centre
    if head.normalise:
        z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    q = z if head.basis is None else z @ head.basis
    logits = q @ head.linear.T.astype(np.float64)
    if head.bias is not None:
        logits += head.bias
    a = q
    for layer in head.tower:
        a = ACTIVATIONS[head.activation](a @ layer.T)
    return logits if head.hidden is None else logits + a @ head.hidden.T


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "rows": st.integers(0, 6),
        "width": st.integers(1, 8),
        "classes": st.integers(1, 5),
        "rank": st.none() | st.integers(1, 4),
        "layers": st.lists(st.integers(1, 4), max_size=3),
        "activation": st.sampled_from(sorted(ACTIVATIONS)),
        "centre": st.booleans(),
        "normalise": st.booleans(),
        "bias": st.booleans(),
    }
)


@settings(deadline=None)  # a machine under load takes its time
@given(CASES)
def test_logits_are_the_formula_dense_and_sparse(case):
    rng = np.random.default_rng(case.pop("seed"))
    rows, width = case.pop("rows"), case["width"]
    head = random_head(rng, view="words", **case)
    x = rng.standard_normal((rows, width)) * (rng.random((rows, width)) < 0.4)
    x = x.astype(np.float32)
    before = x.copy()
    expected = formula(head, x)
    dense = head.logits(x)
    assert dense.dtype == np.float32
    np.testing.assert_allclose(dense, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(head.logits(csr_matrix(x)), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(x, before)


def test_sparse_rows_are_made_dense_in_pieces(make_head, monkeypatch):
    head = make_head(width=6, centre=True)
    x = np.random.default_rng(3).standard_normal((7, 6)).astype(np.float32)
    monkeypatch.setattr(heads, "_DENSE_CELLS", 12)
    np.testing.assert_allclose(head.logits(csr_matrix(x)), formula(head, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", [np.asarray, csr_matrix])
def test_a_row_at_the_centre_has_no_direction(make_head, wrap):
    head = make_head(centre=True, normalise=True, rank=3)
    assert head.centre is not None
    np.testing.assert_allclose(head.logits(wrap(head.centre[None, :])), 0, atol=1e-5)


F = np.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"view": ""}, "view is empty"),
        ({"view": 3}, "view is of type int"),
        ({"view": "\ud800"}, "half a character"),
        ({"normalise": 1}, "neither true nor false"),
        ({"activation": "sin"}, "activation 'sin' is unknown"),
        ({"hidden": None}, "go together"),
        ({"linear": [[1.0]]}, "not an array of float32"),
        ({"linear": np.ones((3, 7))}, "not an array of float32"),
        ({"linear": np.ones(7, F)}, "shape"),
        ({"linear": np.full((3, 7), np.nan, F)}, "not finite"),
        ({"linear": np.ones((2, 7), F)}, "number of classes"),
        ({"centre": np.ones(6, F)}, "centre is 6 wide where 7"),
        ({"basis": np.ones((9, 6), F)}, "linear is 7 wide where 6"),
        ({"tower": (np.ones((4, 6), F),)}, "tower.0 is 6 wide where 7"),
        ({"hidden": np.ones((3, 5), F)}, "hidden is 5 wide where 4"),
        ({"bias": np.ones(2, F)}, "linear and bias differ"),
    ],
)
def test_what_does_not_fit_is_refused(make_head, change, message):
    good = vars(make_head(layers=(4,), centre=True))
    with pytest.raises(ValueError, match=message) as caught:
        Head(**{**good, **change})
    assert "\n" not in str(caught.value)
