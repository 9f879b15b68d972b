"""The run's own pictures for the page, made small: by sample, never by a path that a client sends."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from adamab.errors import ImageError
from adamab.serving.problems import Refused
from adamab.serving.run_view import RunView

_THUMBNAIL, _LARGE = 160, 1600  # pixels of the longer side
_THUMBNAILS = 1000  # that are kept, of some kilobytes each
_AT_ONCE = 2  # pictures that are decoded at a time: a large one takes hundreds of megabytes


class RunPictures:
    """Decodes a few at a time and keeps the thumbnails."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._made: dict[tuple[Path, int, int], bytes] = {}

    async def jpeg(self, id_: str, large: bool) -> bytes:
        """Raises `Refused`."""
        path = await asyncio.to_thread(self._path, id_, large)
        try:
            now = path.stat()
        except OSError:
            raise _gone() from None
        key = path, now.st_mtime_ns, now.st_size
        if not large and key in self._made:
            return self._made[key]
        async with self._turns:
            made = await asyncio.to_thread(_shrunk, path, _LARGE if large else _THUMBNAIL)
        if not large:
            self._made[key] = made
            while len(self._made) > _THUMBNAILS:
                del self._made[next(iter(self._made))]  # the one that was made first
        return made

    def _path(self, id_: str, large: bool) -> Path:
        path = self._view.sample(id_).image
        if path is None:
            raise Refused(404, "not_found", "this sample is no picture")
        made = path.parent / "thumbnails" / f"{path.stem}.jpg"
        own = path.parent == self._view.directory / "images"
        return made if own and not large and made.is_file() else path


def _gone() -> Refused:
    return Refused(404, "not_found", "the picture is gone or cannot be read")


def _shrunk(path: Path, side: int) -> bytes:
    from adamab.task.image_decoding import decoded

    try:
        picture = decoded(path, least_side=side)
    except ImageError:
        raise _gone() from None
    picture.thumbnail((side, side))
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=80)
    return stream.getvalue()
