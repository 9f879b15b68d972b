"""The paper's algorithm: score, generate for the chosen class, embed, add, train; one record per round.

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
from adamab.method.policies import Arms, Choice, Policy
from adamab.method.training import EpochReport
from adamab.run._intake import Clock, RoundIntake, SampleSource
from adamab.run._loop_model import LoopModel
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
    with the generation: the classifier is trained from scratch after them. In `paper` training goes
    on to the last round.
    """

    samples: TrainingSet
    make_model: Callable[[], LoopModel]
    source: SampleSource | None
    policy: Policy | None
    recipe: Recipe
    rng: np.random.Generator
    run_log: RunLog
    prefetch: int = 0
    all_scores: bool = False
    done: int = 0  # the last round that has ended
    model: LoopModel | None = None
    n_model: int = 0  # samples that it was made from
    _last_generating: int = 0  # the last round that may generate
    _departed: bool = False

    def records(self) -> Iterator[RoundRecord]:
        """Run the rounds that are left."""
        self._resume()
        last = max(self.recipe.n_rounds(self.samples.n_classes), self._last_generating)
        for round_ in range(self.done + 1, last + 1):
            record = self._round(round_)
            if record is None:
                return
            yield record

    def _resume(self) -> None:
        """Put the samples, the classes' positions, the model and the random numbers where they were."""
        state = self.run_log.resume
        if self.source is not None:
            self.source.resume(state)
            for outcome in state.before:
                self.source.adopt(self.samples, outcome, state)
        for outcome in state.skipped:
            self._make_model_again()
            if self.source is not None:
                self.source.adopt(self.samples, outcome, state)
            if self.model is not None:
                self.model.follow()  # round by round, as then: other shapes round differently
        self.done = max((record.round for record in state.records), default=0)
        # Where an earlier segment left generation undone, it comes on top.
        self._last_generating = state.last_before + self._planned()
        if state.checkpoint is not None:
            self._make_model_again()
            self.rng.bit_generator.state = dict(state.checkpoint.rng)
            if self.model is not None:
                self.model.restore(state.checkpoint.arrays)
        elif len(self.samples):
            self._make_model()
            if self.model is not None and self._is_consulted():
                # A new segment learns again from all samples, for as many rounds as lie behind it.
                for round_ in range(1, self.done + 1):
                    self.model.epoch(round_)

    def _make_model_again(self) -> None:
        """From as many samples as when the checkpoint's model was made."""
        checkpoint = self.run_log.resume.checkpoint
        made = 0 if checkpoint is None else checkpoint.n_model
        if self.model is None and made and len(self.samples) == made:
            self._make_model()

    def _make_model(self) -> None:
        self.model, self.n_model = self.make_model(), len(self.samples)

    def _checkpoint(self) -> Checkpoint:
        """The state after the round that has just ended."""
        arrays = {} if self.model is None else self.model.state()
        return Checkpoint(self.done, self.n_model, arrays, dict(self.rng.bit_generator.state))

    def _is_consulted(self) -> bool:
        """Whether anything depends on the model: where heads are trained afterwards, only δ² and the gate."""
        choosing = self.policy is not None and self.policy.needs_shift
        return choosing or not self.recipe.refit or self.recipe.max_label_rank is not None

    def _planned(self) -> int:
        """Rounds of this segment that may generate; in rounds without a choice none did.

        A budget of samples means samples: it allows twice the rounds that it needs, to make up for
        those that come short.
        """
        state = self.run_log.resume
        planned = self.recipe.n_augmentation_rounds(self.samples.n_classes)
        batch, budget = self.recipe.batch, None if self.source is None else self.source.budget
        if self.recipe.refit and budget is not None and planned == math.ceil(budget / batch):
            left = budget - sum(outcome.record.accepted for outcome in state.before)
            return 2 * math.ceil(max(left, 0) / batch)
        names = () if self.source is None else [spec.name for spec in self.source.classes]
        return planned - sum(state.owner(outcome) in names for outcome in state.before)

    def _round(self, round_: int) -> RoundRecord | None:
        """One round; None where there is nothing left to generate and training follows later."""
        counts, clock, known = self.samples.counts(), Clock(), self.run_log.resume.outcomes.get(round_)
        choice, added, size = None, RoundIntake(), 0
        idle = known is not None and known.record.chosen is None  # the journal is followed here too
        if self.source is not None and self.policy is not None and not idle:
            size = self.source.size() if round_ <= self._last_generating else 0
        if size == 0 and self.recipe.refit:
            return None
        seeding = size > 0 and self.source is not None and bool((self.source.open() & (counts == 0)).any())
        if self.model is None and len(self.samples) and not seeding:
            self._make_model()
        if size and self.source is not None and self.policy is not None:
            choice = self._choose(self.policy, self.source, counts, size, round_)
            clock.lap("scoring")
            checked = self.model is not None and self.recipe.max_label_rank is not None
            scores = self.model.logits if checked and self.model is not None else None
            added = self.source.fill(self.samples, choice.arm, size, clock, scores=scores, known=known)
            if added.departed:
                self._depart("the quality gate decided differently when the run was recorded")
            came = added.accepted or added.rejected.total() or added.refused
            if added.ended is not None and not came:  # the budget ended before: there is no such round
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
        self.done = round_
        if known is not None:
            return known.record  # as it was written when it happened, its seconds included
        outcome = RoundOutcome(record, tuple(added.texts), turned_away=tuple(added.turned_away))
        if choice is not None and self.source is not None:
            pending = self.source.pending[choice.arm]
            outcome = replace(
                outcome,
                batches=pending.batches,
                left=len(pending),
                refusals=pending.refusals,
                closing=pending.closing,
            )
        self.run_log.end(outcome, self._checkpoint)
        return record

    def _train(self, round_: int, clock: Clock) -> EpochReport | None:
        if self.model is None or not self._is_consulted():
            return None
        self.model.follow()
        trained = self.model.epoch(round_)
        if not math.isfinite(trained.loss):
            raise RecipeError("the training diverged: the loss is not finite; lower the learning rate")
        clock.lap("training")
        return trained

    def _choose(
        self, policy: Policy, source: SampleSource, counts: NDArray[np.int64], size: int, round_: int
    ) -> Choice:
        target_share = 1.0 if self.model is None else self.model.target_share
        arms = Arms(counts, source.open(), size, target_share)
        choice = self._computed(policy, arms)
        names = [spec.name for spec in source.classes]
        decided = self.run_log.resume.choices.get(round_)
        if decided is None:
            self.run_log.decide(round_, names[choice.arm])
        elif decided != names[choice.arm]:
            self._depart(f"round {round_} chose {decided} when it was recorded and would now choose another")
            choice = replace(choice, arm=names.index(decided))
        if self.prefetch and round_ not in self.run_log.resume.outcomes:
            self._fetch_ahead(policy, source, arms, choice, round_)
        return choice

    def _computed(self, policy: Policy, arms: Arms) -> Choice:
        # No gradient is needed to choose an empty class.
        forced = bool((arms.open & (arms.counts == 0)).any())
        if forced or self.model is None or not policy.needs_shift:
            return policy.choose(arms, rng=self.rng)
        with self.model.threads():
            return policy.choose(
                arms, rng=self.rng, shift=self.model.shift(arms.batch), all_exact=self.all_scores
            )

    def _fetch_ahead(
        self, policy: Policy, source: SampleSource, arms: Arms, choice: Choice, round_: int
    ) -> None:
        """What the next rounds will likely ask for; never more than the rounds that are left can use."""
        left = self._last_generating - round_
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

        Each batch is assumed to be like the samples that its class has, and the model to stay as it is.
        That holds for a few rounds only. So it is repeated whenever a round has to wait, and not in
        between: older guesses would displace better ones.
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

    def _depart(self, what: str) -> None:
        if not self._departed:
            self._departed = True
            warnings.warn(
                f"{what}: this machine's arithmetic differs; following the journal",
                RuntimeWarning,
                stacklevel=2,
            )
