"""Baselines that see all views, the words and the descriptions."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from adamab.compare import TrainingData, make_baseline
from adamab.errors import TaskError
from adamab.task import ClassSpec

CLASSES = ("a", "b", "c")
BOTH = ("joint-probe", "soft-vote")


def units(rows):
    centred = rows - rows.mean(axis=0)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def wide_data(n=4, width=50, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), n)
    centres = 2 * rng.standard_normal((3, width)) / np.sqrt(width)
    x = centres[y] + rng.standard_normal((len(y), width)) / np.sqrt(width)
    described = centres + rng.standard_normal((3, width)) / np.sqrt(width)
    return x, y, described


def test_rows_in_coordinates_of_their_span_give_the_same_regression():
    x, y, described = wide_data()
    data = TrainingData({"pooled": x}, [CLASSES[i] for i in y], CLASSES, class_views={"pooled": described})
    joint = make_baseline("joint-probe?strength=10").fit(data)
    rows = np.concatenate([units(x), units(described)])
    labels = np.concatenate([y, np.arange(3)])
    plain = LogisticRegression(C=10, class_weight="balanced", tol=1e-8, max_iter=10_000).fit(rows, labels)
    queries = np.random.default_rng(1).standard_normal((20, 50))
    centred = queries - x.mean(axis=0)
    expected = plain.predict_proba(centred / np.linalg.norm(centred, axis=1, keepdims=True))
    np.testing.assert_allclose(joint.predict_proba(queries), expected, atol=5e-3)


@pytest.mark.parametrize("name", BOTH)
def test_a_class_that_is_only_described_can_be_predicted(name):
    x, y, described = wide_data()
    given = y < 2
    data = TrainingData(
        {"pooled": x[given]}, [CLASSES[i] for i in y[given]], CLASSES, class_views={"pooled": described}
    )
    predicted = np.array(make_baseline(name).fit(data).predict(x))
    assert (predicted[y == 2] == "c").mean() > 0.5


@pytest.mark.parametrize("name", BOTH)
def test_an_api_gives_no_layers(name):
    x, y, _ = wide_data()
    noise = np.random.default_rng(2).standard_normal(x.shape)
    labels = [CLASSES[i] for i in y]
    plain = make_baseline(name, inputs="api").fit(TrainingData({"pooled": x}, labels, CLASSES))
    views = {"pooled": x, "layers": noise}
    same = make_baseline(name, inputs="api").fit(TrainingData(views, labels, CLASSES))
    every = make_baseline(name).fit(TrainingData(views, labels, CLASSES))
    queries = {name: np.random.default_rng(3).standard_normal(rows.shape) for name, rows in views.items()}
    expected = plain.predict_proba({"pooled": queries["pooled"]})
    np.testing.assert_array_equal(same.predict_proba(queries), expected)
    assert np.abs(every.predict_proba(queries) - expected).max() > 0.1


@pytest.mark.parametrize("name", BOTH)
def test_words_decide_where_vectors_say_nothing(name):
    texts = ["a refund please", "money refund", "so lovely", "lovely indeed"]
    zeros = np.zeros((4, 3))
    data = TrainingData(
        {"pooled": zeros},
        ["refund", "refund", "praise", "praise"],
        ("praise", "refund"),
        texts=texts,
        items=texts,
        specs=(ClassSpec("praise"), ClassSpec("refund")),
    )
    fitted = make_baseline(name).fit(data)
    assert fitted.predict(np.zeros((2, 3)), ["refund this", "lovely thing"]) == ["refund", "praise"]
    with pytest.raises(TaskError, match="texts are lacking"):
        fitted.predict(np.zeros((1, 3)))


def test_the_mean_and_text_is_the_sum_of_both():
    x, y, described = wide_data()
    labels = [CLASSES[i] for i in y]
    data = TrainingData({"pooled": x}, labels, CLASSES, class_views={"pooled": described})
    means = np.stack([units(x)[y == i].mean(axis=0) for i in range(3)])
    both = means / np.linalg.norm(means, axis=1, keepdims=True) + units(described)
    both /= np.linalg.norm(both, axis=1, keepdims=True)
    np.testing.assert_allclose(make_baseline("mean-and-text").fit(data).vectors_, both)
    mean = make_baseline("mean-and-text").fit(TrainingData({"pooled": x}, labels, CLASSES))
    np.testing.assert_allclose(mean.vectors_, means / np.linalg.norm(means, axis=1, keepdims=True))


def test_views_without_wordings_have_no_vote_on_a_single_class():
    x, y, described = wide_data()
    given = y == 0
    data = TrainingData(
        {"pooled": x[given], "layers": x[given, :7]},
        ["a"] * int(given.sum()),
        CLASSES,
        class_views={"pooled": described},
    )
    vote = make_baseline("soft-vote").fit(data)
    assert vote.predict({"pooled": x, "layers": x[:, :7]}, []) != []
