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
    by_class = diversity(pooled, class_index, given, 3)
    for c in range(3):
        own = class_index == c
        assert by_class[c].given == pytest.approx(pairwise(pooled[own & given]), abs=1e-6)
        assert by_class[c].synthetic == pytest.approx(pairwise(pooled[own & ~given]), abs=1e-6)


def test_below_two_samples_there_is_none():
    pooled = np.eye(3, dtype=np.float32)
    by_class = diversity(pooled, np.array([0, 0, 1]), np.array([True, False, True]), 3)
    assert by_class == [Diversity(None, None)] * 3


def test_zeros_count_as_no_sample():
    rows = np.array([[1, 0], [0, 0], [0, 1]], dtype=np.float32)
    assert mean_distance(rows) == pytest.approx(1)
    assert mean_distance(rows[:2]) is None


def test_huge_and_tiny_vectors_have_directions_too():
    rows = np.array([[1e30, 0], [0, 1e-30]], dtype=np.float32)
    assert mean_distance(rows) == pytest.approx(1)
