import numpy as np

from adamab.study.added_classes import accuracies
from adamab.study.datasets.demo_set import DemoSet
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder


def test_a_class_is_left_out_and_added():
    draw = DemoSet().draw(0, given=5, part="development")
    recipe = Recipe(checkpoints=(0,), folds=2, words=False)
    found = dict(accuracies(draw, HashEmbedder(), recipe, 1))
    assert list(found)[:3] == [
        "fit with it, 5 examples",
        "added, 0 examples",
        "added and not settled, 0 examples",
    ]
    assert len(found) == 7
    for own, others, everything in found.values():
        assert np.isclose(everything, (own + 11 * others) / 12)  # as many samples of each of twelve classes
