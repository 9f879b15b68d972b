"""δ² against the slow reference: one backward pass a class over all parameters."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from adamab.method import gradient_shift
from adamab.method.calibrator import ACTIVATIONS, Calibrator
from adamab.method.gradient_shift import GradientShift, ViewTerms
from adamab.method.policies import Arms, GradientShiftUCB, Greedy, TightUCB
from adamab.task.recipe import Recipe
from tests.method.reference import cross_entropies, double, flat_gradient, joint_logits

EPSILON = {np.float32: 1e-5, np.float64: 1e-10}


@dataclass
class Problem:
    """What a shift is computed from, and the reference's answer."""

    views: list[ViewTerms]
    y: np.ndarray
    n_classes: int
    batch: float
    options: dict[str, Any] = field(default_factory=dict)

    def shift(self):
        return GradientShift(self.views, self.y, n_classes=self.n_classes, batch=self.batch, **self.options)

    def reference(self):
        """(K,) δ² and (u‖g_C‖ + ‖h‖)² in float64, NaN for classes without samples."""
        models = [double(view.calibrator) for view in self.views]
        weight = self.options.get("sample_weight")
        weight = np.ones(len(self.y)) if weight is None else weight
        gradients, totals = {}, {}
        for c in np.unique(self.y).tolist():
            rows = np.flatnonzero(self.y == c)
            logits = joint_logits(models, self.views, rows)
            losses = cross_entropies(logits, self.y[rows])
            totals[c] = float(weight[rows].sum())
            loss = sum(w * loss for w, loss in zip(weight[rows], losses, strict=True)) / totals[c]
            gradients[c] = flat_gradient(loss, models)
        total = float(weight.sum())
        g_d = sum(gradients[c] * totals[c] / total for c in gradients)
        g_b = sum(gradients.values()) / len(gradients)
        u = self.batch / (total + self.batch)
        h = total / (total + self.batch) * g_d - g_b
        delta2, size = np.full(self.n_classes, np.nan), np.full(self.n_classes, np.nan)
        for c, g in gradients.items():
            delta2[c] = float((u * g + h).square().sum())
            size[c] = float((u * g.norm() + h.norm()) ** 2)
        return delta2, size


def make(
    counts,
    *,
    widths=(12,),
    dtype=np.float64,
    seed=0,
    batch=2,
    weights=(),
    spread=1.0,
    sample_weight=False,
    **shape,
):
    rng = np.random.default_rng(seed)
    k = len(counts)
    y = rng.permutation(np.repeat(np.arange(k), counts))
    views = []
    for i, width in enumerate(widths):
        recipe = Recipe.preset("paper").with_options(**shape)
        model = Calibrator(width, k, recipe, rng=rng, dtype=dtype)
        if model.free is not None:
            model.free[:] = rng.standard_normal(model.free.shape)
        queries = spread * rng.standard_normal((len(y), width))
        classes = spread * rng.standard_normal((k, width))
        weight = weights[i] if weights else 1.0
        views.append(ViewTerms(model, queries.astype(dtype), classes.astype(dtype), weight))
    options = {}
    if sample_weight:
        options["sample_weight"] = rng.random(len(y)) + 0.05
    return Problem(views, y, k, batch, options)


def with_margins(margin, *, dtype, noise=0.0):
    """Logits of `margin` for the own class and 0 for the others, from towers that start as the identity."""
    problem = make([3, 2, 4, 1], widths=(16,), dtype=dtype, zero_last=True, logit_scale=abs(margin))
    view = problem.views[0]
    view.queries[:] = np.eye(4, 16)[problem.y] + noise * np.random.default_rng(1).standard_normal((10, 16))
    view.classes[:] = np.sign(margin) * np.eye(4, 16)
    return problem


