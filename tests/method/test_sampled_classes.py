"""Very many classes: groups of them, and no matrix of all samples by all classes."""

import math
import tracemalloc

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adamab.method import cross_validation as folds
from adamab.method import gradient_shift
from adamab.method import training as sampled_classes
from adamab.method.training import class_groups
from adamab.run._loop_model import JointModel
from adamab.run.samples import DescribedClasses, TrainingSet
from adamab.task.recipe import Recipe
from tests.method.fitting import fit_samples

Y = torch.tensor([0, 3, 3, 1, 6, 2, 5, 5, 5, 0, 1])
RECIPE = Recipe(words=False)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_sample_meets_its_own_class_and_some_others(monkeypatch):
    monkeypatch.setattr(sampled_classes, "MOST_LOGITS", 15)
    groups = class_groups(Y, 7, generator())
    assert len(groups) > 1
    assert sorted(torch.cat([group.rows for group in groups]).tolist()) == list(range(len(Y)))
    for group in groups:
        assert torch.equal(group.classes[group.own], Y[group.rows])
        assert len(group.classes) >= 2
        assert group.others == pytest.approx(math.log(6 / (len(group.classes) - 1)))
    assert [group.classes.tolist() for group in groups] != [
        g.classes.tolist() for g in class_groups(Y, 7, generator(1))
    ]


def test_the_sum_over_classes_is_right_on_average(monkeypatch):
    monkeypatch.setattr(sampled_classes, "MOST_LOGITS", 15)
    logits, sums = torch.randn(len(Y), 7, generator=generator()), torch.zeros(len(Y))
    own = logits.gather(1, Y[:, None])[:, 0]
    order, times = generator(), 2000
    for _ in range(times):
        for group in class_groups(Y, 7, order):
            losses = group.losses(logits[group.rows][:, group.classes])
            sums[group.rows] += (losses + own[group.rows]).exp() / times
    torch.testing.assert_close(sums, logits.exp().sum(1), rtol=0.05, atol=0)


class Largest(TorchDispatchMode):
    """The most numbers that any tensor had."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        for tensor in results if isinstance(results, tuple | list) else (results,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return results


@pytest.fixture
def many(monkeypatch):
    """800 classes of three samples, and bounds that are passed with them."""
    monkeypatch.setattr(sampled_classes, "MOST_LOGITS", 100_000)
    monkeypatch.setattr(folds, "MOST_EVIDENCE", 40_000)
    monkeypatch.setattr(folds, "LEAST_EVIDENCE", 2)
    monkeypatch.setattr(gradient_shift, "MOST_RESIDUALS", 100_000)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(800, 16)).astype(np.float32)
    y = np.repeat(np.arange(800), 3)
    described = DescribedClasses(tuple(map(str, range(800))), {"pooled": means})
    samples = TrainingSet(800, lambda learned: described)
    rows = means[y] + 0.4 * rng.normal(size=(len(y), 16)).astype(np.float32)
    samples.add(y.tolist(), {"pooled": rows}, given=True, texts=[f"text {i}" for i in range(len(y))])
    return samples


def test_a_fit_holds_no_matrix_of_samples_by_classes(many):
    largest = Largest()
    with largest:  # the first fit also imports what fits need, which takes memory of its own
        fit_samples(many, RECIPE)
    tracemalloc.start()
    fitted = fit_samples(many, RECIPE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = len(many) * 800  # numbers
    assert largest.numbers < whole / 8
    assert peak < 4 * whole
    assert fitted.held_out is not None
    assert len(fitted.held_out.class_index) == 40_000 // 800
    assert fitted.held_out.estimate().accuracy > 0.8


def test_the_judged_of_many_classes_are_not_given_away(monkeypatch):
    """Every class lacks a sample in every fold, not only those of the judged samples."""
    monkeypatch.setattr(folds, "MOST_EVIDENCE", 300 * 120)
    y, given = np.repeat(np.arange(300), 3), np.ones(900, dtype=np.bool_)
    samples = folds.split_samples(y, given, 300, Recipe(), seed=0)
    fold_of, judged = samples.folds, samples.scored
    assert judged.sum() == 120
    assert (fold_of[judged] >= 0).all()
    for fold in range(fold_of.max() + 1):
        assert judged[fold_of == fold].any()
        assert (np.bincount(y[fold_of == fold], minlength=300) == 1).all()


def test_rounds_hold_no_matrix_of_samples_by_classes_and_scores_stay_exact(many, monkeypatch):
    fitted = fit_samples(many, RECIPE)
    model = JointModel(many, RECIPE, fitted, seed=0, rounds=3)
    largest = Largest()
    with largest:
        losses = [model.epoch(round_).loss for round_ in range(1, 4)]
        shift = model.shift(5)
    assert losses[-1] < losses[0]
    assert largest.numbers < len(many) * 800 / 8
    monkeypatch.setattr(gradient_shift, "MOST_RESIDUALS", 10**9)
    held = model.shift(5)
    np.testing.assert_allclose(shift.lower, held.lower, rtol=1e-4)
    some = np.array([0, 400, 799])
    np.testing.assert_allclose(shift.exact(some), held.exact(some), rtol=1e-4)
