"""Pictures as samples: what is known of one without decoding it, and how its file is opened.

A picture is named by its content. Everything that goes by a sample's text (repeats, the journal, what
is held out) goes by a picture's `reference` instead, so that the same picture under two names is one.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from adamab.errors import ImageError
from adamab.task.messages import one_line, place, short

LARGEST_FILE = 200_000_000  # bytes; the largest picture that is decoded is below this in any sane format
_SCHEMES = "abfss?|az|data|file|ftps?|gc?s|hdfs|hf|https?|s3|scp|sftp|ssh|wasbs?"
_URL = re.compile(rf"^data:|(?:^|/)(?:(?:{_SCHEMES}):/|data:[a-z]+/[a-z0-9.+-]+[;,])", re.IGNORECASE)
_PREFIX = "image:"
_REFERENCE = re.compile(r"image:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a file: equal to another if its bytes are.

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
    """Whether a sample's text stands for a picture."""
    return _REFERENCE.fullmatch(text) is not None


def references_in(text: str) -> list[str]:
    """The references that stand somewhere in a text."""
    return _REFERENCE.findall(text)


def digest_of(data: bytes) -> str:
    """The digest of a picture's bytes."""
    return hashlib.sha256(data).hexdigest()


def is_url(text: str | os.PathLike[str]) -> bool:
    """Whether a path is really an address, also after `Path` or a folder in front has mangled it."""
    return _URL.search(os.fspath(text)[:1000].replace("\\", "/")) is not None


def open_picture(path: Path) -> BinaryIO:
    """The open file, if it is one that may hold a picture; raises `ImageError`, and fetches nothing."""
    try:
        status = os.stat(path)
        _check_status(path, status)
        return open(path, "rb")
    except ImageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path that holds a NUL
        raise ImageError(_why_not(path, error)) from None


def check_length(length: int, name: str) -> None:
    """Refuse a picture of no bytes or too many."""
    if length == 0:
        raise ImageError(f"{name}: is empty; replace or remove it")
    if length > LARGEST_FILE:
        most = LARGEST_FILE // 10**6
        raise ImageError(f"{name}: has {length // 10**6} MB, more than {most}; save it smaller or remove it")


def _check_status(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ImageError(f"{place(path)}: is a directory; name a picture in it")
    if not stat.S_ISREG(status.st_mode):  # a named pipe or a device would block or never end
        raise ImageError(f"{place(path)}: is not a regular file; save the picture as a file first")
    check_length(status.st_size, place(path))


def _why_not(path: Path, error: OSError | ValueError) -> str:
    if is_url(path):
        return f"{short(path, 60)}: URLs are never fetched; download it first and name the file"
    shown = place(path) if len(os.fspath(path)) <= 1000 else short(path, 60)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{shown}: no such file; check the path"
    reason = error.strerror if isinstance(error, OSError) else error
    return f"{shown}: cannot be read ({one_line(reason)}); check the path"
