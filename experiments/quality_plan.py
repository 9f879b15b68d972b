"""What the yardstick of quality measures: sets, cells, methods and seeds; all of it or a subset.

A plan becomes experiments, one for each set, shape, number of given samples and source of synthetic ones,
which the experiments' runner runs into one file of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from adamab.errors import TaskError, short, suggestion
from experiments.cells import POOL, RECORDED, Cell
from experiments.datasets.base import SCORED_ONCE, DataSet, Part
from experiments.definition import CALIBRATOR, NONE, Experiment
from experiments.shapes import EVEN, MOST, Shape

Name = Literal["quality", "quality-dev", "quality-full", "quality-once"]
TEXT_SETS = ("trec", "multiwd", "forbidden", "hwu64", "demo")
IMAGE_SETS = ("pets", "flowers102", "cub200")
SETS = (*TEXT_SETS, *IMAGE_SETS)
ALL_SETS = (*SETS, *SCORED_ONCE)
GIVEN, SYNTHETIC = (1, 2, 5, 10), (5, 10, 20)  # a class; synthetic ones on average
SEEDS, QUICK_SEEDS = 5, 3
SETFIT, SETFIT_GIVEN, SETFIT_SEEDS = "setfit", 5, 2  # minutes a fit

DEFAULT, API, PAPER, PRESET = "default", "default-api", "paper", "calibrator"
EVENLY, RANDOM = "default-round-robin", "default-random"
OLD = "default-0"  # the recipe that was the default before; only kept rows have it
OLD_API = f"{OLD}-api"
ZERO_SHOT, PROBE = "zero-shot", "linear-probe"
JOINT, VOTE, JOINT_API, VOTE_API = "joint-probe", "soft-vote", "joint-probe-api", "soft-vote-api"
# Rivals by what they see. Each list holds the one before it: who sees more may use less.
ON_POOLED = (
    PAPER, PRESET, ZERO_SHOT, "centred", PROBE, "linear-svm", "class-mean", "mean-and-text", "knn",
    "cache-adapter",
)  # fmt: skip
ON_API = (*ON_POOLED, JOINT_API, VOTE_API)
RIVALS = (*ON_API, JOINT, VOTE)
SAME_INPUTS = {DEFAULT: RIVALS, API: ON_API}
METHODS = (DEFAULT, API, OLD, OLD_API, EVENLY, RANDOM, *RIVALS, SETFIT)
# They need vectors of the classes' wordings.
DESCRIBED = (ZERO_SHOT, "centred")

QUICK, DEV, FULL, ONCE = "quality", "quality-dev", "quality-full", "quality-once"
NAMES = (QUICK, DEV, FULL, ONCE)
TITLES = {
    QUICK: "Quality, a first look: equal counts, few seeds, development part",
    DEV: "Quality on development parts, where choices are made",
    FULL: "Quality: the default recipe against rivals that see what it sees",
    ONCE: "Quality on sets that were scored once",
}
Shaped = tuple[Shape, int]  # and the samples given, or drawn first
_EVEN: tuple[Shaped, ...] = tuple((EVEN, given) for given in GIVEN)
_COUNTS: tuple[Shaped, ...] = (("uneven", 5), ("drawn", MOST))
_WORDS: tuple[Shaped, ...] = (("unseen", 5), ("codes", 1), ("codes", 5))  # they change what is described
TEXT_SHAPES, IMAGE_SHAPES = (*_EVEN, *_COUNTS, *_WORDS), (*_EVEN, *_COUNTS)
QUICK_SHAPES: dict[str, tuple[Shaped, ...]] = dict.fromkeys(SETS, _EVEN[:3])
ONCE_SHAPES: tuple[Shaped, ...] = ((EVEN, 1), (EVEN, 5), (EVEN, 10))


@dataclass(frozen=True)
class Place:
    """A cell of the yardstick: where methods meet."""

    set: str
    given: int  # samples per class; of other shapes than `even` the most
    synthetic: int  # a class on average
    generator: str  # none, recorded or pool
    shape: Shape = EVEN

    @property
    def kind(self) -> str:
        """What cells of several sets have in common."""
        named = str(self.given) if self.shape == EVEN else self.shape
        if self.shape == "codes":
            named = f"codes {self.given}"
        return f"{named} + {self.synthetic} {self.generator}" if self.synthetic else named

    def __str__(self) -> str:
        return f"{self.set} {self.kind}"


@dataclass(frozen=True)
class Plan:
    """Which cells are measured, on which part."""

    name: Name
    part: Part
    shapes: Mapping[str, tuple[Shaped, ...]]  # by set
    synthetic: tuple[int, ...] = ()  # samples per class of a recorded generator, beside none
    seeds: int | None = None  # None: five
    embedder: str = "local"
    setfit: bool = False
    only: tuple[str, ...] = ()  # methods; empty: all

    @property
    def rows_name(self) -> str:
        """Of the file of rows; subset and whole share it, the parts do not."""
        if self.name == ONCE:
            return ONCE
        return "quality" if self.part == "test" else "quality-development"

    @property
    def results_name(self) -> str:
        """Of page, JSON and figure: only the whole takes the place of the published ones."""
        whole = self.seeds is None and self.shapes == _shapes_of(self.name, None)
        suffix = "-quick" if self.name == QUICK else "" if whole else "-part"
        return f"{self.rows_name}{suffix}"

    def experiments(self, data: DataSet) -> list[Experiment]:
        """What the runner is given for one set; a number given that no class has is left out."""
        experiments: list[Experiment] = []
        for shape, given in self.shapes[data.name]:
            if shape == EVEN and self.short_classes(data, given).none_has_all:
                continue
            experiments += self._of_methods(data, shape, given, POOL, (0,))
            if shape == EVEN and self.synthetic and self.source(data, given) == RECORDED:
                experiments += self._of_methods(data, shape, given, RECORDED, self.synthetic)
        wanted = self.setfit and data.name in TEXT_SETS and (not self.only or SETFIT in self.only)
        if wanted and (EVEN, SETFIT_GIVEN) in self.shapes[data.name]:
            seeds = min(SETFIT_SEEDS, self.seeds or SEEDS)
            methods = [{"method": SETFIT}]
            experiments.append(self._experiment(data, EVEN, SETFIT_GIVEN, POOL, (0,), methods, seeds))
        return experiments

    def short_classes(self, data: DataSet, given: int) -> ShortClasses:
        """Classes with fewer samples than that; every seed has the same."""
        most = data.most_given(part=self.part).values()
        return ShortClasses(sum(n < given for n in most), min(most), max(most), len(most))

    def source(self, data: DataSet, given: int) -> str:
        """The recorded generator, if the set has one that saw enough samples and a part to score on."""
        if RECORDED not in data.generators:
            return POOL
        saw = data.most_given(generator="recorded", part=self.part)
        return RECORDED if given <= max(saw.values()) else POOL

    def _of_methods(
        self, data: DataSet, shape: Shape, given: int, source: str, amounts: Sequence[int]
    ) -> Iterator[Experiment]:
        methods = [
            method
            for name, method in _methods(data, bool(amounts[0]), self.name).items()
            if not self.only or name in self.only
        ]
        if methods:
            yield self._experiment(data, shape, given, source, amounts, methods, self.seeds or SEEDS)

    def _experiment(
        self,
        data: DataSet,
        shape: Shape,
        given: int,
        source: str,
        amounts: Sequence[int],
        methods: Sequence[Mapping[str, Any]],
        seeds: int,
    ) -> Experiment:
        return Experiment.model_validate(
            {
                "name": self.rows_name,
                "title": TITLES[self.name],
                "sets": (data.name,),
                "shape": shape,
                "given": given,
                "part": self.part,
                "generators": (source,),
                "amounts": tuple(amounts),
                "embedder": self.embedder,
                "seeds": seeds,
                "methods": methods,
            }
        )


@dataclass(frozen=True)
class ShortClasses:
    """Of one set and number given."""

    count: int
    fewest: int
    most: int  # that a class can give
    n_classes: int

    @property
    def none_has_all(self) -> bool:
        """Whether no class has enough."""
        return self.count == self.n_classes


def plan(
    name: Name,
    *,
    part: str | None = None,
    sets: Sequence[str] | None = None,
    seeds: int | None = None,
    embedder: str | None = None,
    only: Sequence[str] | None = None,
) -> Plan:
    """The cells of one of the four names; each has its part, which `part` may state but not change."""
    own: Part = "test" if name in (FULL, ONCE) else "development"
    if part not in (None, own):
        raise TaskError(f"{name} is about the {own} part; for the other name {DEV} or {FULL}")
    known = SCORED_ONCE if name == ONCE else SETS
    for data_set in sets or ():
        if data_set not in known:
            raise TaskError(f"{name} has no set {short(data_set)}; {suggestion(data_set, known)}")
    for method in only or ():
        if method not in METHODS:
            raise TaskError(f"{name} has no method {short(method)}; {suggestion(method, METHODS)}")
    chosen = Plan(
        name,
        own,
        _shapes_of(name, sets),
        SYNTHETIC if name in (DEV, FULL) else (),
        seeds or (QUICK_SEEDS if name == QUICK else None),
        setfit=name == FULL,
        only=tuple(only or ()),
    )
    return chosen if embedder is None else replace(chosen, embedder=embedder)


def _shapes_of(name: str, sets: Sequence[str] | None) -> dict[str, tuple[Shaped, ...]]:
    if name == ONCE:
        shapes = dict.fromkeys(SCORED_ONCE, ONCE_SHAPES)
    elif name == QUICK:
        shapes = QUICK_SHAPES
    else:
        shapes = dict.fromkeys(TEXT_SETS, TEXT_SHAPES) | dict.fromkeys(IMAGE_SETS, IMAGE_SHAPES)
    return {data_set: of_set for data_set, of_set in shapes.items() if data_set in (sets or shapes)}


def _methods(data: DataSet, added: bool, name: Name) -> dict[str, dict[str, Any]]:
    """By name. Images of which only vectors are there have neither words nor descriptions."""
    described = data.embedder() is None
    options: dict[str, Any] = {} if described else {"words": False}
    evenly = "round-robin" if added else NONE  # what all rivals get
    policies = ["adamab", evenly, "random"] if added else [NONE]
    samples = "added" if added else "given"

    def ours(recipe: str, policies: Sequence[str], **options: Any) -> dict[str, Any]:
        return {"method": CALIBRATOR, "recipe": recipe, "policies": policies, "options": options}

    methods = {DEFAULT: ours("default", policies[:1] if name == DEV else policies, **options)}
    if described:
        methods[API] = ours("default", policies[:1], views=["pooled"])
        methods |= {recipe: ours(recipe, [evenly]) for recipe in (PAPER, PRESET)}
    untrained = {ZERO_SHOT: {"method": ZERO_SHOT}} if described else {}
    trained = {
        method: {"method": method, "samples": samples}
        for method in ON_POOLED
        if method not in (PAPER, PRESET, ZERO_SHOT) and (described or method not in DESCRIBED)
    }
    joint = {JOINT: {"method": JOINT, "samples": samples, "options": options}}
    if described:
        joint |= {
            f"{method}{ending}": {"method": method, "samples": samples, "options": inputs}
            for method in (JOINT, VOTE)
            for ending, inputs in (("-api", {"inputs": "api"}), ("", {}))
        }
    methods |= untrained | trained | joint
    if name == ONCE:  # minutes a fit on 150 classes
        for slow in ("linear-svm", "cache-adapter", VOTE):
            del methods[slow]
    return methods


def method_of(cell: Cell) -> str:
    """What the rows call the method of a cell."""
    if cell.method != CALIBRATOR:
        return f"{cell.method}-api" if cell.settings.get("inputs") == "api" else cell.method
    if cell.recipe in (PAPER, PRESET):
        return cell.recipe
    if "views" in cell.settings:
        return f"{cell.recipe}-api"
    return cell.recipe if cell.policy in (NONE, "adamab") else f"{cell.recipe}-{cell.policy}"


def places_of(cell: Cell, amounts: Sequence[int]) -> Iterator[Place]:
    """Where its row counts: similarity to descriptions learns nothing, so in all `amounts` of its draw."""
    for amount in amounts if cell.method == ZERO_SHOT else (int(cell.amount),):
        yield Place(cell.set, cell.given, amount, cell.generator if amount else NONE, cell.shape)
