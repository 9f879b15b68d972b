"""Heads and their weights: nothing that a head has seen speaks for it."""

import numpy as np
import pytest

from adamab.method import heads
from adamab.method.heads import fit_views
from adamab.method.stacking import LEAST_WEIGHT
from adamab.method.views import View
from adamab.model.heads import through
from adamab.run._arrays import heads_of_fit
from adamab.task.recipe import Recipe
from tests.method.fitting import all_given, fit_on

SEEDS = range(8)
Y = np.arange(60) % 3


def rows(y, strength, seed, width=40):
    noise = np.random.default_rng(seed).standard_normal((len(y), width))
    return (strength * np.eye(int(max(y)) + 1, width)[y] + noise).astype(np.float32)


def weights_of(fitted):
    return {(view.name, kind): weight for view in fitted.views for kind, weight in view.weights.items()}


def accuracy(labels, seed, recipe=None, times=1, apart=0.0):
    """Held-out accuracy of two views that know the classes Y, with every row so many times, or nearly."""
    x, other = (np.tile(rows(Y, 3, s), (times, 1)) for s in (seed, seed + 100))
    noise = np.random.default_rng(seed).standard_normal(x.shape).astype(np.float32)
    views = [View("pooled", x + apart * noise), View("layers", other + apart * noise)]
    return fit_on(views, np.tile(labels, times), 3, recipe, seed=seed).held_out.estimate().accuracy


def shuffled(seed):
    return np.random.default_rng(seed).permutation(Y)


def test_shuffled_labels_are_guessed_by_chance_and_repeated_rows_give_nothing_away():
    assert np.mean([accuracy(shuffled(seed), seed) for seed in SEEDS]) == pytest.approx(1 / 3, abs=0.06)
    for seed in SEEDS:
        assert accuracy(Y, seed) > 0.9
        assert accuracy(Y, seed, times=2) == accuracy(Y, seed)
        assert accuracy(shuffled(seed), seed, times=2) == accuracy(shuffled(seed), seed)


@pytest.mark.parametrize("apart", [1e-3, 0.05, 0.15])
def test_near_copies_do_not_vouch_for_each_other(apart):
    by_chance = [accuracy(shuffled(seed), seed, times=2, apart=apart) for seed in SEEDS]
    assert np.mean(by_chance) == pytest.approx(1 / 3, abs=0.06)
    assert accuracy(Y, 0, times=2, apart=apart) > 0.9


@pytest.mark.parametrize("times", [1, 2])
def test_a_calibrator_is_judged_by_folds_that_did_not_see_the_sample(times):
    recipe = Recipe(calibrator=True, calibrator_weight=5.0, calibrator_steps=60, dropout=0.0)
    by_chance = [accuracy(shuffled(seed), seed, recipe, times) for seed in SEEDS]
    assert np.mean(by_chance) == pytest.approx(1 / 3, abs=0.06)
    assert accuracy(Y, 0, recipe, times) > 0.9
    (view,) = fit_on([View("pooled", rows(Y, 3, 0))], shuffled(0), 3, recipe).views
    state, q = view.calibrator, view.prepared.queries
    calibrated = q + through(state.tower[:-1], q, "relu") @ state.tower[-1].T
    seen = (calibrated @ state.class_vectors.T).argmax(axis=1)
    assert (seen == shuffled(0)).mean() > 0.9  # what folds are for


def test_a_calibrator_counts_as_far_as_its_folds_speak_for_it():
    def weight(labels, seed):
        fitted = fit_on([View("pooled", rows(Y, 2, seed))], labels, 3, Recipe(calibrator=True), seed=seed)
        return weights_of(fitted)["pooled", "calibrator"]

    assert np.mean([weight(Y, seed) for seed in SEEDS]) > 0.15
    assert np.mean([weight(shuffled(seed), seed) for seed in SEEDS]) < 0.05


def test_a_view_of_noise_counts_less_than_before_and_one_that_knows_more():
    y, noise, knowing = np.arange(60) % 4, [], []
    for seed in SEEDS:
        views = [View("pooled", rows(y, 1.5, seed)), View("layers", rows(y, 0, seed + 100))]
        weights = weights_of(fit_on(views, y, 4))
        noise.append(weights["layers", "examples"])
        knowing.append(weights["pooled", "examples"])
    share = Recipe().example_weight / 3  # the pooled view counts twice
    assert np.mean(noise) < 0.6 * share
    assert np.mean(knowing) > 2 * share


def test_without_evidence_weights_are_those_of_the_recipe_shared_among_the_views():
    y, described = np.arange(3), np.eye(3, 40, dtype=np.float32)
    views = [View("pooled", rows(y, 3, 0)), View("layers", rows(y, 3, 1)), View("words", rows(y, 3, 2))]
    fitted = fit_on(views, y, 3, Recipe(example_weight=12.0, pooled_share=4.0))
    assert fitted.held_out is None  # nothing can be left out
    assert list(weights_of(fitted).values()) == pytest.approx([8.0, 2.0, 2.0])
    # Not even a sample: descriptions alone are a classifier.
    nothing = np.zeros((0, 40), np.float32)
    views = [View("pooled", nothing, described), View("words", nothing, described)]
    recipe = Recipe(description_weight=12.0)
    fitted = fit_on(views, y[:0], 3, recipe)
    weights = weights_of(fitted)
    assert [weights["pooled", "description"], weights["words", "description"]] == pytest.approx([8.0, 4.0])
    for head, _ in heads_of_fit(fitted, recipe):
        assert head.logits(described).argmax(axis=1).tolist() == [0, 1, 2]
    assert fit_views([], all_given(y[:0], 3), recipe, seed=0).views == ()