def agree(problem):
    """The shift and its bounds are the reference's, within rounding of its terms."""
    shift = problem.shift()
    expected, size = problem.reference()
    present = np.flatnonzero(~np.isnan(expected))
    allowed = EPSILON[problem.views[0].queries.dtype.type] * size[present]
    exact = shift.exact(present)
    assert exact.dtype == shift.lower.dtype == np.float64
    assert np.isfinite(exact).all()
    assert np.flatnonzero(shift.present).tolist() == present.tolist()
    assert (np.abs(exact - expected[present]) <= allowed).all()
    assert (shift.lower[present] <= exact + allowed).all()
    assert (shift.lower[~shift.present] == 0).all()
    assert np.isfinite(shift.scale)
    assert shift.scale >= 0
    # Whatever the cutoffs: exact below, a bound above the cutoff otherwise.
    for cutoffs in (exact * 0.9, exact * 1.1, np.full_like(exact, np.median(exact)), np.zeros_like(exact)):
        values, known = shift.refine(present, cutoffs)
        assert np.allclose(values[known], exact[known], rtol=1e-9, atol=allowed.min())
        assert known[exact <= cutoffs - allowed].all()
        assert (values[~known] >= cutoffs[~known]).all()
        assert (values[~known] <= exact[~known] + allowed[~known]).all()
        assert (values >= shift.lower[present] - allowed).all()
    return shift


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("seed", range(40))
def test_random_shapes(dtype, seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 30))
    counts = rng.integers(0 if seed % 4 == 0 else 1, rng.choice([2, 6, 30]), k)
    counts[:2] += counts[:2] == 0
    n_views = int(rng.integers(1, 4))
    agree(
        make(
            counts.tolist(),
            widths=tuple(int(w) for w in rng.integers(2, 60, n_views)),
            weights=tuple(rng.random(n_views) + 0.1),
            dtype=dtype,
            seed=seed,
            batch=float(rng.integers(1, 20)),
            spread=float(rng.choice([0.1, 1.0])),
            sample_weight=bool(rng.integers(2)),
            layers=int(rng.integers(1, 6)),
            bottleneck=int(rng.choice([1, 2, 4])),
            activation=str(rng.choice(list(ACTIVATIONS))),
            free_vectors=bool(rng.integers(2)),
            logit_scale=float(rng.choice([1.0, 16.0])),
            zero_last=bool(rng.integers(4) == 0),
            dropout=float(rng.choice([0.0, 0.5])),
        )
    )


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_depth_and_activation(dtype, layers, activation):
    # fewer classes than inputs in the first layer, more than hidden units in the others
    agree(make([3, 1, 4, 2, 5, 1], widths=(20,), dtype=dtype, layers=layers, activation=activation))


CASES = {
    "one sample a class": {"counts": [1] * 9},
    "heavily unbalanced": {"counts": [1, 400, 3]},
    "large classes, narrow layers": {"counts": [150, 90, 2], "widths": (4,)},
    "two classes": {"counts": [5, 2]},
    "two classes, one sample each": {"counts": [1, 1]},
    "classes without samples": {"counts": [0, 3, 0, 1, 5, 0]},
    "a single class with samples": {"counts": [0, 4, 0]},
    "free vectors": {"counts": [2, 3, 4], "free_vectors": True},
    "sample weights": {"counts": [2, 3, 40], "sample_weight": True},
    "several views": {"counts": [2, 3, 4], "widths": (24, 9, 5), "weights": (1.0, 0.2, 3.0)},
    "a view of weight 0": {"counts": [2, 3, 4], "widths": (24, 9), "weights": (1.0, 0.0)},
    "zero last layer": {"counts": [2, 3, 4], "zero_last": True},
    "more classes than inputs": {"counts": [2] * 30, "widths": (8,)},
    "wide": {"counts": [2] * 5, "widths": (200,)},
    "large batch": {"counts": [2, 3, 4], "batch": 1000},
}


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cases(dtype, case):
    agree(make(dtype=dtype, **case))


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
def test_a_thousand_classes(dtype):
    counts = np.random.default_rng(0).integers(1, 3, 1000).tolist()
    agree(make(counts, widths=(16,), dtype=dtype, free_vectors=True))


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
def test_classes_with_dependent_inputs(dtype):
    """Equal and zero class inputs: their Gram matrix has no inverse."""
    problem = make([3, 2, 4, 1], widths=(16,), dtype=dtype, activation="relu")
    problem.views[0].classes[1] = problem.views[0].classes[0]
    problem.views[0].classes[3] = 0
    agree(problem)
    problem.views[0].classes[1] += 1e-4 * np.random.default_rng(9).standard_normal(16)  # nearly singular
    problem.views[0].classes[3] += 1e-6
    agree(problem)


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("right", [True, False])
def test_saturated_softmax(dtype, right):
    """Logits of ±300: residuals of 0 and 1, finite everywhere."""
    problem = with_margins(300 if right else -300, dtype=dtype)
    shift = problem.shift()
    exact = shift.exact(np.arange(4))
    assert np.isfinite(exact).all()
    if right:
        assert (np.abs(exact) < 1e-30).all()
    else:
        agree(problem)


