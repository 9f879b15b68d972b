"""What a sweep searches: options of the recipe, each with the values that it may take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, get_args, get_origin

from adamab.errors import RecipeError
from adamab.task.messages import short, suggestion
from adamab.task.recipe import Recipe

# Options that change nothing where nothing is generated; `name` is not even one.
_OF_GENERATION = frozenset(
    {
        "name", "batch", "augmentation_rounds", "passes", "alpha", "relative_shift", "difficulty", "ahead",
        "synthetic_weight", "near_duplicate", "consistent", "temperature", "shown", "contrast", "image_size",
        "image_quality", "max_refusals", "synthetic_evidence"
    }
)  # fmt: skip
_FORMS = "write FIELD=A,B,… or FIELD=LOW:HIGH or FIELD=LOW:HIGH:log, such as pull=0.3:30:log"


@dataclass(frozen=True)
class Choices:
    """Some values."""

    values: tuple[Any, ...]

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"values": list(self.values)}


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both of them too; whole ones where the option is a whole number."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


Space: TypeAlias = Mapping[str, Choices | Range]


def default_space(recipe: Recipe, *, modality: str, views: Sequence[str], described: bool) -> Space:
    """The options that changed something without generation, one at a time, on development parts.

    The figures are points of accuracy from results/ablation-development.md and quality-story.md. What only
    changes how the towers are trained (dropout, weight decay, steps, logit scale) is not here: all of it was
    within half a point. `described` says whether the classes' wordings have vectors.
    """
    if not recipe.refit:
        raise RecipeError("the usual options matter only with refit=true; name others with --search")
    off = Choices((True, False))
    space: dict[str, Choices | Range] = {}
    if len(views) > 1:
        space["views"] = Choices((None, (views[0],)))  # +7.6 for all of them on TREC, -1.2 on MultiWD
    if modality == "text":
        space["words"] = off  # up to 0.8
    if described:
        space["similarity"] = off  # 5.2 on MultiWD, at most 0.5 on TREC
        space["class_input"] = Choices(("both", "description", "mean"))  # up to 0.8
    space["centre"] = off  # 1.5 either way: the demo is better off without
    space["normalise"] = off  # up to 1
    space["discriminants"] = off  # 4.7 on TREC, -0.6 on MultiWD
    space["folds"] = Choices((5, 3, 0))  # 12 on TREC for five against none, -2 on MultiWD
    space["pull"] = Range(0.3, 30.0, log=True)  # up to 1 between none and ten times as much
    return space


def parse_space(recipe: Recipe, texts: Sequence[str]) -> Space:
    """From `--search` as people write it.

    Example:
        >>> parse_space(Recipe(), ["pull=0.3:30:log", "words=true,false"])["words"]
        Choices(values=(True, False))
    """
    return dict(_dimension(recipe, text) for text in texts)


def said(space: Space) -> dict[str, Any]:
    """Plain data, the same after a trip through JSON."""
    plain: dict[str, Any] = json.loads(json.dumps({name: part.to_json() for name, part in space.items()}))
    return plain


def in_words(part: Choices | Range) -> str:
    """As `--search` takes it."""
    if isinstance(part, Choices):
        return ",".join(setting(value, "+") for value in part.values)
    return f"{part.low:g}:{part.high:g}{':log' if part.log else ''}"


def setting(value: Any, between: str = ",") -> str:
    """A value as `--set` takes it."""
    if isinstance(value, list | tuple):
        return between.join(setting(item) for item in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _dimension(recipe: Recipe, text: str) -> tuple[str, Choices | Range]:
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not name or not values:
        raise RecipeError(f"--search {short(text)}: {_FORMS}")
    if name not in Recipe.model_fields:
        raise RecipeError(
            f"--search: the recipe has no option {short(name)}; {suggestion(name, Recipe.model_fields)}"
        )
    if name in _OF_GENERATION:
        raise RecipeError(f"--search {name}: matters only while samples are generated, which no sweep does")
    if ":" in values:
        return name, _range(recipe, name, values)
    found = tuple(_checked(recipe, name, value.strip()) for value in values.split(",") if value.strip())
    if len(set(found)) < 2:
        raise RecipeError(f"--search {short(text)}: one value is no choice; {_FORMS}")
    return name, Choices(tuple(dict.fromkeys(found)))


def _range(recipe: Recipe, name: str, text: str) -> Range:
    low, high, log, *more = [*text.split(":"), ""] if text.count(":") == 1 else text.split(":")
    kinds = {Recipe.model_fields[name].annotation, *get_args(Recipe.model_fields[name].annotation)}
    if more or log not in ("", "log") or not kinds & {int, float}:
        raise RecipeError(f"--search {name}={text}: {_FORMS}; a range is for numbers")
    ends = [_checked(recipe, name, end.strip()) for end in (low, high)]
    if None in ends or ends[0] >= ends[1] or (log and ends[0] <= 0):
        raise RecipeError(f"--search {name}={text}: LOW must be below HIGH, and above zero with log")
    return Range(ends[0], ends[1], log=bool(log), whole=int in kinds)


def _checked(recipe: Recipe, name: str, text: str) -> Any:
    """The value as the recipe has it; a list is written with + between its parts."""
    value: object = text
    annotation = Recipe.model_fields[name].annotation
    if text.lower() in ("none", "null"):
        value = None
    elif any(get_origin(kind) is tuple for kind in (annotation, *get_args(annotation))):
        value = tuple(part.strip() for part in text.split("+"))
    return getattr(recipe.with_options(**{name: value}), name)
