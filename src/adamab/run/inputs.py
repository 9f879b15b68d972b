"""What a run was started with, as hashes, and what may change when it starts again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from adamab.errors import RunError
from adamab.providers.budget import Budget
from adamab.task.messages import short
from adamab.task.recipe import Recipe
from adamab.task.spec import Task

# The wordings that a fit uses; a change of another one, such as that of a chat baseline, is no other run.
_WORDING = {"text": ("query", "described", "generate", "with_examples"), "image": ("described", "draw")}
_LONG = 30  # characters of a value that is shown whole


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

    @classmethod
    def of(
        cls,
        task: Task,
        recipe: Recipe,
        budget: Budget,
        *,
        policy: str,
        seed: int,
        embedder: str,
        generator: str,
        holdout: str | None,
    ) -> Inputs:
        """Those of a fit; `embedder` and `generator` are fingerprints."""
        given: dict[str, list[str]] = {}
        for sample in task.samples:
            given.setdefault(sample.class_name, []).append(_hash([sample.text, sample.id]))
        return cls(
            classes={spec.name: _hash(spec.description) for spec in task.classes},
            given={name: tuple(sorted(hashes)) for name, hashes in given.items()},
            order=_hash([task.class_names, [(s.class_name, s.text, s.id) for s in task.samples]]),
            prompts=_hash([getattr(task.prompts, name) for name in _WORDING[task.modality]]),
            recipe=recipe.model_dump(mode="json"),
            policy=policy,
            seed=seed,
            embedder=embedder,
            generator=generator,
            holdout=holdout,
            budget=budget_to_json(budget),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Inputs:
        """Take back what `to_json` gave."""
        return cls(**{**data, "given": {name: tuple(hashes) for name, hashes in data["given"].items()}})

    def changes_to(self, now: Inputs) -> list[str]:
        """What changed on purpose, in words; raises `RunError` for a change that would be another run."""
        for what, then, new in self._fixed(now):
            if then != new:
                raise _another(what)
        changes = [*self._new_classes(now), *self._new_samples(now), *self._raised(now)]
        if not changes and self.order != now.order:  # rows in another order train to other weights
            raise _another("order of the classes or of the given samples")
        return changes

    def _fixed(self, now: Inputs) -> list[tuple[str, Any, Any]]:
        options = sorted({*self.recipe, *now.recipe})
        return [
            *(
                (_option(key, self, now), _value(self.recipe, key), _value(now.recipe, key))
                for key in options
            ),
            (_differing("policy", self.policy, now.policy), self.policy, now.policy),
            (_differing("seed", self.seed, now.seed), self.seed, now.seed),
            (_differing("embedder", self.embedder, now.embedder), self.embedder, now.embedder),
            (_differing("generator", self.generator, now.generator), self.generator, now.generator),
            ("file of held-out texts (--holdout)", self.holdout, now.holdout),
            ("wording of the prompts", self.prompts, now.prompts),
            *(
                (f"description of class {short(n)}", d, now.classes.get(n, d))
                for n, d in self.classes.items()
            ),
        ]

    def _new_classes(self, now: Inputs) -> list[str]:
        gone = [name for name in self.classes if name not in now.classes]
        if gone:
            raise RunError(f"class {short(gone[0])} is gone from the task, and a run cannot forget a class")
        return [f"class {short(name)} added" for name in now.classes if name not in self.classes]

    def _new_samples(self, now: Inputs) -> list[str]:
        changes = []
        for name in now.classes:
            then, new = set(self.given.get(name, ())), set(now.given.get(name, ()))
            if then - new:
                raise RunError(
                    f"a given sample of class {short(name)} is gone or was changed; a run may gain given "
                    "samples, not lose them: put it back, or name another directory"
                )
            if new - then and name in self.classes:
                samples = "sample" if len(new - then) == 1 else "samples"
                changes.append(f"{len(new - then)} given {samples} of class {short(name)} added")
        return changes

    def _raised(self, now: Inputs) -> list[str]:
        """Samples cannot be given back; a tighter cap on calls or money only ends generation sooner."""
        then, new = budget_from_json(self.budget), budget_from_json(now.budget)
        if _is_tighter(new.samples, then.samples):
            raise RunError(f"the budget was {then}; its samples can be raised, not lowered to {new}")
        tighter = _is_tighter(new.usd, then.usd) or _is_tighter(new.calls, then.calls)
        verb = "changed" if tighter else "raised"
        return [] if then == new else [f"budget {verb} from {then} to {new}"]

    def grown(self, now: Inputs) -> frozenset[str]:
        """Classes that gained given samples."""
        return frozenset(
            name for name in now.classes if set(now.given.get(name, ())) - set(self.given.get(name, ()))
        )


def _is_tighter(cap: Decimal | int | None, than: Decimal | int | None) -> bool:
    return cap is not None and (than is None or cap < than)


def budget_to_json(budget: Budget) -> dict[str, Any]:
    """Plain data; money as text, so that no cent is rounded."""
    return {
        "samples": budget.samples,
        "usd": None if budget.usd is None else str(budget.usd),
        "calls": budget.calls,
    }


def budget_from_json(data: Mapping[str, Any]) -> Budget:
    """Take back what `budget_to_json` gave."""
    usd = data["usd"]
    return Budget(data["samples"], None if usd is None else Decimal(usd), data["calls"])


def _another(what: str) -> RunError:
    return RunError(
        f"the run was started with another {what}; start again as then, or name another directory"
    )


def _option(key: str, then: Inputs, now: Inputs) -> str:
    return _differing(f"recipe: {key}", _value(then.recipe, key), _value(now.recipe, key))


def _value(recipe: Mapping[str, Any], key: str) -> Any:
    """An option that a run's recipe does not name came later, and stood at its default all the time."""
    if key in recipe or key not in Recipe.model_fields:
        return recipe.get(key)
    return Recipe().model_dump(mode="json")[key]


def _differing(what: str, then: object, now: object) -> str:
    """Both values, from where they begin to differ if they are long."""
    before, after = str(then), str(now)
    pairs = enumerate(zip(before, after, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(before), len(after)))
    start = max(0, same - 12) if max(len(before), len(after)) > _LONG else 0
    dots = "…" if start else ""
    return f"{what} ({short(dots + before[start:])}, now {short(dots + after[start:])})"


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
