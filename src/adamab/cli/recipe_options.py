"""`--recipe` and `--set KEY=VALUE`: a recipe from words on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args, get_origin

if TYPE_CHECKING:
    from adamab.task.recipe import Recipe


def recipe_of(preset: str, settings: Iterable[str]) -> Recipe:
    """The preset with the settings, all checked.

    Example:
        >>> recipe_of("default", ["views=pooled", "batch_size=none"]).views
        ('pooled',)
    """
    from adamab.task.recipe import Recipe

    return Recipe.preset(preset).with_options(**dict(_option(setting) for setting in settings))


def _option(setting: str) -> tuple[str, object]:
    from adamab.errors import RecipeError
    from adamab.task.messages import short, suggestion
    from adamab.task.recipe import Recipe

    key, equals, value = (part.strip() for part in setting.partition("="))
    if not equals or not key:
        raise RecipeError(f"--set {short(setting)} is not KEY=VALUE; write for example: --set dropout=0.3")
    fields = Recipe.model_fields
    if key not in fields:
        raise RecipeError(f"--set: the recipe has no option {short(key)}; {suggestion(key, fields)}")
    if value.lower() in ("none", "null"):
        return key, None
    return key, _parts(value) if _is_list(fields[key].annotation) else value


def _is_list(annotation: object) -> bool:
    return any(get_origin(kind) is tuple for kind in (annotation, *get_args(annotation)))


def _parts(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())
