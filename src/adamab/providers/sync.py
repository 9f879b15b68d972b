"""Running a coroutine from synchronous code, wherever that code runs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` to its end and return what it returns, also inside a running loop (Jupyter).

    Example:
        >>> async def answer() -> int:
        ...     return 42
        >>> run_sync(answer())
        42
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return _run_in_thread(coroutine)


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """A running loop cannot be entered twice, so the coroutine gets a loop of its own, in a thread."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    interrupted = threading.Event()
    outcome: Future[T] = Future()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        if interrupted.is_set():
            task.cancel()
        return await coroutine

    def work() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:  # handed over to the waiting thread, whatever it is
            outcome.set_exception(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name="adamab-sync", daemon=True)
    try:
        thread.start()
        return outcome.result()
    except KeyboardInterrupt:
        # Ctrl-C reaches the waiting thread only: the work has to be told.
        interrupted.set()
        for loop, task in running:
            with contextlib.suppress(RuntimeError):  # the loop closed in this very moment
                loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        with contextlib.suppress(RuntimeError):  # interrupted before the thread had started
            thread.join()
