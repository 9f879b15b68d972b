"""Images that generators made: one file each, named by content, with a thumbnail for people."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import weakref
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.errors import ImageError, RunError, place
from adamab.task.image_folders import image_at
from adamab.task.images import FORMATS, Image, decoded_bytes, digest_of, ending_of, is_reference

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

FOLDER, THUMBNAILS = "images", "thumbnails"
_SIDE = 160  # pixels of a thumbnail's longer side


class ImageStore:
    """Finds images by their references: those of a run's directory and those that were made known.

    What is put here lies in `directory`. What was paid for also lies in the `shared` folder that runs have in
    common, if there is one, so that the next run has it too.

    Example:
        >>> import tempfile
        >>> store = ImageStore(Path(tempfile.mkdtemp()))
        >>> store.has("image:" + "0" * 64)
        False
    """

    def __init__(self, directory: Path, *, shared: Path | None = None) -> None:
        self.directory, self.shared = directory, shared
        self._known: dict[str, Image] = {}

    def know(self, images: Iterable[Image]) -> None:
        """Images that lie elsewhere, such as the given samples; they are not copied."""
        self._known.update({image.reference: image for image in images})

    def put(self, data: bytes, *, share: bool = False) -> Image:
        """Store an image, once; raises `ImageError` where it is none. It is safe when this returns.

        `share` is for what was paid for: it then lies in the shared folder as well.
        """
        digest = digest_of(data)
        image = Image(digest, self.directory / f"{digest}{ending_of(data)}")
        if image.reference in self._known:
            return self._known[image.reference]
        if not (self.thumbnail(image).is_file() and _is_intact(image)):
            small = small_jpeg(decoded_bytes(data, image.path.name, least_side=_SIDE), _SIDE)
            _write(self.thumbnail(image), small)
            _write(image.path, data)
        if share and self.shared is not None:
            copy = Image(digest, self.shared / image.path.name)
            if not _is_intact(copy):
                with contextlib.suppress(RunError):  # a convenience: the run has its own
                    _write(copy.path, data)
        self._known[image.reference] = image
        return image

    def has(self, reference: str) -> bool:
        """Whether an image is there."""
        return self._lookup(reference) is not None

    def find(self, reference: str) -> Image:
        """The image that a reference stands for."""
        image = self._lookup(reference)
        if image is None:
            raise RunError(
                f"{place(self.directory)}: the image {reference[:18]}… is gone; put it back, or start over "
                "with --overwrite"
            )
        return image

    def tidy(self) -> None:
        """Delete what a killed process left half written; for whoever alone writes here."""
        for part in [*self.directory.glob(".*.part"), *(self.directory / THUMBNAILS).glob(".*.part")]:
            part.unlink(missing_ok=True)

    def keep_only(self, references: Container[str]) -> None:
        """Delete the images of an earlier run that lie here and are of no use any more."""
        for path in [*self.directory.glob("*.*"), *(self.directory / THUMBNAILS).glob("*.*")]:
            reference = Image(path.stem, path).reference
            if is_reference(reference) and reference not in references and path.is_file():
                path.unlink(missing_ok=True)

    def thumbnail(self, image: Image) -> Path:
        """Where its thumbnail lies, if it was put here."""
        return self.directory / THUMBNAILS / f"{image.digest}.jpg"

    def _lookup(self, reference: str) -> Image | None:
        if reference in self._known or not is_reference(reference):
            return self._known.get(reference)
        own = _lying_in(self.directory, reference)
        if own is not None:
            self._known[reference] = own
            return own
        shared = None if self.shared is None else _lying_in(self.shared, reference)
        if shared is not None:
            with contextlib.suppress(OSError):  # somebody has just purged the folder
                return self.put(shared.path.read_bytes())
        return None


def temporary_store(*, shared: Path | None = None) -> ImageStore:
    """A store whose folder goes when nobody needs the store any more."""
    folder = Path(tempfile.mkdtemp(prefix="adamab-"))
    store = ImageStore(folder, shared=shared)
    weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
    return store


def shared_size(folder: Path) -> tuple[int, int]:
    """How many images runs share, and how many bytes they take."""
    sizes = [path.stat().st_size for path in folder.glob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def delete_shared(folder: Path) -> int:
    """Remove the images that runs share and return the bytes freed."""
    _, freed = shared_size(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return freed


def _lying_in(folder: Path, reference: str) -> Image | None:
    """The image under its own name, if the content is still what the name says."""
    return next((image for image in named_like(folder, reference) if _is_intact(image)), None)


def named_like(folder: Path, reference: str) -> Iterator[Image]:
    """The images that a folder may hold for a reference; whether they are there is another question."""
    digest = reference.partition(":")[2]
    yield from (Image(digest, folder / f"{digest}{ending}") for ending in FORMATS.values())


def _is_intact(image: Image) -> bool:
    try:
        return image_at(image.path) == image
    except ImageError:  # missing, unreadable, empty
        return False


def small_jpeg(image: PILImage, side: int, quality: int = 80) -> bytes:
    """The image, no side longer than `side`, as a JPEG."""
    image.thumbnail((side, side))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def _write(path: Path, data: bytes) -> None:
    """Under its name only when all of it is on the disk; others may be writing the same at once."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as error:
        if part is not None:
            Path(part).unlink(missing_ok=True)
        why = error.strerror or error
        raise RunError(
            f"{place(path)}: cannot be written ({why}); free space or name another folder"
        ) from None
