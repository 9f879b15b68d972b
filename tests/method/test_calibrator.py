"""The towers: the paper's sizes, torch's initialisation, independent members."""

from __future__ import annotations

import pytest
import torch

from adamab.method.calibrator import ACTIVATIONS, Calibrator, dropout_mask
from adamab.task.recipe import Recipe


def made(width: int, n_classes: int = 3, *, seed: int = 0, **options: object) -> Calibrator:
    members = options.pop("members", ())
    shape = Recipe.preset("paper").with_options(**options)
    generator = torch.Generator().manual_seed(seed)
    return Calibrator(width, n_classes, shape, members=members, generator=generator)  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "millions"), [(1536, "2.654"), (1024, "1.180"), (768, "0.664")])
def test_parameter_counts_are_those_of_the_paper(width: int, millions: str) -> None:
    count = sum(p.numel() for p in made(width).parameters())
    hidden = width // 4
    assert count == 2 * (width * hidden + hidden**2 + hidden * width)
    assert f"{count / 1e6:.3f}" == millions


def test_zero_last_starts_as_the_identity() -> None:
    model = made(16, zero_last=True, free_vectors=True, logit_scale=3.0)
    x, t = torch.randn(5, 16), torch.randn(3, 16)
    assert torch.equal(model.query_tower(x), x)
    assert torch.equal(model.class_vectors(t), t)
    torch.testing.assert_close(model(x, t), 3 * x @ t.T)
    assert not torch.equal(made(16).query_tower(x), x)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_is_the_formula(activation: str) -> None:
    model = made(8, activation=activation, free_vectors=True, logit_scale=2.0)
    assert model.free is not None
    torch.nn.init.normal_(model.free)
    x, t, act = torch.randn(5, 8), torch.randn(3, 8), ACTIVATIONS[activation]

    def tower(z: torch.Tensor, w: torch.nn.ParameterList) -> torch.Tensor:
        return z + w[2] @ act(w[1] @ act(w[0] @ z))

    q = torch.stack([tower(row, model.query_tower.weights) for row in x])
    p = torch.stack([tower(row, model.class_tower.weights) for row in t]) + model.free
    torch.testing.assert_close(model(x, t), 2 * q @ p.T)


def test_dropout_only_in_training() -> None:
    model, x = made(16, dropout=0.5), torch.randn(4, 16)
    assert not torch.equal(model.query_tower(x), model.query_tower(x))
    model.eval()
    assert torch.equal(model.query_tower(x), model.query_tower(x))


def test_dropout_keeps_the_mean_and_drops_the_share():
    for share in (0.25, 0.5, 0.9):
        torch.manual_seed(0)
        mask = dropout_mask(torch.Size([3, 1001]), share)
        assert mask.mean() == pytest.approx(1, abs=0.12)
        assert (mask == 0).float().mean() == pytest.approx(share, abs=0.03)
        assert not torch.equal(mask[0], mask[1])
        torch.manual_seed(0)
        assert torch.equal(mask, dropout_mask(torch.Size([3, 1001]), share))
    assert not dropout_mask(torch.Size([4, 4]), 0.999).any()
