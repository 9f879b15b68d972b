import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from adamab.method import discriminant
from adamab.method.discriminant import discriminants, one_shot_discriminant
from adamab.method.views import PreparedView, ViewTransform, class_means
from adamab.task.recipe import Recipe

RNG = np.random.default_rng(4)
Y = np.arange(60) % 3
X = (np.eye(3, 12)[Y] + RNG.standard_normal((60, 12)) * np.linspace(0.1, 2, 12)).astype(np.float32)
ALL = np.ones(60, np.float32)


def prepared(queries):
    return PreparedView(ViewTransform(None, False, None), queries, queries[:3], None)


def test_it_is_the_textbooks_discriminant():
    (state,) = discriminants(prepared(X), Y, ALL, 3, Recipe(shrinkages=(30,))).values()
    residuals = X - np.stack([X[c == Y].mean(axis=0) for c in range(3)])[Y]
    scatter = residuals.T @ residuals / 57
    shrunk = 0.7 * scatter + 0.3 * np.trace(scatter) / 12 * np.eye(12)
    means = np.stack([X[c == Y].mean(axis=0) for c in range(3)])
    vectors = np.linalg.solve(shrunk, means.T).T
    expected = X @ vectors.T - 0.5 * (vectors * means).sum(axis=1)
    logits = around(state.logits(X))  # with as many samples of each class all biases may be off by the same
    np.testing.assert_allclose(
        logits, logits.std() / around(expected).std() * around(expected), rtol=1e-3, atol=1e-3
    )
    library = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(X, Y)
    assert (state.logits(X).argmax(axis=1) == library.predict(X)).mean() > 0.98


def around(logits):
    return logits - logits.mean(axis=1, keepdims=True)


