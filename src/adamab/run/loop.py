"""The paper's algorithm: score, generate for the chosen class, embed, add, train; a record a round.

Nothing here can see test data: the signature has no place for it.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adamab.errors import RecipeError
from adamab.method.numerics import flush_denormals
from adamab.method.policies import Arms, Choice, Policy
from adamab.method.training import EpochReport
from adamab.run._intake import Clock, RoundIntake, SampleSource
from adamab.run._loop_model import JointModel
from adamab.run.records import ClassScores, RoundRecord, Seconds
from adamab.run.resume import Checkpoint, RoundOutcome
from adamab.run.run_log import RunLog
from adamab.run.samples import TrainingSet
from adamab.task.recipe import Recipe


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
    source: SampleSource | None
    policy: Policy | None
    recipe: Recipe
    rng: np.random.Generator
    run_log: RunLog
    prefetch: int = 0
    all_scores: bool = False
    done: int = 0  # the last round that has ended
    model: JointModel | None = None
    n_model: int = 0  # samples that it was made from
    _departed: bool = False

    def records(self) -> Iterator[RoundRecord]:
        """Run the rounds that are left."""
        self._resume()
        for round_ in range(self.done + 1, self._last() + 1):
            record = self._round(round_, self._size(round_))
            if record is None:
                return
            yield record

    def _resume(self) -> None:
        """Put the samples, the classes' positions, the model and the random numbers where they were."""
        state = self.run_log.resume
        if self.source is not None:
            self.source.resume(state)
        for outcome in state.before:
            self._adopt(outcome)
        for outcome in state.skipped:
            self._make_model_again()
            self._adopt(outcome)
            if self.model is not None:
                self.model.follow()  # round by round, as then: other shapes round differently
        self.done = max((record.round for record in state.records), default=0)
        if state.checkpoint is not None:
            self._make_model_again()
            self.rng.bit_generator.state = dict(state.checkpoint.rng)
            if self.model is not None:
                self.model.restore(state.checkpoint.tensors)
        elif len(self.samples):
            self._make_model()
            if self.model is not None and self._is_consulted():
                # A new segment learns again from all samples, for as many rounds as lie behind it.
                for round_ in range(1, self.done + 1):
                    self.model.epoch(round_)

    def _adopt(self, outcome: RoundOutcome) -> None:
        if self.source is not None:
            self.source.adopt(self.samples, outcome, self.run_log.resume)

    def _make_model_again(self) -> None:
        """From as many samples as when the checkpoint's model was made."""
        checkpoint = self.run_log.resume.checkpoint
        made = 0 if checkpoint is None else checkpoint.n_model
        if self.model is None and made and len(self.samples) == made:
            self._make_model()

    def _checkpoint(self) -> Checkpoint:
        """The state after the round that has just ended."""
        made = self.model is not None
        return Checkpoint(
            self.done,
            self.n_model if made else 0,
            {} if self.model is None else self.model.state(),
            dict(self.rng.bit_generator.state),
        )

    def _is_consulted(self) -> bool:
        """Whether anybody looks at the model: where the heads are trained anew, only δ² and the gate do."""
        choosing = self.policy is not None and self.policy.needs_shift
        return choosing or not self.recipe.refit or self.recipe.max_label_rank is not None

    def _make_model(self) -> None:
        self.model, self.n_model = self.make_model(), len(self.samples)

    def _last(self) -> int:
        """The last round: where an earlier segment left generation undone, it comes on top."""
        rounds, before = self.recipe.n_rounds(self.samples.n_classes), self.run_log.resume.last_before
        return max(rounds, before + self._generating(before + 1))

    def _generating(self, round_: int) -> int:
        """How many rounds may generate from this one on."""
        return self._planned() - (round_ - self.run_log.resume.last_before) + 1

    def _planned(self) -> int:
        """Rounds of this segment that may generate; in rounds without a choice none did.

        A budget of samples means samples: it allows twice the rounds that it needs, to make up for
        those that come short.
        """
        planned = self.recipe.n_augmentation_rounds(self.samples.n_classes)
        if self.recipe.refit and self.source is not None and self.source.sets_rounds(planned):
            return 2 * self.source.rounds_for(self.run_log.resume.accepted_before)
        return planned - self.run_log.resume.chosen_before

    def _size(self, round_: int) -> int:
        known = self.run_log.outcome(round_)
        idle = known is not None and known.record.chosen is None  # the journal is followed here too
        if self.source is None or self.policy is None or idle or self._generating(round_) <= 0:
            return 0
        return self.source.size()

    def _round(self, round_: int, size: int) -> RoundRecord | None:
        """One round; None where there is nothing left to generate and training follows later."""
        if size == 0 and self.recipe.refit:
            return None
        counts, clock, known = self.samples.counts(), Clock(), self.run_log.outcome(round_)
        choice, added = None, RoundIntake()
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
        return self._noted(record, choice, added, known)

    def _train(self, round_: int, clock: Clock) -> EpochReport | None:
        if self.model is None or not self._is_consulted():
            return None
        self.model.follow()
        trained = self.model.epoch(round_)
        if not math.isfinite(trained.loss):
            raise RecipeError("the training diverged: the loss is not finite; lower the learning rate")
        clock.lap("training")
        return trained

    def _noted(
        self, record: RoundRecord, choice: Choice | None, added: RoundIntake, known: RoundOutcome | None
    ) -> RoundRecord:
        self.done = record.round
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
        self.run_log.end(outcome, self._checkpoint)
        return record

    def _choose(
        self, policy: Policy, source: SampleSource, counts: NDArray[np.int64], size: int, round_: int
    ) -> Choice:
        target_share = 1.0 if self.model is None else self.model.target_share
        arms = Arms(counts, source.open(), size, target_share)
        choice = self._computed(policy, arms)
        names = [spec.name for spec in source.classes]
        decided = self.run_log.decided(round_)
        if decided is None:
            self.run_log.decide(round_, names[choice.arm])
        elif decided != names[choice.arm]:
            self._depart(f"round {round_} chose {decided} when it was recorded and would now choose another")
            choice = replace(choice, arm=names.index(decided))
        if self.prefetch and self.run_log.outcome(round_) is None:
            self._fetch_ahead(policy, source, arms, choice, round_)
        return choice

    def _computed(self, policy: Policy, arms: Arms) -> Choice:
        # No gradient is needed to choose an empty class.
        forced = bool((arms.open & (arms.counts == 0)).any())
        if forced or self.model is None or not policy.needs_shift:
            return policy.choose(arms, rng=self.rng)
        with self.model.threads(), flush_denormals():
            return policy.choose(
                arms, rng=self.rng, shift=self.model.shift(arms.batch), all_exact=self.all_scores
            )

    def _fetch_ahead(
        self, policy: Policy, source: SampleSource, arms: Arms, choice: Choice, round_: int
    ) -> None:
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

    def _foresee(
        self, policy: Policy, source: SampleSource, arms: Arms, choice: Choice, limit: int
    ) -> list[int]:
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
        self, source: SampleSource, choice: Choice, size: int, clock: Clock, known: RoundOutcome | None
    ) -> RoundIntake:
        checked = self.recipe.max_label_rank is not None and self.model is not None
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
