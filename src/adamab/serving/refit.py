"""A fit that somebody starts on the page: `adamab fit --run RUN` in a process of its own.

Questions are answered meanwhile. The process keeps its answers and choices in the run's journal like any
other fit, so whatever ends it or the server, the next one goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from adamab.errors import clean
from adamab.providers.sqlite_file import is_being_written
from adamab.run.directory import has_journal
from adamab.serving.requests import TOKEN, Refused

_STOPPED, _USER_ERROR = 130, 2  # exit codes of `adamab fit`
_LONGEST = 1000  # characters of its last line
State = Literal["running", "done", "stopped", "failed"]


class Refit:
    """The fit of the run in `directory` that the page has started last, if any; one goes on at a time.

    Args:
        directory: The run's directory.
        log: Called with what goes wrong.
        options: More of `adamab fit`'s, such as an embedder that somebody has named to the server.
    """

    def __init__(self, directory: Path, log: Callable[[str], None], options: Sequence[str] = ()) -> None:
        self._directory, self._log, self._options = directory, log, options
        self._process: asyncio.subprocess.Process | None = None
        self._waiter: asyncio.Task[None] | None = None
        self._state: State | None = None
        self._message: str | None = None
        self._stopping = False  # somebody has asked for it
        self._began = self._ended = 0.0

    @property
    def is_running(self) -> bool:
        """Whether one that was started here has not ended; it may still be on its way to the run's lock."""
        return self._state == "running"

    def view(self) -> dict[str, Any] | None:
        """What the page shows: the state, for how long, and in a line why it failed."""
        if self._state is None:
            return None
        ended = time.monotonic() if self.is_running else self._ended
        seconds = round(ended - self._began, 1)
        return {
            "state": self._state,
            "stopping": self._stopping,
            "seconds": seconds,
            "message": self._message,
        }

    async def start(self, on_end: Callable[[], Awaitable[object]]) -> None:
        """Begin a fit; raises `Refused` where one goes on, here or elsewhere.

        Args:
            on_end: Called when it has ended well.
        """
        if not has_journal(self._directory):
            raise Refused(409, "no_run", "only a model is served here; the page can fit a run again")
        if self._state == "running":
            raise Refused(409, "fitting", "a fit of this run is under way; wait for its end, or stop it")
        if is_being_written(self._directory):
            raise Refused(409, "in_use", "another process is writing this run; wait for its end, or stop it")
        self._state, self._message, self._began = "running", None, time.monotonic()
        self._stopping = False
        # -P: no module is taken from the directory that the server happens to be in.
        command = ("-P", "-m", "adamab", "fit", "--run", os.path.abspath(self._directory), "--quiet")
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                *self._options,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if name != TOKEN},  # the server's
                start_new_session=True,  # Ctrl-C is the server's, which passes it on once
            )
        except OSError as error:
            self._end("failed", f"the fit cannot be started ({error.strerror or error})")
            return
        self._waiter = asyncio.get_running_loop().create_task(self._wait(self._process, on_end))

    async def _wait(
        self, process: asyncio.subprocess.Process, on_end: Callable[[], Awaitable[object]]
    ) -> None:
        _, written = await process.communicate()
        said = written.decode(errors="replace").strip()
        last = clean(said.rpartition("\n")[2].removeprefix("adamab: "), _LONGEST)
        if process.returncode == 0:
            await on_end()
            self._end("done", None)
        elif process.returncode == _STOPPED or self._stopping:  # also while Python itself was starting
            self._end("stopped", None)
        elif process.returncode == _USER_ERROR and last:
            self._end("failed", last)
        else:
            self._log(f"the fit ended with code {process.returncode}: {said}")
            self._end("failed", "the fit broke off; the server's output says why")

    def _end(self, state: State, message: str | None) -> None:
        self._state, self._message, self._ended = state, message, time.monotonic()

    def stop(self) -> None:
        """Ask it to end after the calls on their way; raises `Refused` where nothing was started here."""
        if not self.is_running or self._process is None:
            raise Refused(409, "not_fitting", "no fit that was started here is under way")
        self._stopping = True
        with contextlib.suppress(ProcessLookupError):
            if os.name == "posix":
                self._process.send_signal(signal.SIGINT)
            else:
                self._process.terminate()

    def kill(self) -> None:
        """End it at once; what it has bought is in the journal."""
        if self.is_running and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self, seconds: float) -> None:
        """The server ends: so does the fit, gently for so long."""
        if self._waiter is None or self._waiter.done():
            return
        with contextlib.suppress(Refused):
            self.stop()
        await asyncio.wait({self._waiter}, timeout=seconds)
        self.kill()
        await asyncio.wait({self._waiter})
