"""Coroutines from synchronous code, with and without a running loop."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading

import pytest

from adamab.providers.sync import run_sync


async def answer(value: int = 42) -> int:
    await asyncio.sleep(0)
    return value


async def fail() -> None:
    raise LookupError("inside")


def test_without_a_loop() -> None:
    assert run_sync(answer()) == 42
    with pytest.raises(LookupError, match="inside"):
        run_sync(fail())


async def test_inside_a_running_loop() -> None:
    assert run_sync(answer()) == 42
    with pytest.raises(LookupError, match="inside"):
        run_sync(fail())


async def test_context_variables_are_seen() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)

    async def read() -> int:
        return variable.get()

    assert run_sync(read()) == 7


async def test_ctrl_c_cancels_the_work() -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt() -> None:
        started.wait()
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    # asyncio's own runner replaces the handler; Jupyter and plain scripts have this one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    helper = threading.Thread(target=interrupt)
    helper.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_sync(endless())
    finally:
        helper.join()
        signal.signal(signal.SIGINT, before)
    assert cancelled.is_set()


async def test_an_interrupt_inside_the_work_is_passed_on() -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sync(interrupted())


async def test_an_interrupt_before_the_work_began(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    start = threading.Thread.start

    def interrupted_start(thread: threading.Thread) -> None:
        if thread.name != "adamab-sync":
            return start(thread)
        go = threading.Event()
        target, thread.run = thread.run, lambda: (go.wait(), target())  # type: ignore[method-assign]
        start(thread)
        threading.Timer(0.1, go.set).start()
        raise KeyboardInterrupt

    async def work() -> None:
        await asyncio.sleep(0)
        begun.append(True)

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        run_sync(work())
    assert not begun
