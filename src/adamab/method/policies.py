"""Which class gets the next batch: the paper's bandit, its variants and the baselines.

A bandit's arm is a class here; the word stays inside this module. Policies see counts and
gradient shifts as NumPy arrays and know nothing of networks.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from adamab.errors import RecipeError

FIRST_BLOCK = 4
ORDER = 1  # purpose of random numbers: the order of classes of equal counts


class Shift(Protocol):
    """What a policy needs to know of δ² (see `GradientShift`)."""

    lower: NDArray[np.float64]  # (K,)
    scale: float

    def refine(
        self, classes: NDArray[np.intp], cutoffs: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """δ² of some classes, or a lower bound above the cutoff; and which of the two."""


@dataclass(frozen=True)
class Arms:
    """The state a policy chooses from."""

    counts: NDArray[np.int64]  # (K,) accepted samples of each class
    open: NDArray[np.bool_]  # (K,) the class can still be generated for
    batch: int  # Δn
    target_share: NDArray[np.float64] | float = 1.0  # (K,) samples that a class should have, 1 on average


@dataclass(frozen=True)
class Choice:
    """The chosen class and, where the policy computes them, what it was chosen by.

    `score` is an upper bound where `exact` is False. Classes without samples have no score; theirs
    is NaN here and left out of records.
    """

    arm: int
    bonus: NDArray[np.float64] | None = None  # (K,)
    score: NDArray[np.float64] | None = None  # (K,)
    exact: NDArray[np.bool_] | None = None  # (K,)


class Policy(ABC):
    """Chooses one open class per round; deterministic given the state and `rng`.

    Classes without any sample come first, lowest index first, under every policy: there is no
    gradient to judge them by. Ties go to the lowest index, but under round-robin. An implementation
    writes `_choose` and says in `needs_shift` whether it wants δ² computed.
    """

    name: ClassVar[str]
    needs_shift: ClassVar[bool] = False

    def choose(
        self, arms: Arms, *, rng: np.random.Generator, shift: Shift | None = None, all_exact: bool = False
    ) -> Choice:
        """Choose among the open classes; `all_exact` computes every score, not only the needed ones.

        Args:
            arms: counts, and which classes are open.
            rng: of the policies that draw.
            shift: δ², for policies that need it.
            all_exact: compute every score, not only those that can win.
        """
        empty = np.flatnonzero(arms.open & (arms.counts == 0))
        if len(empty):
            return Choice(int(empty[0]))
        return self._choose(arms, rng=rng, shift=shift, all_exact=all_exact)

    @abstractmethod
    def _choose(
        self, arms: Arms, *, rng: np.random.Generator, shift: Shift | None, all_exact: bool
    ) -> Choice:
        """Choose when every open class has a sample."""

    def forecast(self, arms: Arms, choice: Choice, *, rng: np.random.Generator, rounds: int) -> list[int]:
        """The classes that the next rounds will likely choose, once `choice` has its batch.

        A guess that may be wrong, for fetching ahead; it leaves `rng` as it is.

        Args:
            arms: the state in which `choice` was made.
            choice: of this round.
            rng: of the policies that draw.
            rounds: number of guesses.
        """
        rng, counts, guesses = copy.deepcopy(rng), arms.counts.copy(), [choice.arm]
        for _ in range(rounds):
            counts[guesses[-1]] += arms.batch
            guesses.append(self._guess(replace(arms, counts=counts), choice, rng))
        return guesses[1:]

    def _guess(self, arms: Arms, last: Choice, rng: np.random.Generator) -> int:
        """The next class as far as it follows from the counts and the last choice."""
        return (RoundRobin() if self.needs_shift else self).choose(arms, rng=rng).arm


class Random(Policy):
    """One open class per round, drawn uniformly."""

    name = "random"

    def _choose(
        self, arms: Arms, *, rng: np.random.Generator, shift: Shift | None, all_exact: bool
    ) -> Choice:
        return Choice(int(rng.choice(np.flatnonzero(arms.open))))


@dataclass(frozen=True)
class RoundRobin(Policy):
    """The open class with the fewest samples: the balanced baseline for every claim about the bandit.

    Classes of equal counts come in an order that is drawn once from the seed: by index, the first classes
    alone would be served when the budget does not go round.

    Example:
        >>> arms = Arms(counts=np.array([2, 1, 1, 1]), open=np.ones(4, dtype=bool), batch=5)
        >>> {RoundRobin(seed).choose(arms, rng=np.random.default_rng(0)).arm for seed in range(20)}
        {1, 2, 3}
    """

    seed: int = 0
    name: ClassVar[str] = "round-robin"

    def _choose(
        self, arms: Arms, *, rng: np.random.Generator, shift: Shift | None, all_exact: bool
    ) -> Choice:
        order = np.random.default_rng([self.seed, ORDER]).permutation(len(arms.counts))
        counts = np.where(arms.open, arms.counts, np.iinfo(np.int64).max)
        return Choice(int(order[np.argmin(counts[order])]))


@dataclass(frozen=True)
class GradientShiftUCB(Policy):
    """The paper's confidence-relaxed bound: argmax of a(C) = −δ²(C) + α / sqrt((n+Δn) n_C).

    A class that needs w times the samples of an average one counts as one with n_C / w of them. With
    `relative`, δ² is divided by the shift's own scale of the round, so that α has no unit: δ² grows with
    the square of the logit scale, the bonus does not. With `max_batches_ahead`, a class must be less than so
    many batches ahead of the open one with the fewest samples, both counted like that: the bonus falls with
    n, and among hundreds of classes some δ² is always far from the others.

    Example:
        >>> from adamab.testing import KnownShift
        >>> arms = Arms(counts=np.array([5, 5, 6]), open=np.ones(3, dtype=bool), batch=5)
        >>> shift = KnownShift(np.array([0.3, 0.2, 0.1]), slack=np.zeros(3))
        >>> GradientShiftUCB(alpha=100).choose(arms, rng=np.random.default_rng(0), shift=shift).arm
        1
    """

    alpha: float
    relative: bool = False
    max_batches_ahead: int | None = None
    name: ClassVar[str] = "adamab"
    needs_shift: ClassVar[bool] = True

    def bonus(self, arms: Arms) -> NDArray[np.float64]:
        """Exploration bonus of every class; NaN for a class without samples."""
        return self.alpha / np.sqrt(self._total(arms) * _counts(arms))

    def _total(self, arms: Arms) -> float:
        return float(arms.counts.sum() + arms.batch)

    def _choose(
        self, arms: Arms, *, rng: np.random.Generator, shift: Shift | None, all_exact: bool
    ) -> Choice:
        if shift is None:
            raise RecipeError(f"policy {self.name!r} needs the gradient shift")
        bonus = self.bonus(arms)
        unit = shift.scale if self.relative and shift.scale > 0 else 1.0
        score = bonus - shift.lower / unit
        exact = np.zeros(len(score), dtype=np.bool_)
        candidates = self._within_reach(arms)
        if not np.isfinite(score[candidates]).all():
            raise RecipeError("the training diverged: a gradient is not finite; lower the learning rate")
        arm = _lazy_argmax(score, exact, candidates, bonus, unit, shift)
        if all_exact:
            rest = np.flatnonzero((arms.counts > 0) & ~exact)
            score[rest] = bonus[rest] - shift.refine(rest, np.full(len(rest), np.inf))[0] / unit
            exact[rest] = True
        return Choice(arm, bonus, score, exact)

    def _within_reach(self, arms: Arms) -> NDArray[np.intp]:
        """The open classes that are not too far ahead."""
        if self.max_batches_ahead is None:
            return np.flatnonzero(arms.open)
        counts = _counts(arms)
        least = counts[arms.open].min()
        return np.flatnonzero(arms.open & (counts < least + self.max_batches_ahead * arms.batch))

    def _guess(self, arms: Arms, last: Choice, rng: np.random.Generator) -> int:
        """The fewest samples first, as the bonus wants it, and among those the best score of the last round.

        δ² itself is a poor guide a few rounds ahead: each batch moves it by what is in the batch.
        """
        score = np.zeros(len(arms.counts)) if last.score is None else np.nan_to_num(last.score)
        fewest = arms.counts / arms.target_share if self.alpha > 0 else np.zeros(len(arms.counts))
        order = np.lexsort((-score, fewest, ~arms.open))
        return int(order[0])


@dataclass(frozen=True)
class TightUCB(GradientShiftUCB):
    """The paper's remark on the tight bound: bonus α / ((n+Δn) sqrt(n_C))."""

    name: ClassVar[str] = "tight"

    def bonus(self, arms: Arms) -> NDArray[np.float64]:
        """Exploration bonus of every class; NaN for a class without samples."""
        return self.alpha / (self._total(arms) * np.sqrt(_counts(arms)))


