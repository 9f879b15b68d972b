import numpy as np
import pytest

from adamab.compare import ClassMean, LinearProbe, Similarity, TrainingData
from adamab.errors import TaskError


def blobs(per_class, *, seed=0, classes=("a", "b", "c")):
    rng = np.random.default_rng(seed)
    centres = 3 * np.eye(len(classes), 6)
    x = np.concatenate([c + 0.3 * rng.standard_normal((per_class, 6)) for c in centres])
    return x, [name for name in classes for _ in range(per_class)]


def test_probe_learns_from_arrays():
    x, y = blobs(6)
    probe = LinearProbe().fit(x, y)
    probabilities = probe.predict_proba(x)
    assert probe.classes_ == ("a", "b", "c")
    assert probabilities.shape == (18, 3)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert probe.predict(x) == y


def test_probe_takes_strength_ten_where_a_class_has_one_sample():
    x, y = blobs(1)
    assert LinearProbe().fit(x, y).strength_ == 10


def test_probe_chooses_its_strength_by_the_training_samples():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 6)), ["a", "b"] * 30
    x[:, 0] += np.where(np.array(y) == "a", 0.01, -0.01)
    chosen = LinearProbe().fit(x, y).strength_
    assert 1e-2 <= chosen <= 1e4
    assert LinearProbe(strength=3.0).fit(x, y).strength_ == 3.0


def test_probe_takes_ten_of_equal_strengths():
    x, y = blobs(5)
    assert LinearProbe().fit(100 * x, y).strength_ == 10


def test_class_without_samples_keeps_its_column():
    x, y = blobs(3)
    data = TrainingData({"pooled": x}, y, ("a", "nothing", "b", "c"))
    probabilities = LinearProbe().fit(data).predict_proba({"pooled": x})
    assert (probabilities[:, 1] == 0).all()


def test_probe_says_what_is_missing():
    with pytest.raises(TaskError, match="without labels"):
        LinearProbe().fit([[1.0, 2.0]])
    with pytest.raises(TaskError, match="two classes"):
        LinearProbe().fit([[1.0], [2.0]], ["a", "a"])
    with pytest.raises(TaskError, match="'z' is not among"):
        LinearProbe().fit(TrainingData({"pooled": np.eye(2)}, ["a", "z"], ("a", "b")))


def test_similarity_takes_the_nearest_wording_and_ignores_samples():
    x, y = blobs(4)
    data = TrainingData({"pooled": x}, y[::-1], ("a", "b", "c"), class_views={"pooled": 5 * np.eye(3, 6)})
    baseline = Similarity().fit(data)
    assert baseline.predict(x) == y
    assert np.allclose(baseline.predict_proba({"pooled": x}).sum(axis=1), 1)


def test_similarity_needs_vectors_of_the_classes():
    with pytest.raises(TaskError, match="describe them"):
        Similarity().fit(np.eye(2), ["a", "b"])


def test_class_mean_takes_the_nearest_mean_of_unit_vectors():
    x, y = blobs(4)
    baseline = ClassMean().fit(x, y)
    assert baseline.predict(x) == y
    assert np.allclose(baseline.predict_proba(x).sum(axis=1), 1)


def test_class_mean_counts_a_long_vector_as_one():
    x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 100.0], [0.3, 0.8]])
    baseline = ClassMean().fit(x, ["a", "a", "a", "b"])
    assert baseline.predict(x) == ["a", "a", "b", "b"]  # by length, "a" would lie along the third


def test_class_mean_never_answers_with_a_class_without_samples():
    x, y = blobs(3)
    data = TrainingData({"pooled": x}, y, ("nothing", "a", "b", "c"))
    probabilities = ClassMean().fit(data).predict_proba({"pooled": -x})  # every cosine is negative
    assert (probabilities[:, 0] == 0).all()


def test_class_mean_needs_samples():
    with pytest.raises(TaskError, match="samples are needed"):
        ClassMean().fit(TrainingData({"pooled": np.zeros((0, 3))}, [], ("a", "b")))
