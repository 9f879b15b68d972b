"""Small copies of images, for the page and the report."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adamab.errors import ImageError, MissingExtraError
from adamab.task.images import decoded_bytes, digest_of, open_image

MOST_THUMBNAILS = 40
_SIDE = 128  # pixels of the longer side: sharp at the 96 of the report


def small_jpeg(image: Any, side: int, quality: int = 80) -> bytes:
    """The image of Pillow, no side longer than `side`, as a JPEG."""
    image.thumbnail((side, side))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


class Thumbnails:
    """Small images inside a report, each made once, few enough that the file can be mailed."""

    def __init__(self, images: Mapping[str, Path]) -> None:
        self._images = images  # by reference
        self._addresses: dict[str, str] = {}

    def data_url(self, reference: str) -> str:
        """The image in its own address; empty where it is gone, changed or one too many."""
        if reference not in self._addresses:
            full = sum(map(bool, self._addresses.values())) >= MOST_THUMBNAILS
            path = self._images.get(reference)
            self._addresses[reference] = "" if full or path is None else _data_url(reference, path)
        return self._addresses[reference]


def _data_url(reference: str, path: Path) -> str:
    try:
        with open_image(path) as stream:
            data = stream.read()
        if not reference.endswith(digest_of(data)):
            return ""  # somebody has put another one in its place
        image = decoded_bytes(data, path.name, least_side=_SIDE)
    except (ImageError, MissingExtraError, OSError):
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(small_jpeg(image, _SIDE, 72)).decode()
