"""Ctrl-C during a fit: the calls on their way are paid for, so they are waited for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from adamab.cli.console import say
from adamab.errors import StoppedError

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient


@contextmanager
def stop_gently(apis: Sequence[ApiClient | None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets while calls are on their way; the second stops at once.

    Where no call is on its way there is nothing to lose, and the first stops at once too. Either way
    it ends as a `StoppedError`: of a KeyboardInterrupt typer would drop the words.
    """
    stop = threading.Event()

    def told(number: int, frame: Any) -> None:
        if stop.is_set() or not any(api is not None and api.active for api in apis):
            raise KeyboardInterrupt
        stop.set()
        say("stopping after the current call; Ctrl-C again stops at once and may lose it")

    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals are the main thread's
        return
    before = signal.signal(signal.SIGINT, told)
    try:
        yield stop
    except KeyboardInterrupt as end:
        raise StoppedError(str(end) or "stopped") from None
    finally:
        signal.signal(signal.SIGINT, before)
