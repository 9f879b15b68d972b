"""An output file that grows beside its name and takes it when all is written; a second start goes on with it.

`.NAME.partial` holds the rows, `.NAME.partial.json` says of what they are and how many bytes of them count.
The second is written after the first is on the disk, so a killed process costs one chunk at most.
`.NAME.partial.db` counts the paid calls of the same job. Whoever holds the lock on the first owns all three.
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

_OF_A_BOOK = ("", "-wal", "-shm")  # the last two where a process was killed


class ResumedFile:
    """Rows of `identity` (input, model, question), or of what cannot be read twice (None)."""

    def __init__(self, output: Path, kind: str, identity: Mapping[str, Any] | None) -> None:
        self._shown, self._kind = output, kind
        self._identity = None if identity is None else json.loads(json.dumps(identity))
        self._target = Path(os.path.realpath(output))  # a link stays a link
        self._partial = self._target.with_name(f".{self._target.name}.partial")
        self._state_file = self._partial.with_name(f"{self._partial.name}.json")
        self._new_state = self._partial.with_name(f"{self._partial.name}.json.tmp")
        self._book = self._partial.with_name(f"{self._partial.name}.db")
        self._columns: list[str] = []
        self.done = 0  # rows of the input that earlier starts have dealt with, and this one

    @property
    def book(self) -> Path | None:
        """Where paid calls are counted; None where no later start could go on with them."""
        return None if self._identity is None else self._book

    @contextmanager
    def opened(self) -> Iterator[ResumedFile]:
        """Write inside it; at the end the file has its name. What goes wrong leaves what is worth keeping."""
        with self._told():
            stream = self._locked()
        try:
            with self._told():
                self._begin(stream)
            yield self
            with self._told():
                self._finish()
        except BaseException:
            self._abandon()
            raise
        finally:
            with suppress(OSError):  # a full disk has been told
                stream.close()

    def put(self, rows: Sequence[dict[str, Any]], consumed: int) -> None:
        """Answers of the next `consumed` rows of the input."""
        with self._told():
            for row in rows:
                self._write(row)
            if self._identity is not None:
                self._stream.flush()
                os.fsync(self._stream.fileno())
                self._note(self.done + consumed, self._stream.tell())
        self.done += consumed

    def _locked(self) -> BinaryIO:
        """The partial file, for this process alone.

        Whoever had it until now may have given it its name or removed it; then the lock is on a file that
        is another by now.
        """
        while True:
            stream = open(self._partial, "ab")  # noqa: SIM115  # `opened` closes it
            try:
                _lock(stream, self._shown)
                if _is_at(stream, self._partial):
                    return stream
            except BaseException:
                stream.close()
                raise
            stream.close()

    def _begin(self, stream: BinaryIO) -> None:
        """Go on with what an earlier start has left, if it is of the same identity."""
        state = self._state(os.fstat(stream.fileno()).st_size)
        self._columns, self.done = state.get("columns", []), state.get("done", 0)
        stream.truncate(state.get("bytes", 0))
        self._stream = stream
        self._write = row_writer(self._kind, stream, self._columns)
        if not state:
            self._forget()
            if self._identity is not None:  # or a book would not say whose it is
                self._note(0, 0)

    def _state(self, size: int) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._state_file.read_text(encoding="utf-8"))
            whole = size >= state["bytes"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        if self._identity is None or not whole or state.get("identity") != self._identity:
            say(f"note: {self._shown}: an unfinished file of another input, model or question is begun anew")
            return {}
        return state

    def _note(self, done: int, size: int) -> None:
        state = {"identity": self._identity, "done": done, "bytes": size, "columns": self._columns}
        with self._new_state.open("w", encoding="utf-8") as file:
            file.write(json.dumps(state))
            file.flush()
            os.fsync(file.fileno())  # or the book would be forgotten with a state that is cut off
        os.replace(self._new_state, self._state_file)

    def _finish(self) -> None:
        self._stream.flush()
        self._forget()  # before the name is given, which lets the next one in
        os.replace(self._partial, self._target)

    def _abandon(self) -> None:
        """What holds neither a finished chunk nor a paid call is not worth keeping."""
        if self._identity is not None and (self.done or self._book.exists()):
            return
        with suppress(OSError):
            self._forget()
            self._partial.unlink(missing_ok=True)

    def _forget(self) -> None:
        """State and book are of one job."""
        books = [self._book.with_name(f"{self._book.name}{ending}") for ending in _OF_A_BOOK]
        for path in (self._new_state, self._state_file, *books):
            path.unlink(missing_ok=True)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TaskError(f"{place(self._shown)}: cannot be written ({error.strerror or error})") from None


def _lock(stream: BinaryIO, shown: Path) -> None:
    """Two processes must not write one file; the lock falls with its process."""
    with suppress(ImportError):  # not on Windows
        import fcntl

        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TaskError(f"{place(shown)}: another process is writing it; wait for that one") from None


def _is_at(stream: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
