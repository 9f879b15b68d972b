"""How much of the package the simplest fit passes through: `adamab init`, then `adamab fit`, nothing else.

A function counts, once, when it is called, be it while a module is imported. The bodies of modules and
classes, lambdas, comprehensions and generator expressions are no functions, nor is what `dataclass` and the
like write. A module counts when one of its functions does.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from benchmarks.report import Figure, Group, Table
from benchmarks.size import PACKAGE, ROOT, room_of

MODULES_BAR, FUNCTIONS_BAR, FITS_BAR = 55, 300, 3
COMMANDS = (["init", "small"], ["fit", "small/task.yaml", "--run", "run"])


class Function(NamedTuple):
    """A function by the place of its code."""

    file: str
    line: int
    qualified_name: str

    @property
    def is_fit(self) -> bool:
        """Whether its name starts with fit or _fit."""
        return self.qualified_name.rpartition(".")[2].startswith(("fit", "_fit"))

    def row(self) -> list[str]:
        """Its module and its name."""
        return [f"{Path(self.file).relative_to(PACKAGE)}:{self.line}", self.qualified_name]


def run(*, list_all: bool = False) -> Group:
    """Count in a process of its own, where nothing is imported yet; `list_all` adds all functions."""
    functions, imported = _called()
    rooms: dict[str, list[Function]] = {}
    for function in functions:
        rooms.setdefault(room_of(Path(function.file)), []).append(function)
    rows = [_row(room, called) for room, called in sorted(rooms.items())]
    fits = [function.row() for function in functions if function.is_fit]
    tables = [
        Table("Called by room", ["room", "modules", "functions"], [*rows, _row("in all", functions)]),
        Table("Functions called fit or _fit something", ["module", "function"], fits),
    ]
    if list_all:
        tables.append(Table("All of them", ["module", "function"], [each.row() for each in functions]))
    figures = [
        Figure(
            "modules that the simplest fit runs through",
            len(_files(functions)),
            MODULES_BAR,
            note=f"{imported} are imported",
        ),
        Figure("functions that the simplest fit calls", len(functions), FUNCTIONS_BAR),
        Figure("of these called fit or _fit something", len(fits), FITS_BAR),
    ]
    return Group(figures, tables)


def _called() -> tuple[list[Function], int]:
    """The functions, and how many modules of the package were imported."""
    with tempfile.TemporaryDirectory() as folder:
        places = os.pathsep.join([str(PACKAGE.parent), str(ROOT)])  # this tree, whichever is installed
        environment = {**os.environ, "PYTHONPATH": places, "ADAMAB_CACHE": str(Path(folder, "cache"))}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.walk"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    functions, imported = json.loads(done.stdout)
    return [Function(*each) for each in functions], imported


def _files(functions: list[Function]) -> set[str]:
    return {function.file for function in functions}


def _row(name: str, functions: list[Function]) -> list[str]:
    return [name, str(len(_files(functions))), str(len(functions))]


def watch_commands() -> list[Function]:
    """Run the commands here and gather the functions of the package that they call, in any thread."""
    called: set[Function] = set()
    package = str(PACKAGE) + os.sep

    def watch(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(package):
            called.add(Function(code.co_filename, code.co_firstlineno, code.co_qualname))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        for command in COMMANDS:
            _run_command(command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(called)


def _run_command(arguments: list[str]) -> None:
    from adamab.cli import main

    sys.argv = ["adamab", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        functions = watch_commands()
    imported = [name for name in sys.modules if name.partition(".")[0] == PACKAGE.name]
    print(json.dumps([functions, len(imported)]))
