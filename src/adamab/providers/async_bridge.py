"""Running coroutines from synchronous code: one event loop per process, in a thread of its own.

Connections belong to the loop they were opened in, and calls that run ahead must go on while the
main thread trains. So the loop outlives a single call; it works inside a running loop (Jupyter) too.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_ending = False  # the interpreter: work that is given up is not reported


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` to its end, in a copy of the thread's context, and return what it returns.

    Example:
        >>> async def answer() -> int:
        ...     return 42
        >>> run_sync(answer())
        42
    """
    global _loop, _thread
    if threading.current_thread() is _thread:
        # Synchronous code inside a coroutine of ours cannot wait for the loop it keeps from running.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, coroutine).result()
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="adamab-io", daemon=True)
            _thread.start()
    ended: Future[T] = Future()
    started: list[asyncio.Task[Any] | None] = []
    interrupted = threading.Event()

    async def main() -> None:
        # Whatever it raises is for the waiting thread; a KeyboardInterrupt must not end the loop.
        try:
            started.append(asyncio.current_task())
            if interrupted.is_set():  # before it could start: nobody waits for it
                coroutine.close()
                return
            ended.set_result(await coroutine)
        except BaseException as error:
            # A daemon thread that waits at the end would print a traceback: it is left waiting.
            if not _ending:
                ended.set_exception(error)

    try:
        asyncio.run_coroutine_threadsafe(main(), _loop)
        return ended.result()
    except KeyboardInterrupt:
        # Ctrl-C reaches the waiting thread only, at any moment: the work has to be cancelled.
        interrupted.set()
        for task in started:
            if task is not None:
                _loop.call_soon_threadsafe(task.cancel)
            with contextlib.suppress(BaseException):
                ended.result()
        raise


def _end() -> None:
    """Close connections when the interpreter ends; what is still on its way is given up, in silence.

    Work that does not let itself be cancelled delays the end by up to two seconds.
    """
    global _ending
    _ending = True
    if _loop is None or _thread is None or not _thread.is_alive():
        return
    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(_give_up_all(_loop), _loop).result(2)
    _loop.call_soon_threadsafe(_loop.stop)
    _thread.join(2)
    if not _loop.is_running():
        _loop.close()


atexit.register(_end)


async def _give_up_all(loop: asyncio.AbstractEventLoop) -> None:
    loop.set_exception_handler(lambda *_: None)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)  # a generator in use cannot be closed
    await loop.shutdown_asyncgens()


def _after_fork() -> None:
    """A child has the loop's memory but not its thread: it starts a new one."""
    global _loop, _lock, _thread
    _loop, _lock, _thread = None, threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)
