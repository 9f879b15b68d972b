"""Received pictures: checked by their content, and kept as files only while they are classified."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adamab.errors import ImageError
from adamab.serving.problems import invalid
from adamab.task.image_decoding import decoded_bytes, ending_of
from adamab.task.images import Image, digest_of

_AT_ONCE = 2  # pictures that are decoded at a time: a large one takes hundreds of megabytes
_LEAST_SIDE = 64  # a JPEG of any size is looked at in little time


@dataclass(frozen=True, slots=True)
class Row:
    """A text or a picture of a request."""

    text: str
    image: Image | None = None
    id: str | None = None


def from_base64(texts: Sequence[str]) -> list[bytes]:
    """The bytes of pictures; raises `Refused`."""
    found: list[bytes] = []
    for number, text in enumerate(texts):
        try:
            found.append(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            message = f"images.{number}.data: is not base64; leave out line breaks and prefixes"
            raise invalid(message) from None
    return found


class PictureFiles:
    """A folder for pictures while they are classified, since embedders read files."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def remove(self) -> None:
        """With all that is left in it."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def stored(self, pictures: Sequence[bytes]) -> list[Row]:
        """Rows of pictures that can be decoded; raises `Refused` at the first that cannot."""
        rows: list[Row] = []
        try:
            for number, data in enumerate(pictures):
                async with self._turns:
                    rows.append(await asyncio.to_thread(self._store, data, number))
        except BaseException:
            self.discard(rows)
            raise
        return rows

    @contextmanager
    def kept(self, rows: Sequence[Row]) -> Iterator[None]:
        """The rows' files are removed when the block ends."""
        try:
            yield
        finally:
            self.discard(rows)

    def discard(self, rows: Sequence[Row]) -> None:
        """Remove the rows' files."""
        for row in rows:
            if row.image is not None:
                with contextlib.suppress(OSError):
                    row.image.path.unlink()

    def _store(self, data: bytes, number: int) -> Row:
        try:
            decoded_bytes(data, f"images.{number}", least_side=_LEAST_SIDE)
        except ImageError as error:
            raise invalid(str(error)) from None
        # The same picture may be in two requests, and the first to be answered removes its own file only.
        path = self._made_folder() / f"{secrets.token_hex(8)}{ending_of(data)}"
        path.write_bytes(data)
        image = Image(digest_of(data), path)
        return Row(image.reference, image)

    def _made_folder(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="adamab-serve-"))
            return self._folder
