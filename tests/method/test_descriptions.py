import numpy as np
import pytest

from adamab.method import cross_validation
from adamab.method.cross_validation import split_samples, without_misleading_descriptions
from adamab.task.recipe import Recipe
from tests.method.fitting import view_of


def is_believed(described, n_classes=30):
    y = np.arange(n_classes)
    view = view_of(np.eye(n_classes, 40, dtype=np.float32), described.astype(np.float32))
    samples = split_samples(y, np.ones(n_classes, bool), n_classes, Recipe(), seed=0)
    kept = without_misleading_descriptions(view, samples, Recipe())
    assert (kept.name, kept.is_wide, kept.rows[0][0].shape) == ("pooled", False, (n_classes, 40))
    return kept.rows[0][1] is not None


def test_descriptions_are_kept_or_left_out_as_a_whole():
    true = np.eye(30, 40)
    assert is_believed(true)
    assert not is_believed(np.roll(true, 1, axis=0))


def test_of_very_many_classes_some_samples_judge(monkeypatch):
    monkeypatch.setattr(cross_validation, "LEAST_EVIDENCE", 3)
    monkeypatch.setattr(cross_validation, "MOST_EVIDENCE", 150)
    shapes = []
    softmax = cross_validation.softmax

    def noted(logits, axis):
        shapes.append(logits.shape)
        return softmax(logits, axis=axis)

    monkeypatch.setattr(cross_validation, "softmax", noted)
    assert not is_believed(np.roll(np.eye(30, 40), 1, axis=0))
    assert shapes == [(5, 30)]


@pytest.mark.parametrize("wrong", [1, 2])
def test_a_sample_or_two_of_many_do_not_speak_against_all(wrong):
    swapped = np.eye(30, 40)
    swapped[: 2 * wrong] = swapped[: 2 * wrong][::-1]
    assert is_believed(swapped)
