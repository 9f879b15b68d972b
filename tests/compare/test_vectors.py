"""What every baseline on vectors must do, and what each does in its own way."""

from dataclasses import replace

import numpy as np
import pytest

from adamab.compare import (
    CacheAdapter,
    CentredSimilarity,
    ClassMean,
    LinearProbe,
    LinearSVM,
    NearestNeighbours,
    Similarity,
    TrainingData,
    make_baseline,
)
from adamab.compare.methods import METHODS, method_name
from adamab.errors import TaskError

LEARNING = (
    "class-mean", "mean-and-text", "linear-probe", "linear-svm", "knn", "cache-adapter",
    "joint-probe", "soft-vote",
)  # fmt: skip
ON_VECTORS = ("zero-shot", "centred", *LEARNING)


def blobs(per_class, *, seed=0, spread=0.3, classes=("a", "b", "c")):
    rng = np.random.default_rng(seed)
    centres = 3 * np.eye(len(classes), 6)
    x = np.concatenate([c + spread * rng.standard_normal((per_class, 6)) for c in centres])
    return x, [name for name in classes for _ in range(per_class)]


def data_of(x, y, classes=("a", "b", "c"), *, described=True):
    wordings = {"pooled": np.eye(len(classes), x.shape[1])} if described else {}
    return TrainingData({"pooled": x}, y, classes, class_views=wordings)


@pytest.mark.parametrize("name", ON_VECTORS)
def test_all_learn_separable_classes_and_repeat_themselves(name):
    x, y = blobs(4)
    first, second = (make_baseline(name, seed=3, view="pooled").fit(data_of(x, y)) for _ in range(2))
    probabilities = first.predict_proba({"pooled": x})
    assert first.predict(x) == y
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(probabilities, second.predict_proba(x))


@pytest.mark.parametrize("name", ON_VECTORS)
@pytest.mark.parametrize("classes", [("a", "b"), ("a", "b", "c")])
def test_all_take_two_classes_and_one_sample_a_class(name, classes):
    x, y = blobs(1, classes=classes)
    baseline = make_baseline(name).fit(data_of(x, y, classes))
    assert baseline.predict(x) == y
    assert baseline.predict_proba(x).shape == (len(classes), len(classes))


@pytest.mark.parametrize("name", LEARNING)
def test_a_class_without_samples_keeps_its_column(name):
    x, y = blobs(3)
    data = data_of(x, y, ("a", "nothing", "b", "c"), described=False)
    probabilities = make_baseline(name).fit(data).predict_proba(-x)
    assert probabilities.shape == (9, 4)
    assert (probabilities[:, 1] == 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("name", ON_VECTORS)
def test_zero_vectors_give_probabilities(name):
    x, y = blobs(2)
    x[0] = 0
    probabilities = make_baseline(name).fit(data_of(x, y)).predict_proba(np.zeros((2, 6)))
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("name", LEARNING)
def test_without_samples_there_is_nothing_to_learn(name):
    with pytest.raises(TaskError, match="needed; add some"):
        make_baseline(name).fit(data_of(np.zeros((0, 6)), []))


@pytest.mark.parametrize("name", ON_VECTORS)
def test_nothing_to_predict(name):
    x, y = blobs(2)
    assert make_baseline(name).fit(data_of(x, y)).predict_proba(np.zeros((0, 6))).shape == (0, 3)


def test_centring_removes_what_all_have_in_common():
    common = np.array([50.0, 50.0, 0, 0])
    x = common + np.array([[0, 0, 1.0, 0], [0, 0, -1.0, 0], [0, 0, 0.5, 0], [0, 0, -0.5, 0]])
    classes = np.array([[9.0, 0, 3.0, 1], [9.0, 1, 1.0, 0]])  # both above zero where samples differ
    data = TrainingData({"pooled": x}, ["b", "a"] * 2, ("a", "b"), class_views={"pooled": classes})
    assert CentredSimilarity().fit(data).predict(x) == ["a", "b", "a", "b"]  # labels play no part
    assert len(set(Similarity().fit(data).predict(x))) == 1


@pytest.mark.parametrize("kind", [LinearProbe, LinearSVM])
def test_the_strength_is_chosen_by_the_training_samples(kind):
    x, y = blobs(5)
    assert kind().fit(100 * x, y).strength_ == 10  # of equals
    assert kind().fit(*blobs(1)).strength_ == 10  # nothing to choose by
    assert kind(strength=0.5).fit(x, y).strength_ == 0.5
    rng = np.random.default_rng(0)
    noise, labels = rng.standard_normal((60, 6)), ["a", "b"] * 30
    assert 1e-2 <= kind().fit(noise, labels).strength_ <= 1e4


def test_what_cannot_be_learned_from_is_one_line():
    with pytest.raises(TaskError, match="without labels"):
        LinearProbe().fit([[1.0, 2.0]])
    with pytest.raises(TaskError, match="two classes"):
        LinearProbe().fit([[1.0], [2.0]], ["a", "a"])
    with pytest.raises(TaskError, match="'z' is not among"):
        LinearProbe().fit(TrainingData({"pooled": np.eye(2)}, ["a", "z"], ("a", "b")))
    with pytest.raises(TaskError, match="describe them"):
        Similarity().fit(np.eye(2), ["a", "b"])


def test_class_mean_counts_a_long_vector_as_one():
    x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 100.0], [0.3, 0.8]])
    baseline = ClassMean().fit(x, ["a", "a", "a", "b"])
    assert baseline.predict(x) == ["a", "a", "b", "b"]  # by length, "a" would lie along the third


