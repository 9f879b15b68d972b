"""Policies: the lazy argmax is the argmax, empty classes come first, the baselines are what they say."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from adamab.errors import RecipeError
from adamab.method.policies import (
    POLICIES,
    Arms,
    Choice,
    GradientShiftUCB,
    Greedy,
    Policy,
    Random,
    RoundRobin,
    TightUCB,
    make_policy,
)
from adamab.testing import KnownShift, check_policy

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "none"])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 100.0])
def test_conformance(name, relative, alpha):
    policy = make_policy(name, alpha=alpha, relative=relative)
    assert policy is not None
    assert policy.name == name
    check_policy(policy)


def test_none_never_generates_and_unknown_names_are_refused():
    assert make_policy("none", alpha=1, relative=False) is None
    with pytest.raises(RecipeError, match=r"unknown policy 'best'.*round-robin"):
        make_policy("best", alpha=1, relative=False)


def test_bandit_without_a_shift_is_refused():
    arms = Arms(np.array([1, 2]), np.ones(2, dtype=np.bool_), 1)
    with pytest.raises(RecipeError, match="needs the gradient shift"):
        Greedy().choose(arms, rng=RNG)


@pytest.mark.parametrize("seed", range(300))
def test_lazy_argmax_is_the_full_argmax(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 120))
    counts = rng.integers(1, 4, k) if seed % 3 else np.full(k, 5)
    open_ = rng.random(k) < rng.choice([0.2, 1.0])
    open_[rng.integers(k)] = True
    values = rng.random(k) * 10.0 ** rng.integers(-17, 3)  # the smallest tie once the bonus is added
    if seed % 2:  # ties: few distinct values, so that classes are exact duplicates of each other
        values = rng.choice(values[:3], k)
    slack = values * rng.random(k) * rng.choice([0.0, 0.1, 1.0])
    arms = Arms(counts, open_, int(rng.integers(1, 9)))
    alpha, relative = float(rng.choice([0.0, 1.0, 100.0])), bool(rng.integers(2))
    total = counts.sum() + arms.batch
    for policy, bonus in (
        (GradientShiftUCB(alpha, relative), alpha / np.sqrt(total * counts)),
        (TightUCB(alpha, relative), alpha / (total * np.sqrt(counts))),
        (Greedy(relative=relative), np.zeros(k)),
    ):
        shift = KnownShift(values, slack, scale=0.01)
        choice = policy.choose(arms, rng=RNG, shift=shift)
        expected = bonus - values / (0.01 if relative else 1.0)
        assert choice.arm == int(np.argmax(np.where(open_, expected, -np.inf)))
        assert choice.bonus is not None
        np.testing.assert_allclose(choice.bonus, bonus, rtol=1e-14)
        assert len(set(shift.refined)) == len(shift.refined), "a class was evaluated twice"
        assert open_[shift.refined].all(), "a closed class was evaluated"
        full = policy.choose(arms, rng=RNG, shift=shift, all_exact=True)
        assert full.arm == choice.arm
        assert full.score is not None
        np.testing.assert_allclose(full.score, expected, rtol=1e-12)


def test_lazy_evaluation_skips_what_cannot_win():
    values = np.linspace(1, 2, 100)
    shift = KnownShift(values, np.full(100, 0.05))
    arms = Arms(np.full(100, 3), np.ones(100, dtype=np.bool_), 2)
    choice = Greedy().choose(arms, rng=RNG, shift=shift)
    assert choice.arm == 0
    assert len(shift.refined) < 15
    assert choice.exact is not None
    assert choice.exact.sum() <= len(shift.refined)


def test_relative_scale_divides_the_shift():
    arms = Arms(np.array([1, 2]), np.ones(2, dtype=np.bool_), 1)
    shift = KnownShift(np.array([2.0, 1.0]), np.zeros(2), scale=10.0)
    assert GradientShiftUCB(1.0).choose(arms, rng=RNG, shift=shift).arm == 1
    assert GradientShiftUCB(1.0, relative=True).choose(arms, rng=RNG, shift=shift).arm == 0
    shift.scale = 0.0  # all gradients vanished: no unit to divide by
    assert GradientShiftUCB(1.0, relative=True).choose(arms, rng=RNG, shift=shift).arm == 1


def test_random_is_uniform_over_open_classes():
    arms = Arms(np.array([9, 1, 1, 5]), np.array([True, True, False, True]), 1)
    rng = np.random.default_rng(0)
    drawn = np.bincount([Random().choose(arms, rng=rng).arm for _ in range(6000)], minlength=4)
    assert drawn[2] == 0
    assert (np.abs(drawn[[0, 1, 3]] - 2000) < 150).all()  # 4 standard deviations


def test_round_robin_takes_the_fewest_samples_and_ends_balanced():
    counts, open_ = np.array([5, 0, 2, 2, 9]), np.array([True, True, True, True, False])
    chosen = []
    for _ in range(11):
        arm = RoundRobin().choose(Arms(counts, open_, 1), rng=RNG).arm
        chosen.append(arm)
        counts[arm] += 1
    assert chosen[:2] == [1, 1]
    assert sorted(chosen[2:5]) == [1, 2, 3]
    assert chosen[2:5] == chosen[5:8] == chosen[8:]  # the order stays
    assert counts.tolist() == [5, 5, 5, 5, 9]


def test_round_robin_serves_equal_counts_in_an_order_of_the_seed():
    arms = Arms(np.full(30, 4), np.ones(30, dtype=np.bool_), 1)

    def served(seed, rounds):
        counts, policy = arms.counts.copy(), make_policy("round-robin", alpha=1, relative=False, seed=seed)
        assert policy is not None
        for _ in range(rounds):
            counts[policy.choose(replace(arms, counts=counts), rng=RNG).arm] += 1
        return np.flatnonzero(counts - arms.counts).tolist()

    assert len({tuple(served(seed, 5)) for seed in range(20)}) == 20
    assert served(0, 30) == list(range(30))
    # A run that is resumed asks a new policy, with another state of the run's random numbers.
    first = make_policy("round-robin", alpha=1, relative=False, seed=3)
    again = make_policy("round-robin", alpha=1, relative=False, seed=3)
    assert first is not None
    assert again is not None
    RNG.random(7)
    assert first.choose(arms, rng=np.random.default_rng(0)).arm == again.choose(arms, rng=RNG).arm


@dataclass(frozen=True)
class Broken(Policy):
    """A policy with one fault, to show that the suite finds it."""

    fault: str
    name: ClassVar[str] = "broken"
    needs_shift: ClassVar[bool] = True

    def _choose(self, arms, *, rng, shift, all_exact):  # type: ignore[no-untyped-def]
        good = GradientShiftUCB(1.0).choose(arms, rng=rng, shift=shift, all_exact=all_exact)
        first = int(np.flatnonzero(arms.open)[0])
        match self.fault:
            case "closed":
                return Choice(int(np.argmin(arms.open)))
            case "erratic":
                return Choice(int(np.random.default_rng().choice(np.flatnonzero(arms.open))))
            case "mutates":
                arms.counts[0] += 1
            case "float32":
                return Choice(good.arm, good.bonus, good.score.astype(np.float32), good.exact)
            case "infinite":
                return Choice(good.arm, good.bonus, good.score + np.inf, good.exact)
            case "first":
                exact = np.ones_like(good.exact)
                full = GradientShiftUCB(1.0).choose(arms, rng=rng, shift=shift, all_exact=True)
                return Choice(first, good.bonus, full.score, exact)
            case "inexact":
                return Choice(good.arm, good.bonus, good.score, np.zeros_like(good.exact))
        return good


class EmptyLast(RoundRobin):
    def choose(self, arms, **_):  # type: ignore[no-untyped-def]
        return Choice(int(np.argmax(np.where(arms.open, arms.counts, -1))))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Broken("closed"), "closed class"),
        (Broken("erratic"), "gave another class|changed the choice"),
        (Broken("mutates"), "state was changed"),
        (Broken("float32"), "float64"),
        (Broken("infinite"), "finite"),
        (Broken("first"), "highest score"),
        (Broken("inexact"), "must be exact"),
        (EmptyLast(), "without samples come first"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_conformance_suite_finds_faults(policy, message):
    with pytest.raises(AssertionError, match=message):
        check_policy(policy)
    check_policy(Broken("none"))


def test_a_diverged_training_is_told():
    arms = Arms(np.array([2, 2]), np.ones(2, dtype=np.bool_), 5)
    shift = KnownShift(np.array([np.nan, 1.0]), np.zeros(2))
    with pytest.raises(RecipeError, match="diverged"):
        GradientShiftUCB(1.0).choose(arms, rng=np.random.default_rng(0), shift=shift)


@pytest.mark.parametrize(
    ("name", "empty"),
    [("random", False), ("random", True), ("round-robin", False), ("round-robin", True), ("greedy", False)],
)
def test_a_forecast_is_what_happens_while_the_shift_stays(name, empty):
    policy = make_policy(name, alpha=3, relative=False)
    assert policy is not None
    counts = np.array([3, 2, 0 if empty else 5, 4, 3, 6])
    arms = Arms(counts, np.array([True, True, True, True, False, True]), batch=2)
    shift = KnownShift(np.array([0.3, 0.1, 0.2, 0.6, 0.1, 0.15]), slack=np.zeros(6))
    rng = np.random.default_rng(5)
    choice = policy.choose(arms, rng=rng, shift=shift)
    guesses = policy.forecast(arms, choice, rng=rng, rounds=6)
    assert np.array_equal(arms.counts, counts)
    happened = []
    for _ in range(6):
        counts[choice.arm] += 2
        choice = policy.choose(arms, rng=rng, shift=shift)
        happened.append(choice.arm)
    assert guesses == happened


def test_a_forecast_of_a_bandit_takes_the_fewest_samples_and_the_best_score_first():
    policy = GradientShiftUCB(alpha=100)
    arms = Arms(np.array([5, 5, 5, 5, 3]), np.array([True, True, True, True, False]), batch=5)
    shift = KnownShift(np.array([0.3, 0.1, 0.2, 0.4, 0.0]), slack=np.zeros(5))
    choice = policy.choose(arms, rng=RNG, shift=shift)
    assert choice.arm == 1
    assert policy.forecast(arms, choice, rng=RNG, rounds=5) == [2, 0, 3, 1, 2]


def test_a_class_that_is_twice_as_difficult_counts_as_one_with_half_the_samples():
    everything, need = np.ones(3, dtype=bool), np.array([1.0, 2.0, 0.5])
    hard = Arms(np.array([4, 8, 3]), everything, 5, need)
    plain = Arms(np.array([4, 4, 6]), everything, 5)
    policy = GradientShiftUCB(alpha=100)
    ratio = policy.bonus(hard) / policy.bonus(plain)  # the totals differ
    np.testing.assert_allclose(ratio, ratio[0])
    shift = KnownShift(np.zeros(3), slack=np.zeros(3))
    counts, chosen = np.array([2, 2, 2]), []
    for _ in range(7):
        arms = Arms(counts, everything, 2, need)
        chosen.append(policy.choose(arms, rng=RNG, shift=shift).arm)
        counts = counts + 2 * (np.arange(3) == chosen[-1])
    assert np.bincount(chosen).tolist() == [2, 4, 1]
    assert (
        policy.forecast(Arms(np.array([2, 2, 2]), everything, 2, need), Choice(1), rng=RNG, rounds=6)
        == (chosen[1:])
    )


def choices(policy, need, rounds):
    """Counts of ten classes after so many rounds; the first has by far the smallest δ²."""
    counts = np.ones(10, np.int64)
    shift = KnownShift(np.r_[0.0, np.full(9, 1e6)], slack=np.zeros(10))
    for _ in range(rounds):
        arms = Arms(counts, np.ones(10, dtype=np.bool_), 5, need)
        counts[policy.choose(arms, rng=RNG, shift=shift).arm] += 5
    return counts


def test_a_limit_keeps_a_class_from_running_away():
    assert choices(GradientShiftUCB(100), 1.0, 20)[0] == 101
    assert choices(GradientShiftUCB(100, max_batches_ahead=1), 1.0, 20).tolist() == [11] * 10
    assert (
        choices(GradientShiftUCB(100, max_batches_ahead=1), 1.0, 21)[0] == 16
    )  # who is first is still told by δ²
    assert choices(GradientShiftUCB(100, max_batches_ahead=3), 1.0, 20)[0] == 21
