"""Pictures on their way to a service: small enough, upright, and nothing in them but pixels.

What leaves the machine is encoded anew from the decoded pixels. Where a picture was taken, with what and
by whom (EXIF, XMP, comments, thumbnails, whatever a file carries) stays here. Until a picture is sent only
its header is read; its pixels and bytes live as long as its request.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adamab.errors import EmbedderError
from adamab.task.image_decoding import decoded, header
from adamab.task.images import Image
from adamab.task.messages import one_line

if TYPE_CHECKING:
    import PIL.Image

JPEG_QUALITY = 95  # without subsampling of colours: what it loses cannot be seen
_LONGEST_SIDE = 65_500  # pixels; a JPEG has no more
_LEAST_SIDE = 64  # a picture that is too large even so is refused for another reason
_LOSSY = ("JPEG", "WEBP", "AVIF")
# Bytes a pixel, generous for photographs; noise may have more, and a request is split if it is too large.
_JPEG_BYTES, _PNG_BYTES = 1, 3


@dataclass(frozen=True)
class SentPicture:
    """A picture as it will be sent: its size by then, and as PNG or as JPEG."""

    image: Image
    width: int
    height: int
    lossless: bool

    @property
    def name(self) -> str:
        """The file, for messages."""
        return one_line(self.image.path)

    @property
    def pixels(self) -> int:
        """How many it has when it is sent."""
        return self.width * self.height

    @property
    def length(self) -> int:
        """About how many letters it takes in a request."""
        return self.pixels * (_PNG_BYTES if self.lossless else _JPEG_BYTES) * 4 // 3

    def smaller(self, embedder: str) -> SentPicture:
        """The same at half the width and height; raises `EmbedderError` where that would be too little."""
        if max(self.width, self.height) // 2 < _LEAST_SIDE:
            raise EmbedderError(
                f"{embedder}: {self.name}: is refused as too large even at {self.width}x{self.height} "
                "pixels; leave it out"
            )
        width, height = (max(1, side // 2) for side in (self.width, self.height))
        return replace(self, width=width, height=height, lossless=False)

    def data_url(self) -> str:
        """The picture itself; raises `ImageError` where it cannot be decoded."""
        kind, data = self.encoded()
        return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"

    def encoded(self) -> tuple[str, bytes]:
        """`png` or `jpeg`, and the bytes."""
        pixels = self._pixels()
        pixels.info.clear()  # Pillow writes some of it to the file: a comment, a profile of colours
        stream = io.BytesIO()
        if self.lossless:
            pixels.save(stream, "PNG")
        else:
            pixels.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        return "png" if self.lossless else "jpeg", stream.getvalue()

    def _pixels(self) -> PIL.Image.Image:
        from PIL.Image import Resampling

        pixels = decoded(self.image, least_side=min(self.width, self.height))
        size = self._upright(pixels.size)
        return pixels if pixels.size == size else pixels.resize(size, Resampling.LANCZOS)

    def _upright(self, pixels: tuple[int, int]) -> tuple[int, int]:
        """The header knows the sides as they lie in the file; decoding turns some pictures."""
        turned = (pixels[0] < pixels[1]) != (self.width < self.height)
        return (self.height, self.width) if turned else (self.width, self.height)


def sent_picture(image: Image, most_pixels: int) -> SentPicture:
    """The picture, shrunk to `most_pixels` where it has more; reads its header only."""
    width, height, kind = header(image)
    scale = min(1.0, math.sqrt(most_pixels / (width * height)), _LONGEST_SIDE / max(width, height))
    if scale == 1.0:
        return SentPicture(image, width, height, lossless=kind not in _LOSSY)
    width, height = (max(1, math.floor(side * scale)) for side in (width, height))
    return SentPicture(image, width, height, lossless=False)
