"""The towers: the paper's sizes, torch's initialisation, independent members."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_layers_have_no_biases_and_the_paper_widths(layers: int) -> None:
    model = made(40, layers=layers)
    sizes = [40] + [10] * (layers - 1) + [40]
    shapes = [tuple(w.shape) for w in model.query_tower.weights]
    assert shapes == [(sizes[i + 1], sizes[i]) for i in range(layers)]
    assert len(list(model.parameters())) == 2 * layers


def test_start_is_that_of_torch_linear() -> None:
    model = made(768)
    for tower in (model.query_tower, model.class_tower):
        for weight in tower.weights:
            bound = 1 / math.sqrt(weight.shape[1])
            reference = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False).weight
            assert float(weight.detach().abs().max()) <= bound
            assert float(weight.detach().abs().max()) > 0.99 * bound
            assert float(weight.detach().std()) == pytest.approx(float(reference.detach().std()), rel=0.02)
            assert abs(float(weight.detach().mean())) < 0.01 * bound * 2
    assert not torch.equal(model.query_tower.weights[0], model.class_tower.weights[0])


def test_same_seed_same_start_and_global_rng_untouched() -> None:
    state = torch.get_rng_state()
    first, second, other = made(16), made(16), made(16, seed=1)
    assert torch.equal(state, torch.get_rng_state())
    for a, b, c in zip(first.parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


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


def test_members_train_independently() -> None:
    """Three members trained as one batch end where three separate calibrators end."""
    members, n, k, width = 3, 12, 4, 16
    together = made(width, k, members=(members,), free_vectors=True)
    apart = [made(width, k, free_vectors=True) for _ in range(members)]
    for i, one in enumerate(apart):
        for mine, theirs in zip(one.parameters(), together.parameters(), strict=True):
            mine.data.copy_(theirs.data[i])
    x, t = torch.randn(members, n, width), torch.randn(members, k, width)
    y = torch.randint(0, k, (members, n))

    def train(model: Calibrator, x: torch.Tensor, t: torch.Tensor, y: torch.Tensor) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(10):
            optimizer.zero_grad()
            logits = model(x, t)
            losses = torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none")
            (losses.sum() / n).backward()
            optimizer.step()

    train(together, x, t, y)
    for i, one in enumerate(apart):
        train(one, x[i], t[i], y[i])
        for mine, theirs in zip(one.parameters(), together.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs[i], atol=2e-5, rtol=1e-4)


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
