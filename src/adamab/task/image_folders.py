"""Pictures on disk: one file, all below a folder, or one folder a class."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from adamab.errors import ImageError
from adamab.task.images import Image, open_picture
from adamab.task.messages import checked, one_line, place

ENDINGS: tuple[str, ...] = (".apng", ".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo")
ENDINGS += (".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
# Endings of pictures that are not read, which people should be told of; other files are none of our business.
_UNREAD = (
    "",
    ".arw",
    ".cr2",
    ".cr3",
    ".dng",
    ".heic",
    ".heif",
    ".ico",
    ".jp2",
    ".jxl",
    ".nef",
    ".psd",
    ".svg",
)
_RUN_FILES = ("journal.sqlite", "model.safetensors")
_LEFT_OUT = {"__MACOSX", "@eaDir"}  # folders that archives and file servers add
_CHUNK = 2**20


def image_at(path: Path) -> Image:
    """The picture in a file, known by its content; raises `ImageError`. The pixels are not looked at."""
    digest = hashlib.sha256()
    with open_picture(path) as stream:
        try:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        except OSError as error:
            raise ImageError(f"{place(path)}: cannot be read ({_why(error)}); check the disk") from None
    return Image(digest.hexdigest(), path)


def image_files(folder: Path) -> Iterator[Path]:
    """Every picture below a folder, told by its ending, in the order of the relative paths.

    Hidden files and folders are left out. Links are followed, but no folder is entered twice.
    """
    path = None
    for path in _pictures_below(folder):
        yield path
    if path is None:
        raise ImageError(
            f"{place(folder)}: holds no pictures; put files there that end in {_endings()}, or name another"
        )


def passed_over(folder: Path) -> Counter[str]:
    """Files below a folder that may be pictures and are not looked at, by their ending."""
    return Counter(
        path.suffix.lower() or "no ending" for path in _files_below(folder) if path.suffix.lower() in _UNREAD
    )


def class_folders(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every picture below a folder with its class, which is the name of the first folder on the way to it."""
    folders = _class_folders(folder)
    if not folders:
        raise ImageError(
            f"{place(folder)}: holds no folders; make one for each class and put its pictures there"
        )
    for entry in folders:
        name = checked(entry.name, place(folder), "the name of the folder")
        path = None
        for path in _pictures_below(entry):
            yield name, path
        if path is None:
            raise ImageError(
                f"{place(entry)}: no pictures for this class; put files there that end in {_endings()}, "
                "or remove the folder"
            )


def _class_folders(folder: Path) -> list[Path]:
    folders = []
    for entry, is_folder in _entries(folder):
        if is_folder:
            folders.append(entry)
        elif _is_picture(entry):
            raise ImageError(f"{place(entry)}: belongs to no class; move it into the folder of its class")
    return folders


def _pictures_below(folder: Path) -> Iterator[Path]:
    return filter(_is_picture, _files_below(folder))


def _files_below(folder: Path) -> Iterator[Path]:
    entered: set[tuple[int, int]] = set()  # or links in a circle would never end
    pending = [(folder, True)]
    while pending:
        entry, is_folder = pending.pop()
        if not is_folder:
            yield entry
        elif (identity := _identity(entry)) not in entered:
            entered.add(identity)
            pending.extend(reversed(_entries(entry)))


def _identity(folder: Path) -> tuple[int, int]:
    try:
        status = os.stat(folder)
    except (OSError, ValueError) as error:
        raise ImageError(f"{place(folder)}: cannot be read ({_why(error)}); check the path") from None
    return status.st_dev, status.st_ino


def _entries(folder: Path) -> list[tuple[Path, bool]]:
    """What lies in a folder and whether it is one itself, in the order of the paths below it.

    A folder sorts as its name with the slash, so that walking it in place keeps the whole in order.
    """
    try:
        with os.scandir(folder) as listing:
            found = [(entry.name, _is_folder(entry)) for entry in listing if not entry.name.startswith(".")]
    except (OSError, ValueError) as error:
        raise ImageError(
            f"{place(folder)}: cannot be read as a folder ({_why(error)}); check the path"
        ) from None
    found = [(name, is_folder) for name, is_folder in found if not (is_folder and name in _LEFT_OUT)]
    found = [(name, is_folder) for name, is_folder in found if not (is_folder and _is_run(folder / name))]
    found.sort(key=lambda entry: entry[0] + "/" if entry[1] else entry[0])
    return [(folder / name, is_folder) for name, is_folder in found]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself leads nowhere, like one to nothing
            return False
        raise


def _is_run(folder: Path) -> bool:
    """Whether `adamab fit` wrote it: the pictures of a run are no examples, wherever it lies."""
    return any(os.path.isfile(folder / name) for name in _RUN_FILES)


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _endings() -> str:
    return ", ".join(ENDINGS)


def _why(error: OSError | ValueError) -> str:
    return one_line(error.strerror if isinstance(error, OSError) else error)
