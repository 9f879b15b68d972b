"""What counts as learned, on heads of known shapes."""

import numpy as np
import pytest

from adamab.compare.bench import n_parameters
from adamab.model import Classifier, Head
from adamab.task.recipe import Recipe

CLASSES, WIDTH, HIDDEN = 4, 20, 5


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
