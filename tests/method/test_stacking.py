"""Weights of heads by what they say of samples they have not seen, and what that says of accuracy."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax

from adamab.method.stacking import FOLDS, HeldOut, honest_logits, stack_weights, stratified_folds, wilson


def cross_entropy(logits, y):
    return -log_softmax(logits, axis=1)[np.arange(len(y)), y].mean()


def informative(y, n_classes, strength, seed=0):
    noise = np.random.default_rng(seed).standard_normal((len(y), n_classes))
    return (strength * np.eye(n_classes)[y] + noise).astype(np.float32)


def held_out_of(logits, y):
    return HeldOut(logits, y, np.arange(len(y)), logits)


def test_folds_hold_every_sample_out_once_and_never_the_only_one_of_a_class():
    y = np.array([0] * 7 + [1] * 5 + [2])
    folds = stratified_folds(y, np.arange(len(y)), 5, np.random.default_rng(0))
    assert folds[-1] == -1
    assert (folds[:-1] >= 0).all()
    for c, count in ((0, 7), (1, 5)):
        sizes = np.bincount(folds[y == c], minlength=5)
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("n", [30, 2000])
def test_the_head_that_knows_counts_more_than_before_and_noise_less(n):
    y, prior = np.arange(n) % 4, np.array([0.5, 0.5, 0.5])
    heads = np.stack([informative(y, 4, 3), informative(y, 4, 0, 1), -informative(y, 4, 3, 2)])
    good, noise, wrong = stack_weights(heads, y, prior, 1.0)
    assert good > 0.5
    assert noise < 0.35
    assert wrong == 0


@pytest.mark.parametrize("ridge", [0.1, 1.0, 100.0])
def test_weights_are_the_minimum_of_their_objective(ridge):
    """No slope where a weight is free, and only an upward one where it is held at zero."""
    y, prior = np.arange(60) % 3, np.array([0.3, 1.0, 2.0])
    heads = np.stack([informative(y, 3, 1), informative(y, 3, 0, 1), -informative(y, 3, 1, 2)]).astype(
        np.float64
    )
    target = (1 - 1 / 62) * np.eye(3)[y] + 1 / 62 / 3

    def objective(weights):
        losses = -(target * log_softmax(np.tensordot(weights, heads, 1), axis=1)).sum()
        return losses + ridge * np.square(weights / prior - 1).sum()

    weights = stack_weights(heads, y, prior, ridge)
    slopes = approx_fprime(weights, objective, 1e-6)
    assert (weights >= 0).all()
    assert np.abs(slopes[weights > 0]).max() < 0.05
    assert (slopes[weights == 0] > 0).all()
    assert (weights == 0).sum() == (ridge < 100)


def test_a_strong_ridge_keeps_the_weights_and_so_does_a_lack_of_samples():
    y, prior = np.arange(30) % 3, np.array([0.3, 2.0])
    heads = np.stack([informative(y, 3, 3), informative(y, 3, 0, 1)])
    np.testing.assert_allclose(stack_weights(heads, y, prior, 1e6), prior, rtol=1e-3)
    np.testing.assert_array_equal(stack_weights(heads[:, :0], y[:0], prior, 1.0), prior)


@pytest.mark.parametrize("n", [12, 60, 600])
def test_a_perfect_record_is_not_certainty(n):
    y = np.arange(n) % 3
    (weight,) = stack_weights(50 * np.eye(3, dtype=np.float32)[y][None], y, np.ones(1), 1e-6)
    lacking = 2 / (np.exp(50 * weight) + 2)
    assert lacking == pytest.approx(2 / 3 / (n + 2), rel=0.05)


def test_every_sample_is_judged_by_weights_that_others_chose():
    y, prior = np.append(np.arange(60) % 3, 3), np.array([1.0, 1.0])
    heads = np.stack([informative(y, 4, 2), informative(y, 4, 1, 1)])
    joint = honest_logits(heads, y, np.arange(len(y)), prior, 1.0, seed=4)
    folds = stratified_folds(y, np.arange(len(y)), FOLDS, np.random.default_rng(4))
    assert sorted(set(folds)) == [-1, *range(FOLDS)]  # -1: the only sample of a class
    for fold in set(folds):
        own = folds == fold
        weights = stack_weights(heads[:, ~own], y[~own], prior, 1.0)
        np.testing.assert_allclose(joint[own], np.tensordot(weights, heads[:, own], 1), rtol=1e-6)
    # Heads that are right on one fold alone: whoever looked at that fold would pick the right one.
    right = np.stack([np.where((folds == fold)[:, None], 9, -9) * np.eye(4)[y] for fold in range(FOLDS)])
    joint = honest_logits(right.astype(np.float32), y, np.arange(len(y)), np.ones(FOLDS), 1e-3, seed=4)
    assert held_out_of(joint, y).estimate().accuracy < 0.4


def test_an_estimate_is_the_share_that_is_right_with_its_interval():
    y = np.arange(60) % 3
    logits = np.eye(3, dtype=np.float32)[np.where(np.arange(60) < 45, y, (y + 1) % 3)]
    estimate = held_out_of(logits, y).estimate()
    assert (estimate.accuracy, estimate.n) == (pytest.approx(0.75), 60)
    # Wilson's interval of half as many trials: held-out answers depend on each other.
    assert (estimate.low, estimate.high) == pytest.approx(wilson(0.75, 30))


def test_an_estimate_weighs_classes_alike():
    y = np.repeat([0, 1, 3], [10, 40, 50])
    hits = np.concatenate([np.zeros(10), np.ones(40), np.arange(50) % 2]).astype(bool)
    estimate = held_out_of(np.eye(4)[np.where(hits, y, 2)], y).estimate()
    assert (estimate.accuracy, estimate.n) == (pytest.approx(0.5), 100)
    # As wide as that of the mean of three shares of 10, 40 and 50 trials.
    assert (estimate.low, estimate.high) == pytest.approx(wilson(0.5, 9 / (1 / 10 + 1 / 40 + 1 / 50) / 2))


def test_two_that_share_some_samples():
    y = np.array([0, 1, 2, 0])
    first = HeldOut(np.arange(8).reshape(4, 2), y, np.array([7, 2, 5, 1]), np.eye(4, 2))
    second = HeldOut(np.arange(6).reshape(3, 2), y[:3], np.array([5, 3, 7]), np.eye(3, 2))
    one, other = first.shared_with(second)
    np.testing.assert_array_equal(one.position, other.position)
    assert one.position.tolist() == [5, 7]
    assert (one.logits.tolist(), one.class_index.tolist()) == ([[4, 5], [0, 1]], [2, 0])
    assert (other.logits.tolist(), other.class_index.tolist()) == ([[0, 1], [4, 5]], [0, 2])
    assert (one.foretold.tolist(), other.foretold.tolist()) == ([[0, 0], [1, 0]], [[1, 0], [0, 0]])


def test_the_scale_of_held_out_logits_minimises_their_loss():
    y = np.arange(3000) % 4
    held_out = held_out_of(informative(y, 4, 3), y)
    losses = {scale: cross_entropy(scale * held_out.logits, y) for scale in np.linspace(1, 5, 81)}
    assert held_out.scale() == pytest.approx(min(losses, key=losses.get), rel=0.03)  # 3, less the doubt
    assert held_out_of(10 * held_out.logits, y).scale() == pytest.approx(held_out.scale() / 10, rel=0.01)
    assert held_out_of(0 * held_out.logits, y).scale() == 1


def test_difficulty_is_what_held_out_samples_miss_drawn_to_the_mean():
    y = np.array([0, 0, 1, 1, 2])
    probability = np.array([[0.9, 0.1, 0], [0.7, 0.3, 0], [0.6, 0.4, 0], [0.8, 0.2, 0], [0.4, 0.0, 0.6]])
    logits = np.log(np.maximum(probability, 1e-12)).astype(np.float32)
    missed = np.array([0.1 + 0.3, 0.6 + 0.8, 0.4, 0])
    expected = (missed / 0.44 + 4) / (np.array([2, 2, 1, 0]) + 4)
    with_another = np.concatenate([logits, np.full((5, 1), -50, np.float32)], axis=1)  # without samples
    np.testing.assert_allclose(held_out_of(with_another, y).target_share(4) ** 2, expected, rtol=1e-4)
    perfect = held_out_of(100 * np.eye(3, dtype=np.float32)[y], y)
    np.testing.assert_array_equal(perfect.target_share(4), np.ones(3))


def test_rivals_are_the_classes_that_a_class_is_mistaken_for_either_way_round():
    sure = np.log(np.array([[0.9, 0.08, 0.01, 0.01], [0.01, 0.01, 0.01, 0.97], [0.02, 0.02, 0.95, 0.01]]))
    mistaken = np.log(np.array([[0.05, 0.9, 0.04, 0.01]]))  # a sample of class 2 that looks like class 1
    logits = np.concatenate([sure, mistaken]).astype(np.float32)
    rivals = held_out_of(logits, np.array([0, 3, 2, 2])).rivals(0.05)
    assert rivals[1] == 2
    assert rivals[2] == 1
    alone = held_out_of(50 * np.eye(4, dtype=np.float32)[[0, 0, 0]], np.array([0, 0, 0]))
    assert alone.rivals(0.05) == [None] * 4
