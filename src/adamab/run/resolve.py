"""What users write as strings or rows, resolved once for the command line and the estimators."""

from __future__ import annotations

import re
from typing import Protocol

from adamab.errors import RecipeError
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.registry import resolve_embedder, resolve_generator
from adamab.task.messages import short
from adamab.task.prompts import Prompts

_LONG_TEXTS = "?long_texts="
_BUDGET_PART = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([a-z]*)")


class HasText(Protocol):
    """A text and, if its vector was computed elsewhere, the id to look it up by."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def id(self) -> str | None:
        """The id."""


def open_embedder(spec: str | Embedder, *, long_texts: str | None = None, cache: bool = True) -> Embedder:
    """The embedder that `spec` names, with the vector cache in front of it unless it looks vectors up.

    An instance is returned as it is. `local?long_texts=average`, which is what a model remembers,
    means the same as `local` with that option.
    """
    if isinstance(spec, Embedder):
        return spec
    name, _, recorded = spec.partition(_LONG_TEXTS)
    embedder = resolve_embedder(name, long_texts=long_texts or recorded or None)
    if not cache or not embedder.cacheable:
        return embedder
    # Not needed where vectors are looked up, and starting SQLite takes its time.
    from adamab.providers.cache import CachedEmbedder, VectorCache

    return CachedEmbedder(embedder, VectorCache())


def embedder_name(spec: str, long_texts: str | None) -> str:
    """The one string under which `open_embedder` finds the same embedder again.

    Example:
        >>> embedder_name("local", "average"), embedder_name("local", None)
        ('local?long_texts=average', 'local')
    """
    return spec if long_texts is None else f"{spec.partition(_LONG_TEXTS)[0]}{_LONG_TEXTS}{long_texts}"


def embedder_key(row: HasText, embedder: Embedder, prompts: Prompts) -> str:
    """What the embedder is asked for: the worded text, or the id where vectors are looked up.

    An id is a name, not a text: embedding it would give a vector of nothing.
    """
    if row.id is not None and not embedder.cacheable:
        return row.id
    return prompts.query_text(row.text)


def open_generator(spec: str | Generator | None, *, seed: int) -> Generator | None:
    """The generator that `spec` names. A recording has an order of its own; noise draws by the seed."""
    return resolve_generator(spec, seed=seed if spec == "noise" else None)


def parse_budget(text: str | int) -> int:
    """The number of samples in a budget such as `120 samples`; other units are not counted yet.

    Example:
        >>> parse_budget("120 samples"), parse_budget(120)
        (120, 120)
    """
    text = str(text)
    samples = None
    for part in text.lower().split(","):
        found = _BUDGET_PART.fullmatch(part.strip())
        if found is None:
            raise RecipeError(f"budget {short(text)} cannot be read; write for example: 120 samples")
        amount, unit = found[1], found[2]
        if unit not in ("", "sample", "samples"):
            raise RecipeError(
                f"budget {short(text)}: the generators that there are cost nothing, so {unit} are not "
                "counted yet; give a number of samples, for example: 120 samples"
            )
        if "." in amount or samples is not None or int(amount) < 1:
            raise RecipeError(f"budget {short(text)}: give one whole number of samples, 1 or more")
        samples = int(amount)
    assert samples is not None  # split gives at least one part, and each part sets it or raises
    return samples
