"""From exceptions to exit codes: one line for what a user can mend, a traceback for a bug.

    0    done
    2    something the user can mend: one line on stderr
    130  stopped by Ctrl-C
    141  whoever read our output has closed it, as `head` does

`ADAMAB_DEBUG=1` shows the traceback of everything.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

import typer

from adamab.cli.console import say, standard_output
from adamab.errors import AdamabError, StoppedError
from adamab.run import torch_required

USER_ERROR, STOPPED, PIPE_CLOSED = 2, 130, 141


def exit_code(run: Callable[[], object]) -> int:
    """Run a command, say in one line what went wrong, and return the code to exit with."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return _run(run)
        except (KeyboardInterrupt, typer.Abort) as end:
            return _told(str(end) or "stopped", STOPPED)
        except StoppedError as end:
            return _told(str(end), STOPPED)
        except (SystemExit, BrokenPipeError):  # typer's way of dealing with a closed pipe
            return _quiet_end()
        except AdamabError as error:
            return _told(str(error), USER_ERROR)
        except OSError as error:
            return _told(_os_error(error), USER_ERROR)
        except typer.Exit as end:
            return end.exit_code
        except Exception as error:
            if not hasattr(error, "format_message"):  # what all usage errors of typer and click have
                raise
            return _told(_usage_error(error), USER_ERROR)


def _run(run: Callable[[], object]) -> int:
    try:
        with torch_required():
            code = run()
        with standard_output():
            sys.stdout.flush()  # a full disk or a closed pipe shows up here, not at interpreter exit
    except Exception:
        if os.environ.get("ADAMAB_DEBUG"):
            _traceback()
        raise
    if code == STOPPED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _traceback() -> None:
    import traceback

    traceback.print_exc()


def _told(message: str, code: int) -> int:
    _say(f"adamab: {message}")
    _drop_output()
    return code


def _quiet_end() -> int:
    _drop_output()
    return PIPE_CLOSED


def _drop_output() -> None:
    """What is still in a buffer that cannot be written must not complain at interpreter exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _usage_error(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    command = "adamab" if context is None else context.command_path
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    return f"{message.rstrip('.')}; see: {command} --help"


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    bomb = type(message).__name__ == "DecompressionBombWarning"  # Pillow's; such a picture is refused anyway
    # Ctrl-C came before work that was just made.
    unasked = isinstance(message, RuntimeWarning) and str(message).endswith("was never awaited")
    if not (bomb or unasked):
        _say(f"adamab: warning: {message}")


def _say(text: str) -> None:
    from adamab.task.messages import one_line  # the room of tasks costs --help more than it needs

    say(one_line(text))
