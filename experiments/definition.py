"""An experiment: what is compared on which data, from a YAML file; and the numbers that the paper prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from adamab.compare.methods import METHODS
from adamab.errors import TaskError, one_line, place, short, suggestion
from adamab.task.recipe import PAPER_SETTINGS, Recipe
from adamab.task.spec import split_spec
from adamab.task.task_file import Node, read_tree
from experiments.datasets.base import published_name
from experiments.shapes import EVEN, Shape

Setting = Literal["zero-shot", "few-shot"]  # descriptions of the classes without or with the given examples
NONE, EVENLY = "none", "round-robin"
POLICIES = (NONE, "random", EVENLY, "greedy", "tight", "adamab")
CALIBRATOR = "calibrator"
PAPER, UNEVEN, PASSES = "paper", "uneven", "passes"
BY_FOLDS = "by-cross-validation"
Amounts: TypeAlias = tuple[int | str, ...]
Model = TypeVar("Model", bound=BaseModel)
FOLDER = Path(__file__).parent / "definitions"


class Strict(BaseModel):
    """Unknown keys are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Method(Strict):
    """One line of the table, or one for each policy.

    A baseline is trained on the given samples; with `samples: both` once more on what round-robin would
    have added to them, and with `samples: added` on that alone.
    """

    method: str
    policies: tuple[str, ...] = ()
    recipe: str = "default"  # `paper` means the paper's settings for the set
    options: dict[str, Any] = Field(default_factory=dict)  # of the recipe or the baseline
    samples: Literal["given", "both", "added"] = "given"

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"method": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _checked(self) -> Method:
        if self.method == CALIBRATOR:
            if not self.policies:
                raise ValueError("a calibrator needs policies, such as [none, adamab]")
            for policy in self.policies:
                _known(policy, POLICIES, "policy")
            recipe_of(self.recipe, "").with_options(**self.options)
        else:
            _known(split_spec(self.method)[0].partition(":")[0], (CALIBRATOR, *METHODS), "method")
            if self.policies:
                raise ValueError(f"{self.method} takes no policies; with samples: both it gets round-robin's")
        return self


class Experiment(Strict):
    """Everything that decides what is run; the defaults are the paper's where it has any."""

    name: str = Field(pattern=r"[a-z0-9][a-z0-9_-]*")
    title: str
    version: int = 1  # raise it to measure everything again
    sets: tuple[str, ...] = Field(min_length=1)
    settings: tuple[Setting, ...] = Field(("zero-shot",), min_length=1)
    given: Annotated[int, Field(ge=1)] | dict[str, Annotated[int, Field(ge=1)]] = 5  # samples per class
    shape: Shape = EVEN
    split: Literal["readme", "paper"] = "readme"
    part: Literal["test", "development"] = "test"
    generators: tuple[str, ...] = ("recorded", "pool")  # or a spec such as openai:gpt-4o-mini
    amounts: Amounts | dict[str, Amounts] = (PAPER,)  # for every set, or by set
    embedder: str = "local"
    seeds: int = Field(5, ge=1, le=100)
    methods: tuple[Method, ...] = Field(min_length=1)
    vary: dict[str, tuple[Any, ...]] = Field(default_factory=dict)  # options of the calibrator's recipe
    chosen: Literal["all", "by-cross-validation"] = "all"
    figure: Literal["none", "samples", "alpha"] = "none"
    published: tuple[str, ...] = ()  # the paper's tables to print beside ours
    note: str = ""

    @field_validator("amounts")
    @classmethod
    def _amounts(cls, amounts: Amounts | dict[str, Amounts]) -> Amounts | dict[str, Amounts]:
        listed = amounts.values() if isinstance(amounts, dict) else (amounts,)
        for amount in chain.from_iterable(listed):
            number = amount if isinstance(amount, int) else _passes(amount)
            if amount not in (PAPER, UNEVEN) and (number is None or number < 0):
                raise ValueError(
                    f"{short(amount)} is no amount; write synthetic samples per class, {PAPER}, {UNEVEN} or "
                    "'2 passes'"
                )
        return amounts

    @model_validator(mode="after")
    def _varied(self) -> Experiment:
        for option, values in self.vary.items():
            if not values:
                raise ValueError(f"vary.{option} is empty; list the values to try")
            for value in values:
                Recipe().with_options(**{option: value})
        if self.chosen != "all" and not any(m.method == CALIBRATOR for m in self.methods):
            raise ValueError("chosen: there is no calibrator whose options could be chosen")
        if self.chosen == BY_FOLDS and not all(m.method == CALIBRATOR for m in self.methods):
            raise ValueError("chosen: only calibrators have options to choose; leave the other methods out")
        return self

    def given_of(self, data_set: str) -> int:
        """Given samples per class."""
        return self.given if isinstance(self.given, int) else self.given.get(data_set, 5)

    def amounts_of(self, data_set: str) -> Amounts:
        """Synthetic samples per class, or rounds by name."""
        return self.amounts.get(data_set, (PAPER,)) if isinstance(self.amounts, dict) else self.amounts

    def with_changes(self, **changes: Any) -> Experiment:
        """The same experiment with some values changed, all checked again; None counts as not given."""
        known = {key: value for key, value in changes.items() if value is not None}
        return _validated(Experiment, self.model_dump() | known, "the options")


