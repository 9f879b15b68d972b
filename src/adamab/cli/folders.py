"""Directories that a command writes into."""

from __future__ import annotations

import os
from pathlib import Path

from adamab.errors import TaskError
from adamab.task.messages import place


def make_folder(path: Path, purpose: str = "") -> None:
    """The directory, made if need be; `purpose` ends the advice where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if os.path.exists(path):
            raise TaskError(f"{place(path)}: is a file; name a directory{purpose}") from None
        reason = error.strerror or error
        raise TaskError(
            f"{place(path)}: cannot be made ({reason}); name a directory{purpose} where you may write"
        ) from None
