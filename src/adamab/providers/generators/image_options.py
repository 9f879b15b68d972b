"""The options of `openai-image:MODEL?size=…&quality=…&n=…&response_format=…`."""

from __future__ import annotations

import re
from dataclasses import replace

from adamab.errors import GeneratorError
from adamab.providers.generators.image_protocol import MOST_PICTURES, OMITTED, Dialect
from adamab.task.messages import short

_FORMS = {
    "size": (r"auto|none|[1-9][0-9]{1,4}x[1-9][0-9]{1,4}", "auto, none or such as 1024x1024"),
    "quality": (r"[a-z]{1,20}", "such as low, medium, high, auto or none"),
}


def checked_form(name: str, value: str | None) -> str | None:
    """A size or a quality as it may be sent."""
    form, known = _FORMS[name]
    if value is not None and not re.fullmatch(form, value):
        raise GeneratorError(f"openai-image: option {name}={short(value)}: give {known}")
    return value


def dialect_of(
    model: str, *, quality: str | None, n: str | int | None, response_format: str | None
) -> Dialect:
    """What is known of the model, and above that what the user says of it."""
    dialect = Dialect.of(model)
    if quality is not None:
        dialect = replace(dialect, quality=True)
    if n is not None:
        dialect = replace(dialect, most=whole("n", n, 1, MOST_PICTURES))
    if response_format is None:
        return dialect
    if response_format not in ("b64_json", OMITTED):
        raise GeneratorError(
            f"openai-image: option response_format={short(response_format)}: give b64_json or none"
        )
    return replace(dialect, response_format=response_format != OMITTED)


def whole(name: str, value: str | int, least: int, most: int) -> int:
    """An option that is a whole number."""
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise GeneratorError(
            f"openai-image: option {name}={short(value)}: give a whole number from {least} to {most}"
        )
    return number
