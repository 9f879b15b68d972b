"""An output file that grows beside its name and takes it when all is written; a second start goes on with it.

`.NAME.partial` holds the rows, `.NAME.partial.json` says of what they are and how many bytes of them count.
The second is written after the first is on the disk, so a killed process costs one chunk at most.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from adamab.cli.console import say
from adamab.cli.prediction_files import row_writer
from adamab.errors import TaskError
from adamab.task.messages import place


class ResumedFile:
    """Rows of `identity` (input, model, question); `done` rows of the input were dealt with before."""

    def __init__(self, output: Path, kind: str, identity: Mapping[str, Any] | None) -> None:
        self._shown, self._kind = output, kind
        self._identity = None if identity is None else json.loads(json.dumps(identity))
        self._target = Path(os.path.realpath(output))  # a link stays a link
        self._partial = self._target.with_name(f".{self._target.name}.partial")
        self._state_file = self._partial.with_name(f"{self._partial.name}.json")
        self.book = self._partial.with_name(f"{self._partial.name}.db")  # of paid calls
        state = self._state()
        self._columns: list[str] = state.get("columns", [])
        self._bytes: int = state.get("bytes", 0)
        self.done: int = state.get("done", 0)

    def _state(self) -> dict[str, Any]:
        """What an earlier start has left, if it is of the same identity."""
        try:
            state: dict[str, Any] = json.loads(self._state_file.read_text(encoding="utf-8"))
            whole = self._partial.stat().st_size >= state["bytes"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        if self._identity is None or not whole or state.get("identity") != self._identity:
            say(f"note: {self._shown}: an unfinished file of another input, model or question is begun anew")
            return {}
        return state

    @contextmanager
    def opened(self) -> Iterator[ResumedFile]:
        """Write inside it; at the end the file has its name. What goes wrong leaves what is worth keeping."""
        try:
            with open(self._partial, "ab") as stream:
                _lock(stream, self._shown)
                with self._cleaned():
                    yield self._begun(stream)
                os.replace(self._partial, self._target)
                self._state_file.unlink(missing_ok=True)
                self.book.unlink(missing_ok=True)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise TaskError(f"{place(self._shown)}: cannot be written ({error.strerror or error})") from None

    def _begun(self, stream: BinaryIO) -> ResumedFile:
        if not self.done:
            self._state_file.unlink(missing_ok=True)
        stream.truncate(self._bytes)
        self._stream = stream
        self._write = row_writer(self._kind, stream, self._columns)
        return self

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """What holds no finished chunk is not worth keeping."""
        try:
            yield
            self._stream.flush()
        except BaseException:
            if not self._state_file.exists():
                self._partial.unlink(missing_ok=True)
            raise

    def put(self, rows: Sequence[dict[str, Any]], consumed: int) -> None:
        """Answers of the next `consumed` rows of the input."""
        for row in rows:
            self._write(row)
        self.done += consumed
        if self._identity is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._note(self._stream.tell())

    def _note(self, size: int) -> None:
        state = {"identity": self._identity, "done": self.done, "bytes": size, "columns": self._columns}
        temporary = self._state_file.with_name(f"{self._state_file.name}.tmp")
        temporary.write_text(json.dumps(state), encoding="utf-8")
        os.replace(temporary, self._state_file)


def _lock(stream: BinaryIO, shown: Path) -> None:
    """Two processes must not write one file; the lock falls with its process."""
    with suppress(ImportError):  # not on Windows
        import fcntl

        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TaskError(f"{place(shown)}: another process is writing it; wait for that one") from None
