"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run `adamab` with the arguments of the process."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Whoever closed a stream (`>&-`) wants nothing of it; the null device also keeps its number
            # taken, so that no file which is opened later becomes standard output.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show é is no error
    from typer.main import get_command

    from adamab.cli.app import app

    get_command(app)(prog_name="adamab")