def test_classes_of_few_samples_are_not_held_to_be_far_away():
    """Four classes, two of them seen three times, two thirty times: true samples are shared out evenly."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(4, 60)) * 0.3
    learned_class = np.repeat(np.arange(4), [3, 3, 30, 30])
    learned = (centres[learned_class] + rng.normal(size=(66, 60))).astype(np.float32)
    (state,) = discriminants(
        prepared(learned), learned_class, np.ones(66, np.float32), 4, Recipe(shrinkages=(30,))
    ).values()
    new = (centres[np.arange(2000) % 4] + rng.normal(size=(2000, 60))).astype(np.float32)
    rare = (state.logits(new).argmax(axis=1) < 2).mean()
    assert 0.35 < rare < 0.65


@pytest.mark.parametrize("lightest", [1.0, 0.25])
def test_noise_is_that_of_samples_which_the_scatter_does_not_know(lightest):
    rng = np.random.default_rng(8)
    of_class = np.repeat(np.arange(12), [1, 2, 2, 3, 5, 5, 5, 8, 8, 9, 1, 6])
    x = rng.normal(size=(len(of_class), 80)).astype(np.float32)
    weight = rng.choice([lightest, 1.0], len(x)).astype(np.float32)
    means = class_means(x, of_class, weight, 12)
    scatter = discriminant._Scatter.of(x, of_class, weight, means)
    even = scatter.values.mean()
    variances = 0.8 * scatter.values + 0.2 * even
    squares, expected = [], []
    for i in np.flatnonzero(np.bincount(of_class)[of_class] > 1):
        rest = np.arange(len(x)) != i
        siblings = rest & (of_class == of_class[i])
        without = means.copy()
        without[of_class[i]] = np.average(x[siblings], axis=0, weights=weight[siblings])
        residuals = (x - without[of_class])[rest] * np.sqrt(weight[rest])[:, None]
        shrunk = 0.8 * residuals.T @ residuals / scatter.freedom + 0.2 * even * np.eye(80)
        away = x[i] - without[of_class[i]]
        kept = weight[siblings].sum() / (weight[siblings].sum() + weight[i])
        squares.append(weight[i] * kept**2 * away @ np.linalg.solve(shrunk, away))
        varies = 1 + (weight[siblings] ** 2).sum() / weight[siblings].sum() ** 2
        expected.append(weight[i] * kept**2 * varies)
    noise = scatter.noise(variances, 0.8)
    assert noise == pytest.approx(sum(squares) / sum(expected), rel=1e-3)
    true = (1 / variances).sum()  # of samples that vary alike in all directions
    assert noise == pytest.approx(true, rel=0.15 if lightest == 1 else 0.5)
    assert true > 2 * 80, "by the scatter's own samples it would be one a direction"


@pytest.mark.parametrize("counts", [(40, 2, 2, 2, 2), (50, 3), (30, 30, 3, 3)])
def test_a_class_of_many_samples_does_not_get_those_of_others(counts):
    """The centre is close to it then, so that its own length tells nothing of how long means are."""
    n, shares = len(counts), []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(n, 200)) * 0.4
        learned_class = np.repeat(np.arange(n), counts)
        learned = centres[learned_class] + rng.normal(size=(len(learned_class), 200))
        middle = learned.mean(axis=0)
        ones = np.ones(len(learned), np.float32)
        centred = prepared((learned - middle).astype(np.float32))
        (state,) = discriminants(centred, learned_class, ones, n, Recipe(shrinkages=(20,))).values()
        new = centres[np.arange(1000) % n] + rng.normal(size=(1000, 200)) - middle
        shares.append((state.logits(new.astype(np.float32)).argmax(axis=1) == 0).mean())
    assert np.mean(shares) == pytest.approx(1 / n, abs=0.1)


def test_classes_whose_means_are_the_same_are_not_told_apart():
    """No logits of millions, which would drown those of other views."""
    x = np.vstack([np.eye(4), -np.eye(4), np.ones((2, 4))]).astype(np.float32)
    for rows, of_class in (([0, 4, 1, 5], [0, 0, 1, 1]), ([0, 8, 0, 9], [0, 0, 1, 1])):
        states = discriminants(
            prepared(x[rows]), np.array(of_class), np.ones(4, np.float32), 2, Recipe(shrinkages=(20, 100))
        )
        for state in states.values():
            assert not state.logits(x).any()


@pytest.mark.parametrize("shrinkage", [5, 40, 100])
def test_class_vectors_have_one_length_whatever_the_shrinkage(shrinkage):
    (state,) = discriminants(prepared(X), Y, ALL, 3, Recipe(shrinkages=(shrinkage,))).values()
    centred = state.vectors - state.vectors.mean(axis=0)
    assert np.sqrt((centred**2).sum(axis=1).mean()) == pytest.approx(Recipe().discriminant_scale, rel=1e-4)


def test_one_sample_a_class_leaves_the_class_means():
    first = (np.arange(60) < 3).astype(np.float32)
    low, full = discriminants(prepared(X), Y, first, 3, Recipe(shrinkages=(20, 100))).values()
    np.testing.assert_allclose(low.vectors, full.vectors)
    assert (full.bias == 0).all()
    assert (low.logits(X[:3]).argmax(axis=1) == Y[:3]).all()


def test_of_a_class_without_samples_nothing_is_said():
    (state,) = discriminants(prepared(X), Y, ALL, 4, Recipe(shrinkages=(20,))).values()
    logits = state.logits(X)
    np.testing.assert_allclose(logits[:, 3], logits[:, :3].mean(axis=1), rtol=1e-3, atol=1e-3)


def test_a_sample_of_weight_zero_changes_nothing():
    weight = ALL.copy()
    weight[:10] = 0
    changed = X.copy()
    changed[:10] = 100
    (state,) = discriminants(prepared(X), Y, weight, 3, Recipe(shrinkages=(20,))).values()
    (same,) = discriminants(prepared(changed), Y, weight, 3, Recipe(shrinkages=(20,))).values()
    np.testing.assert_array_equal(state.vectors, same.vectors)


def lone_samples(n, width=40):
    """Unit rows that share a direction; the first is little else than that direction."""
    samples = np.random.default_rng(0).standard_normal((n, width)).astype(np.float32)
    samples[0] *= 0.3
    samples[:, 0] += 3
    return samples / np.linalg.norm(samples, axis=1, keepdims=True)


def test_lone_samples_are_told_apart_by_a_ridge_less_half_of_what_crowds_them():
    samples = lone_samples(14)
    state = one_shot_discriminant(prepared(samples), np.arange(14), 14, Recipe())
    gram = samples @ samples.T
    scores = np.linalg.solve(gram + Recipe().one_shot_ridge * np.eye(14), gram)  # of class i on sample j
    others = np.sort(scores[~np.eye(14, dtype=bool)].reshape(14, 13), axis=1)
    expected = (scores - 0.5 * others[:, -10:].mean(axis=1, keepdims=True)).T
    ratio = around(state.logits(samples)) / around(expected)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-3)


def test_a_sample_that_is_close_to_all_is_not_the_answer_to_all():
    rng = np.random.default_rng(1)
    classes = 0.6 * rng.standard_normal((60, 40)) + 3 * np.eye(1, 40)
    samples, queries = (classes + 0.8 * rng.standard_normal((2, 60, 40))).astype(np.float32)
    samples[0] = classes.mean(axis=0)
    samples /= np.linalg.norm(samples, axis=1, keepdims=True)
    queries = queries[1:]
    by_cosine = (queries @ samples.T).argmax(axis=1)
    predicted = (
        one_shot_discriminant(prepared(samples), np.arange(60), 60, Recipe()).logits(queries).argmax(axis=1)
    )
    assert (predicted == 0).sum() < (by_cosine == 0).sum() / 2
    assert (predicted == np.arange(1, 60)).sum() > (by_cosine == np.arange(1, 60)).sum()


def test_many_lone_samples_are_looked_at_in_parts(monkeypatch):
    samples = lone_samples(50)
    at_once = one_shot_discriminant(prepared(samples), np.arange(50), 51, Recipe())
    monkeypatch.setattr(discriminant, "CROWD_BLOCK", 7 * 50)
    np.testing.assert_allclose(
        one_shot_discriminant(prepared(samples), np.arange(50), 51, Recipe()).bias, at_once.bias, rtol=1e-5
    )
