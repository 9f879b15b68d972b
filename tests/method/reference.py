"""What autograd says of the product's calibrators."""

import numpy as np
import torch
from torch.nn import functional

from benchmarks._torch_reference import TorchCalibrator


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def double(calibrator):
    """The same calibrator in torch and float64."""
    return TorchCalibrator(calibrator).double()


def joint_logits(models, views, rows):
    """(m, K) logits of the weighted views in float64."""
    return sum(
        view.weight * model(tensor(view.queries[rows]).double(), tensor(view.classes).double())
        for model, view in zip(models, views, strict=True)
    )


def flat_gradient(loss, models):
    """In the order of the product's parameters, view after view."""
    parameters = [p for model in models for p in model.ordered()]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])


def cross_entropies(logits, class_index):
    return functional.cross_entropy(logits, tensor(class_index), reduction="none")