@pytest.mark.parametrize(
    ("dtype", "margin"),  # autograd's own probability − 1 has too few digits for float64's bar beyond 8
    [(np.float64, 8.0), (np.float32, 8.0), (np.float32, 15.0), (np.float32, 25.0)],
)
def test_tiny_residuals_keep_their_digits(dtype, margin):
    """Where a class is almost certain, probability − 1 in float32 would be rounding only."""
    agree(with_margins(margin, dtype=dtype, noise=0.01))


@pytest.mark.parametrize("most", [1, 300, 1000])  # numbers: a class at a time, or several
@pytest.mark.parametrize("free", [True, False])
def test_residuals_that_are_not_held_change_nothing(most, free, monkeypatch):
    problem = make([3, 1, 0, 4, 2, 5, 1] * 3, widths=(20, 8), sample_weight=True, free_vectors=free)
    present, held = np.flatnonzero(problem.shift().present), problem.shift()
    monkeypatch.setattr(gradient_shift, "MOST_RESIDUALS", most)
    blocked = problem.shift()
    np.testing.assert_allclose(blocked.lower, held.lower, rtol=1e-11)
    np.testing.assert_allclose(blocked.exact(present), held.exact(present), rtol=1e-11)
    assert blocked.scale == pytest.approx(held.scale)
    agree(problem)


def test_small_blocks_change_nothing(monkeypatch):
    problem = make([3, 1, 4, 2, 5, 1] * 3, widths=(20, 8))
    before = problem.shift().exact(np.arange(18))
    monkeypatch.setattr(gradient_shift, "INNER_NUMBERS", 1)
    np.testing.assert_allclose(problem.shift().exact(np.arange(18)), before, rtol=1e-12)
    agree(problem)


def test_scale_is_the_query_towers_mean_square():
    problem = make([2, 2, 2], widths=(8,), batch=3)
    view = problem.views[0]
    model = double(view.calibrator)
    squares = []
    for c in range(3):
        rows = np.flatnonzero(problem.y == c)
        loss = cross_entropies(joint_logits([model], [view], rows), problem.y[rows]).mean()
        gradient = flat_gradient(loss, [model])
        squares.append(float(gradient[: len(gradient) // 2].square().sum()))
    assert problem.shift().scale == pytest.approx((3 / 9) ** 2 * np.mean(squares), rel=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_lazy_choice_is_the_full_choice(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 60))
    counts = np.full(k, 3) if seed % 2 else rng.integers(1, 6, k)
    problem = make(
        counts.tolist(), widths=(int(rng.choice([8, 40, 90])),), seed=seed, dtype=[*EPSILON][seed % 4 // 2]
    )
    open_ = rng.random(k) < 0.8
    open_[rng.integers(k)] = True
    arms = Arms(counts, open_, int(problem.batch))
    for policy in (
        GradientShiftUCB(0.0),
        GradientShiftUCB(1.0),
        GradientShiftUCB(100.0),
        GradientShiftUCB(1.0, relative=True),
        TightUCB(1.0),
        Greedy(),
        Greedy(relative=True),
    ):
        lazy = policy.choose(arms, rng=rng, shift=problem.shift())
        full = policy.choose(arms, rng=rng, shift=problem.shift(), all_exact=True)
        shift = problem.shift()
        unit = shift.scale if policy.relative and shift.scale > 0 else 1.0
        scores = policy.bonus(arms) - shift.exact(np.arange(k)) / unit
        assert lazy.arm == full.arm
        assert lazy.score is not None
        assert lazy.exact is not None
        best = scores[open_].max()
        assert scores[lazy.arm] >= best - 1e-6 * abs(best - policy.bonus(arms)[lazy.arm])
        assert lazy.exact[lazy.arm]
