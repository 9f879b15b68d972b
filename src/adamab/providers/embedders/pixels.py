"""From pictures to what a network takes: resized, cropped, normalised, a batch at a time.

At most one picture is open at its full size, and only the batch at hand is held as numbers, so that
a folder may have any number of pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from adamab.task.images import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Filter = Literal["bicubic", "bilinear", "lanczos", "nearest", "box", "hamming"]
Colour = tuple[float, float, float]

DEFINITION = "pixels-1"  # changes whenever the same picture would become other numbers
_LONGEST_STRIP = 4  # times the shorter side
_Thing = TypeVar("_Thing")


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes a network's input, as torchvision's Resize and CenterCrop would do it.

    Example:
        >>> Preparation(height=224, width=224, margin=256 / 224).cover
        (256, 256)
    """

    height: int
    width: int
    margin: float = 1.0  # how much larger than its crop the picture is resized
    squash: bool = False  # resize both sides to the crop's, whatever the proportions
    mean: Colour = (0.0, 0.0, 0.0)
    std: Colour = (1.0, 1.0, 1.0)
    unit: bool = True  # colours from 0 to 1, not to 255
    resample: Filter = "bicubic"

    @property
    def cover(self) -> tuple[int, int]:
        """Height and width that the resized picture must reach."""
        return round(self.height * self.margin), round(self.width * self.margin)

    def batch(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """The pictures as one array (picture, colour, row, column)."""
        pixels = np.empty((len(images), 3, self.height, self.width), np.float32)
        for row, image in enumerate(images):
            picture = self.cropped(opened(image, least_side=max(self.cover)))
            pixels[row] = np.asarray(picture, np.uint8).transpose(2, 0, 1)
        if self.unit:
            pixels /= 255
        pixels -= np.array(self.mean, np.float32)[:, None, None]
        pixels /= np.array(self.std, np.float32)[:, None, None]
        return pixels

    def cropped(self, picture: Picture) -> Picture:
        """The middle of the resized picture."""
        from PIL.Image import Resampling

        picture = without_ends(picture)
        height, width = self.cover if self.squash else self._resized(picture)
        picture = picture.resize((width, height), Resampling[self.resample.upper()])
        top, left = round((height - self.height) / 2), round((width - self.width) / 2)
        return picture.crop((left, top, left + self.width, top + self.height))

    def _resized(self, picture: Picture) -> tuple[int, int]:
        """Height and width in the picture's own proportions, just large enough."""
        height, width = self.cover
        scale = max(height / picture.height, width / picture.width)
        return max(height, int(picture.height * scale)), max(width, int(picture.width * scale))


def batches(things: Sequence[_Thing], size: int) -> Iterator[list[_Thing]]:
    """Lists of at most `size`, in order.

    Example:
        >>> list(batches([1, 2, 3], 2))
        [[1, 2], [3]]
    """
    for start in range(0, len(things), size):
        yield list(things[start : start + size])


def in_batches(
    things: Sequence[_Thing], size: int, vectors_of: Callable[[list[_Thing]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The rows that `vectors_of` gives for each batch, in one matrix that is there once, not twice."""
    matrix: NDArray[np.float32] | None = None
    done = 0
    for batch in batches(things, size):
        rows = vectors_of(batch)
        if matrix is None:
            matrix = np.empty((len(things), rows.shape[1]), np.float32)
        matrix[done : done + len(rows)] = rows
        done += len(rows)
    return np.empty((0, 0), np.float32) if matrix is None else matrix


def opened(image: Image, *, least_side: int | None = None) -> Picture:
    """The picture in RGB, upright; a broken one raises ImageError, which names its file."""
    from adamab.task.image_decoding import decoded  # it needs Pillow, which is an extra

    return decoded(image, least_side=least_side)


def without_ends(picture: Picture) -> Picture:
    """The middle of a very long strip, of which a centre crop sees no more anyway.

    A line of ten thousand pixels would otherwise grow to gigabytes when its shorter side is resized.
    """
    width, height = picture.size
    most = _LONGEST_STRIP * min(width, height)
    if max(width, height) <= most:
        return picture
    left, top = max(0, width - most) // 2, max(0, height - most) // 2
    return picture.crop((left, top, width - left, height - top))


def of_length_one(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Each row divided by its length; a row of zeros stays as it is."""
    rows = np.array(vectors, np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)
    return rows
