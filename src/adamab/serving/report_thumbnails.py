"""Small pictures inside a report, few enough that the file can be mailed."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from adamab.errors import ImageError, MissingExtraError
from adamab.task.image_decoding import decoded_bytes
from adamab.task.images import digest_of, open_picture

MOST = 40
_SIDE = 128  # pixels of the longer side: sharp at the 96 of the page


class Thumbnails:
    """Makes each picture once and stops after `MOST`."""

    def __init__(self) -> None:
        self._made: dict[str, str | None] = {}

    def of(self, reference: str, path: Path | None) -> str:
        """An address with the picture in it; empty where it is gone, changed or one too many."""
        if reference not in self._made:
            full = sum(made is not None for made in self._made.values()) >= MOST
            self._made[reference] = None if full or path is None else _address(reference, path)
        return self._made[reference] or ""


def _address(reference: str, path: Path) -> str | None:
    try:
        with open_picture(path) as stream:
            data = stream.read()
        if not reference.endswith(digest_of(data)):
            return None  # somebody has put another picture in its place
        picture = decoded_bytes(data, path.name, least_side=_SIDE)
    except (ImageError, MissingExtraError, OSError):
        return None
    picture.thumbnail((_SIDE, _SIDE))
    small = io.BytesIO()
    picture.save(small, "JPEG", quality=72)
    return "data:image/jpeg;base64," + base64.b64encode(small.getvalue()).decode()
