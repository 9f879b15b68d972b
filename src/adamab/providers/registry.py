"""Where strings such as `st:PATH` or `replay:FILE` become embedders and generators.

Options may follow: `openai:MODEL?base_url=http://localhost:8000/v1&rpm=500`. Others add names through
the entry-point groups `adamab.embedders` and `adamab.generators`: a callable that takes what follows
the colon and the options by name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from typing import Any

from adamab.errors import AdamabError, EmbedderError, GeneratorError
from adamab.providers.embedders.base import Embedder
from adamab.providers.generators.base import Generator
from adamab.providers.presets import Kind, expand
from adamab.task.messages import short
from adamab.task.specs import split_spec

EMBEDDERS = {
    "local": "adamab.providers.embedders.local:from_spec",
    "st": "adamab.providers.embedders.sentence_transformers:SentenceTransformerEmbedder",
    "npz": "adamab.providers.embedders.npz:NpzEmbedder",
    "clip": "adamab.providers.embedders.clip:ClipEmbedder",
    "onnx": "adamab.providers.embedders.onnx:OnnxEmbedder",
    "timm": "adamab.providers.embedders.timm:TimmEmbedder",
    "openai": "adamab.providers.embedders.openai:OpenAIEmbedder",
    "voyage": "adamab.providers.embedders.voyage:VoyageEmbedder",
    "cohere": "adamab.providers.embedders.cohere:CohereEmbedder",
}
GENERATORS = {
    "replay": "adamab.providers.generators.recorded:ReplayGenerator",
    "pool": "adamab.providers.generators.recorded:pool_from_spec",
    "transform": "adamab.providers.generators.transform:from_spec",
    "diffusers": "adamab.providers.generators.diffusers:DiffusersGenerator",
    "noise": "adamab.providers.generators.noise:from_spec",
    "openai": "adamab.providers.generators.openai:OpenAIGenerator",
    "openai-image": "adamab.providers.generators.openai_image:OpenAIImageGenerator",
}
_WITHOUT_ARGUMENT = ("local", "noise", "transform")
_MODELS = ("openai", "openai-image", "voyage", "cohere")
_NUMBERS: dict[str, Callable[[str], float]] = {"int": int, "float": float}


def resolve_embedder(spec: str | Embedder, **options: Any) -> Embedder:
    """The embedder that `spec` names; an instance is returned as it is.

    Options that are None count as not given.
    """
    if isinstance(spec, Embedder):
        return spec
    found = _resolve(_expanded(spec, "embedder"), options, "embedder", EMBEDDERS, EmbedderError)
    if not isinstance(found, Embedder):
        raise EmbedderError(f"{spec}: made a {type(found).__name__}, which is not an Embedder")
    return found


def resolve_generator(spec: str | Generator | None, **options: Any) -> Generator | None:
    """The generator that `spec` names; None and `none` mean that there is none."""
    if spec is None or spec == "none" or isinstance(spec, Generator):
        return None if isinstance(spec, str) else spec
    found = _resolve(_expanded(spec, "generator"), options, "generator", GENERATORS, GeneratorError)
    if not isinstance(found, Generator):
        raise GeneratorError(f"{spec}: made a {type(found).__name__}, which is not a Generator")
    return found


def _expanded(spec: object, kind: Kind) -> object:
    """The spec that a preset's name stands for."""
    return expand(spec, kind) if isinstance(spec, str) else spec


def _resolve(
    spec: object, options: Mapping[str, Any], what: str, table: Mapping[str, str], error: type[AdamabError]
) -> object:
    if not isinstance(spec, str):
        raise error(f"{what} is a {type(spec).__name__}; give a string or an instance")
    bare, written = split_spec(spec)
    name, _, rest = bare.partition(":")
    factory = _factory(name, what, table, error)
    if name in table and not rest and name not in _WITHOUT_ARGUMENT:
        wanted = "MODEL" if name in _MODELS else "PATH"
        raise error(f"{what} {spec!r} lacks what follows the colon; write {name}:{wanted}")
    given = _converted(factory, written, f"{what} {name!r}", error)
    given |= {key: value for key, value in options.items() if value is not None}
    try:
        inspect.signature(factory).bind(rest, **given)
    except TypeError as problem:
        raise error(f"{what} {name!r} does not take these options: {problem}") from None
    except ValueError:
        pass  # something written in C, which does not tell what it takes
    return factory(rest, **given)


def _converted(
    factory: Callable[..., object], written: Mapping[str, str], who: str, error: type[AdamabError]
) -> dict[str, Any]:
    """The options as the factory's annotations want them; where it has none they stay strings."""
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # something written in C
        return dict(written)
    given: dict[str, Any] = dict(written)
    for option, value in written.items():
        kinds = re.findall(r"\w+", str(parameters[option].annotation)) if option in parameters else []
        kind = next((kind for kind in kinds if kind in _NUMBERS), "")
        if kind and "str" not in kinds:
            given[option] = _number(kind, value, f"{who}: option {option}", error)
    return given


def _number(kind: str, value: str, where: str, error: type[AdamabError]) -> float:
    try:
        return _NUMBERS[kind](value)
    except ValueError:
        wanted = "a whole number" if kind == "int" else "a number"
        raise error(f"{where}={short(value)} is not {wanted}") from None


def _factory(
    name: str, what: str, table: Mapping[str, str], error: type[AdamabError]
) -> Callable[..., object]:
    if name in table:
        module, _, attribute = table[name].partition(":")
        factory: Callable[..., object] = getattr(import_module(module), attribute)
        return factory
    entries = {entry.name: entry for entry in metadata.entry_points(group=f"adamab.{what}s")}
    if name not in entries:
        raise error(f"unknown {what} {name!r}; there are: {', '.join(sorted({*table, *entries}))}")
    try:
        return entries[name].load()  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as problem:
        raise error(f"{what} {name!r}: its package cannot be loaded ({problem})") from None
