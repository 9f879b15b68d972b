"""Images as samples: what is known of one without decoding it, and how its file is opened.

An image is named by its content. Everything that goes by a sample's text (repeats, the journal, what
is held out) goes by an image's `reference` instead, so that the same image under two names is one.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from adamab.errors import ImageError, TaskError, imported, one_line, place, short

if TYPE_CHECKING:
    import PIL.Image

LARGEST_FILE = 200_000_000  # bytes; the largest image that is decoded is below this in any sane format
_SCHEMES = "abfss?|az|data|file|ftps?|gc?s|hdfs|hf|https?|s3|scp|sftp|ssh|wasbs?"
_URL = re.compile(rf"^data:|(?:^|/)(?:(?:{_SCHEMES}):/|data:[a-z]+/[a-z0-9.+-]+[;,])", re.IGNORECASE)
_PREFIX = "image:"
_REFERENCE = re.compile(r"image:[0-9a-f]{64}")
# 270 MB once decoded; a bomb declares more, hardly any camera makes more. Pillow itself warns a little later.
MOST_PIXELS = 89_000_000
_HEAD = 64  # bytes that tell the format
_ROOM = 2  # a reduced image has this many times the side that is wanted: a finer resize follows
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


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a file: equal to another if its bytes are.

    Example:
        >>> Image("0" * 64, Path("a.jpg")) == Image("0" * 64, Path("copy.jpg"))
        True
    """

    digest: str  # sha256 of the file, in hexadecimal
    path: Path = field(compare=False)

    @property
    def reference(self) -> str:
        """What stands for it where samples are strings."""
        return _PREFIX + self.digest

    def __str__(self) -> str:
        return str(self.path)


def is_reference(text: str) -> bool:
    """Whether a sample's text stands for an image."""
    return _REFERENCE.fullmatch(text) is not None


def references_in(text: str) -> list[str]:
    """The references that stand somewhere in a text."""
    return _REFERENCE.findall(text)


def digest_of(data: bytes) -> str:
    """The digest of an image's bytes."""
    return hashlib.sha256(data).hexdigest()


def is_url(text: str | os.PathLike[str]) -> bool:
    """Whether a path is really an address, also after `Path` or a folder in front has mangled it."""
    return _URL.search(os.fspath(text)[:1000].replace("\\", "/")) is not None


def open_regular(path: Path, refused: type[TaskError] = TaskError) -> BinaryIO:
    """An open file; nothing is fetched.

    Args:
        path: of a regular file: a named pipe or a device would block or never end.
        refused: the error for anything else.
    """
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            return open(path, "rb")
    except (OSError, ValueError) as error:  # ValueError: a path that holds a NUL
        raise refused(_why_not(path, error)) from None
    if stat.S_ISDIR(mode):
        raise refused(f"{place(path)}: is a directory; name a file in it")
    raise refused(f"{place(path)}: is not a regular file; save the content as a file first")


def open_image(path: Path) -> BinaryIO:
    """The open file, if it is one that may hold an image; raises `ImageError`."""
    stream = open_regular(path, ImageError)
    try:
        check_length(os.stat(path).st_size, place(path))
    except ImageError:
        stream.close()
        raise
    return stream


def check_length(length: int, name: str) -> None:
    """Refuse an image of no bytes or too many."""
    if length == 0:
        raise ImageError(f"{name}: is empty; replace or remove it")
    if length > LARGEST_FILE:
        most = LARGEST_FILE // 10**6
        raise ImageError(f"{name}: has {length // 10**6} MB, more than {most}; save it smaller or remove it")


def _why_not(path: Path, error: OSError | ValueError) -> str:
    if is_url(path):
        return f"{short(path, 60)}: URLs are never fetched; download it first and name the file"
    shown = place(path) if len(os.fspath(path)) <= 1000 else short(path, 60)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{shown}: no such file; check the path"
    reason = error.strerror if isinstance(error, OSError) else error
    return f"{shown}: cannot be read ({one_line(reason)}); check the path"


def decoded(image: Image | Path, *, least_side: int | None = None) -> PIL.Image.Image:
    """The first frame of an image in RGB, upright, what is transparent on white.

    With `least_side` it may come smaller than it is, though never with a side shorter than that: a large
    JPEG is then decoded in little time and memory. Raises `ImageError`.
    """
    path = image.path if isinstance(image, Image) else image
    with open_image(path) as stream:
        return _decoded(stream, one_line(path), least_side)


def decoded_bytes(data: bytes, name: str, *, least_side: int | None = None) -> PIL.Image.Image:
    """What `decoded` makes of a file with these bytes; messages call it `name`.

    Args:
        data: the content of a file.
        name: what messages call it.
        least_side: as in `decoded`.
    """
    check_length(len(data), one_line(name))
    return _decoded(io.BytesIO(data), one_line(name), least_side)


