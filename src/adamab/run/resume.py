"""What a run has behind it when a process resumes it: what it was started with, rounds, a checkpoint."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import RunError, one_line, short
from adamab.providers.generators.base import Batch
from adamab.providers.metering import Budget
from adamab.run.records import RoundRecord
from adamab.task.words import normalised_text
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.method.numerics import Array
    from adamab.run.settings import FitSetup
    from adamab.task.spec import Sample, Task

CHECKPOINT = "checkpoint.safetensors"
REJECTED_BEFORE = "rejected before"
# Reasons of the gate that a person may overrule.
OVERRULED = ("refusal", "near duplicate", "inconsistent", REJECTED_BEFORE)
Batches = Callable[[str, int], Mapping[int, Batch]]  # class, how many -> its first batches by number


@dataclass(frozen=True)
class RoundOutcome:
    """A finished round as it is written down: its record, what entered, and how far its class has got."""

    record: RoundRecord
    texts: tuple[str, ...] = ()
    batches: int = 0  # of the chosen class, taken so far
    left: int = 0  # samples of them that no round has looked at yet
    refusals: int = 0
    closing: str | None = None  # why it will be closed once nothing is left
    turned_away: tuple[tuple[str, str], ...] = ()  # texts that the gate kept out, and its reasons


def outcome_to_json(outcome: RoundOutcome) -> dict[str, Any]:
    """Plain data."""
    return {**vars(outcome), "record": outcome.record.to_json()}


def outcome_from_json(data: dict[str, Any]) -> RoundOutcome:
    """Take back what `outcome_to_json` gave."""
    return RoundOutcome(
        **{
            **data,
            "record": RoundRecord.from_json(data["record"]),
            "texts": tuple(data["texts"]),
            "turned_away": tuple((text, reason) for text, reason in data.get("turned_away", ())),
        }
    )


@dataclass(frozen=True)
class Checkpoint:
    """The state of the model and of the random numbers after a round."""

    round: int
    n_model: int  # samples that the model was made from; 0 if there was none yet
    arrays: Mapping[str, Array]
    rng: Mapping[str, Any]


@dataclass(frozen=True)
class Move:
    """Classes whose samples belong to others from some round on: they were renamed, merged or split."""

    after: int  # the last round that was for the old classes
    to: Mapping[str, str]  # class -> where its samples go
    freed: Mapping[str, int]  # class -> number of its next batch, should a class of its name come again

    @classmethod
    def of(cls, segment: Mapping[str, Any], after: int) -> Move:
        """What a segment of the journal began with; it may be that nothing moved."""
        return cls(after, segment["moved"], segment["freed"])

    def owner(self, name: str) -> str:
        """The class that samples of earlier rounds belong to from then on."""
        return self.to.get(name, name)


@dataclass(frozen=True)
class ResumeState:
    """Nothing, for a run that begins.

    `before` are the rounds of earlier segments: their samples are taken as they are. `rounds` are
    those of this segment: they are replayed, from the checkpoint on if there is one. Samples follow
    their class through `moves`; those of a class that the task lacks are left out.
    """

    before: tuple[RoundOutcome, ...] = ()
    rounds: tuple[RoundOutcome, ...] = ()
    checkpoint: Checkpoint | None = None
    dropped: frozenset[str] = frozenset()  # normalised texts that a person rejected
    wanted: frozenset[str] = frozenset()  # normalised texts that a person accepted against the gate
    reopened: Mapping[str, int] = field(default_factory=dict)  # classes with new given samples: after round
    batches: Batches = lambda name, count: {}
    choices: Mapping[int, str] = field(default_factory=dict)  # round of this segment -> the class it chose
    moves: tuple[Move, ...] = ()
    classes: Mapping[str, str] = field(
        default_factory=dict
    )  # every class it has had -> whose its samples are

    @property
    def last_before(self) -> int:
        """The last round of earlier segments."""
        return max((outcome.record.round for outcome in self.before), default=0)

    def owner(self, outcome: RoundOutcome) -> str | None:
        """The class that a round's samples belong to now, whether the task has it or not."""
        name = outcome.record.chosen
        for move in self.moves:
            if name is not None and outcome.record.round <= move.after:
                name = move.owner(name)
        return name

    @cached_property
    def skipped(self) -> tuple[RoundOutcome, ...]:
        """Rounds of this segment that a checkpoint stands for."""
        if self.checkpoint is None:
            return ()
        return tuple(r for r in self.rounds if r.record.round <= self.checkpoint.round)

    @cached_property
    def outcomes(self) -> dict[int, RoundOutcome]:
        """How the rounds of this segment ended, by their numbers."""
        return {outcome.record.round: outcome for outcome in self.rounds}

    @property
    def records(self) -> list[RoundRecord]:
        """Of all rounds that will not run again."""
        return [outcome.record for outcome in (*self.before, *self.skipped)]

    def entering(self, outcome: RoundOutcome, present: Container[str]) -> list[str]:
        """What people and the gate let in, of a round of an earlier segment; no text that is given now.

        Args:
            outcome: how that round ended.
            present: the texts that the set has already, normalised.
        """
        texts = [text for text in outcome.texts if normalised_text(text) not in self.dropped]
        overruled = {
            normalised_text(text): text
            for text, reason in outcome.turned_away
            if reason in OVERRULED and normalised_text(text) in self.wanted
        }
        return [text for text in (*texts, *overruled.values()) if normalised_text(text) not in present]