def rounds_of(amount: int | str, data_set: str, n_classes: int, batch: int) -> int:
    """Rounds that generate: the paper's, half a pass over the classes less, or what an amount a class needs.

    The paper's go round the classes evenly, which suits round-robin; half a pass less does not. For a set
    that the paper does not have they are two passes.
    """
    if isinstance(amount, int):
        return -(-amount * n_classes // batch)
    if (passes := _passes(amount)) is not None:
        return math.ceil(passes * n_classes)
    settings = PAPER_SETTINGS.get(published_name(data_set))
    rounds = 2 * n_classes if settings is None else int(settings["augmentation_rounds"])
    return rounds if amount == PAPER else max(1, rounds - n_classes // 2)


def recipe_of(name: str, data_set: str) -> Recipe:
    """The preset; `paper` and `calibrator` get the paper's settings for the set where it names some."""
    known = published_name(data_set)
    of_set = name in (PAPER, CALIBRATOR) and known in PAPER_SETTINGS
    return Recipe.preset(f"{name}:{known}" if of_set else name)


def batch_of(data_set: str, recipe: Recipe) -> int:
    """Samples per round: the paper's for the set, so that all recipes get the same amounts."""
    settings = PAPER_SETTINGS.get(published_name(data_set))
    return recipe.batch if settings is None else int(settings["batch"])


def built_in() -> list[Experiment]:
    """The experiments of `definitions/`."""
    return [_read(path) for path in sorted(FOLDER.glob("*.yaml"))]


def load_experiment(name: str) -> Experiment:
    """A built-in experiment by name, or one from a YAML file."""
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    known = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    if name not in known:
        raise TaskError(
            f"unknown experiment {short(name)}; {suggestion(name, known)} (all: python -m experiments "
            "--list; or a file: my.yaml)"
        )
    return _read(FOLDER / f"{name}.yaml")


def _read(path: Path) -> Experiment:
    data = _plain(read_tree(path))
    if not isinstance(data, dict):
        raise TaskError(f"{place(path)}: is no mapping; write keys such as title, sets and methods")
    return _validated(Experiment, {"name": path.stem.lower()} | data, place(path))


def _validated(model: type[Model], data: Mapping[str, Any], where: str) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        what = ".".join(str(part) for part in first["loc"] if not _internal(part))
        problem = first["msg"].removeprefix("Value error, ")
        raise TaskError(f"{where}: {f'{what}: ' if what else ''}{one_line(problem)}") from None


def _internal(part: int | str) -> bool:
    """A branch of a union, which means nothing to the author of the file."""
    return isinstance(part, str) and (
        part.startswith(("constrained", "dict[", "tuple[")) or part in ("int", "str")
    )


def _plain(node: Node) -> Any:
    import yaml

    if isinstance(node.value, dict):
        return {key: _plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(value) for value in node.value]
    return node.value if node.kind == "text" else yaml.safe_load(node.value)


def _passes(amount: str) -> float | None:
    """Of '2 passes' or '0.5 passes'."""
    number, _, word = amount.partition(" ")
    digits = number.replace(".", "", 1).isdecimal() and number[0] != "."
    return float(number) if digits and word in ("pass", PASSES) else None


def _known(name: str, known: Sequence[str], what: str) -> None:
    if name not in known:
        raise ValueError(f"unknown {what} {short(name)}; {suggestion(name, known)}")


def combinations(vary: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the varied options.

    Example:
        >>> list(combinations({"alpha": (0, 1)}))
        [{'alpha': 0}, {'alpha': 1}]
    """
    if not vary:
        yield {}
        return
    (option, values), *rest = vary.items()
    for value in values:
        for others in combinations(dict(rest)):
            yield {option: value, **others}


NOT_COMPARABLE = (
    "For orientation only, and not directly comparable: the paper has other embedders and generators, drew "
    "its given samples from the official test splits, and chose its settings by the best test accuracy."
)
# Accuracy in %, by set and within it by setting.
PUBLISHED = FOLDER / "published.json"


@dataclass(frozen=True)
class PublishedRow:
    """One line of a table of the paper."""

    method: str
    parameters: str
    accuracy: dict[tuple[str, str], float]  # in %, by set and setting


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper, by the name that its source gives it."""

    name: str
    sets: tuple[str, ...]
    settings: tuple[str, ...]
    rows: tuple[PublishedRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        rows = [
            {
                "method": row.method,
                "parameters": row.parameters,
                "accuracy": {f"{name} {setting}": value for (name, setting), value in row.accuracy.items()},
            }
            for row in self.rows
        ]
        return {"table": self.name, "rows": rows}


def published_table(name: str) -> PublishedTable:
    """The table of that name."""
    known = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    if name not in known:
        raise TaskError(f"published: the paper has no table {short(name)}; {suggestion(name, known)}")
    table = known[name]
    places = [(a, b) for a in table["sets"] for b in table["settings"]]
    rows = tuple(
        PublishedRow(row["method"], str(row["parameters"]), dict(zip(places, row["accuracy"], strict=True)))
        for row in table["rows"]
    )
    return PublishedTable(name, tuple(table["sets"]), tuple(table["settings"]), rows)
