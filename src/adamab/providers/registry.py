"""Where strings such as `st:PATH` or `replay:FILE` become embedders and generators.

Options may follow: `openai:MODEL?base_url=http://localhost:8000/v1&rpm=500`. Others add names through
the entry-point groups `adamab.embedders` and `adamab.generators`: a callable that takes what follows
the colon and the options by name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from adamab.errors import (
    AdamabError,
    EmbedderError,
    GeneratorError,
    one_line,
    short,
    suggestion,
)
from adamab.providers.embedders.base import Embedder, Item
from adamab.providers.functions import (
    EmbedFunction,
    FunctionEmbedder,
    FunctionGenerator,
    GenerateFunction,
)
from adamab.providers.generators.base import Generator
from adamab.providers.services import PROVIDERS, checked_url, host_of, is_loopback, key_names
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.spec import Modality, join_spec, split_spec

if TYPE_CHECKING:
    from adamab.providers.cache import Replies


# The models of the paper by name, so that its tables can be made again without knowing where they are.
#
# A preset is a spec like any other; its options can be overruled by writing one's own after the name, as in
# `gemini-2.0-flash-lite?rpm=30`. Keys come from the environment: a preset names the variable, never a key.

Kind: TypeAlias = Literal["embedder", "generator", "chat", "reranker"]

PRESETS: Mapping[Kind, Mapping[str, str]] = MappingProxyType(
    {
        "chat": {
            "gpt-4o-mini": "chat:gpt-4o-mini",
            "gemini-2.0-flash-lite": "chat:gemini:gemini-2.0-flash-lite",
            # Of the versions with 24B parameters, which is what the paper tells, one that sees images.
            "mistral-small": "chat:mistral:mistral-small-2506",
            # The paper counts 90B parameters: the larger of the two that see images.
            "llama-3.2": "chat:ollama:llama3.2-vision:90b",
        },
        "reranker": {
            "cohere-rerank-v3.5": "rerank:cohere:rerank-v3.5",
            "bge-reranker-v2-m3": "cross-encoder:BAAI/bge-reranker-v2-m3",
            "jina-reranker-m0": "rerank:jina:jina-reranker-m0",
        },
        "embedder": {
            "text-embedding-3-small": "openai:text-embedding-3-small",
            "qwen3-embedding-0.6b": "st:Qwen/Qwen3-Embedding-0.6B",
            "clip-vit-large": "clip:openai/clip-vit-large-patch14",
            "voyage-multimodal-3": "voyage:voyage-multimodal-3",
        },
        "generator": {
            # The paper tunes the temperature and does not tell it; 1 is the service's own default.
            "gpt-4o-mini": "openai:gpt-4o-mini?temperature=1",
            "gpt-image-1-mini": "openai-image:gpt-image-1-mini",
        },
    }
)
# What may stand before a preset's name where a method is named.
_METHODS: Mapping[Kind, tuple[str, ...]] = {"chat": ("chat",), "reranker": ("rerank", "cross-encoder")}


def expand(spec: str, kind: Kind) -> str:
    """The spec that a preset stands for; any other spec as it is.

    Args:
        spec: what the user wrote.
        kind: what is to be made of it.

    Returns:
        A spec; of a chat model or a reranker the whole name of a method, `chat:MODEL` or
        `rerank:SERVICE:MODEL`.

    Example:
        >>> expand("text-embedding-3-small?dimensions=256", "embedder")
        'openai:text-embedding-3-small?dimensions=256'
        >>> expand("chat:gpt-4o-mini", "chat"), expand("gpt-4.1", "chat"), expand("jina:m", "reranker")
        ('chat:gpt-4o-mini', 'chat:gpt-4.1', 'rerank:jina:m')
    """
    bare, written = split_spec(spec)
    method, _, rest = bare.partition(":")
    named = method in _METHODS.get(kind, ()) and bool(rest)
    preset = PRESETS[kind].get((rest if named else bare).lower())
    if preset is not None:
        bare, options = split_spec(preset)
        return join_spec(bare, options | written)
    if named or kind not in _METHODS:
        return spec
    return f"{_METHODS[kind][0]}:{spec}"


EMBEDDERS = {
    "local": "adamab.providers.embedders.local:LocalEmbedder",
    "st": "adamab.providers.embedders.sentence_transformers:SentenceTransformerEmbedder",
    "npz": "adamab.providers.embedders.stored:NpzEmbedder",
    "clip": "adamab.providers.embedders.clip:ClipEmbedder",
    "onnx": "adamab.providers.embedders.onnx:OnnxEmbedder",
    "onnx-text": "adamab.providers.embedders.text_encoders:OnnxTextEmbedder",
    "timm": "adamab.providers.embedders.timm:TimmEmbedder",
}
# By the dialect that a service speaks.
_API_EMBEDDERS = {
    "openai": "adamab.providers.embedders.api:OpenAIEmbedder",
    "voyage": "adamab.providers.embedders.api:VoyageEmbedder",
    "cohere": "adamab.providers.embedders.api:CohereEmbedder",
    "jina": "adamab.providers.embedders.api:JinaEmbedder",
    "tei": "adamab.providers.embedders.api:TeiEmbedder",
}
EMBEDDERS |= {name: _API_EMBEDDERS[own.embeds] for name, own in PROVIDERS.items() if own.embeds}
GENERATORS = {
    "replay": "adamab.providers.generators.recorded:ReplayGenerator",
    "pool": "adamab.providers.generators.recorded:pool_from_spec",
    "transform": "adamab.providers.generators.variations:transform_from_spec",
    "diffusers": "adamab.providers.generators.diffusers:DiffusersGenerator",
    "noise": "adamab.providers.generators.variations:noise_from_spec",
    "openai-image": "adamab.providers.generators.openai_image:OpenAIImageGenerator",
}
_CHAT = "adamab.providers.generators.openai:OpenAIGenerator"
CHATS = tuple(name for name, own in PROVIDERS.items() if own.chats)
GENERATORS |= dict.fromkeys(CHATS, _CHAT)
AUTO = "auto"  # what is taken where nobody names an embedder; see `embedder_for`
_WITHOUT_ARGUMENT = ("local", "noise", "transform")
_MODELS = ("openai-image", *PROVIDERS)


def resolve_embedder(spec: str | Embedder | EmbedFunction) -> Embedder:
    """The embedder that `spec` names; an instance is returned as it is.

    Args:
        spec: such as `st:PATH`; or an embedder, a function from texts to a matrix, or a
            `SentenceTransformer` of sentence-transformers.
    """
    if isinstance(spec, Embedder):
        return spec
    if any(f"{kind.__module__}.".startswith("sentence_transformers.") for kind in type(spec).__mro__):
        from adamab.providers.embedders.sentence_transformers import LoadedSentenceTransformer

        return LoadedSentenceTransformer(spec)
    if callable(spec) and not isinstance(spec, type):
        return FunctionEmbedder(spec)
    embedder = _resolve(spec, {}, "embedder", EMBEDDERS, EmbedderError)
    if not isinstance(embedder, Embedder):
        raise EmbedderError(f"{spec}: made a {type(embedder).__name__}, which is not an Embedder")
    return embedder


def resolve_generator(spec: str | Generator | GenerateFunction | None, **options: Any) -> Generator | None:
    """The generator that a spec names.

    Args:
        spec: such as `openai:MODEL`, or a function of a class's name, its description, its samples and a
            number; an instance is returned as it is, None and `none` mean none.
        options: more options, which overrule those in the spec; None counts as not given.

    Returns:
        The generator, if there is one.
    """
    if spec is None or spec == "none":
        return None
    if isinstance(spec, Generator):
        return spec
    if callable(spec) and not isinstance(spec, type):
        return FunctionGenerator(spec)
    generator = _resolve(spec, options, "generator", GENERATORS, GeneratorError)
    if not isinstance(generator, Generator):
        raise GeneratorError(f"{spec}: made a {type(generator).__name__}, which is not a Generator")
    return generator


def _resolve(
    spec: object,
    options: Mapping[str, Any],
    what: Literal["embedder", "generator"],
    table: Mapping[str, str],
    error: type[AdamabError],
) -> object:
    if not isinstance(spec, str):
        kind = f"the class {spec.__name__}" if isinstance(spec, type) else f"of type {type(spec).__name__}"
        raise error(f"{what} is {kind}; give a spec, a function or an instance of {what.title()}")
    spec = expand(spec, what)
    bare, written = split_spec(spec)
    name, _, rest = bare.partition(":")
    factory: Callable[..., object]
    arguments = [rest]
    if name in table:
        if not rest and name not in _WITHOUT_ARGUMENT:
            wanted = "MODEL" if name in _MODELS else "PATH"
            raise error(f"{what} {spec!r} lacks what follows the colon; write {name}:{wanted}")
        module, _, attribute = table[name].partition(":")
        factory = getattr(import_module(module), attribute)
        arguments += [name] if name in PROVIDERS else []  # one class serves all services of a dialect
    else:
        entries = {entry.name: entry for entry in metadata.entry_points(group=f"adamab.{what}s")}
        if name not in entries:
            raise error(unknown(what, name, sorted({*table, *entries})))
        try:
            factory = entries[name].load()
        except (ImportError, AttributeError) as problem:
            raise error(f"{what} {name!r}: its package cannot be loaded ({problem})") from None
    given: dict[str, Any] = written | {key: value for key, value in options.items() if value is not None}
    signature = inspect.signature(factory)
    for option in given.keys() & signature.parameters.keys():
        # Numbers where the factory's annotations want them.
        kinds = set(re.findall(r"\w+", str(signature.parameters[option].annotation)))
        if "str" in kinds or not {"int", "float"} & kinds:
            continue
        try:
            given[option] = int(given[option]) if "int" in kinds else float(given[option])
        except ValueError:
            wanted = "a whole number" if "int" in kinds else "a number"
            value = short(given[option])
            raise error(f"{what} {name!r}: option {option}={value} is not {wanted}") from None
    try:
        signature.bind(*arguments, **given)
    except TypeError as problem:
        raise error(f"{what} {name!r} does not take these options: {problem}") from None
    return factory(*arguments, **given)


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """What to say of a name that stands for nothing here.

    Args:
        what: it was meant to name.
        name: as the user wrote it.
        known: names that would be right.
    """
    if name in PROVIDERS:
        has = ", ".join(one for one in known if one in PROVIDERS)
        return f"{name} has no {what}s here; services that have: {has}"
    scheme = "chat" if what == "service" else "openai"
    other = f"({scheme}:MODEL?base_url=URL is any server that speaks OpenAI's protocol)"
    return f"unknown {what} {short(name)}; {suggestion(name, known)} {other}"


# What users write as strings or rows, resolved once for the command line and the estimators.


class HasText(Protocol):
    """A text or an image and, if its vector was computed elsewhere, the id to look it up by."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def id(self) -> str | None:
        """The id."""

    @property
    def image(self) -> Image | None:
        """The image, if it is one; its text is then the reference."""


