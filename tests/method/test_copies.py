import numpy as np
import pytest

from adamab.method.cross_validation import originals_of, split_samples
from adamab.task.recipe import Recipe


def drawn(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def originals(vectors, class_index=None, given=None):
    n = len(vectors)
    class_index = np.zeros(n, np.int64) if class_index is None else np.asarray(class_index)
    return originals_of(vectors, class_index, np.ones(n, bool) if given is None else np.asarray(given), 1e-3)


@pytest.mark.parametrize(("n", "noise"), [(3000, 0), (50, 1e-5)])  # more than a block; a service's answers
@pytest.mark.parametrize("offset", [0, 1000])
def test_copies_have_one_original(n, noise, offset):
    once = drawn(n, 8)
    vectors = np.concatenate([once, once + noise * drawn(n, 8, 1)]) + np.float32(offset)
    copied_from = originals(vectors)
    np.testing.assert_array_equal(copied_from[:n], copied_from[n:])
    assert len(np.unique(copied_from)) == n
    np.testing.assert_array_equal(copied_from[copied_from], copied_from)


@pytest.mark.parametrize("factor", [1e4, 1e6])
def test_a_sample_far_away_does_not_make_the_others_copies(factor):
    vectors = drawn(60, 32)
    vectors[0] *= factor
    np.testing.assert_array_equal(originals(vectors), np.arange(60))


def test_another_class_or_source_has_no_copies_of_this_one():
    vectors = np.repeat(drawn(1, 5), 4, axis=0)
    copied_from = originals(vectors, [0, 0, 1, 1], [True, False, True, True])
    assert len({copied_from[0], copied_from[1], copied_from[2]}) == 3
    assert copied_from[2] == copied_from[3]


def test_a_crowd_of_neighbours_is_not_one_sample():
    line = np.linspace(0, 1, 20_001, dtype=np.float32)[:, None]
    assert len(np.unique(originals(line))) > 1000


def test_copies_are_held_out_together_and_scored_once():
    y = np.repeat(np.arange(12) % 3, 4)
    repeated = originals(np.repeat(drawn(12, 10), 4, axis=0), y)
    samples = split_samples(y, np.ones(48, bool), 3, Recipe(), seed=0, originals=repeated)
    assert (samples.folds >= 0).all()
    np.testing.assert_array_equal(samples.folds, samples.folds[repeated])
    assert samples.scored.sum() == 12
