"""Counts that differ, classes without samples, and names that say nothing."""

from collections import Counter

import pytest

from experiments.datasets.text_sets import DemoSet
from experiments.shapes import SHAPES, shaped


@pytest.fixture(scope="module")
def draw():
    return DemoSet().draw(3, given=15)


def counts_of(draw):
    counts = Counter(sample.class_name for sample in draw.task.samples)
    return [counts[name] for name in draw.task.class_names]


def test_counts(draw):
    assert Counter(counts_of(shaped(draw, "uneven"))) == {5: 4, 1: 8}  # three in ten of twelve
    assert Counter(counts_of(shaped(draw, "unseen"))) == {15: 9, 0: 3}
    drawn = counts_of(shaped(draw, "drawn"))
    assert min(drawn) >= 1
    assert max(drawn) <= 15
    assert len(set(drawn)) > 3


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_samples_are_some_of_the_draws_and_what_is_scored_stays(draw, shape):
    other = shaped(draw, shape)
    given = [sample.text for sample in draw.task.samples]
    assert {sample.text for sample in other.task.samples} <= set(given)
    assert [sample.text for sample in other.test] == [sample.text for sample in draw.test]
    assert other.digest != draw.digest
    assert not other.pool
    assert shaped(draw, shape) == other


def test_seeds_draw_other_classes():
    seeds = [counts_of(shaped(DemoSet().draw(seed, given=5), "unseen")) for seed in range(3)]
    assert len({tuple(counts) for counts in seeds}) > 1


def test_codes_say_nothing(draw):
    other = shaped(draw, "codes")
    assert other.task.class_names == tuple(f"c{number:02}" for number in range(1, 13))
    assert all(spec.description is None for spec in other.task.classes)
    codes = dict(zip(draw.task.class_names, other.task.class_names, strict=True))
    assert [codes[s.class_name] for s in draw.test] == [s.class_name for s in other.test]
    assert [codes[s.class_name] for s in draw.task.samples] == [s.class_name for s in other.task.samples]
