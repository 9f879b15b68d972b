"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run `adamab` with the arguments of the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show é is no error
    from typer.main import get_command

    from adamab.cli.app import app

    get_command(app)(prog_name="adamab")
