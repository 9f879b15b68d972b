"""What counts as learned, on heads of known shapes and on fits."""

import numpy as np
import pytest

from adamab.compare.bench import compare, n_parameters
from adamab.compare.methods import Method
from adamab.model import Classifier, Head
from adamab.run.settings import FitSettings, set_up
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

CLASSES, WIDTH, HIDDEN = 4, 20, 5
TASK = Task.from_mapping(
    {
        "fruit": ["an apple", "a pear", "ripe plums"],
        "tool": ["a hammer", "the saw", "a drill"],
        "river": ["the rhine", "the nile", "down the danube"],
    }
)


def head(**arrays):
    return Head(view="pooled", linear=np.ones((CLASSES, WIDTH), np.float32), **arrays)


def discriminant():
    return head(bias=np.ones(CLASSES, np.float32))


def calibrator():
    tower = np.ones((HIDDEN, WIDTH), np.float32), np.ones((HIDDEN, HIDDEN), np.float32)
    return head(tower=tower, hidden=np.ones((CLASSES, HIDDEN), np.float32))


TOWERS = 2 * (WIDTH * HIDDEN + HIDDEN * HIDDEN + HIDDEN * WIDTH)
FREE = CLASSES * WIDTH
DISCRIMINANT = CLASSES * WIDTH + CLASSES


@pytest.mark.parametrize(
    ("heads", "options", "count"),
    [
        ([calibrator()], {}, TOWERS + FREE),
        ([calibrator()], {"free_vectors": False}, TOWERS),
        ([discriminant()], {}, DISCRIMINANT),
        ([head()], {}, 0),  # cosines with descriptions
        ([head()], {"layers": 1}, 0),
        ([calibrator(), discriminant(), head()], {}, TOWERS + FREE + DISCRIMINANT),
        ([head()], {"layers": 1, "refit": False}, 2 * WIDTH * WIDTH + FREE),
        (
            [discriminant(), head()],
            {"layers": 1, "calibrator": True},
            DISCRIMINANT + 2 * WIDTH * WIDTH + FREE,
        ),
    ],
)
def test_each_kind_of_head_counts_what_it_learned(heads, options, count):
    assert n_parameters(Classifier(classes=tuple("abcd"), heads=tuple(heads)), Recipe(**options)) == count


@pytest.mark.parametrize(
    ("options", "networks"),
    [
        ({}, 0),
        ({"calibrator": True, "layers": 1}, 2 * 4 * 4 + 3 * 4),
        ({"calibrator": True}, 2 * (4 * 1 + 1 * 1 + 1 * 4) + 3 * 4),
    ],
)
def test_compare_counts_all_that_a_fit_has_learned(options, networks):
    recipe = Recipe(words=False, width=4, weight_ridge=1e6, **options)  # every head keeps its weight
    setup = set_up(TASK, FitSettings(embedder=HashEmbedder(width=16), recipe=recipe))
    (row,) = compare(setup, [Sample("the hammer", "tool")], [Method("calibrator")]).rows
    assert row.n_parameters == 3 * 4 + 3 + networks
