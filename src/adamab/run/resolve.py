"""What users write as strings or rows, resolved once for the command line and the estimators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from adamab.errors import EmbedderError
from adamab.providers.embedders.base import Embedder, Item
from adamab.providers.generators.base import Generator
from adamab.providers.registry import resolve_embedder, resolve_generator
from adamab.task.images import Image
from adamab.task.messages import one_line, short
from adamab.task.prompts import Prompts
from adamab.task.specs import join_spec, split_spec

if TYPE_CHECKING:
    from adamab.providers.replies import Replies


class HasText(Protocol):
    """A text or a picture and, if its vector was computed elsewhere, the id to look it up by."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def id(self) -> str | None:
        """The id."""

    @property
    def image(self) -> Image | None:
        """The picture, if it is one; its text is then the reference."""


def open_embedder(spec: str | Embedder, *, long_texts: str | None = None, cache: bool = True) -> Embedder:
    """The embedder that `spec` names, with the vector cache in front of it unless it looks vectors up.

    An instance is returned as it is. `local?long_texts=average`, which is what a model remembers,
    means the same as `local` with that option.
    """
    if isinstance(spec, Embedder):
        return spec
    embedder = resolve_embedder(spec, long_texts=long_texts)
    if not cache or not embedder.cacheable:
        return embedder
    # Not needed where vectors are looked up, and starting SQLite takes its time.
    from adamab.providers.cache import CachedEmbedder, VectorCache

    return CachedEmbedder(embedder, VectorCache())


def keeping_vectors(embedder: Embedder, file: Path) -> Embedder:
    """The same embedder; vectors that it is paid for are kept in `file`, whatever becomes of the cache."""
    if embedder.api is None or not embedder.cacheable:
        return embedder
    from adamab.providers.cache import CachedEmbedder, VectorCache

    return CachedEmbedder(embedder, VectorCache(file, strict=True))


def embedder_name(spec: str, long_texts: str | None) -> str:
    """The one string under which `open_embedder` finds the same embedder again.

    Example:
        >>> embedder_name("local", "average"), embedder_name("local", None)
        ('local?long_texts=average', 'local')
    """
    if long_texts is None:
        return spec
    bare, options = split_spec(spec)
    return join_spec(bare, options | {"long_texts": long_texts})


def remembered_embedder(spec: str) -> str:
    """`spec` as a model file tells it, unless that would send texts or keys where the file chooses.

    Whoever made the file may not be who uses it. A server of this machine and the providers' own may be
    remembered; any other the user has to name.
    """
    bare, options = split_spec(spec)
    url, variable = options.get("base_url"), options.get("key_env")
    if url is None and variable is None:
        return spec
    # With it comes the event loop's module, which takes its time.
    from adamab.providers.services import checked_url, host_of, is_loopback, key_names

    name = bare.partition(":")[0]
    if url is not None and not is_loopback(host_of(checked_url(name, url))):
        raise EmbedderError(
            f"the model file names a server of its own, {short(host_of(url))}; if you trust it, "
            f"pass --embedder {short(one_line(spec), 200)}"
        )
    if variable is not None and variable not in key_names(name):
        raise EmbedderError(
            "the model file names an environment variable of its own for the key; if you trust it, "
            "pass the whole spec with --embedder (it is in model.json)"
        )
    return spec


def embedder_key(row: HasText, embedder: Embedder, prompts: Prompts) -> Item:
    """What the embedder is asked for: the worded text, the picture, or the id where vectors are looked up.

    An id is a name, not a text: embedding it would give a vector of nothing.
    """
    if row.id is not None and not embedder.cacheable:
        return row.id
    return prompts.query_text(row.text) if row.image is None else row.image


def open_generator(spec: str | Generator | None, *, seed: int) -> Generator | None:
    """The generator that `spec` names. A recording has an order of its own; noise draws by the seed."""
    return resolve_generator(spec, seed=seed if spec == "noise" else None)


def shared_images() -> Path:
    """The folder of generated pictures that all runs of this user share."""
    from adamab.providers.cache_file import default_path

    return default_path().with_suffix(".images")


def shared_replies() -> Replies:
    """Answers of generators that all runs of this user share."""
    from adamab.providers.reply_cache import CachedReplies

    return CachedReplies()
