"""The towers: the paper's sizes, their start, independent members, and gradients that are autograd's."""

import numpy as np
import pytest
import torch

from adamab.method.calibrator import ACTIVATIONS, Calibrator, dropout_mask
from adamab.method.numerics import cross_entropy
from adamab.task.recipe import Recipe
from benchmarks._torch_reference import ACTIVATIONS as TORCH_ACTIVATIONS
from benchmarks._torch_reference import TorchCalibrator
from tests.method.reference import cross_entropies, flat_gradient, tensor

RNG = np.random.default_rng(0)


def made(width, n_classes=3, *, seed=0, members=(), **options):
    shape = Recipe.preset("paper").with_options(**options)
    rng = np.random.default_rng(seed)
    model = Calibrator(width, n_classes, shape, members=members, rng=rng, dtype=np.float64)
    if model.free is not None:
        model.free[:] = rng.standard_normal(model.free.shape)
    return model


@pytest.mark.parametrize(("width", "millions"), [(1536, "2.654"), (1024, "1.180"), (768, "0.664")])
def test_parameter_counts_are_those_of_the_paper(width, millions):
    count = made(width).parameters.size
    hidden = width // 4
    assert count == 2 * (width * hidden + hidden**2 + hidden * width)
    assert f"{count / 1e6:.3f}" == millions


def test_weights_start_within_one_over_the_root_of_the_inputs():
    for weight in made(64).query_tower.weights:
        bound = 1 / np.sqrt(weight.shape[1])
        assert np.abs(weight).max() <= bound
        assert np.abs(weight).mean() == pytest.approx(bound / 2, rel=0.1)
        assert abs(weight.mean()) < bound / 10


def test_zero_last_starts_as_the_identity():
    model = made(16, zero_last=True, logit_scale=3.0)
    x, t = RNG.standard_normal((5, 16)), RNG.standard_normal((3, 16))
    np.testing.assert_array_equal(model.query_tower.run(x).output, x)
    np.testing.assert_array_equal(model.class_vectors(t), 3 * t)
    np.testing.assert_allclose(model(x, t), 3 * x @ t.T)
    assert not np.array_equal(made(16).query_tower.run(x).output, x)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_and_slopes_of_activations_are_torchs(activation):
    z = np.concatenate([np.linspace(-30, 30, 201), [0.0]])
    expected = torch.from_numpy(z.copy()).requires_grad_()
    values = TORCH_ACTIVATIONS[activation](expected)
    (slopes,) = torch.autograd.grad(values.sum(), expected)
    slope = ACTIVATIONS[activation](z)
    np.testing.assert_allclose(z, values.detach(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, slopes, rtol=1e-12, atol=1e-12)


SHAPES = {
    **{activation: {"activation": activation} for activation in ACTIVATIONS},
    "one layer": {"layers": 1},
    "five layers": {"layers": 5, "activation": "tanh"},
    "members": {"members": (4,), "free_vectors": True},
    "members in two dimensions": {"members": (2, 3)},
    "dropout": {"dropout": 0.3, "free_vectors": True, "members": (2,)},
    "some classes": {"chosen": [5, 0, 3, 2], "free_vectors": True},
}


@pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("add", [False, True])
def test_loss_and_gradient_are_autograds(options, add):
    options = dict(options)
    members, chosen = options.get("members", ()), options.pop("chosen", None)
    model = made(12, 6, logit_scale=4.0, **options)  # type: ignore[arg-type]
    queries = RNG.standard_normal((*members, 9, 12))  # type: ignore[misc]
    classes = RNG.standard_normal((*members, 6, 12))  # type: ignore[misc]
    chosen = None if chosen is None else np.array(chosen)
    share = RNG.random(queries.shape[:-1])
    width = 6 if chosen is None else len(chosen)
    own = RNG.integers(width, size=share.size)

    def rng():
        return np.random.default_rng(5) if model.query_tower.dropout else None

    passed = model.run(queries, classes, chosen, weight=0.7, rng=rng())
    logits = passed.logits()
    rows = logits.reshape(-1, width)
    losses = cross_entropy(rows, own)
    rows *= share.reshape(-1, 1)
    gradient = np.ones_like(model.parameters)
    passed.backward(logits, gradient, add=add)

    reference = TorchCalibrator(model)
    places = None if chosen is None else tensor(chosen)
    of_torch = 0.7 * reference(tensor(queries), tensor(classes), places, rng())
    expected = cross_entropies(of_torch.flatten(0, -2), own)
    np.testing.assert_allclose(losses, expected.detach(), rtol=1e-10)
    of_loss = flat_gradient((expected * tensor(share).flatten()).sum(), [reference]).numpy()
    np.testing.assert_allclose(gradient, of_loss + add, rtol=1e-10, atol=1e-10)


def test_members_do_not_see_each_other():
    model = made(8, members=(2,))
    queries, classes = RNG.standard_normal((2, 5, 8)), RNG.standard_normal((2, 3, 8))
    both = model(queries, classes)
    queries[0] = 0
    np.testing.assert_array_equal(model(queries, classes)[1], both[1])


def test_dropout_only_with_random_numbers():
    model, x, rng = made(16, dropout=0.5), RNG.standard_normal((4, 16)), np.random.default_rng(0)
    assert not np.array_equal(model.query_tower.run(x, rng).output, model.query_tower.run(x, rng).output)
    np.testing.assert_array_equal(model.query_tower.run(x).output, model.query_tower.run(x).output)


def test_dropout_keeps_the_mean_and_drops_the_share():
    for share in (0.25, 0.5, 0.9):
        mask = dropout_mask((3, 1001), share, np.random.default_rng(0))
        assert mask.dtype == np.float32
        assert mask.mean() == pytest.approx(1, abs=0.12)
        assert (mask == 0).mean() == pytest.approx(share, abs=0.03)
        assert not np.array_equal(mask[0], mask[1])
        np.testing.assert_array_equal(mask, dropout_mask((3, 1001), share, np.random.default_rng(0)))
    assert not dropout_mask((4, 4), 0.999, np.random.default_rng(0)).any()
