"""The two-covariance discriminant against its formula, written down once more."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from adamab.method.discriminant import Discriminant, FitSamples
from adamab.task.recipe import Recipe

RECIPE = Recipe(synthetic_weight=0.3)
WIDTH = 12


def unit_rows(y, seed=0, width=WIDTH, strength=1.5):
    """Rows of length one around their classes, of more scatter in some directions than in others."""
    noise = np.random.default_rng(seed).standard_normal((len(y), width)) * np.linspace(0.2, 1.5, width)
    return units(strength * np.eye(int(max(y)) + 1, width)[y] + noise)


def units(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def made(x, y, *, given=True, n_classes=None, family=None, copies=False):
    y, given, n = np.asarray(y), np.broadcast_to(given, len(y)), np.arange(len(y))
    family = n if family is None else family
    samples = FitSamples(y, given, n_classes or int(max(y)) + 1, "pooled", family, n, copies)
    return Discriminant(x, samples, RECIPE)


def moments(x, y, weight, n_classes):
    """Counts (K,), means (K, r) and the scatter (r, r) within classes; a class without samples has zeros."""
    counts, means, scatter = np.zeros(n_classes), np.zeros((n_classes, x.shape[1])), 0.0
    for c in np.unique(y):
        of_class, w = x[y == c].astype(np.float64), weight[y == c]
        counts[c], means[c] = w.sum(), np.average(of_class, axis=0, weights=w)
        scatter = scatter + (w[:, None] * (of_class - means[c])).T @ (of_class - means[c])
    return counts, means, scatter


def assumed_within(scatter, freedom):
    """w: variance within classes, summed over the columns."""
    known = np.trace(scatter) + RECIPE.within_evidence * RECIPE.within_share
    return known / (freedom + RECIPE.within_evidence)


def logits_by_formula(x, covariance, counts, means, ratio, length):
    """z of the module's docstring, class by class."""
    inverse, z = np.linalg.inv(covariance), np.zeros((len(x), len(counts)))
    for c in np.flatnonzero(counts):
        reliability = counts[c] / (counts[c] + ratio)
        turned = inverse @ means[c]
        z[:, c] = reliability * (x @ turned - 0.5 * means[c] @ turned) + 0.5 * (1 - reliability) * length
    return z


def logit_of_all(x, covariance, mean, count, of_all, ratio, length):
    """The logit of a class whose mean lacks a sample, with the reliability of all its samples."""
    turned, full, less = np.linalg.inv(covariance) @ mean, of_all / (of_all + ratio), count / (count + ratio)
    return full * x @ turned - 0.5 * less * mean @ turned + 0.5 * (1 - full) * length


def check_drawn_to_their_mean(own, order, of_all):
    """Logits of whole classes, drawn to the mean of all by the root of the share of samples that are left."""
    middle = np.mean([logit for logit, _ in of_all.values()])
    for i, logit in zip(order, own, strict=True):
        of_class, left = of_all.get(i, (0, 0))
        assert logit == pytest.approx(middle + np.sqrt(left) * (of_class - middle) if left else 0, abs=1e-3)


CASES = {
    "even": ([8, 8, 8], False),
    "uneven": ([1, 2, 30, 5], False),
    "more columns than samples": ([2, 3, 2], False),
    "weights": ([9, 4, 2, 6], True),
    "uneven, weights, a class without samples": ([3, 0, 20, 1, 2], True),
}


