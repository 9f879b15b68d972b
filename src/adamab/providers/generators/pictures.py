"""What the generators of pictures share: where these are put, how they are written, their random numbers."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.errors import GeneratorError
from adamab.providers.generators.base import Request, Settings
from adamab.task.images import Image, digest_of

if TYPE_CHECKING:
    import PIL.Image

    from adamab.providers.image_store import ImageStore

_QUALITY = 92  # no artefacts that an embedder could see, and a quarter of a PNG


class NewPictures:
    """The pictures of one batch on their way into the store: none that the class has already."""

    def __init__(self, store: ImageStore, request: Request) -> None:
        self._store = store
        self._known = {*request.given, *request.existing}
        self.references: list[str] = []

    def add(self, data: bytes) -> bool:
        """Store a picture; False, and nothing stored, if the class has it already."""
        reference = Image(digest_of(data), Path()).reference
        if reference in self._known:
            return False
        self._store.put(data)
        self._known.add(reference)
        self.references.append(reference)
        return True


def store_of(settings: Settings, who: str) -> ImageStore:
    """The run's store of pictures, without which a generator of pictures is of no use."""
    if settings.images is None:
        raise GeneratorError(f"{who} makes pictures, but this task is of texts; use a generator of texts")
    return settings.images


def stored(images: ImageStore | None, who: str) -> ImageStore:
    """The store that `configure` has given."""
    if images is None:
        raise GeneratorError(f"{who} was not configured: it does not know where to put its pictures")
    return images


def own_seed(*parts: object) -> int:
    """A seed of 63 bits that belongs to these parts, on any machine and in any process.

    Example:
        >>> own_seed(0, "rose", 1) == own_seed(0, "rose", 1) != own_seed(0, "rose", 2)
        True
    """
    written = "\0".join(str(part) for part in parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(written).digest()[:8], "little") >> 1


def jpeg(picture: PIL.Image.Image) -> bytes:
    """The picture as a file, without anything beside its pixels."""
    import PIL.Image

    plain = PIL.Image.frombytes("RGB", picture.size, picture.convert("RGB").tobytes())
    stream = io.BytesIO()
    plain.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue()
