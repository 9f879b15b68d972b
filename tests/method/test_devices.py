"""The same fit on every device that there is here: the processor, and a graphics card where there is one."""

import numpy as np
import pytest
import torch

from adamab.errors import RecipeError
from adamab.method.numerics import current_device, on_device
from adamab.method.policies import Arms, GradientShiftUCB
from adamab.run._loop_model import JointModel
from adamab.run.samples import DescribedClasses, TrainingSet
from adamab.task.recipe import Recipe
from tests.method.fitting import fit_samples

DEVICES = ["cpu"]
DEVICES += ["cuda"] if torch.cuda.is_available() else []
DEVICES += ["mps"] if torch.backends.mps.is_available() else []
RECIPE = Recipe(words=False, near_duplicate=None)


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(6, 24)).astype(np.float32)
    described = DescribedClasses(tuple("abcdef"), {"pooled": means})
    training = TrainingSet(6, lambda learned: described)
    y = np.repeat(np.arange(6), [3, 4, 5, 3, 4, 5])
    rows = means[y] + rng.normal(size=(len(y), 24)).astype(np.float32)
    training.add(y.tolist(), {"pooled": rows}, given=True, texts=[f"text {i}" for i in range(len(y))])
    return training


def fitted_on(device, samples):
    """The held-out logits of a fit, the losses of two rounds, and exact scores of all classes."""
    with on_device(device):
        views = fit_samples(samples, RECIPE)
        model = JointModel(samples, RECIPE, views, views.held_out, seed=0, rounds=2)
        assert {p.device.type for c in model.calibrators.values() for p in c.parameters()} == {device}
        losses = [model.epoch(round_).loss for round_ in (1, 2)]
        shift = model.shift(5)
        arms = Arms(samples.counts(), np.ones(6, dtype=np.bool_), 5)
        chosen = GradientShiftUCB(100.0).choose(arms, rng=np.random.default_rng(0), shift=shift).arm
        said = model.logits({"pooled": samples.views["pooled"][:2]}, ["a", "b"])
        state = model.state()
        model.restore(state)
    assert all(tensor.device.type == "cpu" for tensor in state.values())
    return views.held_out.logits, losses, shift.exact(np.arange(6)), chosen, said


@pytest.mark.parametrize("device", DEVICES)
def test_training_and_scoring_are_those_of_the_processor(device, samples):
    expected, other = fitted_on("cpu", samples), fitted_on(device, samples)
    for a, b in zip(expected[:3], other[:3], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)
    assert other[3] == expected[3]
    np.testing.assert_allclose(other[4], expected[4], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["quantum", "meta", "cuda:99", ""])
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(RecipeError, match=f"no device '{name}' here"), on_device(name):
        pass
    assert current_device() == torch.device("cpu")
