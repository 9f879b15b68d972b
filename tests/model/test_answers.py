"""Priors, unknown inputs and prediction sets of a classifier."""

import math
from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import TaskError
from adamab.model import UNKNOWN, Classifier, Confidence, Head, PredictOptions, classifier
from adamab.model.confidence import confidence_of, strangeness, surprise

RNG = np.random.default_rng(3)
HELD_OUT, TRUTH = 3 * RNG.standard_normal((99, 4)).astype(np.float32), RNG.integers(0, 4, 99)
X = (3 * RNG.standard_normal((50, 4))).astype(np.float32)


@pytest.fixture
def model():
    """Its logits are its input."""
    return Classifier(
        classes=("a", "b", "c", "d"),
        heads=(Head(view="pooled", linear=np.eye(4, dtype=np.float32)),),
        confidence=confidence_of(HELD_OUT, TRUTH, np.array([4.0, 2.0, 1.0, 1.0]), 1.0, prior_exponent=1.0),
    )


def without(model, confidence=None):
    return replace(model, confidence=confidence)


def expected_under(priors):
    weights = np.exp(X) * np.array(priors) / (np.array([4, 2, 1, 1]) / 8)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("priors", "all_of_them"),
    [
        ({"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}, [0.1, 0.2, 0.3, 0.4]),
        ({"a": 0.1}, [0.1, 0.45, 0.225, 0.225]),  # the others as 2 : 1 : 1
        ({"d": 0.5, "c": 0}, [1 / 3, 1 / 6, 0, 0.5]),
        ({}, [0.5, 0.25, 0.125, 0.125]),
        ({"a": 0.3333333, "b": 0.3333333, "c": 0.3333333, "d": 0}, [1 / 3, 1 / 3, 1 / 3, 0]),
    ],
)
def test_priors_by_bayes_rule(model, priors, all_of_them):
    answered = model.predict_proba({"pooled": X}, priors=priors)
    np.testing.assert_allclose(answered, expected_under(all_of_them), rtol=1e-4, atol=1e-6)
    best = [model.classes[i] for i in expected_under(all_of_them).argmax(axis=1)]
    assert model.predict({"pooled": X}, priors=priors) == best


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"e": 0.1}, "'e', which is no class; known: a, b, c, d"),
        ({"a": -0.1}, "'a' is -0.1; give a share from 0 to 1"),
        ({"a": 1.0000001}, "'a' is 1.0000001; give a share from 0 to 1"),
        ({"a": 10**400}, "…'; give a share from 0 to 1"),
        ({"a": "much"}, "from 0 to 1"),
        ({"a": True}, "'a' is 'True'; give a share from 0 to 1"),
        ({"a": 0.7, "b": 0.7}, "sum to 1.4"),
        ({"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1}, "sum to 0.4"),
    ],
)
def test_priors_that_cannot_be(model, priors, message):
    for call in (model.predict_proba, model.predict):
        with pytest.raises(TaskError, match=message) as caught:
            call({"pooled": X}, priors=priors)
        assert "\n" not in str(caught.value)


def test_unknown_are_those_that_are_stranger_than_the_held_out(model):
    plain, answered = model.predict({"pooled": X}), model.predict({"pooled": X}, unknown=0.8)
    threshold = np.sort(strangeness(HELD_OUT.astype(np.float64)))[79]
    odd = strangeness(X) > threshold
    assert 0 < odd.sum() < len(X)
    assert answered == [UNKNOWN if o else name for name, o in zip(plain, odd, strict=True)]
    assert model.predict({"pooled": np.zeros((1, 4))}, unknown=0.8) == [UNKNOWN]
    with pytest.warns(UserWarning, match=r"^the 99 held-out samples cannot vouch for a share of 0\.995"):
        assert UNKNOWN not in model.predict({"pooled": np.zeros((1, 4))}, unknown=0.995)


def test_sets_hold_all_classes_that_are_no_more_surprising(model):
    threshold = np.sort(surprise(HELD_OUT.astype(np.float64))[np.arange(99), TRUTH])[49]
    for row, names in zip(X, model.predict_sets({"pooled": X}, coverage=0.5), strict=True):
        order = np.argsort(-row, kind="stable")
        size = max(int((surprise(row[None])[0] <= threshold).sum()), 1)
        assert names == tuple(model.classes[i] for i in order[:size])


def test_everything_in_one_pass_and_in_pieces(model, monkeypatch):
    options = PredictOptions(k=2, unknown=0.8, coverage=0.9)
    whole = model.answers({"pooled": X}, None, options)
    monkeypatch.setattr(classifier, "_CHUNK", 7)
    pieces = model.answers({"pooled": X}, None, options)
    np.testing.assert_array_equal(whole.indices, pieces.indices)
    np.testing.assert_array_equal(whole.probabilities, pieces.probabilities)
    np.testing.assert_array_equal(whole.unknown, pieces.unknown)
    assert whole.sets == pieces.sets
    none = model.answers({"pooled": X[:0]}, None, options)
    assert (none.indices.shape, len(none.unknown), none.sets) == ((0, 2), 0, [])
    plain = model.answers({"pooled": X}, None, PredictOptions())
    assert (plain.unknown, plain.sets) == (None, None)


@pytest.mark.parametrize("share", [0, 1, -1, 2, math.nan])
def test_shares_out_of_range(model, share):
    with pytest.raises(TaskError, match=r"unknown is .*; give a share between 0 and 1"):
        model.predict({"pooled": X}, unknown=share)
    with pytest.raises(TaskError, match=r"coverage is .*; give a share between 0 and 1"):
        model.predict_sets({"pooled": X}, coverage=share)


def test_what_a_model_without_held_out_samples_cannot_tell(model):
    one_each = without(model, Confidence(seen=(1.0,) * 4))
    for blind in (one_each, without(model)):
        with pytest.raises(TaskError, match="fit with two or more examples per class"):
            blind.predict({"pooled": X}, unknown=0.9)
        with pytest.raises(TaskError, match="fit with two or more examples per class"):
            blind.predict_sets({"pooled": X})
    assert one_each.predict_proba({"pooled": X}, priors={"a": 0.5}).shape == (50, 4)
    with pytest.raises(TaskError, match="fit again to state priors"):
        without(model).predict_proba({"pooled": X}, priors={"a": 0.5})


def test_sets_and_priors_do_not_go_together():
    with pytest.raises(TaskError, match="leave the priors out"):
        PredictOptions(coverage=0.9, priors={"a": 0.5})


def test_a_class_called_unknown_is_refused(model):
    odd = replace(model, classes=("a", "b", "c", UNKNOWN))
    assert UNKNOWN in odd.predict({"pooled": X})
    with pytest.raises(TaskError, match="a class 'unknown' of its own"):
        odd.predict({"pooled": X}, unknown=0.9)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [2, 5, 200])
def test_the_best_of_many_classes_are_those_of_a_whole_sort(k, ties):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 8)).astype(np.float32)
    head = Head(view="pooled", linear=np.round(rows) if ties else rows)
    many = Classifier(classes=tuple(f"c{i}" for i in range(1000)), heads=(head,))
    queries = {"pooled": np.round(rng.normal(size=(20, 8))).astype(np.float32)}
    indices, probabilities = many.top_k(queries, k)
    shares = many.predict_proba(queries)
    np.testing.assert_array_equal(indices, np.argsort(-shares, axis=1, kind="stable")[:, :k])
    np.testing.assert_array_equal(probabilities, np.take_along_axis(shares, indices, axis=1))
