"""Ctrl-C during a fit or an experiment: the calls on their way are paid for, so they are waited for."""

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
def stop_gently(apis: Sequence[ApiClient | None] | None) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets while calls are on their way; the second stops at once.

    Where no call is on its way there is nothing to lose, and the first stops at once too. None means that
    somebody is called and it is not known who: then a call may always be on its way. It ends as a
    `StoppedError` in any case: of a KeyboardInterrupt typer would drop the words.
    """
    stop = threading.Event()

    def told(number: int, frame: Any) -> None:
        calling = apis is None or any(api is not None and api.active for api in apis)
        if stop.is_set() or not calling:
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