Caching: TypeAlias = bool | Literal["paid"]


def open_embedder(spec: str | Embedder | EmbedFunction, *, cache: Caching = True) -> Embedder:
    """The embedder that a spec names, with the vector cache in front of it unless it looks vectors up.

    Args:
        spec: such as `st:PATH?long_texts=average`, or whatever else `resolve_embedder` takes.
        cache: whether vectors are looked for in the user's cache, and stored there; "paid": only those that
            cost money, since a million rows would leave nothing else in it.

    Returns:
        The embedder.
    """
    embedder = resolve_embedder(spec)
    if not isinstance(spec, str):  # nothing says that it will be the same one next time
        return embedder
    if not cache or not embedder.cacheable or (cache == "paid" and embedder.api is None):
        return embedder
    # Not needed where vectors are looked up, and starting SQLite takes its time.
    from adamab.providers.cache import CachedEmbedder, VectorCache, free_vectors

    return CachedEmbedder(embedder, free_vectors() if embedder.api is None else VectorCache())


def embedder_for(spec: str, modality: Modality) -> str:
    """The embedder that `auto` stands for in a task of that modality; any other spec as it is.

    Args:
        spec: what the user wrote, or nobody.
        modality: of the task: texts have the built-in one, images the CLIP model of the hub's cache.

    Example:
        >>> embedder_for("auto?long_texts=average", "text"), embedder_for("openai:m", "text")
        ('local?long_texts=average', 'openai:m')
    """
    bare, options = split_spec(spec)
    if bare != AUTO:
        return spec
    if modality == "text":
        return join_spec("local", options)
    from adamab.providers.embedders.clip import cached_clip

    name, own = split_spec(cached_clip())
    return join_spec(name, own | options)