def test_neighbours_vote_and_the_nearer_decide_between_equals():
    x = np.array([[1.0, 0.0], [0.9, 0.1], [0.5, 0.5], [0.0, 1.0]])
    voting = NearestNeighbours(k=3).fit(x, ["a", "b", "b", "c"])
    assert voting.predict([[1.0, 0.02]]) == ["b"]  # two votes against the nearest one
    assert NearestNeighbours(k=2).fit(x, ["b", "a", "a", "c"]).predict([[1.0, 0.02]]) == ["b"]
    assert NearestNeighbours(k=99).fit(x, ["a", "b", "b", "c"]).k_ == 4
    with pytest.raises(TaskError, match="at least one"):
        NearestNeighbours(k=0)


def test_neighbours_choose_k_by_the_training_samples():
    x, y = blobs(6)
    assert NearestNeighbours().fit(x, y).k_ == 1
    rng = np.random.default_rng(1)
    around = np.concatenate([rng.normal(m, 1.2, (40, 2)) for m in ((2, 0), (0, 2))])
    assert NearestNeighbours().fit(around, ["a"] * 40 + ["b"] * 40).k_ > 1


def test_cache_adapter_adds_samples_to_the_wordings():
    x, y = blobs(4)
    misled = TrainingData({"pooled": x}, y, ("a", "b", "c"), class_views={"pooled": np.eye(3, 6)[[1, 2, 0]]})
    adapter = CacheAdapter().fit(misled)
    assert adapter.predict(x) == y
    assert Similarity().fit(misled).predict(x) != y
    assert adapter.alpha_ >= 10  # the folds have found the wordings wrong


def test_cache_adapter_is_not_misled_by_wordings_that_quote_the_held_out_samples():
    rng = np.random.default_rng(0)
    x, y = blobs(4, spread=1.5)
    quoting = np.stack([x[[label == name for label in y]].mean(axis=0) for name in "abc"])
    plain = rng.standard_normal(quoting.shape)
    biased = TrainingData({"pooled": x}, y, ("a", "b", "c"), class_views={"pooled": quoting})
    honest = replace(biased, plain_class_views={"pooled": plain})
    assert CacheAdapter().fit(honest).alpha_ > CacheAdapter().fit(biased).alpha_
    assert np.allclose(CacheAdapter().fit(honest).vectors_, CacheAdapter().fit(biased).vectors_)


def test_names_options_and_mistakes():
    assert make_baseline("knn?k=3").k == 3
    assert make_baseline("linear-svm?strength=0.5", seed=7).random_state == 7
    assert make_baseline("zero-shot", view="layers").view == "layers"
    assert method_name("chat:gpt-4o-mini?rpm=5") == "chat"
    assert set(ON_VECTORS) < set(METHODS)
    for spec, message in (
        ("kn", "did you mean 'knn'"),
        ("knn:3", "write knn"),
        ("chat", "write chat:MODEL"),
        ("knn?k=many", "is not a number"),
        ("knn?q=3", "does not take these options"),
    ):
        with pytest.raises(TaskError, match=message.replace("?", r"\?")):
            make_baseline(spec)