@pytest.mark.parametrize("n_classes", [8, 30])
def test_descriptions_that_speak_against_the_only_samples_are_switched_off(n_classes):
    y, true = np.arange(n_classes), np.eye(n_classes, 40, dtype=np.float32)
    x = rows(y, 10, 0)

    def weight(described):
        return weights_of(fit_on([View("pooled", x, described)], y, n_classes))["pooled", "description"]

    assert weight(true) > 3
    assert weight(np.roll(true, 1, axis=0)) < 0.1  # each class is called like another
    some = true.copy()
    some[:2] = true[1::-1]  # two are mixed up
    assert weight(some) > 1


@pytest.mark.parametrize("a_class", [1, 2, 5])
def test_wordings_that_quote_samples_do_not_vouch_for_them(a_class):
    y = np.arange(10 * a_class) % 10
    x = rows(y, 2, 0)
    quoting = np.stack([x[y == c].mean(axis=0) for c in range(10)])
    plain = rows(np.arange(10), 0, 1)  # say nothing without the samples
    honest = weights_of(fit_on([View("pooled", x, quoting, plain)], y, 10))["pooled", "description"]
    fooled = weights_of(fit_on([View("pooled", x, quoting)], y, 10))["pooled", "description"]
    assert honest < 0.1 * Recipe().description_weight
    assert honest < fooled / 2
    knowing = np.eye(10, 40, dtype=np.float32)
    kept = weights_of(fit_on([View("pooled", x, quoting, knowing)], y, 10))["pooled", "description"]
    assert kept > 2 * honest


def test_where_all_heads_do_worse_than_nothing_there_is_still_an_answer():
    x = np.random.default_rng(0).standard_normal((120, 40)).astype(np.float32)
    against = 0
    for seed in SEEDS:
        y = np.random.default_rng(seed).permutation(np.arange(120) % 4)
        fitted = fit_on([View("pooled", x)], y, 4)
        ((head, _),) = heads_of_fit(fitted, Recipe())
        assert np.ptp(head.logits(x), axis=1).min() > 0
        assert np.ptp(fitted.held_out.logits, axis=1).min() > 0  # or the first class would win them all
        if fitted.weights[0] == LEAST_WEIGHT * Recipe().example_weight:
            against += 1
            assert np.ptp(head.logits(x), axis=1).max() < 0.1  # but not a sure one
    assert against


def test_given_samples_are_judged_and_synthetic_ones_help():
    y = np.concatenate([np.arange(3), np.arange(6) % 3, np.arange(30) % 3])
    given = (np.arange(39) < 2) | (np.arange(39) % 4 == 3)
    fitted = fit_on([View("pooled", rows(y, 5, 0))], y, 3, given=given)
    np.testing.assert_array_equal(fitted.held_out.class_index, y[given])
    np.testing.assert_array_equal(fitted.held_out.position, np.arange(given.sum()))
    assert fitted.held_out.estimate().accuracy > 0.9
    assert fit_on([View("pooled", rows(y, 5, 0))], y, 3, given=np.zeros(39, bool)).held_out is None


def test_of_very_many_classes_some_samples_judge_given_ones_first(monkeypatch):
    monkeypatch.setattr(heads, "MOST_EVIDENCE", 3 * 20)
    monkeypatch.setattr(heads, "LEAST_EVIDENCE", 2)
    given = np.arange(60) % 4 == 0
    held_out = fit_on([View("pooled", rows(Y, 3, 0))], Y, 3, given=given).held_out
    np.testing.assert_array_equal(held_out.position, np.arange(15))
    np.testing.assert_array_equal(held_out.class_index, Y[given])
    some = fit_on([View("pooled", rows(Y, 3, 0))], Y, 3).held_out
    assert len(some.position) == 20
    np.testing.assert_array_equal(some.class_index, Y[some.position])
    more, given = np.concatenate([Y, Y]), np.arange(120) < 60
    later = fit_on([View("pooled", rows(more, 3, 0))], more, 3, given=given).held_out
    np.testing.assert_array_equal(later.position, some.position)  # so that both fits can be compared


def test_weights_of_another_fit_are_taken_as_they_are():
    fitted = fit_views(
        [View("pooled", rows(Y, 3, 0))], all_given(Y, 3), Recipe(), seed=0, weights=np.array([7.0])
    )
    assert weights_of(fitted) == {("pooled", "examples"): 7.0}


def test_folded_heads_compute_what_the_fitted_views_compute():
    recipe = Recipe(calibrator=True, layers=4, activation="gelu", weight_ridge=2400.0)
    x = rows(Y, 2, 0)
    fitted = fit_on([View("pooled", x, np.eye(3, 40, dtype=np.float32))], Y, 3, recipe, seed=3)
    (view,) = fitted.views
    state, q = view.calibrator, view.prepared.queries
    calibrated = q + through(state.tower[:-1], q, "gelu") @ state.tower[-1].T
    parts = {
        "examples": q @ view.discriminant.vectors.T + view.discriminant.bias,
        "description": q @ view.prepared.described.T,
        "calibrator": calibrated @ state.class_vectors.T,
    }
    assert view.weights.keys() == parts.keys()
    weighted = {kind: 0.5 * view.weights[kind] * logits for kind, logits in parts.items()}
    stacked, matching = (head.logits(x) for head, _ in heads_of_fit(fitted.scaled(0.5), recipe))
    np.testing.assert_allclose(stacked, weighted["examples"] + weighted["description"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(matching, weighted["calibrator"], rtol=1e-4, atol=1e-4)
