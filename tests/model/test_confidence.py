"""What held-out samples allow to say: ranks, thinning, and values that a file may not hold."""

import math
from fractions import Fraction

import numpy as np
import pytest

from adamab.model import Confidence
from adamab.model import confidence as module
from adamab.model.confidence import confidence_of, softmax, strangeness, surprise

RNG = np.random.default_rng(0)


def confidence(scores, **options):
    ranked = tuple(sorted(scores))
    return Confidence(seen=(1.0, 1.0), n=len(scores), strangeness=ranked, surprise=ranked, **options)


@pytest.mark.parametrize("n", [1, 9, 10, 19, 20, 99, 100])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.95, 0.99])
def test_the_threshold_is_the_finite_sample_quantile(n, share):
    rank = math.ceil((n + 1) * Fraction(str(share)))
    expected = math.inf if rank > n else float(max(rank, 1))
    held_out = confidence([float(i) for i in range(1, n + 1)])
    assert held_out.threshold("surprise", share) == expected
    assert held_out.threshold("strangeness", share) == expected


def test_thinned_scores_never_promise_too_much(monkeypatch):
    monkeypatch.setattr(module, "MOST", 7)
    for n in (7, 8, 20, 101):
        logits = RNG.standard_normal((n, 3))
        truth = np.arange(n) % 3
        thin = confidence_of(logits, truth, np.ones(3), 1.0, prior_exponent=1.0)
        assert (thin.n, len(thin.surprise), len(thin.strangeness)) == (n, 7, 7)
        scores = np.sort(surprise(logits)[np.arange(n), truth])
        for share in (0.05, 0.3, 0.5, 0.8, n / (n + 1)):
            exact = scores[max(math.ceil((n + 1) * share - 1e-9), 1) - 1]
            assert exact <= thin.threshold("surprise", share) <= scores[-1]
        assert thin.threshold("surprise", n / (n + 1)) == scores[-1]


def test_scores_by_hand_and_without_a_common_number():
    logits = RNG.standard_normal((6, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(surprise(logits), -np.log(p))
    np.testing.assert_allclose(strangeness(logits), np.log(p).mean(axis=1))
    np.testing.assert_allclose(strangeness(logits + 7.0), strangeness(logits))
    np.testing.assert_allclose(softmax(logits.astype(np.float32)), p, rtol=1e-5)
    assert strangeness(np.zeros((1, 4)))[0] > strangeness(np.array([[9.0, 0, 0, 0]]))[0]
    assert np.isfinite(surprise(np.array([[1e30, -1e30]]))).all()


def test_held_out_logits_are_taken_as_prediction_makes_them():
    logits, truth = RNG.standard_normal((5, 3)).astype(np.float32), np.array([0, 1, 2, 0, 1])
    made = confidence_of(logits, truth, np.array([2.0, 0.0, 1.5]), 4.0, prior_exponent=1.0)
    assert (made.temperature, made.seen, made.n) == (0.25, (2.0, 1.0, 1.5), 5)
    expected = np.sort(surprise(4 * logits.astype(np.float64))[np.arange(5), truth])
    np.testing.assert_allclose(made.surprise, expected)
    steep = confidence_of(logits, truth, np.ones(3), 4.0, final=2 * logits, prior_exponent=1.0)
    assert steep.surprise == made.surprise
    np.testing.assert_allclose(steep.strangeness, np.sort(strangeness(8 * logits.astype(np.float64))))
    nothing = confidence_of(logits[:0], truth[:0], np.ones(3), 1.0, prior_exponent=1.0)
    assert (nothing.n, nothing.surprise, nothing.threshold("surprise", 0.5)) == (0, (), math.inf)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seen": ()}, "not a list of numbers"),
        ({"seen": (1.0, math.nan)}, "above 0"),
        ({"seen": (1.0, True)}, "above 0"),
        ({"temperature": math.inf}, "the temperature"),
        ({"temperature": "1"}, "the temperature"),
        ({"n": -1}, "not a count"),
        ({"n": True}, "not a count"),
        ({"n": 10**12}, "not a list of 1000"),
        ({"surprise": (1.0,)}, "'surprise' is not a list of 2"),
        ({"surprise": (2.0, 1.0)}, "rising order"),
        ({"strangeness": (0.0, math.inf)}, "'strangeness' holds"),
        ({"strangeness": (0.0, None)}, "'strangeness' holds"),
        ({"prior_exponent": 1.5}, "'prior_exponent' is not a number from 0 to 1"),
        ({"prior_exponent": math.nan}, "'prior_exponent' is not a number from 0 to 1"),
        ({"prior_exponent": 1}, "'prior_exponent' is not a number from 0 to 1"),
    ],
)
def test_what_it_may_not_hold(change, message):
    right = {"seen": (1.0, 1.0), "n": 2, "strangeness": (0.0, 1.0), "surprise": (0.0, 1.0)}
    Confidence(**right)
    with pytest.raises(ValueError, match=message):
        Confidence(**{**right, **change})


@pytest.mark.parametrize(
    ("prior_exponent", "shares"), [(0.0, [0.5, 0.5]), (0.5, [2 / 3, 1 / 3]), (1.0, [0.8, 0.2])]
)
def test_shares_that_the_logits_assume(prior_exponent, shares):
    np.testing.assert_allclose(Confidence(seen=(8.0, 2.0), prior_exponent=prior_exponent).assumed(), shares)