@pytest.mark.parametrize(("counts", "weighted"), CASES.values(), ids=CASES)
def test_fit_and_leave_one_out_are_the_formula(counts, weighted):
    rng, k = np.random.default_rng(1), len(counts)
    y = rng.permutation(np.repeat(np.arange(k), counts))
    x, given = unit_rows(y), rng.random(len(y)) < (0.5 if weighted else 1)
    weight = np.where(given, 1.0, 0.3)
    fitted = made(x, y, given=given, n_classes=k)
    n, means, scatter = moments(x, y, weight, k)
    freedom = max(n.sum() - (n > 0).sum(), 0)
    within = assumed_within(scatter, freedom)
    ratio = within / (1 - within)
    unit = (freedom + WIDTH) * within / WIDTH  # W is in units of the mean variance of a column
    covariance = (scatter + within * np.eye(WIDTH)) / unit
    length = (n / (n + ratio) * (means @ np.linalg.inv(covariance) * means).sum(axis=1))[n > 0].mean()
    expected = logits_by_formula(x, covariance, n, means, ratio, length)
    np.testing.assert_allclose(x @ fitted.vectors.T + fitted.bias, expected, rtol=1e-4, atol=1e-4)
    assert not fitted.vectors[n == 0].any()
    assert not fitted.bias[n == 0].any()

    order, all_counts, of_all = rng.permutation(len(y)), n, {}
    left_out = fitted.leave_one_out(order)
    for i, logits in zip(order, left_out.logits, strict=True):
        rest = np.arange(len(y)) != i
        if not (y[rest] == y[i]).any():
            assert not logits.any()  # of its class nothing is left
            continue
        n, means, scatter = moments(x[rest], y[rest], weight[rest], k)
        covariance = (scatter + within * np.eye(WIDTH)) / unit
        expected = logits_by_formula(x[i : i + 1], covariance, n, means, ratio, length)[0]
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
        shared = (n[y[i]], all_counts[y[i]], ratio, length)
        of_all[i] = logit_of_all(x[i], covariance, means[y[i]], *shared), n[y[i]] / all_counts[y[i]]
    check_drawn_to_their_mean(left_out.own, order, of_all)


