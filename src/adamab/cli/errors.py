"""From exceptions to exit codes: one line for what a user can fix, a traceback for a bug.

    0    done
    1    `predict --strict` found rows without an answer
    2    something the user can fix: one line on stderr
    130  stopped by Ctrl-C
    141  whoever read our output has closed it, as `head` does

`ADAMAB_DEBUG=1` shows the traceback of everything.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import typer

from adamab.cli.console import say, standard_output
from adamab.errors import AdamabError, MissingExtraError, StoppedError, one_line

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient

USER_ERROR, STOPPED, PIPE_CLOSED = 2, 130, 141


def exit_code(run: Callable[[], object]) -> int:
    """Run a command, say in one line what went wrong, and return the code to exit with."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            result = run()
            with standard_output():
                sys.stdout.flush()  # a full disk or a closed pipe shows up here, not at interpreter exit
            if result == STOPPED:
                raise KeyboardInterrupt
            return result if isinstance(result, int) else 0
        except typer.Exit as end:
            return end.exit_code
        except BaseException as error:
            code, message = _diagnosis(error)
            if isinstance(error, Exception) and os.environ.get("ADAMAB_DEBUG"):
                import traceback

                traceback.print_exc()
            if code is None:
                raise
            if message:
                say(one_line(f"adamab: {message}"))
            _drop_output()
            return code


def _diagnosis(error: BaseException) -> tuple[int | None, str]:
    """The code to exit with and the line to print; no code for a bug."""
    if isinstance(error, (KeyboardInterrupt, typer.Abort, StoppedError)):
        return STOPPED, str(error) or "stopped"
    if isinstance(error, (SystemExit, BrokenPipeError)):  # typer's way of dealing with a closed pipe
        return PIPE_CLOSED, ""
    if isinstance(error, AdamabError):
        return USER_ERROR, str(error)
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return USER_ERROR, f"{error.filename}: {reason}" if error.filename is not None else reason
    if hasattr(error, "format_message"):  # what all usage errors of typer and click have
        context = getattr(error, "ctx", None)
        command = "adamab" if context is None else context.command_path
        message = " ".join(error.format_message().split())
        command = command.replace("{", "").replace("}", "")  # around the arguments of a group
        return USER_ERROR, f"{message.rstrip('.')}; see: {command} --help"
    return None, ""


def _drop_output() -> None:
    """What is still in a buffer that cannot be written must not complain at interpreter exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    bomb = type(message).__name__ == "DecompressionBombWarning"  # Pillow's; such an image is refused anyway
    # Ctrl-C came before work that was just made.
    unasked = isinstance(message, RuntimeWarning) and str(message).endswith("was never awaited")
    if not (bomb or unasked):
        say(one_line(f"adamab: warning: {message}"))


# Missing packages, reported before anything heavy is imported and with the one pip line that is enough.

_NEEDING_TORCH = {"st": "st", "clip": "clip", "timm": "timm"}  # embedder -> extra


def need_modules(modules: Mapping[str, str], extra: str) -> None:
    """Refuse to go on without one of them, with the line that installs all."""
    for module, what in modules.items():
        if find_spec(module) is None:
            raise MissingExtraError(what, extra)


def need_torch_for(embedder: str) -> None:
    """Refuse an embedder that runs a model in torch where there is none, with the line that installs both."""
    name = embedder.partition("?")[0].partition(":")[0]
    if name in _NEEDING_TORCH and find_spec("torch") is None:
        raise MissingExtraError("PyTorch", _NEEDING_TORCH[name])


# Ctrl-C during a fit or an experiment: the calls on their way are paid for, so they are waited for.


@contextmanager
def stop_gently(apis: Sequence[ApiClient | None] | None) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets while calls are on their way; the second stops at once.

    Where no call is on its way there is nothing to lose, and the first stops at once too. None means that
    somebody is called and it is not known who: then a call may always be on its way. It ends as a
    `StoppedError` in any case: of a KeyboardInterrupt typer would drop the words.
    """
    stop = threading.Event()

    def interrupt(number: int, frame: Any) -> None:
        calling = apis is None or any(api is not None and api.active for api in apis)
        if stop.is_set() or not calling:
            raise KeyboardInterrupt
        stop.set()
        say("stopping after the current call; Ctrl-C again stops at once and may lose it")

    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals are the main thread's
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    except KeyboardInterrupt as end:
        raise StoppedError(str(end) or "stopped") from None
    finally:
        signal.signal(signal.SIGINT, before)