@dataclass(frozen=True)
class Greedy(GradientShiftUCB):
    """No exploration: the smallest δ²."""

    alpha: float = 0.0
    name: ClassVar[str] = "greedy"


def _counts(arms: Arms) -> NDArray[np.float64]:
    """(K,) as the bonus counts them."""
    return np.where(arms.counts > 0, arms.counts / arms.target_share, np.nan)


def _lazy_argmax(
    score: NDArray[np.float64],  # (K,) upper bounds, replaced by exact scores where computed
    exact: NDArray[np.bool_],  # (K,)
    candidates: NDArray[np.intp],
    bonus: NDArray[np.float64],
    unit: float,
    shift: Shift,
) -> int:
    """The exact argmax of a(C): evaluate in the order of the bound until no bound can win.

    Blocks grow, so that a random start, where few classes can be skipped, costs few calls.
    """
    order = candidates[np.argsort(-score[candidates], kind="stable")]
    best, arm = -np.inf, -1
    start, size = 0, FIRST_BLOCK
    while start < len(order) and score[order[start]] >= best:
        block = order[start : start + size]
        # δ² above this can neither win nor tie; the margin is for the rounding of scores and of this line
        gap = bonus[block] - best
        cutoffs = unit * (gap + 1e-9 * np.abs(gap) + 1e-15 * (np.abs(bonus[block]) + abs(best)))
        shifts, known = shift.refine(block, cutoffs)
        score[block] = bonus[block] - shifts / unit
        exact[block] = known
        for c in block[known]:
            if (score[c], -c) > (best, -arm):
                best, arm = float(score[c]), int(c)
        start, size = start + size, size * 2
    return arm


POLICIES: tuple[str, ...] = ("adamab", "tight", "greedy", "random", "round-robin", "none")


def make_policy(
    name: str, *, alpha: float, relative: bool, max_batches_ahead: int | None = None, seed: int = 0
) -> Policy | None:
    """The policy of that name; None for `none`, which never generates.

    Args:
        name: one of `POLICIES`.
        alpha: weight of exploration.
        relative: whether δ² is divided by the scale of the round.
        max_batches_ahead: limit on how far a class may run ahead; None is none.
        seed: of the run, for the order of round-robin.
    """
    match name:
        case "adamab":
            return GradientShiftUCB(alpha, relative, max_batches_ahead)
        case "tight":
            return TightUCB(alpha, relative, max_batches_ahead)
        case "greedy":
            return Greedy(relative=relative)
        case "random":
            return Random()
        case "round-robin":
            return RoundRobin(seed)
        case "none":
            return None
    raise RecipeError(f"unknown policy {name!r}; choose one of: {', '.join(POLICIES)}")
