"""Training against torch: optimisers, epochs and a whole fit from the same start, and a saturated softmax."""

from functools import partial

import numpy as np
import pytest
import torch

from adamab.method import training
from adamab.method.calibrator import Calibrator
from adamab.method.gradient_shift import ViewTerms
from adamab.method.numerics import cross_entropy
from adamab.method.training import Optimiser, RoundTrainer
from adamab.providers.metering import CallContext
from adamab.run import _arrays, _loop_model
from adamab.run._arrays import fit_arrays
from adamab.run.fit import sample_source
from adamab.run.samples import DescribedClasses, TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from benchmarks._torch_reference import TorchCalibrator, TorchJointModel, TorchTerms, TorchTrainer
from benchmarks.paper_run import Around
from tests.method.reference import tensor

KINDS = {
    "adam": (torch.optim.Adam, {"weight_decay": 1e-2}, {"decay": 1e-2}),
    "adam without decay": (torch.optim.Adam, {}, {}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}, {"decay": 0.1, "decoupled": True}),
    "sgd": (torch.optim.SGD, {"weight_decay": 0.1}, {"decay": 0.1, "plain": True}),
    "epsilon": (torch.optim.AdamW, {"eps": 1e-3}, {"decay": 1e-2, "decoupled": True, "epsilon": 1e-3}),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_steps_are_those_of_torch(kind, monkeypatch):
    monkeypatch.setattr(training, "BLOCK", 7)
    make, torch_options, options = kind
    rng = np.random.default_rng(0)
    parameters = rng.standard_normal(30)
    expected = torch.nn.Parameter(tensor(parameters.copy()))
    reference, own = make([expected], lr=0.01, **torch_options), Optimiser(parameters, **options)
    for step in range(40):
        gradient = rng.standard_normal(30) * 10.0 ** -(step % 12)
        rate = reference.param_groups[0]["lr"] = 0.01 / (1 + step)
        expected.grad = tensor(gradient.copy())
        reference.step()
        own.gradient[:] = gradient
        own.step(rate)
        np.testing.assert_allclose(parameters, expected.detach(), rtol=1e-10, atol=1e-10)
        if step == 20 and "plain" not in options:
            before, own = own, Optimiser(parameters, **options)
            own.restore(before.state())


def problem(recipe, *, dtype=np.float64, n=50):
    rng = np.random.default_rng(1)
    y = rng.integers(5, size=n)
    views = [
        ViewTerms(
            Calibrator(width, 5, recipe, rng=rng, dtype=dtype),
            rng.standard_normal((n, width)).astype(dtype) / width**0.5,
            rng.standard_normal((5, width)).astype(dtype) / width**0.5,
            weight,
        )
        for width, weight in ((12, 1.0), (8, 0.4))
    ]
    return views, y, rng.random(n) + 0.1


RECIPES = {
    "paper": Recipe.preset("paper").with_options(batch_size=16),
    "default": Recipe(batch_size=16, logit_scale=4.0),
    "descent": Recipe.preset("paper").with_options(full_gradient=True, activation="gelu"),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_epochs_are_those_of_torch(recipe):
    views, y, weight = problem(recipe)
    models = [TorchCalibrator(view.calibrator) for view in views]
    terms = [
        TorchTerms(m, tensor(v.queries), tensor(v.classes), v.weight)
        for m, v in zip(models, views, strict=True)
    ]
    own = RoundTrainer([view.calibrator for view in views], recipe, rounds=8)
    reference = TorchTrainer(models, recipe, rounds=8)
    for round_ in range(6):
        expected = reference.epoch(terms, tensor(y), tensor(weight), np.random.default_rng(round_))
        report = own.epoch(views, y, weight, np.random.default_rng(round_))
        assert report.loss == pytest.approx(expected.loss, rel=1e-10)
        assert report.learning_rate == pytest.approx(expected.learning_rate, rel=1e-12)
        for view, model in zip(views, models, strict=True):
            np.testing.assert_allclose(view.calibrator.parameters, model.flat(), rtol=1e-8, atol=1e-10)


def paper_fit(policy="adamab", **options):
    """A fit of the paper's recipe on vectors around those of the classes: decisions, losses, heads."""
    rng = np.random.default_rng(0)
    classes = rng.standard_normal((8, 32)).astype(np.float32)
    classes /= np.linalg.norm(classes, axis=1, keepdims=True)
    described = DescribedClasses((), {"pooled": classes})
    samples = TrainingSet(8, lambda _: described, has_texts=False)
    y = np.repeat(np.arange(8), rng.integers(1, 5, 8))
    vectors = (classes[y] + 0.3 * rng.standard_normal((len(y), 32))).astype(np.float32)
    samples.add(y.tolist(), {"pooled": vectors}, given=True)
    recipe = Recipe.preset("paper:trec").with_options(alpha=0.1, **options)
    specs = [ClassSpec(str(c)) for c in range(8)]
    source = sample_source(Around(classes), specs, samples, recipe, CallContext())
    outcome = fit_arrays(samples, recipe, source, policy, seed=0, all_scores=True)
    new = (classes + rng.standard_normal((100, 8, 32)).astype(np.float32)).reshape(-1, 32)
    return outcome.history, outcome.heads[0].logits(new)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.4, "optimiser": "adamw"}])
def test_a_whole_fit_in_float64_is_that_of_torch(monkeypatch, options):
    monkeypatch.setattr(_loop_model, "Calibrator", partial(Calibrator, dtype=np.float64))
    history, logits = paper_fit(**options)
    monkeypatch.setattr(_arrays, "JointModel", TorchJointModel)
    expected, expected_logits = paper_fit(**options)
    chosen = [record.chosen for record in history]
    assert len(history) == 100
    assert len(set(chosen)) > 4
    assert chosen == [record.chosen for record in expected]
    for own, reference in zip(history, expected, strict=True):
        assert own.loss == pytest.approx(reference.loss, rel=1e-6)
        if reference.scores is not None:
            np.testing.assert_allclose(own.scores.score, reference.scores.score, rtol=1e-6)
    np.testing.assert_array_equal(logits.argmax(1), expected_logits.argmax(1))
    np.testing.assert_allclose(logits, expected_logits, rtol=1e-4, atol=1e-4)  # kept in float32


def denormals(x):
    return int(((x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)).sum())


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_what_is_left_out_of_a_softmax_is_below_the_rounding(scale):
    rng = np.random.default_rng(0)
    y, x = rng.integers(40, size=300), rng.standard_normal((300, 16))
    logits = scale * rng.standard_normal((300, 40))
    logits[np.arange(300), y] += 2 * scale
    probability = np.exp(logits - logits.max(1, keepdims=True))
    probability /= probability.sum(1, keepdims=True)
    probability[np.arange(300), y] -= 1
    residual = logits.astype(np.float32)
    losses = cross_entropy(residual, y)
    expected = logits.max(1) - logits[np.arange(300), y]
    expected += np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1))
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    gradient = x.T @ residual.astype(np.float64)
    size = np.abs(x.T) @ np.abs(probability)
    assert (np.abs(gradient - x.T @ probability) <= 1e-5 * size.max()).all()
    assert denormals(residual) == 0


def test_residuals_of_certain_samples_keep_their_digits():
    residual = np.array([[30.0, 0.0, 1.0]], np.float32)
    cross_entropy(residual, np.array([0]))
    expected = np.exp([-30.0, -29.0])
    np.testing.assert_allclose(residual[0, 1:], expected, rtol=1e-5)
    assert residual[0, 0] == pytest.approx(-expected.sum(), rel=1e-5)
