from dataclasses import replace

import numpy as np
import pytest

from adamab.method.stacking import (
    Component,
    EvaluationSet,
    HeldOut,
    choose_shares,
    honest_logits,
    stack_weights,
    stratified_folds,
)
from adamab.task.recipe import Recipe
from tests.method.fitting import fit_on, view_of

RNG = np.random.default_rng(1)
FAST = Recipe(checkpoints=(0, 5, 20))


def cross_entropy(logits, y):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return (np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]).mean()


def informative(y, n_classes, strength, rng=RNG):
    return (strength * np.eye(n_classes)[y] + rng.standard_normal((len(y), n_classes))).astype(np.float32)


def given(y, weight=None):
    return EvaluationSet(y, np.ones(len(y), np.float32) if weight is None else weight)


def ridge(strength):
    return Recipe(weight_ridge=strength, prior_evidence=0)


def held_out_of(logits, y):
    return HeldOut(logits, y, np.arange(len(y)))


def test_folds_hold_every_sample_out_once_and_never_the_only_one_of_a_class():
    y = np.array([0] * 7 + [1] * 5 + [2])
    folds = stratified_folds(y, 5, np.random.default_rng(0))
    assert folds[-1] == -1
    assert (folds[:-1] >= 0).all()
    for c, count in ((0, 7), (1, 5)):
        sizes = np.bincount(folds[y == c], minlength=5)
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1


def test_stacking_finds_the_view_that_knows_and_silences_noise():
    y = np.arange(2000) % 4
    logits = np.stack([informative(y, 4, 3), informative(y, 4, 0)])
    weights = stack_weights(logits, given(y), weight_ridge=0.0)
    assert weights[0] > 0.5
    assert weights[1] < 0.2
    best = min(
        cross_entropy(a * logits[0] + b * logits[1], y)
        for a in np.linspace(0, 4, 41)
        for b in np.linspace(0, 1, 11)
    )
    assert cross_entropy(np.tensordot(weights, logits, 1), y) <= best + 1e-3


def test_steps_and_scale_come_from_held_out_loss():
    y = np.arange(90) % 3
    good = informative(y, 3, 1)
    component = Component(
        "pooled", "calibrator", (0, 6, 12), np.stack([good * 0, 30 * good, informative(y, 3, 0)])
    )
    (share,) = choose_shares([component], given(y), ridge(1.0))
    assert share.option == 6
    assert cross_entropy(share.weight * 30 * good, y) < cross_entropy(30 * good, y)


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_labels_are_estimated_at_chance(seed):
    rng = np.random.default_rng(seed)
    n_classes, each = 6, 15
    y = np.repeat(np.arange(n_classes), each)
    x = (3 * np.eye(n_classes)[y] + rng.standard_normal((len(y), n_classes))).astype(np.float32)
    wide = np.concatenate([x, rng.standard_normal((len(y), 300))], axis=1).astype(np.float32)
    everyone = np.ones(len(y), dtype=bool)
    views = [view_of(x), view_of(wide, name="layers")]
    honest = fit_on(views, y, everyone, n_classes, FAST, seed=seed).held_out.estimate()
    shuffled = fit_on(views, rng.permutation(y), everyone, n_classes, FAST, seed=seed).held_out.estimate()
    assert honest.accuracy > 0.6
    assert shuffled.low <= 1 / n_classes
    assert shuffled.accuracy < 1 / n_classes + 0.12
    assert honest.low < honest.accuracy < honest.high


def test_estimate_judges_each_fold_by_the_others():
    # One component is right on fold 0 only, the other on fold 1 only: whoever looks at its own fold
    # would pick the right one each time; judged by the other fold it is always wrong.
    y = np.arange(40) % 2
    folds = np.repeat([0, 1], 20)
    right, wrong = np.eye(2, dtype=np.float32)[y] * 9, np.eye(2, dtype=np.float32)[1 - y] * 9
    a = Component("a", "calibrator", (0,), np.where((folds == 0)[:, None], right, wrong)[None])
    b = Component("b", "calibrator", (0,), np.where((folds == 1)[:, None], right, wrong)[None])
    joint = honest_logits([a, b], given(y), folds, ridge(0))
    assert held_out_of(joint, y).estimate().accuracy < 0.5


def test_without_a_second_example_there_is_no_estimate():
    fitted = fit_on(
        [view_of(np.eye(4, dtype=np.float32))], np.arange(4), np.ones(4, dtype=bool), 4, FAST, seed=0
    )
    assert fitted.held_out is None
    assert [share.kind for share in fitted.shares if share.weight] == ["discriminant"]


def test_synthetic_samples_weigh_views_and_are_not_estimated():
    """One given sample a class: folds of the others find the view that knows, and estimate nothing."""
    y = np.concatenate([np.arange(3), np.arange(30) % 3])
    is_given = np.arange(33) < 3
    views = [view_of(informative(y, 3, 5)), view_of(informative(y, 3, 0), name="layers")]
    fitted = fit_on(views, y, is_given, 3, FAST, seed=0)
    assert fitted.held_out is None
    weights = fitted.weights("discriminant")
    assert weights["pooled"] > 3 * weights["layers"]
    is_given[:6] = True
    assert fit_on(views, y, is_given, 3, FAST, seed=0).held_out.estimate().n == 6


