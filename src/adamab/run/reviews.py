"""What people think of a run's synthetic samples: one line a verdict, the last one counts.

The file is only ever added to, so the page may write while a fit runs; the next fit follows it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from adamab.errors import RunError
from adamab.task.messages import one_line, place
from adamab.task.words import folded

FILE_NAME = "reviews.jsonl"
Verdict: TypeAlias = Literal["accept", "reject", "none"]  # none takes a verdict back
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Reviews:
    """The verdicts on the samples of the run in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME

    def add(self, text: str, class_name: str, verdict: Verdict) -> None:
        """Write a verdict down; returns when it is on the disk."""
        row = {"at": round(time.time(), 3), "label": class_name, "text": text, "verdict": verdict}
        line = (json.dumps(row) + "\n").encode()  # ASCII: a line stays a line whatever the text holds
        try:
            file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                os.write(file, self._after_a_torn_line() + line)  # at once, so that two writers do not mix
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise RunError(
                f"{place(self.path)}: cannot be written ({one_line(error.strerror or error)})"
            ) from None

    def verdicts(self) -> dict[str, Verdict]:
        """Folded text -> its last verdict."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RunError(
                f"{place(self.path)}: cannot be read ({one_line(error.strerror or error)})"
            ) from None
        found: dict[str, Verdict] = {}
        for line in lines:
            try:
                row = json.loads(line)
                key, verdict = folded(row["text"]), row["verdict"]
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # the line of a process that was killed while it wrote
            if verdict in VERDICTS:
                found[key] = verdict
        return found

    def _after_a_torn_line(self) -> bytes:
        with open(self.path, "rb") as stream:
            if stream.seek(0, os.SEEK_END) == 0:
                return b""
            stream.seek(-1, os.SEEK_END)
            return b"" if stream.read(1) == b"\n" else b"\n"
