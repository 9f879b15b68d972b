"""The paper's algorithm: score, generate for the chosen class, embed, add, train; a record a round.

Nothing here can see test data: the signature has no place for it.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adamab.errors import RecipeError
from adamab.method.policies import Arms, Choice, Policy
from adamab.method.tiny_numbers import tiny_is_zero
from adamab.method.training import EpochReport
from adamab.run.class_scores import ClassScores
from adamab.run.joint_model import JointModel
from adamab.run.past import Past, RoundOutcome
from adamab.run.records import RoundRecord, Seconds
from adamab.run.source import Added, Clock, Source
from adamab.run.training_set import TrainingSet
from adamab.task.recipe import Recipe


class Trail(Protocol):
    """What was decided before, perhaps in an earlier process, and where to write down what is decided now."""

    @property
    def past(self) -> Past:
        """What lies behind."""

    def decided(self, round_: int) -> str | None:
        """The class that the round chose, if that is known."""

    def decide(self, round_: int, class_name: str) -> None:
        """The round chooses this class; called before anything is bought for it."""

    def outcome(self, round_: int) -> RoundOutcome | None:
        """How the round ended, if it ended."""

    def end(self, outcome: RoundOutcome, loop: Loop) -> None:
        """The round has ended."""


class Untold:
    """No trail: nothing is known and nothing is written down."""

    past = Past()

    def decided(self, round_: int) -> str | None:
        """Nothing is known."""
        return None

    def decide(self, round_: int, class_name: str) -> None:
        """Nothing is kept."""

    def outcome(self, round_: int) -> RoundOutcome | None:
        """Nothing is known."""
        return None

    def end(self, outcome: RoundOutcome, loop: Loop) -> None:
        """Nothing is kept."""


@dataclass
class Loop:
    """The rounds of a run; `samples` grows and the model learns as the records are drawn.

    The model is made in the first round that has samples to learn from; where nothing is given at
    all, that is when each class has been generated for once. In the `default` recipe rounds end
    with the generation: the classifier is trained anew after them. In `paper` training goes on to
    the last round.
    """

    samples: TrainingSet
    make_model: Callable[[], JointModel]
    source: Source | None
    policy: Policy | None
    recipe: Recipe
    rng: np.random.Generator
    trail: Trail
    prefetch: int = 0
    all_scores: bool = False
    done: int = 0  # rounds of earlier segments or before a checkpoint
    model: JointModel | None = None
    n_model: int = 0  # samples that it was made from
    _departed: bool = False

    def records(self) -> Iterator[RoundRecord]:
        """Run the rounds that are left."""
        self.trail.past.rebuild(self)
        if self.trail.past.checkpoint is None and len(self.samples):
            self._make_model()
            self._catch_up()
        for round_ in range(self.done + 1, self._last() + 1):
            record = self._round(round_, self._size(round_))
            if record is None:
                return
            yield record

    def _catch_up(self) -> None:
        """A new segment learns anew from all samples, for as many rounds as lie behind it."""
        if self.model is not None and self._is_consulted():
            for round_ in range(1, self.done + 1):
                self.model.epoch(round_)

    def _is_consulted(self) -> bool:
        """Whether anybody looks at the model: where the heads are trained anew, only δ² and the gate do."""
        choosing = self.policy is not None and self.policy.needs_shift
        return choosing or not self.recipe.refit or self.recipe.consistent is not None

    def _make_model(self) -> None:
        self.model, self.n_model = self.make_model(), len(self.samples)

    def _last(self) -> int:
        """The last round: where an earlier segment left generation undone, it comes on top."""
        rounds = self.recipe.n_rounds(self.samples.n_classes)
        return max(rounds, self._base() + self._generating(self._base() + 1))

    def _base(self) -> int:
        """The last round of earlier segments."""
        return self.trail.past.behind.last

    def _generating(self, round_: int) -> int:
        """How many rounds may generate from this one on."""
        return self._planned() - (round_ - self._base()) + 1

    def _planned(self) -> int:
        """Rounds of this segment that may generate; in rounds without a choice none did.

        A budget of samples means samples: it allows twice the rounds that it needs, to make up for
        those that come short.
        """
        behind = self.trail.past.behind
        planned = self.recipe.n_augmentation_rounds(self.samples.n_classes)
        if self.recipe.refit and self.source is not None and self.source.sets_rounds(planned):
            return 2 * self.source.rounds_for(behind.accepted)
        return planned - behind.chosen

    def _size(self, round_: int) -> int:
        known = self.trail.outcome(round_)
        idle = known is not None and known.record.chosen is None  # the journal is followed here too
        if self.source is None or self.policy is None or idle or self._generating(round_) <= 0:
            return 0
        return self.source.size()

    def _round(self, round_: int, size: int) -> RoundRecord | None:
        """One round; None where there is nothing left to generate and training follows later."""
        if size == 0 and self.recipe.refit:
            return None
        counts, clock, known = self.samples.counts(), Clock(), self.trail.outcome(round_)
        choice, added = None, Added()
        seeding = size > 0 and self.source is not None and bool((self.source.open() & (counts == 0)).any())
        if self.model is None and len(self.samples) and not seeding:
            self._make_model()
        if size and self.source is not None and self.policy is not None:
            choice = self._choose(self.policy, self.source, counts, size, round_)
            clock.lap("scoring")
            added = self._fill(self.source, choice, size, clock, known)
            if added.idle:  # the budget ended before anything came: there is no such round
                if self.recipe.refit:
                    return None
                choice, size = None, 0
        trained = self._train(round_, clock)
        record = RoundRecord(
            round=round_,
            chosen=None if choice is None or self.source is None else self.source.classes[choice.arm].name,
            asked=size,
            accepted=added.accepted,
            closed=added.closed,
            n_samples=len(self.samples),
            scores=ClassScores.of_choice(counts, choice, all_scores=self.all_scores),
            loss=None if trained is None else trained.loss,
            learning_rate=None if trained is None else trained.learning_rate,
            seconds=Seconds(**clock.laps),
            rejected={reason: n for reason, n in added.rejected.items() if n},
            refused=added.refused,
            ended=added.ended,
        )
        return self._told(record, choice, added, known)

    def _train(self, round_: int, clock: Clock) -> EpochReport | None:
        if self.model is None or not self._is_consulted():
            return None
        self.model.follow()
        trained = self.model.epoch(round_)
        if not math.isfinite(trained.loss):
            raise RecipeError("the training diverged: the loss is not finite; lower the learning rate")
        clock.lap("training")
        return trained

    def _told(
        self, record: RoundRecord, choice: Choice | None, added: Added, known: RoundOutcome | None
    ) -> RoundRecord:
        if known is not None:
            return known.record  # as it was written when it happened, its seconds included
        outcome = RoundOutcome(record, tuple(added.texts), turned_away=tuple(added.turned_away))
        if choice is not None and self.source is not None:
            shelf = self.source.shelves[choice.arm]
            outcome = replace(
                outcome,
                batches=shelf.batches,
                left=len(shelf),
                refusals=shelf.refusals,
                closing=shelf.closing,
            )
        self.trail.end(outcome, self)
        return record

    def _choose(
        self, policy: Policy, source: Source, counts: NDArray[np.int64], size: int, round_: int
    ) -> Choice:
        need = 1.0 if self.model is None else self.model.need
        arms = Arms(counts, source.open(), size, need)
        choice = self._computed(policy, arms)
        names = [spec.name for spec in source.classes]
        decided = self.trail.decided(round_)
        if decided is None:
            self.trail.decide(round_, names[choice.arm])
        elif decided != names[choice.arm]:
            self._depart(f"round {round_} chose {decided} when it was recorded and would now choose another")
            choice = replace(choice, arm=names.index(decided))
        if self.prefetch and self.trail.outcome(round_) is None:
            self._fetch_ahead(policy, source, arms, choice, round_)
        return choice

    def _computed(self, policy: Policy, arms: Arms) -> Choice:
        # No gradient is needed to choose an empty class.
        forced = bool((arms.open & (arms.counts == 0)).any())
        if forced or self.model is None or not policy.needs_shift:
            return policy.choose(arms, rng=self.rng)
        with self.model.threads(), tiny_is_zero():
            return policy.choose(
                arms, rng=self.rng, shift=self.model.shift(arms.batch), all_exact=self.all_scores
            )

    def _fetch_ahead(self, policy: Policy, source: Source, arms: Arms, choice: Choice, round_: int) -> None:
        """What the next rounds will likely ask for; never more than the rounds that are left can use."""
        left = self._generating(round_) - 1
        if source.budget is not None:
            left = min(left, -(-(source.budget - source.spent - arms.batch) // source.batch))
        limit = min(self.prefetch, left)
        if limit <= 0:
            return
        source.plan(left + 1)
        source.fetch_ahead(choice.arm, (), limit)
        if not policy.needs_shift or self.model is None or choice.score is None:
            source.fetch_ahead(choice.arm, policy.forecast(arms, choice, rng=self.rng, rounds=limit), limit)
        elif source.is_waiting(choice.arm):
            source.fetch_ahead(choice.arm, self._foresee(policy, source, arms, choice, limit), limit)

    def _foresee(self, policy: Policy, source: Source, arms: Arms, choice: Choice, limit: int) -> list[int]:
        """Use the time of waiting to work out what the policy would choose next, batch by batch.

        Each batch is taken to be like the samples that its class has, and the model to stay as it is.
        That holds for a few rounds only. So it is done anew whenever a round has to wait, and not in
        between: guesses from further back would take up the room of better ones.
        """
        assert self.model is not None
        more, foreseen = np.zeros_like(arms.counts), [choice.arm]
        with self.model.threads():
            while len(foreseen) <= limit and source.is_waiting(choice.arm):
                more[foreseen[-1]] += arms.batch
                then = replace(arms, counts=arms.counts + more)
                shift = self.model.shift(arms.batch, more)
                # A copy: how many guesses there is time for must not reach a decision.
                foreseen.append(policy.choose(then, rng=copy.deepcopy(self.rng), shift=shift).arm)
                source.fetch_ahead(choice.arm, foreseen[1:], limit)
        rest = policy.forecast(arms, choice, rng=self.rng, rounds=limit)  # where there was no time for it
        return foreseen[1:] if len(foreseen) > limit else [*foreseen[1:], *rest]

    def _fill(
        self, source: Source, choice: Choice, size: int, clock: Clock, known: RoundOutcome | None
    ) -> Added:
        checked = self.recipe.consistent is not None and self.model is not None
        added = source.fill(
            self.samples,
            choice.arm,
            size,
            clock,
            scores=self.model.logits if checked and self.model is not None else None,
            known=known,
        )
        if added.departed:
            self._depart("the quality gate decided differently when the run was recorded")
        return added

    def _depart(self, what: str) -> None:
        if not self._departed:
            self._departed = True
            warnings.warn(
                f"{what}: this machine's arithmetic differs; following the journal",
                RuntimeWarning,
                stacklevel=2,
            )