def header(image: Image | Path) -> tuple[int, int, str]:
    """Width and height as they lie in the file, before it is turned upright, and the format's name.

    What `decoded` refuses for its header is refused here too; the pixels are not looked at.
    """
    path = image.path if isinstance(image, Image) else image
    with open_image(path) as stream, _read_header(stream, one_line(path)) as (opened, known):
        return opened.width, opened.height, known


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
    raise ImageError(f"{name}: is no image in {', '.join(FORMATS)}; save it in one of these or remove it")


def _decoded(stream: IO[bytes], name: str, least_side: int | None) -> PIL.Image.Image:
    with _read_header(stream, name) as (image, _):
        side = None if least_side is None else _ROOM * least_side
        if side is not None:  # does nothing where the format has no such mode
            image.draft(None, (side, side))
        image.load()
        result = _in_rgb(image)
        if side is not None and min(result.size) >= 2 * side:
            result = result.reduce(min(result.size) // side)
        result.info.clear()  # Pillow would write it to the next file: a profile, a comment
        return _upright(result, image)


@contextmanager
def _read_header(stream: IO[bytes], name: str) -> Iterator[tuple[PIL.Image.Image, str]]:
    """The image before its pixels are decoded, and its format; raises `ImageError` only."""
    imported("PIL.Image", "Pillow", "images")
    # What Pillow remarks about odd metadata is of no use to anybody here. The filter stays: to take it away
    # again would take away what other threads have changed meanwhile. Warnings of decompression bombs are of
    # another kind, and others' code keeps getting them.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    try:
        known = _format_of(stream.read(_HEAD), name)
        with _opened(stream, known, name) as image:
            yield image, known
    except ImageError:
        raise
    except Exception as error:  # on damaged data, Pillow raises whatever its parser stumbled over
        raise ImageError(f"{name}: cannot be decoded ({_reason(error)}); replace or remove it") from None


def _reason(error: Exception) -> str:
    import PIL

    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, PIL.UnidentifiedImageError):
        return "its header is damaged"
    # The first line only, without the address of the stream that some messages quote.
    return one_line(str(error).split("\n")[0].split(" <_io")[0])[:120] or type(error).__name__


def _opened(stream: IO[bytes], known: str, name: str) -> PIL.Image.Image:
    """The image behind its header, which is all that was read of it."""
    import PIL.Image

    limit = f"{MOST_PIXELS // 10**6} million pixels; save it smaller or remove it"
    try:
        image = PIL.Image.open(stream, formats=[known])
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
        raise ImageError(f"{name}: declares more than {limit}") from None
    except KeyError:
        raise ImageError(f"{name}: this Pillow reads no {known}; update it or save the file as PNG") from None
    if min(image.size) < 1:
        raise ImageError(f"{name}: has no pixels; replace or remove it")
    # A TIFF is decoded tile by tile, and a small image may declare a huge tile.
    tags = getattr(image, "tag_v2", {})
    tile_pixels = int(tags.get(_TILE_WIDTH, 0)) * int(tags.get(_TILE_LENGTH, 0))
    if image.width * image.height > MOST_PIXELS or tile_pixels > 2 * MOST_PIXELS:
        raise ImageError(f"{name}: declares more than {limit}")
    return image


def _upright(image: PIL.Image.Image, original: PIL.Image.Image) -> PIL.Image.Image:
    """The image turned as the EXIF tag of the original says."""
    from PIL import ImageOps

    try:
        orientation = int(original.getexif().get(_ORIENTATION, 1))
    except Exception:  # the pixels are good; a damaged note beside them is no reason to refuse them
        return image
    image.getexif()[_ORIENTATION] = orientation
    ImageOps.exif_transpose(image, in_place=True)
    return image


def _in_rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    """An image of its own in RGB, whatever the mode was."""
    import PIL.Image

    if image.mode.startswith(("I", "F")):
        return _scaled_grey(image).convert("RGB")
    if not image.has_transparency_data:
        return image.copy() if image.mode == "RGB" else image.convert("RGB")
    layer = image.convert("RGBA")
    ground = PIL.Image.new("RGB", layer.size, "white")
    ground.paste(layer, mask=layer.getchannel("A"))
    return ground


def _scaled_grey(image: PIL.Image.Image) -> PIL.Image.Image:
    """Eight bits of more: plain conversion would cut everything above 255 to white."""
    import numpy as np
    import PIL.Image

    values = np.nan_to_num(np.array(image, dtype=np.float32), copy=False)
    low, high = float(values.min()), float(values.max())
    # What is black and what is white: the range of the format where it has one, else of the image.
    full = 65535.0 if image.mode.startswith("I") else 1.0
    if low >= 0 and high <= full:
        low, high = 0.0, full
    elif high == low:
        low, high = low - 1, low + 1
    values -= low
    values *= 255 / (high - low)
    return PIL.Image.fromarray(values.clip(0, 255, out=values).round(out=values).astype(np.uint8))
