"""Finished cells in a file of one JSON line each, so that a study can be taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from adamab.errors import RunError
from adamab.task.messages import place


class KeyedRow(Protocol):
    """A line of the file; its key says what it depends on."""

    @property
    def key(self) -> str:
        """What it is found by."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""


R = TypeVar("R", bound=KeyedRow)


class RowFile(Generic[R]):
    """The file. Rows of other studies, data or settings have other keys and are simply not asked for.

    A line that was cut off is the work of a process that was killed: its cell is measured again.
    """

    def __init__(self, path: Path, read: Callable[[dict[str, Any]], R], option: str) -> None:
        self.path, self._option = path, option  # the option that names its folder
        self.known = {row.key: row for row in self._read(read)}

    def add(self, row: R) -> None:
        """Keep one row, on the disk before anything else happens."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row.to_json()) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(
                f"{place(self.path)}: cannot be written ({error.strerror}); what is in it is kept: run the "
                "same command again to go on"
            ) from None
        self.known[row.key] = row

    def _read(self, read: Callable[[dict[str, Any]], R]) -> Iterator[R]:
        try:
            content = whole_lines(self.path)
        except OSError as error:
            raise RunError(
                f"{place(self.path)}: cannot be read ({error.strerror}); see {self._option}"
            ) from None
        for line in content.splitlines():
            try:
                yield read(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue


def whole_lines(path: Path) -> bytes:
    """The content without a last line that was cut off, which is taken off the file too."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return content[:whole]
