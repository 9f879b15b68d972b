import numpy as np
import pytest

from adamab.run.gate import Diversity, diversity, mean_distance


def pairwise(vectors):
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distances = 1 - units @ units.T
    return distances[np.triu_indices(len(units), 1)].mean()


def test_it_is_the_mean_over_all_pairs():
    rng = np.random.default_rng(0)
    pooled = (rng.normal(size=(60, 7)) * rng.uniform(0.1, 9, size=(60, 1)) + 0.3).astype(np.float32)
    class_index, given = rng.integers(3, size=60), rng.random(60) < 0.4
    found = diversity(pooled, class_index, given, 3)
    for c in range(3):
        own = class_index == c
        assert found[c].given == pytest.approx(pairwise(pooled[own & given]), abs=1e-6)
        assert found[c].synthetic == pytest.approx(pairwise(pooled[own & ~given]), abs=1e-6)


def test_below_two_samples_there_is_none():
    pooled = np.eye(3, dtype=np.float32)
    found = diversity(pooled, np.array([0, 0, 1]), np.array([True, False, True]), 3)
    assert found == [Diversity(None, None)] * 3


def test_the_ends_of_the_scale():
    one = np.array([[0.3, 0.1, 0.7]], dtype=np.float32)
    assert mean_distance(np.repeat(one, 1000, axis=0)) == pytest.approx(0, abs=1e-9)
    assert mean_distance(np.repeat(one, 1000, axis=0)) >= 0
    assert mean_distance(np.concatenate([one, -one])) == 2
    assert mean_distance(np.eye(5, dtype=np.float32)) == pytest.approx(1)


def test_zeros_count_as_no_sample():
    rows = np.array([[1, 0], [0, 0], [0, 1]], dtype=np.float32)
    assert mean_distance(rows) == pytest.approx(1)
    assert mean_distance(rows[:2]) is None


def test_huge_and_tiny_vectors_have_directions_too():
    rows = np.array([[1e30, 0], [0, 1e-30]], dtype=np.float32)
    assert mean_distance(rows) == pytest.approx(1)
