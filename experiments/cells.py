"""The cells of an experiment: one method, trained once; each has a key that says what it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from adamab.compare.methods import READS_SAMPLES, WITH_ARGUMENT, make_baseline
from adamab.errors import TaskError
from adamab.providers.registry import open_generator
from adamab.task.recipe import Recipe
from adamab.task.spec import split_spec
from experiments.datasets.base import DataSet, Draw
from experiments.definition import (
    CALIBRATOR,
    EVENLY,
    NONE,
    Experiment,
    Method,
    batch_of,
    combinations,
    recipe_of,
    rounds_of,
)
from experiments.shapes import EVEN, Shape

DEFINITION = 3  # of what a cell measures; raise it when that changes
# Round-robin serves classes of equal counts in an order drawn from the seed; it went by index before.
SERVED = "order by seed"
BOTH = "both"  # the setting of methods that read no wording, so that both settings have the same figures
RECORDED, POOL = "recorded", "pool"
_EXPLORING = ("adamab", "tight")  # policies that α means something to
_WORDLESS = ("class-mean", "linear-probe", "linear-svm", "knn", "setfit")
TEST, FOLDS = "test", "folds"


@dataclass(frozen=True)
class Cell:
    """What is trained on what; `rounds` is 0 where the given samples are all there is."""

    set: str
    setting: str  # zero-shot, few-shot or both
    given: int  # samples per class
    generator: str  # recorded, pool or a spec; of given samples too: they differ with it
    policy: str
    amount: str  # as the experiment writes it; "0" with the policy none
    rounds: int
    batch: int
    method: str
    recipe: str  # of a calibrator, else empty
    options: str  # JSON: of the recipe or the baseline
    seed: int
    scored: str = TEST  # or `folds`: cross-validation on the given samples, test samples untouched
    shape: Shape = EVEN

    @property
    def settings(self) -> dict[str, Any]:
        """The options as values."""
        settings: dict[str, Any] = json.loads(self.options)
        return settings

    @property
    def group(self) -> Cell:
        """What is averaged over seeds."""
        return replace(self, seed=-1)

    @property
    def draw(self) -> DrawKey:
        """Which draw it uses."""
        return DrawKey(self.set, self.generator, self.given, self.seed, self.shape)

    def full_recipe(self) -> Recipe:
        """Every option of a calibrator's fit."""
        recipe = recipe_of(self.recipe, self.set).with_options(**self.settings)
        return recipe.with_options(batch=self.batch, augmentation_rounds=self.rounds)

    def key(self, draw: Draw, fingerprint: str, version: int) -> str:
        """A hash of all that its figures depend on; nothing is loaded or asked to work it out."""
        task, cell = draw.task, asdict(self)
        if self.shape == EVEN:
            del cell["shape"]  # rows from before there were others stay what they are
        parts = [
            DEFINITION,
            version,
            cell,
            self.full_recipe().model_dump(mode="json") if self.method == CALIBRATOR else None,
            fingerprint,
            self._others(),
            draw.digest,
            [asdict(spec) for spec in task.classes],
            asdict(task.prompts),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def _others(self) -> list[Any]:
        """The models besides the embedder, by identity: a named one may change, and so may a preset."""
        parts: list[Any] = [SERVED] if self.policy == EVENLY else []
        if self.method != CALIBRATOR:
            baseline = make_baseline(self.method, seed=self.seed, **self.settings)
            parts += [baseline.version, baseline.fingerprint]
        if self.policy != NONE and self.generator not in (RECORDED, POOL):
            generator = open_generator(self.generator, seed=self.seed)
            parts.append(None if generator is None else generator.fingerprint)
        return parts


@dataclass(frozen=True)
class DrawKey:
    """One draw of one set."""

    set: str
    generator: str
    given: int
    seed: int
    shape: Shape = EVEN

    @property
    def source(self) -> str:
        """What the set is asked for: an API writes from given samples as a pool has them."""
        return RECORDED if self.generator == RECORDED else POOL


@dataclass(frozen=True)
class LeftOut:
    """Cells that an experiment asks for and that cannot be had."""

    set: str
    generator: str
    amount: str
    why: str


class Expansion:
    """All cells of an experiment, and what had to be left out of it."""

    def __init__(self, experiment: Experiment, sets: Mapping[str, DataSet]) -> None:
        self.experiment, self.left_out = experiment, list[LeftOut]()
        cells = [cell for name in experiment.sets for cell in self._of_set(name, sets[name])]
        self.cells = list(dict.fromkeys(cells))

    def _of_set(self, name: str, data: DataSet) -> Iterator[Cell]:
        if data.images and "few-shot" in self.experiment.settings:
            raise TaskError(f"settings: {name} are images, which no wording can quote; leave few-shot out")
        if data.embedder() is not None:
            for method in self.experiment.methods:
                if reads_samples(method.method):  # all that it could read are the names of rows
                    raise TaskError(
                        f"{method.method} reads samples, and {name} has only their vectors; leave it out"
                    )
        for generator in self._generators(name, data):
            amounts = list(self._amounts(name, data, generator))
            for method in self.experiment.methods:
                wordless = split_spec(method.method)[0] in _WORDLESS
                for setting in [BOTH] if wordless else self.experiment.settings:
                    for seed in range(self.experiment.seeds):
                        first = Cell(
                            set=name,
                            setting=setting,
                            given=self.experiment.given_of(name),
                            generator=generator,
                            policy=NONE,
                            amount="0",
                            rounds=0,
                            batch=batch_of(name, recipe_of(method.recipe, name)),
                            method=method.method,
                            recipe=method.recipe if method.method == CALIBRATOR else "",
                            options=_json(method.options),
                            seed=seed,
                            shape=self.experiment.shape,
                        )
                        yield from self._of_method(first, method, amounts)

    def _of_method(self, first: Cell, method: Method, amounts: Sequence[tuple[str, int]]) -> Iterator[Cell]:
        if method.method == CALIBRATOR:
            none = [NONE] if NONE in method.policies or any(rounds == 0 for _, rounds in amounts) else []
            others = [policy for policy in method.policies if policy != NONE]
        else:
            none = [] if method.samples == "added" else [NONE]
            others = [EVENLY] if _learns_from_added(method) else []
        for policy in none:
            yield from self._varied(replace(first, policy=policy))
        for amount, rounds in amounts:
            for policy in others if rounds else ():
                yield from self._varied(replace(first, policy=policy, amount=amount, rounds=rounds))

    def _varied(self, cell: Cell) -> Iterator[Cell]:
        if cell.method != CALIBRATOR:
            yield cell
            return
        vary = dict(self.experiment.vary)
        if cell.policy not in _EXPLORING:
            vary.pop("alpha", None)
        for options in combinations(vary):
            yield replace(cell, options=_json(cell.settings | options))

    def _generators(self, name: str, data: DataSet) -> Iterator[str]:
        served = False
        for generator in self.experiment.generators:
            if generator in (RECORDED, POOL) and generator not in data.generators:
                continue
            if generator == RECORDED and self.experiment.split == "paper":
                why = "the recorded generator saw other examples than the paper's split gives"
                self.left_out.append(LeftOut(name, generator, "all", why))
                continue
            served = True
            yield generator
        if not served:
            self.left_out.append(LeftOut(name, ", ".join(self.experiment.generators), "all", "it has none"))

    def _amounts(self, name: str, data: DataSet, generator: str) -> Iterator[tuple[str, int]]:
        """Amounts and their rounds; one that round-robin could not be served is left out."""
        batch, n_classes = batch_of(name, Recipe()), len(data.specs)
        smallest = self._smallest(name, data, generator)
        for amount in self.experiment.amounts_of(name):
            rounds = rounds_of(amount, name, n_classes, batch)
            needed = -(-rounds * batch // n_classes)
            if smallest is not None and needed > smallest:
                why = f"{needed} samples of every class are needed and one class has {smallest}"
                self.left_out.append(LeftOut(name, generator, str(amount), why))
            else:
                yield str(amount), rounds

    def _smallest(self, name: str, data: DataSet, generator: str) -> int | None:
        if generator not in (RECORDED, POOL):
            return None
        e = self.experiment
        sizes = data.pool_sizes(e.given_of(name), generator=generator, part=e.part, split=e.split)  # type: ignore[arg-type]
        return min(sizes.values())


def reads_samples(method: str) -> bool:
    """Whether the method looks at the texts instead of their vectors."""
    return split_spec(method)[0].partition(":")[0] in READS_SAMPLES


def _learns_from_added(method: Method) -> bool:
    """Whether it is asked for round-robin's samples; a prompt quotes given ones only."""
    if method.samples != "given" and split_spec(method.method)[0].partition(":")[0] in WITH_ARGUMENT:
        raise TaskError(
            f"{method.method} quotes given samples at most; leave out its samples: {method.samples}"
        )
    return method.samples != "given"


def _json(options: Mapping[str, Any]) -> str:
    return json.dumps(dict(options), sort_keys=True)