@pytest.mark.parametrize("per_class", [2, 5])
@pytest.mark.parametrize("signal", [0, 0.3, 0.6])
def test_own_logits_foretell_the_hits_on_new_samples(per_class, signal):
    """From chance to nearly all right; the leave-one-out logits do not."""
    foretold, true, left_out = [], [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        centres, of_new = signal * rng.normal(size=(60, 100)), np.arange(900) % 60
        y, n = np.repeat(np.arange(60), per_class), 60 * per_class
        x, new = (units(centres[of] + rng.normal(size=(len(of), 100))) for of in (y, of_new))
        fitted = made(x, y)
        true.append(((new @ fitted.vectors.T + fitted.bias).argmax(axis=1) == of_new).mean())
        answers = fitted.leave_one_out(np.arange(n))
        left_out.append((answers.logits.argmax(axis=1) == y).mean())
        answers.logits[np.arange(n), y] = answers.own
        foretold.append((answers.logits.argmax(axis=1) == y).mean())
    assert np.mean(foretold) == pytest.approx(np.mean(true), abs=0.04)
    if per_class == 2 and signal:
        assert np.mean(left_out) < np.mean(true) - 0.06


def test_with_equal_counts_it_is_shrunken_linear_discriminant_analysis():
    y = np.arange(60) % 3
    x, new = unit_rows(y), unit_rows(np.arange(500) % 3, seed=1)
    _, _, scatter = moments(x, y, np.ones(60), 3)
    # The library's (1 - s) S / N + s tr(S) / (N ν) I has the shape of S + w I at this s.
    odds = assumed_within(scatter, 57) * WIDTH / np.trace(scatter)
    library = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=odds / (1 + odds)).fit(x, y)
    fitted = made(x, y)
    logits, expected = new @ fitted.vectors.T + fitted.bias, library.decision_function(new)
    np.testing.assert_array_equal(logits.argmax(axis=1), library.predict(new))
    logits, expected = (z - z.mean(axis=1, keepdims=True) for z in (logits, expected))
    np.testing.assert_allclose(logits / logits.std(), expected / expected.std(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("y", [[0, 0, 0, 1, 1, 1], [0], [0, 0, 0], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("row", ["zeros", "one direction", "drawn"])
def test_whatever_the_rows_all_is_finite(y, row):
    x = {
        "zeros": np.zeros((len(y), 4), np.float32),
        "one direction": np.tile(np.eye(1, 4, dtype=np.float32), (len(y), 1)),
        "drawn": unit_rows(y, width=4),
    }[row]
    fitted = made(x, y)
    left_out = fitted.leave_one_out(np.arange(len(y)))
    parts = (fitted.vectors, fitted.bias, left_out.logits, left_out.own)
    assert all(np.isfinite(part).all() for part in parts)
    assert np.abs(x @ fitted.vectors.T + fitted.bias).max() < 100


def test_classes_that_are_all_scatter_do_not_turn_means_round():
    """Each class is a row and its opposite: by the estimate more than all of a row's square is scatter."""
    half = unit_rows(np.zeros(100, int), strength=0)
    fitted = made(np.concatenate([half, -half]), np.tile(np.arange(20), 10))
    assert fitted.shared.ratio > 10
    assert np.abs(fitted.vectors).max() < 1


def test_a_row_that_repeats_another_changes_nothing():
    y = np.arange(12) % 3
    x = unit_rows(y)
    again, labels, given = np.tile(x, (2, 1)), np.tile(y, 2), np.ones(24, bool)
    samples, rows = FitSamples.of(again, labels, given, 3, "pooled", RECIPE)
    assert rows.tolist() == samples.position.tolist() == list(range(12))
    plain, twice = made(x, y), Discriminant(again[rows], samples, RECIPE)
    np.testing.assert_array_equal(twice.vectors, plain.vectors)
    one, other = (fitted.leave_one_out(np.arange(12)) for fitted in (plain, twice))
    np.testing.assert_array_equal(one.logits, other.logits)
    np.testing.assert_array_equal(one.own, other.own)


def test_rows_of_classes_that_come_later_are_those_of_the_fit():
    y = np.repeat(np.arange(3), [2, 9, 4])
    fitted = made(unit_rows(y), y)
    counts, means, _ = moments(unit_rows(y), y, np.ones(15), 3)
    for c in range(3):
        vectors, bias = fitted.shared.class_rows(means[c : c + 1], counts[c : c + 1])
        np.testing.assert_allclose(vectors[0], fitted.vectors[c], rtol=1e-4, atol=1e-5)
        assert bias[0] == pytest.approx(fitted.bias[c], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("counts", [(3, 3, 30, 30), (40, 2, 2, 2, 2), (50, 3), (30, 30, 3, 3)])
def test_neither_large_nor_small_classes_get_the_samples_of_others(counts):
    n, shares = len(counts), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(n, 200)) * 0.4
        y = np.repeat(np.arange(n), counts)
        learned = centres[y] + rng.normal(size=(len(y), 200))
        new = centres[np.arange(1000) % n] + rng.normal(size=(1000, 200))
        fitted = made(units(learned - learned.mean(axis=0)), y)
        logits = units(new - learned.mean(axis=0)) @ fitted.vectors.T + fitted.bias
        shares.append(np.bincount(logits.argmax(axis=1), minlength=n) / 1000)
    np.testing.assert_allclose(np.mean(shares, axis=0), 1 / n, atol=0.1)


@pytest.mark.parametrize("sizes", [[6, 5, 7], [2, 9, 4]])
def test_near_copies_are_left_out_together(sizes):
    """By hand: the same means, scatter and weights without the whole family; what all share stays."""
    y = np.repeat(np.arange(3), sizes)
    x, family = unit_rows(y), np.arange(len(y))
    family[[1, 0]] = 0
    family[[sizes[0] + 2, sizes[0] + 3, sizes[0]]] = sizes[0]
    fitted = made(x, y, family=family)
    left_out = fitted.leave_one_out(np.arange(len(y)))
    logits, all_counts, of_all = left_out.logits, np.bincount(y), {}
    width, within = x.shape[1], fitted.shared.ratio / (1 + fitted.shared.ratio)
    freedom = len(y) - 3
    for i, own in enumerate(y):
        rest = family != family[i]
        if not (rest & (y == own)).any():
            assert not logits[i].any()
            continue
        counts, means, scatter = moments(x[rest], y[rest], np.ones(rest.sum()), 3)
        covariance = scatter * width / within / (freedom + width) + np.eye(width) * width / (freedom + width)
        precision = np.linalg.inv(covariance)
        reliability = counts / (counts + fitted.shared.ratio)
        squares = np.einsum("ci,ij,cj->c", means, precision, means)
        bias = 0.5 * ((1 - reliability) * fitted.shared.length - reliability * squares)
        by_hand = reliability * (means @ precision @ x[i]) + bias
        np.testing.assert_allclose(logits[i], by_hand, atol=2e-4)
        shared = (counts[own], all_counts[own], fitted.shared.ratio, fitted.shared.length)
        of_all[i] = logit_of_all(x[i], covariance, means[own], *shared), counts[own] / all_counts[own]
    check_drawn_to_their_mean(left_out.own, range(len(y)), of_all)


def test_samples_made_of_given_ones_add_nothing_to_the_weight_of_their_class():
    y = np.concatenate([np.repeat(np.arange(3), 2), np.repeat([0, 1], 6)])
    samples = FitSamples(y, np.arange(18) < 6, 4, "pooled", np.arange(18), np.arange(18), copies=True)
    np.testing.assert_allclose(np.bincount(y, samples.weights(RECIPE)), [2, 2, 2])
