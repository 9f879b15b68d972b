"""Short captions for text-to-image models, which want to be told what is seen and not what to do."""

from __future__ import annotations

import re

from adamab.errors import GeneratorError
from adamab.task.messages import short
from adamab.task.spec import ClassSpec

# Models cut what is too long: the scene stands before the description, which may have many words.
CAPTION = "a photo of {name}, {scene}, {description}"

# What the pictures of a class differ in, beside their noise.
SCENES = (
    "in daylight",
    "close up",
    "from a distance",
    "from the side",
    "indoors",
    "against a plain background",
    "in soft light",
    "from above",
    "outdoors",
    "with a busy background",
    "at dusk",
    "from behind",
)
_PLACEHOLDER = re.compile(r"\{(name|description|scene)\}")
_OTHER = re.compile(r"\{\w*\}")
_EMPTY = re.compile(r"[\s,;:–—(-]*\{description\}[)]*")


def check_template(template: str, who: str) -> None:
    """Refuse a template that would say the same of every class, or one with a misspelt placeholder."""
    unknown = [found for found in _OTHER.findall(template) if not _PLACEHOLDER.fullmatch(found)]
    if unknown:
        raise GeneratorError(
            f"{who}: option prompt has {short(unknown[0])}; known: {{name}}, {{description}}, {{scene}}"
        )
    if not re.search(r"\{(name|description)\}", template):
        raise GeneratorError(f"{who}: option prompt lacks {{name}} or {{description}}; add one of them")


def caption(template: str, spec: ClassSpec, number: int) -> str:
    """What picture `number` of a class should show.

    Example:
        >>> caption(CAPTION, ClassSpec("water_lily", "A flower on a pond."), 0)
        'a photo of water lily, in daylight, A flower on a pond'
        >>> caption(CAPTION, ClassSpec("water_lily"), 13)
        'a photo of water lily, close up'
    """
    name = _plain(spec.name)
    if spec.description is None and "{name}" in template:
        template = _EMPTY.sub("", template)
    values = {
        "name": name,
        "description": _plain(spec.description or spec.name),
        "scene": SCENES[number % len(SCENES)],
    }
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def _plain(text: str) -> str:
    return " ".join(text.replace("_", " ").split()).rstrip(".")
