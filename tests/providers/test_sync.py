"""Coroutines from synchronous code, with and without a running loop."""

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from adamab.providers.async_bridge import run_sync


async def answer(value=42):
    await asyncio.sleep(0)
    return value


async def fail():
    raise LookupError("inside")


def test_without_a_loop():
    assert run_sync(answer()) == 42
    with pytest.raises(LookupError, match="inside"):
        run_sync(fail())


async def test_inside_a_running_loop_with_its_context_variables():
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)

    async def read():
        return variable.get()

    assert run_sync(read()) == 7


async def test_ctrl_c_cancels_the_work():
    started, cancelled = threading.Event(), threading.Event()

    async def endless():
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt():
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


async def test_an_interrupt_inside_the_work_is_passed_on():
    async def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sync(interrupted())


def test_synchronous_code_inside_a_coroutine_may_do_the_same():
    async def outer():
        return run_sync(answer(7))

    assert run_sync(outer()) == 7


def test_a_fork_starts_its_own_loop():
    assert run_sync(answer()) == 42  # the parent's loop is there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested
        child = os.fork()
    if child == 0:
        os._exit(run_sync(answer(5)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def test_what_is_under_way_when_the_interpreter_ends_is_given_up_in_silence():
    """A generator that a request reads from cannot be closed before the request is given up."""
    script = """if True:
        import asyncio, threading
        from adamab.providers.async_bridge import run_sync

        reading = threading.Event()

        async def ticks():
            reading.set()
            while True:
                await asyncio.sleep(3600)
                yield 1

        async def endless():
            async for _ in ticks():
                pass

        threading.Thread(target=lambda: run_sync(endless()), daemon=True).start()
        reading.wait()
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