def keeping_vectors(embedder: Embedder, file: Path) -> Embedder:
    """An embedder whose paid vectors are also kept in a file of the run.

    Args:
        embedder: returned as it is where it is not paid for.
        file: where they are kept, whatever becomes of the cache.

    Returns:
        The same vectors, from the file where it has them.
    """
    if embedder.api is None or not embedder.cacheable:
        return embedder
    from adamab.providers.cache import CachedEmbedder, VectorCache

    return CachedEmbedder(embedder, VectorCache(file, strict=True))


def remembered(spec: str, what: Literal["embedder", "generator"], where: str, to: str = "") -> str:
    """`spec` as a model file or a run tells it, unless texts or keys would go where that file chooses.

    Whoever made the file may not be who uses it. A server of this machine and the providers' own may be
    remembered; any other the user has to name.

    Args:
        spec: of an embedder or a generator.
        what: it is.
        where: it stands, for the message.
        to: which command takes it from the user, if not the one that was called.
    """
    bare, options = split_spec(spec)
    url, variable = options.get("base_url"), options.get("key_env")
    name = bare.partition(":")[0]
    if url is not None and not is_loopback(host_of(checked_url(name, url))):
        other = f"a server of its own, {short(host_of(url))}"
    elif variable is not None and variable not in key_names(name):
        other = "an environment variable of its own for the key"
    else:
        return spec
    error = EmbedderError if what == "embedder" else GeneratorError
    named = short(one_line(spec), 200)
    raise error(f"{where} names {other}; if you trust it, pass --{what} {named}{to}")


def embedder_key(row: HasText, embedder: Embedder, prompts: Prompts) -> Item:
    """What an embedder gets of a row: the worded text, the image, or the id where vectors are looked up.

    Args:
        row: a sample. Its id is a name, not a text: embedding it would give a vector of nothing.
        embedder: one that is not cacheable looks vectors up.
        prompts: how texts are worded.

    Returns:
        What to pass to `Embedder.embed`.
    """
    if row.id is not None and not embedder.cacheable:
        return row.id
    return prompts.query_text(row.text) if row.image is None else row.image


def open_generator(spec: str | Generator | GenerateFunction | None, *, seed: int) -> Generator | None:
    """The generator that `spec` names. A recording has an order of its own; noise draws by the seed."""
    return resolve_generator(spec, seed=seed if spec == "noise" else None)


def shared_images() -> Path:
    """The folder of generated images that all runs of this user share."""
    from adamab.providers.cache import default_path

    return default_path().with_suffix(".images")


def shared_replies() -> Replies:
    """Answers of generators that all runs of this user share."""
    from adamab.providers.cache import CachedReplies

    return CachedReplies()