def save_checkpoint(directory: Path, state: Checkpoint, outcome: RoundOutcome, segment: int) -> None:
    """Write the state after a round; a process that is killed meanwhile leaves the one before.

    Where it cannot be written, the run goes on: all that is lost is time.

    Args:
        directory: the run's directory.
        state: the model and the random numbers after the round.
        outcome: how the round ended; the checkpoint counts only for a journal that has it.
        segment: number of the run's segment that the round belongs to.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    about = {
        "adamab": __version__,
        "segment": segment,
        "round": state.round,
        "after": json_digest(outcome_to_json(outcome)),  # which says how long everything took
        "arrays": _sum(state.arrays),
        "n_model": state.n_model,
        "rng": dict(state.rng),
    }
    new = directory / f".{CHECKPOINT}.new"
    with contextlib.suppress(OSError, SafetensorError):
        save_file(dict(state.arrays), new, {"checkpoint": json.dumps(about)})
        os.replace(new, directory / CHECKPOINT)
    with contextlib.suppress(OSError):
        new.unlink(missing_ok=True)


def load_checkpoint(directory: Path, segment: int, rounds: Sequence[RoundOutcome]) -> Checkpoint | None:
    """The state that was written last, if it is of one of these rounds of this segment.

    None where it is damaged, of another run, or of a round that was lost with the power: replay does
    without, a checkpoint only saves time.

    Args:
        directory: the run's directory.
        segment: number of the segment that is resumed.
        rounds: those of the segment that the journal has.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(directory / CHECKPOINT, "np") as file:
            about = json.loads((file.metadata() or {})["checkpoint"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
        after = {json_digest(outcome_to_json(r)) for r in rounds if r.record.round == about["round"]}
        known = (__version__, segment) == (about["adamab"], about["segment"]) and about["after"] in after
        if known and about["arrays"] == _sum(arrays):
            return Checkpoint(about["round"], about["n_model"], arrays, about["rng"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        pass
    return None


def _sum(arrays: Mapping[str, Array]) -> str:
    """safetensors itself does not notice a changed byte."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


# What a job was started with: a job that is started again compares it with what it is started with now.

_DIGEST = re.compile("'([0-9a-f]{32}|[0-9a-f]{64})'")
_LONG = 30  # characters of a value that is shown whole


def json_digest(value: object) -> str:
    """sha256 of plain data, in whatever order its keys are."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def first_difference(
    then: Mapping[str, Any], now: Mapping[str, Any], labels: Mapping[str, str]
) -> str | None:
    """What differs first, in words that follow "another".

    Args:
        then: what the job was started with; a key that is missing counts as None.
        now: what it is started with.
        labels: the keys that count, and what users call them; all keys of a mapping within count.

    Returns:
        The label with both values, or the label alone where they hold digests; None if nothing differs.

    Example:
        >>> first_difference({"recipe": {"batch": 5}}, {"recipe": {"batch": 3}}, {"recipe": "recipe"})
        "recipe: batch ('5', now '3')"
    """
    for key, label in labels.items():
        before, after = then.get(key), now.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            if inner := first_difference(before, after, {k: one_line(k) for k in {**before, **after}}):
                return f"{label}: {inner}"
        elif before != after:
            return label if _DIGEST.search(repr((before, after))) else f"{label} {_both(before, after)}"
    return None


def _both(then: object, now: object) -> str:
    """Both values, from where they begin to differ if they are long."""
    before, after = str(then), str(now)
    same = len(os.path.commonprefix([before, after]))  # noqa: RUF071  # by characters, as it does
    start = max(0, same - 12) if max(len(before), len(after)) > _LONG else 0
    dots = "…" if start else ""
    return f"({short(dots + before[start:])}, now {short(dots + after[start:])})"


# The wordings that a fit uses; a change of another one, such as that of a chat baseline, is no other run.
_WORDING = {"text": ("query", "described", "generate", "with_examples"), "image": ("described", "draw")}
_LABELS = {name: name for name in ("recipe", "policy", "seed", "embedder", "generator")} | {
    "holdout": "file of held-out texts (--holdout)",
}


@dataclass(frozen=True)
class Changes:
    """What was changed on purpose since a run was fitted last."""

    words: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)  # class -> the class of its samples now
    reopened: tuple[str, ...] = ()  # classes that are no longer what they were: they may generate again


@dataclass(frozen=True)
class Inputs:
    """Everything that the decisions of a run depend on. Texts are kept as hashes only."""

    classes: Mapping[str, str]  # name -> hash of its description
    given: Mapping[str, tuple[str, ...]]  # class -> hashes of its given samples
    order: str  # hash of the names of the classes and of the given samples in their order
    prompts: str
    recipe: Mapping[str, Any]
    policy: str
    seed: int
    embedder: str
    generator: str
    holdout: str | None
    budget: Mapping[str, Any]
    code: tuple[str, ...] = ()  # of functions among them

    @classmethod
    def of(cls, setup: FitSetup) -> Inputs:
        """What must be the same when the run is resumed, or may only grow."""
        task, settings, budget = setup.task, setup.settings, setup.budget
        given: dict[str, list[str]] = {}
        for sample in task.samples:
            given.setdefault(sample.class_name, []).append(sample_digest(sample))
        return cls(
            classes=class_digests(task),
            given={name: tuple(sorted(hashes)) for name, hashes in given.items()},
            order=_hash([task.class_names, [(s.class_name, s.text, s.id) for s in task.samples]]),
            prompts=_hash([getattr(task.prompts, name) for name in _WORDING[task.modality]]),
            recipe=settings.recipe.model_dump(mode="json"),
            policy=settings.policy,
            seed=settings.seed,
            embedder=setup.embedder.fingerprint,
            generator="none" if setup.generator is None else setup.generator.fingerprint,
            holdout=None if setup.holdout is None else setup.holdout.digest,
            # Money as text, so that no cent is rounded.
            budget=vars(budget) | {"usd": None if budget.usd is None else str(budget.usd)},
            code=tuple(one.code for one in (setup.embedder, setup.generator) if one is not None and one.code),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Inputs:
        """From the fields as JSON has them."""
        given = {name: tuple(hashes) for name, hashes in data["given"].items()}
        return cls(**{**data, "given": given, "code": tuple(data.get("code", ()))})

    def changes_to(
        self,
        now: Inputs,
        *,
        moved: Mapping[str, str | None] | None = None,
        guess: bool = True,
        bought: bool = True,
    ) -> Changes:
        """What changed on purpose.

        Args:
            now: what the run is started with now.
            moved: classes that were renamed or merged, and into which; None for one that was removed.
            guess: whether others that are gone are recognised by their given samples, as in a task file.
            bought: whether samples were. If so, a change that would make another run raises `RunError`.
        """
        difference = first_difference(vars(self), vars(now), _LABELS)
        if difference and bought:
            raise RunError(
                f"the run was started with another {difference}; start it as then to keep what was bought, "
                "or add --overwrite to start over"
            )
        words = [f"another {difference}"] if difference else []
        moves = self._moves(now, moved or {}, guess=guess)
        for name, target in moves.items():
            keeps = target in self.classes and target not in moves
            several = keeps or list(moves.values()).count(target) > 1
            verb = "merged into" if several else "renamed to"
            if name in now.classes:
                words.append(f"samples of class {short(name)} moved to {short(target)}")
            else:
                words.append(f"class {short(name)} {verb} {short(target)}")
        words += [
            f"class {short(n)} removed" for n in self.classes if n not in now.classes and n not in moves
        ]
        added = [n for n in now.classes if n not in self.classes and n not in moves.values()]
        words += [f"class {short(name)} added" for name in added]
        reopened = {*moves.values(), *added}
        for name in now.classes:
            if name in added:
                continue
            sources = [source for source in self.classes if moves.get(source, source) == name] or [name]
            if now.classes[name] not in [self.classes[source] for source in sources]:
                words.append(f"description of class {short(name)} changed")
                reopened.add(name)
            before = {given for source in sources for given in self.given.get(source, ())}
            after = set(now.given.get(name, ()))
            gained, lost = len(after - before), len(before - after)
            counts = [(gained, "changed")] if gained == lost else [(gained, "added"), (lost, "removed")]
            for count, verb in counts:
                if count:
                    plural = "s" * (count > 1)
                    words.append(f"{count} given sample{plural} of class {short(name)} {verb}")
                    reopened.add(name)
        words += self._other_budget(now, bought)
        if self.code != now.code:
            words.append("code of a function changed")
        if self.prompts != now.prompts:
            words.append("wording of the prompts changed")
        if not words and self.order != now.order:  # rows in another order train to other weights
            words.append("order of the classes or of the given samples changed")
        return Changes(tuple(words), moves, tuple(sorted(reopened)))

    def _moves(self, now: Inputs, moved: Mapping[str, str | None], *, guess: bool) -> dict[str, str]:
        """The classes whose samples belong to another one now.

        What was said counts. A class that a task file lacks is the one that has more than half of its given
        samples, if no other class has one of them; a class without any is known by its description.
        """
        homes = {given: name for name, hashes in now.given.items() for given in hashes}
        moves: dict[str, str] = {}
        for name, description in self.classes.items():
            given = self.given.get(name, ())
            places = [homes[each] for each in given if each in homes]
            alike = [n for n, d in now.classes.items() if d == description and n not in self.classes]
            if name in moved:
                target = moved[name]
                if target is not None and target != name and target in now.classes:
                    moves[name] = target
            elif not guess or name in now.classes:
                continue
            elif len(set(places)) == 1 and 2 * len(places) > len(given):
                moves[name] = places[0]
            elif not given and len(alike) == 1:
                moves[name] = alike[0]
        return moves

    def _other_budget(self, now: Inputs, bought: bool) -> list[str]:
        """Samples cannot be given back; a tighter cap on calls or money only ends generation sooner."""
        then, new = budget_from_json(self.budget), budget_from_json(now.budget)
        if bought and _is_tighter(new.samples, then.samples):
            raise RunError(f"the budget was {then}; its samples can be raised, not lowered to {new}")
        tighter = any(_is_tighter(getattr(new, cap), getattr(then, cap)) for cap in vars(new))
        verb = "changed" if tighter else "raised"
        return [] if then == new else [f"budget {verb} from {then} to {new}"]


def _is_tighter(cap: Decimal | int | None, than: Decimal | int | None) -> bool:
    return cap is not None and (than is None or cap < than)


def budget_from_json(data: Mapping[str, Any]) -> Budget:
    """The budget of `Inputs`."""
    return Budget(**{**data, "usd": None if data["usd"] is None else Decimal(data["usd"])})


def sample_digest(sample: Sample) -> str:
    """What a given sample is known by, whatever class it is of."""
    return _hash([sample.text, sample.id])


def class_digests(task: Task) -> dict[str, str]:
    """Class -> hash of its description."""
    return {spec.name: _hash(spec.description) for spec in task.classes}


def _hash(value: object) -> str:
    return json_digest(value)[:32]
