"""The contract of a policy as checks that anyone can run on an implementation.

def test_my_policy():
    check_policy(MyPolicy())
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adamab.method.policies import Arms, Choice, Policy

ROUNDS = 30


class KnownShift:
    """A gradient shift whose exact values are given; it counts what a policy asks for.

    `lower` is `values` minus `slack`. As the real one, `refine` gives up on a class above its cutoff.
    """

    def __init__(self, values: NDArray[np.float64], slack: NDArray[np.float64], scale: float = 1.0) -> None:
        self.values = values
        self.lower = values - slack
        self.scale = scale
        self.refined: list[int] = []

    def refine(
        self, classes: NDArray[np.intp], cutoffs: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Exact values up to the cutoffs, bounds between cutoff and value above them."""
        self.refined += classes.tolist()
        exact = self.values[classes] <= cutoffs
        between = np.maximum(self.lower[classes], (self.values[classes] + np.where(exact, 0, cutoffs)) / 2)
        return np.where(exact, self.values[classes], between), exact


def check_policy(policy: Policy, *, seed: int = 0) -> None:
    """Raise AssertionError where `policy` breaks the contract of `Policy`."""
    assert policy.name, "a policy needs a name"
    for case in range(ROUNDS):
        arms, shift = _state(seed + case)
        _check_choice(policy, arms, shift, seed + case)
    _check_empty_first(policy, seed)


def _state(seed: int) -> tuple[Arms, KnownShift]:
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(2, 40))
    open_ = rng.random(n_classes) < 0.7
    open_[rng.integers(n_classes)] = True
    counts = rng.integers(1, 5 if seed % 2 else 500, n_classes)
    shift = KnownShift(rng.random(n_classes), rng.random(n_classes) * rng.random(), scale=0.3)
    return Arms(counts, open_, batch=int(rng.integers(1, 6))), shift


def _choose(policy: Policy, arms: Arms, shift: KnownShift, seed: int, *, all_exact: bool = False) -> Choice:
    rng = np.random.default_rng(seed)
    return policy.choose(arms, rng=rng, shift=shift if policy.needs_shift else None, all_exact=all_exact)


def _check_choice(policy: Policy, arms: Arms, shift: KnownShift, seed: int) -> None:
    before = arms.counts.copy(), arms.open.copy()
    choice = _choose(policy, arms, shift, seed)
    assert isinstance(choice.arm, int), "the arm must be an int"
    assert 0 <= choice.arm < len(arms.counts), "the arm must be a class"
    assert arms.open[choice.arm], "a closed class was chosen"
    unchanged = np.array_equal(before[0], arms.counts) and np.array_equal(before[1], arms.open)
    assert unchanged, "the state was changed"
    assert _choose(policy, arms, shift, seed).arm == choice.arm, "the same state and rng gave another class"
    full = _choose(policy, arms, shift, seed, all_exact=True)
    assert full.arm == choice.arm, "computing all scores changed the choice"
    for answer in (choice, full):
        _check_scores(answer, arms)
    if choice.score is None or choice.exact is None or full.score is None or full.exact is None:
        return
    assert choice.exact[choice.arm], "the chosen class's score must be exact"
    assert full.exact.all(), "all_exact left a score inexact"
    assert (choice.score >= full.score - 1e-12).all(), "a score that is not exact must be an upper bound"
    assert np.array_equal(choice.score[choice.exact], full.score[choice.exact]), "an exact score changed"
    best = np.where(arms.open, full.score, -np.inf)
    assert choice.arm == int(np.argmax(best)), "not the lowest open class of the highest score"


def _check_scores(choice: Choice, arms: Arms) -> None:
    for name in ("bonus", "score"):
        values = getattr(choice, name)
        if values is not None:
            assert values.dtype == np.float64, f"{name} must be float64"
            assert values.shape == arms.counts.shape, f"{name} must have one number a class"
            assert np.isfinite(values[arms.counts > 0]).all(), f"{name} must be finite"
    assert (choice.score is None) == (choice.exact is None), "scores need their exactness"


def _check_empty_first(policy: Policy, seed: int) -> None:
    counts = np.array([3, 0, 2, 0, 0])
    open_ = np.array([True, False, True, True, True])
    shift = KnownShift(np.array([0.1, 0.0, 0.2, 0.0, 0.0]), np.zeros(5))
    choice = _choose(policy, Arms(counts, open_, 2), shift, seed)
    assert choice.arm == 3, "open classes without samples come first, lowest index first"
    closed = Arms(counts, counts > 0, 2)  # classes without samples may be closed for good
    for all_exact in (False, True):
        choice = _choose(policy, closed, shift, seed, all_exact=all_exact)
        assert choice.arm in (0, 2), "a closed class was chosen"
        _check_scores(choice, closed)
