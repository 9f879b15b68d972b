from math import log, sqrt

import numpy as np
import pytest

from adamab.method.policies import Arms, GradientShiftUCB, TightUCB
from experiments.theory import (
    Analysis,
    adamab_bound,
    biased_descent_bound,
    class_radius,
    mean_radius,
    ratio_bound,
    ratio_bound_of,
    shift_radius,
    theorem_alpha,
    tight_alpha,
)

# d = 50, G = 0.1, T = 10: d G² = 50 · 0.01 = 0.5; 2 d T⁴ = 2 · 50 · 10000 = 10⁶; log 10⁶ = 13.815511
SMALL = Analysis(rounds=10, dimension=50, gradient_bound=0.1)


def test_radius_of_a_mean():
    # sqrt(2 · 0.5 · 13.815511 / 4) = sqrt(3.45387775) = 1.858461
    assert float(mean_radius(4, SMALL)) == pytest.approx(1.858461, abs=1e-6)
    # four events: log(4 · 10⁶) = 13.815511 + 1.386294 = 15.201805; sqrt(15.201805 / 4) = 1.949475
    assert float(mean_radius(4, SMALL, events=4)) == pytest.approx(1.949475, abs=1e-6)


def test_radius_of_the_squared_shift():
    # n + 1 = 6; ε₁ of n_C = 4: 1.858461 / sqrt(6) = 0.758714; with ε₂: 0.758714 + 2.856767 = 3.615481
    # 4 sqrt(0.5) = 2.828427; 2.828427 · 3.615481 = 10.226125
    assert shift_radius([1, 4], SMALL)[1] == pytest.approx(10.226125, abs=1e-4)


def test_alpha_of_the_theorem():
    # 4 · 0.5 · sqrt(2 · 13.815511) = 2 · sqrt(27.631021) = 2 · 5.256522 = 10.513044
    assert theorem_alpha(SMALL) == pytest.approx(10.513044, abs=1e-5)
    # 24 samples: 10.513044 / sqrt(25) = 2.102609
    assert tight_alpha(SMALL, 24) == pytest.approx(2.102609, abs=1e-5)


def test_alpha_makes_the_policies_bonus_the_confidence_radius():
    counts = np.array([3, 1, 20])
    arms = Arms(counts, np.ones(3, dtype=np.bool_), batch=1)
    alpha, factor = theorem_alpha(SMALL), 4 * sqrt(SMALL.squared_norm)
    assert GradientShiftUCB(alpha).bonus(arms) == pytest.approx(factor * class_radius(counts, SMALL))
    assert TightUCB(alpha).bonus(arms) == pytest.approx(factor * class_radius(counts, SMALL, tight=True))
    as_relaxed = GradientShiftUCB(tight_alpha(SMALL, 24)).bonus(arms)
    assert TightUCB(alpha).bonus(arms) == pytest.approx(as_relaxed)


def test_ratio_bound():
    # 2 / 13.815511 = 0.144765; sqrt = 0.380480; 1.380480² = 1.905725
    assert ratio_bound(SMALL) == pytest.approx(1.905725, abs=1e-5)
    # 2 d = 100: 2 / 4.605170 = 0.434294; sqrt = 0.659010; 1.659010² = 2.752314
    assert ratio_bound(dimension=50) == pytest.approx(2.752314, abs=1e-5)
    with pytest.raises(ValueError, match="either"):
        ratio_bound()
    with pytest.raises(ValueError, match="either"):
        ratio_bound(SMALL, dimension=50)


def test_ratio_bound_of_any_alpha_solves_its_condition():
    # M = 4: sqrt(5) (1 − 1/2) = 1.118034, so 8 d G² / α must be that: α = 8 · 0.5 / 1.118034 = 3.577709
    assert ratio_bound_of(3.577709, 0.5) == pytest.approx(4.0, abs=1e-5)
    # the paper's closed form is a simplification to the safe side
    exact = ratio_bound_of(theorem_alpha(SMALL), SMALL.squared_norm)
    assert 1 < exact < ratio_bound(SMALL)
    # a hundredth of the theorem's α: sqrt(M) is about 8 · 0.5 · 100 / 10.513 = 38, plus 1
    assert ratio_bound_of(theorem_alpha(SMALL) / 100, 0.5) == pytest.approx((38.05 + 1) ** 2, rel=0.01)


def test_bound_of_the_first_theorem_by_steps():
    # L = 3, η = 0.5, 0.25, 0.25; δ² = 1, 2, 4:
    # T=1: (6 + 0.5) / 0.5 = 13; T=2: (6 + 1) / 0.75 = 9.3333; T=3: (6 + 2) / 1 = 8
    bound = biased_descent_bound(3.0, [0.5, 0.25, 0.25], [1.0, 2.0, 4.0])
    assert bound == pytest.approx([13, 28 / 3, 8])


def test_bound_of_the_second_theorem_term_by_term():
    # T = 1, K = 2, n = 2, d = 1, G = 1: log(2) = 0.693147; M = (1 + sqrt(2 / 0.693147))² = 7.283...
    # smallest count (2 − 1) / (M + 1) is below one, and every class has at least one: n_C = 1
    one = Analysis(rounds=1, dimension=1, gradient_bound=1.0)
    bound = adamab_bound(one, first_loss=2.0, rate=0.5, n_classes=2, n_start=2, least_shift=0.25)
    radius = 4 * (sqrt(2 * log(2)) / sqrt(3) + sqrt(2 * log(4)))
    assert bound.start == pytest.approx(2 * 2 / 0.5)
    assert bound.regret == pytest.approx(2 * radius)
    assert bound.failure == pytest.approx(4 * 3)  # 4 d G² (K+1) / T⁴
    assert bound.sampling == pytest.approx(1 / 9)  # d G² / (n+1)²
    assert bound.total == pytest.approx(8 + 2 * radius + 12 + 1 / 9 + 0.25)
