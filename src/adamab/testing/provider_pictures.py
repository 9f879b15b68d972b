"""Small pictures for the provider server, painted and read without a library.

A picture is a mosaic in three colours. Its subject (the class that a prompt is about) chooses the colours
and the pattern, its number moves every tile a little: pictures of one class look alike, no two are equal.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zlib
from collections.abc import Callable

from adamab.testing.provider_model import read_prompt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TILES = 8  # in either direction
_SMALLER = 16  # a picture of 1024x1024 has 64 by 64 pixels
_LEAST = 2 * _TILES
_READ = 128 * 128  # pixels of a picture whose colours are looked at
_SPREAD = 24  # how far a tile's colour may be from its class's

Colour = tuple[int, int, int]


def subject_of(prompt: str) -> str:
    """What a prompt is about: its first data block, or its first line where it has none."""
    blocks = read_prompt(prompt).blocks
    if blocks and blocks[0]:
        return json.dumps(blocks[0], sort_keys=True)
    return next((line.strip() for line in prompt.splitlines() if line.strip()), "")


def picture(prompt: str, number: int, size: tuple[int, int]) -> bytes:
    """The PNG that a prompt gets when it is asked for the `number`-th time."""
    width, height = (max(_LEAST, side // _SMALLER) for side in size)
    subject = random.Random(hashlib.sha256(subject_of(prompt).encode("utf-8", "replace")).digest())
    palette = [_colour(subject) for _ in range(3)]
    pattern = [subject.randrange(3) for _ in range(_TILES * _TILES)]
    chance = random.Random(f"{number}:{prompt}".encode("utf-8", "replace"))
    tiles = [_varied(palette[place], chance) for place in pattern]
    return png(b"".join(_row(tiles, y * _TILES // height, width) for y in range(height)), width, height)


def png(pixels: bytes, width: int, height: int) -> bytes:
    """A PNG of RGB pixels, row by row."""
    rows = b"".join(b"\0" + pixels[3 * width * y : 3 * width * (y + 1)] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def size_of(data: bytes) -> tuple[int, int] | None:
    """Width and height by the header of a PNG, JPEG, GIF or WEBP; None of anything else."""
    try:
        if data.startswith(_SIGNATURE):
            return struct.unpack(">II", data[16:24]) if data.endswith(b"IEND\xaeB`\x82") else None
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return struct.unpack("<HH", data[6:10])
        if data[:2] == b"\xff\xd8":
            return _jpeg_size(data)
        if data[:4] + data[8:12] == b"RIFFWEBP":
            return _webp_size(data)
    except (struct.error, IndexError):
        pass
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    place = 2
    while data[place] == 0xFF and data.endswith(b"\xff\xd9"):
        marker, length = data[place + 1], struct.unpack(">H", data[place + 2 : place + 4])[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + length
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if data[12:16] == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if data[12:16] == b"VP8L":
        bits = struct.unpack("<I", data[21:25])[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    wide, high = (int.from_bytes(data[place : place + 3], "little") for place in (24, 27))
    return (wide + 1, high + 1) if data[12:16] == b"VP8X" else None


def mean_colour(data: bytes) -> Colour | None:
    """The mean colour of a small PNG in plain RGB; None of any other file."""
    width, height = size_of(data) or (0, 0)
    if not 0 < width * height <= _READ or data[24:29] != b"\x08\x02\0\0\0":
        return None
    try:
        rows = _unfiltered(zlib.decompress(_idat(data)), 3 * width, height)
    except (struct.error, zlib.error, LookupError):
        return None
    red, green, blue = (sum(sum(row[part::3]) for row in rows) // (width * height) for part in range(3))
    return red, green, blue


def _idat(data: bytes) -> bytes:
    place, found = len(_SIGNATURE), b""
    while place < len(data):
        length = struct.unpack(">I", data[place : place + 4])[0]
        if data[place + 4 : place + 8] == b"IDAT":
            found += data[place + 8 : place + 8 + length]
        place += 12 + length
    return found


def _unfiltered(raw: bytes, step: int, height: int) -> list[bytearray]:
    above, rows = bytearray(step), []
    for y in range(height):
        begin = y * (step + 1)
        above = _unfiltered_row(raw[begin], bytearray(raw[begin + 1 : begin + 1 + step]), above)
        rows.append(above)
    return rows


def _unfiltered_row(kind: int, row: bytearray, above: bytearray) -> bytearray:
    if kind == 0:
        return row
    guess = _GUESSES[kind]
    for x in range(len(row)):
        left, corner = (row[x - 3], above[x - 3]) if x >= 3 else (0, 0)
        row[x] = (row[x] + guess(left, above[x], corner)) & 0xFF
    return row


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    near, far, farthest = abs(guess - left), abs(guess - up), abs(guess - corner)
    if near <= far and near <= farthest:
        return left
    return up if far <= farthest else corner


# The filters of PNG, by number: what a byte was guessed from.
_GUESSES: dict[int, Callable[[int, int, int], int]] = {
    1: lambda left, up, corner: left,
    2: lambda left, up, corner: up,
    3: lambda left, up, corner: (left + up) // 2,
    4: _paeth,
}


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _colour(draw: random.Random) -> Colour:
    return (
        draw.randrange(_SPREAD, 256 - _SPREAD),
        draw.randrange(_SPREAD, 256 - _SPREAD),
        draw.randrange(24, 232),
    )


def _varied(colour: Colour, draw: random.Random) -> bytes:
    return bytes(part + draw.randint(-_SPREAD, _SPREAD - 1) for part in colour)


def _row(tiles: list[bytes], band: int, width: int) -> bytes:
    return b"".join(tiles[band * _TILES + x * _TILES // width] for x in range(width))
