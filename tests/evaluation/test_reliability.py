import numpy as np
import pytest

from adamab.errors import TaskError
from adamab.evaluation.metrics import auroc, judge_probabilities, judge_sets, judge_unknown
from adamab.model.confidence import confidence_of, strangeness

RNG = np.random.default_rng(0)


def drawn(n, k=4, steepness=2.0):
    """Logits and classes that are drawn with their softmax as probabilities."""
    logits = (steepness * RNG.standard_normal((n, k))).astype(np.float32)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return logits, (RNG.uniform(size=(n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)


def test_figures_of_probabilities_by_hand():
    logits = np.log(np.array([[0.8, 0.2], [0.4, 0.6]], np.float32))
    figures = judge_probabilities(logits, np.array([0, 0]))
    assert figures.log_loss == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2, rel=1e-5)
    assert figures.brier == pytest.approx((2 * 0.2**2 + 2 * 0.6**2) / 2, rel=1e-5)
    assert figures.calibration_error == pytest.approx((0.2 + 0.6) / 2, rel=1e-5)
    ruled_out = judge_probabilities(np.array([[0, -np.inf]], np.float32), np.array([1]))
    assert ruled_out.log_loss == pytest.approx(34.5, abs=0.1)


def test_auroc_counts_pairs():
    known, others = RNG.integers(0, 6, 40).astype(float), RNG.integers(2, 9, 30).astype(float)
    pairs = [(o > k) + 0.5 * (o == k) for o in others for k in known]
    assert auroc(known, others) == pytest.approx(np.mean(pairs))
    assert auroc(known, known) == pytest.approx(0.5)


def test_unknown_keeps_what_is_asked_for_and_catches_what_is_flat():
    held_out, truth = drawn(1999)
    confidence = confidence_of(held_out, truth, np.ones(4), 1.0, prior_exponent=1.0)
    known, flat = drawn(5000)[0], drawn(500, steepness=0.05)[0]
    figures = judge_unknown(known, flat, confidence, 0.9)
    assert figures.kept == pytest.approx(0.9, abs=0.03)
    assert (figures.n_out_of_scope, figures.caught) == (500, 1.0)
    assert figures.auroc == pytest.approx(auroc(strangeness(known), strangeness(flat)))
    alone = judge_unknown(known, None, confidence, 0.9)
    assert (alone.kept, alone.caught, alone.auroc) == (figures.kept, None, None)


def test_sets_of_exchangeable_samples_cover():
    held_out, truth = drawn(1999)
    confidence = confidence_of(held_out, truth, np.ones(4), 1.0, prior_exponent=1.0)
    logits, classes = drawn(5000)
    before = logits.copy()
    figures = judge_sets(logits, classes, confidence, 0.9)
    np.testing.assert_array_equal(logits, before)
    assert figures.covered == pytest.approx(0.9, abs=0.03)
    assert figures.covered_by_class == pytest.approx(figures.covered, abs=0.03)
    assert 1 <= figures.mean_size < 4


def test_nothing_held_out_is_one_clear_line():
    logits, truth = drawn(5)
    with pytest.raises(TaskError, match="two or more examples per class"):
        judge_unknown(logits, None, None, 0.9)
    with pytest.raises(TaskError, match="two or more examples per class"):
        judge_sets(logits, truth, None, 0.9)