@pytest.mark.parametrize("n", [12, 60, 600])
def test_a_perfect_record_is_not_certainty(n):
    y = np.arange(n) % 3
    component = Component("pooled", "calibrator", (0,), 50 * np.eye(3, dtype=np.float32)[y][None])
    (share,) = choose_shares([component], given(y), ridge(1.0))
    logits = share.weight * component.logits[0]
    probability = np.exp(logits[:, :].max(axis=1)) / np.exp(logits).sum(axis=1)
    np.testing.assert_allclose(1 - probability, 2 / 3 / (n + 2), rtol=0.1)


def test_the_scale_of_held_out_logits_minimises_their_loss():
    y = np.arange(3000) % 4
    held_out = held_out_of(informative(y, 4, 3), y)
    losses = {scale: cross_entropy(scale * held_out.logits, y) for scale in np.linspace(1, 5, 81)}
    assert held_out.scale() == pytest.approx(min(losses, key=losses.get), rel=0.03)  # 3, less the doubt
    assert held_out_of(10 * held_out.logits, y).scale() == pytest.approx(held_out.scale() / 10, rel=0.01)


def test_honest_logits_stand_in_the_order_of_the_samples():
    y = np.arange(60) % 3
    component = Component("pooled", "calibrator", (0,), informative(y, 3, 4)[None])
    folds = np.arange(60) % 4
    joint = honest_logits([component], given(y), folds, ridge(1))
    for fold in range(4):
        (share,) = choose_shares(
            [replace(component, logits=component.logits[:, folds != fold])], given(y[folds != fold]), ridge(1)
        )
        own = share.weight * component.logits[0][folds == fold]
        np.testing.assert_allclose(joint[folds == fold], own, rtol=1e-6)


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
    held_out = HeldOut(logits, np.array([0, 3, 2, 2]), np.arange(4))
    rivals = held_out.rivals(0.05)
    assert rivals[1] == 2
    assert rivals[2] == 1
    assert rivals[3] is None or rivals[3] != 3
    alone = HeldOut(50 * np.eye(4, dtype=np.float32)[[0, 0, 0]], np.array([0, 0, 0]), np.arange(3))
    assert alone.rivals(0.05) == [None] * 4


def test_a_class_that_is_never_the_answer_is_no_argument():
    """Of two components one speaks against class 2, which has a single sample: that is no merit."""
    rng = np.random.default_rng(3)
    y = np.arange(40) % 2
    logits = rng.standard_normal((40, 3)).astype(np.float32) + 1.5 * np.eye(3, dtype=np.float32)[y]
    against = logits - 4 * np.eye(3, dtype=np.float32)[2]
    components = [Component(v, "similarity", (0,), z[None]) for v, z in (("a", logits), ("b", against))]
    judged = given(y)
    unfair = choose_shares(components, judged, ridge(0.1))
    fair = choose_shares(components, replace(judged, evaluable=np.array([True, True, False])), ridge(0.1))
    assert unfair[1].weight > 1.5 * unfair[0].weight
    assert fair[0].weight == pytest.approx(fair[1].weight, rel=1e-3)


def test_typical_weights_count_where_a_class_cannot_be_judged():
    y = np.arange(40) % 2
    logits = informative(y, 3, 4)
    components = [
        Component("a", "calibrator", (0,), logits[None], prior_scale=0.9),
        Component("a", "discriminant", (0,), logits[None]),
        Component("b", "discriminant", (0,), logits[None], prior_scale=0.3),
    ]
    some = replace(given(y), evaluable=np.array([True, True, False]))

    def weights(judged, typical):
        return [
            share.weight
            for share in choose_shares(components, judged, Recipe(weight_ridge=3.0, prior_evidence=typical))
        ]

    assert weights(given(y), 40.0) == weights(given(y), 0.0)
    by_evidence = np.array(weights(some, 0.0))
    np.testing.assert_allclose(weights(some, 40.0), by_evidence / 2 + np.array([0.45, 0, 0.15]) / 2)
    np.testing.assert_allclose(weights(some, 1e9), [0.45, 0, 0.15], atol=1e-6)


@pytest.mark.parametrize("true", [0.0, 0.4, 1.0])
def test_how_far_logits_follow_the_shares_in_training(true):
    rng, seen = np.random.default_rng(0), np.array([40.0, 10.0, 5.0, 1.0])
    counts = np.array([4000, 1000, 500, 0])  # the last class is never held out
    y = np.repeat(np.arange(4), counts)
    fair = 2 * np.eye(4)[y] + rng.standard_normal((len(y), 4))  # log-likelihoods, up to a constant
    logits = (2 * fair + true * np.log(seen)).astype(np.float32)
    exponent = HeldOut(logits / 3, y, np.arange(len(y))).prior_exponent(seen, 3.0)
    assert exponent == pytest.approx(true, abs=0.06)
