"""In float32 a fit is as accurate as the same fit in torch."""

import numpy as np
import pytest

from adamab.run._loop_model import JointModel
from benchmarks._torch_reference import TorchJointModel
from benchmarks.against_torch import Shape, loop_model, one_fit

SEEDS = 10


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["paper:trec", "calibrator:trec"])
def test_accuracy_over_ten_seeds_is_torchs(recipe):
    shape, accuracy = Shape(recipe, 30, 128, 3), {}
    for kind in (JointModel, TorchJointModel):
        with loop_model(kind):
            accuracy[kind] = [one_fit(shape, seed=seed, noise=2.5)[1] for seed in range(SEEDS)]
    own, reference = (np.array(values) for values in accuracy.values())
    difference = own - reference
    spread = difference.std(ddof=1) / np.sqrt(SEEDS)
    print(f"{recipe}: {own.mean():.4f} and {reference.mean():.4f}, {difference.mean():+.4f} ± {spread:.4f}")
    assert 0.3 < reference.mean() < 0.95  # neither hopeless nor too easy to tell
    assert abs(difference.mean()) < min(max(2 * spread, 0.003), 0.01)
