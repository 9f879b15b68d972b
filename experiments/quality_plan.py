"""What the yardstick of quality measures: sets, given and synthetic samples, methods; all of it or a subset.

A plan becomes experiments, one for each set, number of given samples and source of synthetic ones, which
the experiments' runner runs into one file of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from adamab.errors import TaskError, short, suggestion
from experiments.cells import POOL, RECORDED, Cell
from experiments.datasets.base import DataSet, Part
from experiments.definition import CALIBRATOR, NONE, Experiment

TEXT_SETS = ("trec", "multiwd", "forbidden", "hwu64", "demo")
IMAGE_SETS = ("pets", "flowers102", "cub200")
SETS = (*TEXT_SETS, *IMAGE_SETS)
GIVEN, SYNTHETIC = (1, 2, 5, 10), (0, 5, 10, 20)  # a class; synthetic ones on average
TEXT_SEEDS, IMAGE_SEEDS, QUICK_SEEDS = 10, 5, 3
SETFIT, SETFIT_GIVEN, SETFIT_SEEDS = "setfit", 5, 2  # minutes a fit

DEFAULT, API, PAPER = "default", "default-api", "paper"
EVENLY, RANDOM = "default-round-robin", "default-random"
ZERO_SHOT, PROBE = "zero-shot", "linear-probe"
RIVALS = (PAPER, ZERO_SHOT, PROBE, "linear-svm", "class-mean", "cache-adapter")  # but SetFit
METHODS = (DEFAULT, API, EVENLY, RANDOM, *RIVALS, SETFIT)

QUICK, FULL = "quality", "quality-full"
TITLES = {
    QUICK: "Quality, a look in half an hour: a subset of the cells, few seeds",
    FULL: "Quality: one default recipe against its rivals",
}
Grid = Mapping[int, tuple[int, ...]]  # synthetic samples by given ones, a class
_ALL: Grid = dict.fromkeys(GIVEN, SYNTHETIC)
_WHOLE: dict[str, Grid] = dict.fromkeys(SETS, _ALL)
_QUICK_TEXT: Grid = {1: (0,), 2: (0, 5), 5: (0, 10)}
_QUICK: dict[str, Grid] = {
    **dict.fromkeys(TEXT_SETS, _QUICK_TEXT),
    "hwu64": {1: (0,), 2: (0, 5), 5: (0,)},
    "pets": {1: (0, 5), 2: (0,), 5: (0, 5, 10)},
    "flowers102": {1: (0, 5), 2: (0,), 5: (0,)},
    "cub200": {1: (0,), 2: (0,), 5: (0,)},
}


@dataclass(frozen=True)
class Place:
    """A cell of the yardstick: where methods meet."""

    set: str
    given: int  # samples per class
    synthetic: int  # a class on average
    generator: str  # none, recorded or pool

    def __str__(self) -> str:
        added = f" + {self.synthetic} {self.generator}" if self.synthetic else ""
        return f"{self.set} {self.given}{added}"


@dataclass(frozen=True)
class Plan:
    """Which cells are measured, on which part."""

    name: Literal["quality", "quality-full"]
    part: Part
    grid: Mapping[str, Grid]  # by set
    seeds: int | None = None  # None: ten for texts, five for images
    embedder: str = "local"
    setfit: bool = True

    @property
    def rows_name(self) -> str:
        """Of the file of rows; the subset and the whole share it, the parts do not."""
        return "quality" if self.part == "test" else "quality-development"

    @property
    def results_name(self) -> str:
        """Of page, JSON and figure: only the whole takes the place of the published ones."""
        whole = self.seeds is None and self.grid == _WHOLE
        suffix = "-quick" if self.name == QUICK else "" if whole else "-part"
        return f"{self.rows_name}{suffix}"

    def seeds_of(self, data_set: str) -> int:
        """How many."""
        return self.seeds or (TEXT_SEEDS if data_set in TEXT_SETS else IMAGE_SEEDS)

    def experiments(self, data: DataSet) -> list[Experiment]:
        """What the runner is given for one set; a number given that no class has is left out."""
        experiments: list[Experiment] = []
        for given, amounts in self.grid[data.name].items():
            if not self.short_classes(data, given).none_has_all:
                experiments += self._of_given(data, given, amounts)
        if self.setfit and data.name in TEXT_SETS and 0 in self.grid[data.name].get(SETFIT_GIVEN, ()):
            seeds = min(SETFIT_SEEDS, self.seeds_of(data.name))
            of_setfit = self._experiment(data, SETFIT_GIVEN, POOL, (0,))
            experiments.append(of_setfit.with_changes(methods=({"method": SETFIT},), seeds=seeds))
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

    def _of_given(self, data: DataSet, given: int, amounts: Sequence[int]) -> Iterator[Experiment]:
        source = self.source(data, given)
        if source == POOL:
            yield self._experiment(data, given, POOL, amounts)
            return
        # Without synthetic samples seeds draw other given ones, which the recorded generator did not see.
        for generator, some in (
            (POOL, [amount for amount in amounts if amount == 0]),
            (RECORDED, [amount for amount in amounts if amount > 0]),
        ):
            if some:
                yield self._experiment(data, given, generator, some)

    def _experiment(self, data: DataSet, given: int, source: str, amounts: Sequence[int]) -> Experiment:
        return Experiment.model_validate(
            {
                "name": self.rows_name,
                "title": TITLES[self.name],
                "sets": (data.name,),
                "given": given,
                "part": self.part,
                "generators": (source,),
                "amounts": tuple(amounts),
                "embedder": self.embedder,
                "seeds": self.seeds_of(data.name),
                "methods": _methods(data, amounts),
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
    name: Literal["quality", "quality-full"],
    *,
    part: str | None = None,
    sets: Sequence[str] | None = None,
    seeds: int | None = None,
    embedder: str | None = None,
) -> Plan:
    """The subset, or everything; `part` is development for the one and test for the other if not given."""
    if part not in (None, "test", "development"):
        raise TaskError(f"unknown part {short(part)}; {suggestion(part, ('test', 'development'))}")
    for data_set in sets or ():
        if data_set not in SETS:
            raise TaskError(f"{name} has no set {short(data_set)}; {suggestion(data_set, SETS)}")
    grid = _QUICK if name == QUICK else _WHOLE
    chosen = Plan(
        name,
        "test" if part == "test" or (part is None and name == FULL) else "development",
        {data_set: grid[data_set] for data_set in SETS if data_set in (sets or SETS)},
        seeds or (QUICK_SEEDS if name == QUICK else None),
        setfit=name == FULL,
    )
    return chosen if embedder is None else replace(chosen, embedder=embedder)


def _methods(data: DataSet, amounts: Sequence[int]) -> list[dict[str, Any]]:
    """Images of which only vectors are there have neither words nor descriptions in the same space."""
    described = data.embedder() is None
    samples = "added" if 0 not in amounts else "both" if any(amounts) else "given"
    options: dict[str, Any] = {} if described else {"words": False}
    policies = ["adamab", "round-robin", "random"]
    ours = [{"method": CALIBRATOR, "recipe": "default", "policies": policies, "options": options}]
    if described:
        views = {"views": ["pooled"]}
        ours.append({"method": CALIBRATOR, "recipe": "default", "policies": ["adamab"], "options": views})
    ours.append({"method": CALIBRATOR, "recipe": "paper", "policies": ["round-robin"]})  # as all rivals
    theirs = [{"method": name, "samples": samples} for name in RIVALS if name not in (PAPER, ZERO_SHOT)]
    untrained: list[dict[str, Any]] = [{"method": ZERO_SHOT}] if described else []
    return [*ours, *untrained, *theirs]


def method_of(cell: Cell) -> str:
    """What the rows call the method of a cell."""
    if cell.method != CALIBRATOR:
        return cell.method
    if cell.recipe == "paper":
        return PAPER
    if "views" in cell.settings:
        return API
    return DEFAULT if cell.policy in (NONE, "adamab") else f"{DEFAULT}-{cell.policy}"


def places_of(cell: Cell, amounts: Sequence[int]) -> Iterator[Place]:
    """Where its row counts: similarity to descriptions learns nothing, so in all `amounts` of its draw."""
    for amount in amounts if cell.method == ZERO_SHOT else (int(cell.amount),):
        yield Place(cell.set, cell.given, amount, cell.generator if amount else NONE)
