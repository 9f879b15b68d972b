"""From a file's bytes to pixels: always RGB and upright, or one line that says why not.

The content decides what a file is, never its ending, and only the formats listed here are opened, so that
none that runs another program is. The size is checked in the header, before any pixel is decoded.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from adamab.errors import ImageError, MissingExtraError
from adamab.task.images import Image, check_length, open_picture
from adamab.task.messages import one_line

if TYPE_CHECKING:
    import PIL.Image

# 270 MB once decoded; a bomb declares more, hardly any camera makes more. Pillow itself warns a little later.
MOST_PIXELS = 89_000_000
_HEAD = 64  # bytes that tell the format
_ROOM = 2  # a reduced picture has this many times the side that is wanted: a finer resize follows
FORMATS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp"}
FORMATS |= {"TIFF": ".tif", "PPM": ".ppm", "AVIF": ".avif"}
_STARTS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    **dict.fromkeys((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), "TIFF"),
    **dict.fromkeys((b"P%c" % kind for kind in b"123456f"), "PPM"),
}
_ORIENTATION = 0x0112  # the EXIF tag
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # TIFF tags


def decoded(image: Image | Path, *, least_side: int | None = None) -> PIL.Image.Image:
    """The first frame of a picture in RGB, upright, what is transparent on white.

    With `least_side` it may come smaller than it is, though never with a side shorter than that: a large
    JPEG is then decoded in little time and memory. Raises `ImageError`.
    """
    path = image.path if isinstance(image, Image) else image
    with open_picture(path) as stream:
        return _decoded(stream, one_line(path), least_side)


def decoded_bytes(data: bytes, name: str, *, least_side: int | None = None) -> PIL.Image.Image:
    """What `decoded` makes of a file with these bytes; messages call it `name`."""
    check_length(len(data), one_line(name))
    return _decoded(io.BytesIO(data), one_line(name), least_side)


def header(image: Image | Path) -> tuple[int, int, str]:
    """Width and height as they lie in the file, before it is turned upright, and the format's name.

    What `decoded` refuses for its header is refused here too; the pixels are not looked at.
    """
    path = image.path if isinstance(image, Image) else image
    with open_picture(path) as stream, _read_header(stream, one_line(path)) as (picture, known):
        return picture.width, picture.height, known


def ending_of(data: bytes) -> str:
    """The ending that the name of a file with this content should have.

    Example:
        >>> ending_of(b"GIF89a ...")
        '.gif'
    """
    return FORMATS[_format_of(data[:_HEAD], "the data")]


def _format_of(head: bytes, name: str) -> str:
    for start, known in _STARTS.items():
        if head.startswith(start):
            return known
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp" and any(brand in head[8:] for brand in (b"avif", b"avis")):
        return "AVIF"
    raise ImageError(f"{name}: is no picture in {', '.join(FORMATS)}; save it in one of these or remove it")


def _decoded(stream: IO[bytes], name: str, least_side: int | None) -> PIL.Image.Image:
    with _read_header(stream, name) as (picture, _):
        _draft(picture, least_side)
        picture.load()
        orientation = _orientation(picture)
        result = _upright(_reduced(_in_rgb(picture), least_side), orientation)
        result.info.clear()  # Pillow would write it to the next file: a profile, a comment
        return result


@contextmanager
def _read_header(stream: IO[bytes], name: str) -> Iterator[tuple[PIL.Image.Image, str]]:
    """The picture before its pixels are decoded, and its format; raises `ImageError` only."""
    _require_pillow()
    try:
        known = _format_of(stream.read(_HEAD), name)
        _silence_pillow()
        with _opened(stream, known, name) as picture:
            yield picture, known
    except ImageError:
        raise
    except Exception as error:  # on damaged data, Pillow raises whatever its parser stumbled over
        raise ImageError(f"{name}: cannot be decoded ({_reason(error)}); replace or remove it") from None


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise MissingExtraError("Pillow", "images") from None


def _reason(error: Exception) -> str:
    import PIL

    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, PIL.UnidentifiedImageError):
        return "its header is damaged"
    # The first line only, without the address of the stream that some messages quote.
    return one_line(str(error).split("\n")[0].split(" <_io")[0])[:120] or type(error).__name__


def _opened(stream: IO[bytes], known: str, name: str) -> PIL.Image.Image:
    """The picture behind its header, which is all that was read of it."""
    import PIL.Image

    try:
        picture = PIL.Image.open(stream, formats=[known])
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
        raise _too_large(name) from None
    except KeyError:
        raise ImageError(f"{name}: this Pillow reads no {known}; update it or save the file as PNG") from None
    if min(picture.size) < 1:
        raise ImageError(f"{name}: has no pixels; replace or remove it")
    if picture.width * picture.height > MOST_PIXELS or _tile_pixels(picture) > 2 * MOST_PIXELS:
        raise _too_large(name)
    return picture


def _too_large(name: str) -> ImageError:
    return ImageError(
        f"{name}: declares more than {MOST_PIXELS // 10**6} million pixels; save it smaller or remove it"
    )


def _tile_pixels(picture: PIL.Image.Image) -> int:
    """A TIFF is decoded tile by tile, and a small picture may declare a huge tile."""
    tags = getattr(picture, "tag_v2", {})
    return int(tags.get(_TILE_WIDTH, 0)) * int(tags.get(_TILE_LENGTH, 0))


def _draft(picture: PIL.Image.Image, least_side: int | None) -> None:
    if least_side is not None:  # does nothing where the format has no such mode
        picture.draft(None, (_ROOM * least_side, _ROOM * least_side))


def _reduced(picture: PIL.Image.Image, least_side: int | None) -> PIL.Image.Image:
    factor = 1 if least_side is None else min(picture.size) // (_ROOM * least_side)
    return picture.reduce(factor) if factor > 1 else picture


def _orientation(picture: PIL.Image.Image) -> int:
    try:
        return int(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # the pixels are good; a damaged note beside them is no reason to refuse them
        return 1


def _upright(picture: PIL.Image.Image, orientation: int) -> PIL.Image.Image:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return picture.transpose(turns[orientation]) if orientation in turns else picture


def _in_rgb(picture: PIL.Image.Image) -> PIL.Image.Image:
    """A picture of its own in RGB, whatever the mode was."""
    import PIL.Image

    if picture.mode.startswith(("I", "F")):
        return _scaled_grey(picture).convert("RGB")
    if not picture.has_transparency_data:
        return picture.copy() if picture.mode == "RGB" else picture.convert("RGB")
    layer = picture.convert("RGBA")
    ground = PIL.Image.new("RGB", layer.size, "white")
    ground.paste(layer, mask=layer.getchannel("A"))
    return ground


def _scaled_grey(picture: PIL.Image.Image) -> PIL.Image.Image:
    """Eight bits of more: plain conversion would cut everything above 255 to white."""
    import PIL.Image

    values = np.nan_to_num(np.array(picture, dtype=np.float32), copy=False)
    low, high = _range(picture.mode, float(values.min()), float(values.max()))
    values -= low
    values *= 255 / (high - low)
    return PIL.Image.fromarray(values.clip(0, 255, out=values).round(out=values).astype(np.uint8))


def _range(mode: str, low: float, high: float) -> tuple[float, float]:
    """What is black and what is white: the range of the format where it has one, else of the picture."""
    if mode.startswith("I") and low >= 0 and high <= 65535:
        return 0.0, 65535.0
    if mode == "F" and low >= 0 and high <= 1:
        return 0.0, 1.0
    return (low, high) if high > low else (low - 1, low + 1)


def _silence_pillow() -> None:
    """What Pillow remarks about odd metadata is of no use to anybody here.

    The filter stays: to take it away again would take away what other threads have changed meanwhile.
    Warnings of decompression bombs are of another kind, and others' code keeps getting them.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
