import numpy as np
import pytest

from adamab.method import descriptions
from adamab.method.descriptions import Undescribed, without_misleading_descriptions
from adamab.method.folded_views import FitSamples
from adamab.run.training_set import DenseView, DescribedClasses
from adamab.task.recipe import Recipe


def judged(described, n_classes=30):
    y, n = np.arange(n_classes), n_classes
    x = np.eye(n_classes, 40, dtype=np.float32)
    view = DenseView("pooled", x, lambda _: DescribedClasses((), {"pooled": described.astype(np.float32)}))
    everyone, ones = np.ones(n, bool), np.ones(n, np.float32)
    samples = FitSamples(y, np.full(n, -1), ~everyone, everyone, ones, ones, ~everyone, n_classes)
    return without_misleading_descriptions(view, samples, everyone, Recipe())


def test_descriptions_are_kept_or_left_out_as_a_whole():
    true = np.eye(30, 40)
    assert judged(true).rows(np.ones(30, bool))[1] is not None
    left = judged(np.roll(true, 1, axis=0))
    assert isinstance(left, Undescribed)
    assert (left.name, left.wide, left.rows(np.ones(30, bool))[1]) == ("pooled", False, None)
    x, _ = left.rows(np.ones(30, bool))
    assert x.shape == (30, 40)


def test_of_very_many_classes_some_samples_judge(monkeypatch):
    monkeypatch.setattr(descriptions, "LEAST_EVIDENCE", 3)
    monkeypatch.setattr(descriptions, "MOST_EVIDENCE", 150)
    asked = []
    softmax = descriptions.softmax

    def noted(logits, axis):
        asked.append(logits.shape)
        return softmax(logits, axis=axis)

    monkeypatch.setattr(descriptions, "softmax", noted)
    assert isinstance(judged(np.roll(np.eye(30, 40), 1, axis=0)), Undescribed)
    assert asked == [(5, 30)]


@pytest.mark.parametrize("wrong", [1, 2])
def test_a_sample_or_two_of_many_do_not_speak_against_all(wrong):
    swapped = np.eye(30, 40)
    swapped[: 2 * wrong] = swapped[: 2 * wrong][::-1]
    assert not isinstance(judged(swapped), Undescribed)
