"""What people see: notes and progress on stderr, results on stdout, tables without colour when piped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from adamab.display import Bar as Bar
from adamab.display import progress as progress
from adamab.errors import TaskError, place


@contextmanager
def standard_output() -> Iterator[None]:
    """Around whatever writes to stdout, so that an error says where it happened."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = "standard output"
        raise


def echo(text: str) -> None:
    """A line of the result, on stdout."""
    with standard_output():
        typer.echo(text)


def say(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    typer.echo(text, err=True)


def say_passed_over(source: str) -> None:
    """Tell of files in a folder of images that may be images and are not read."""
    from adamab.task.image_folders import passed_over

    if os.path.isdir(source) and (others := passed_over(Path(source))):
        named = ", ".join(f"{ending} {count}" for ending, count in others.most_common())
        say(f"note: {source}: passed over {counted(others.total(), 'file')} that may be images ({named})")


def show_help(context: typer.Context) -> None:
    """The help of a group that was called without a command."""
    if text := context.get_help():  # with rich, typer has printed it and returns nothing
        echo(text)
    raise typer.Exit


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    echo(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table on stdout; a column whose header ends in `#` is aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        right = column.endswith("#")
        table.add_column(column.rstrip("#"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))  # Text: brackets in names are no markup
    with standard_output():
        Console(highlight=False).print(table)


def counted(count: int, noun: str) -> str:
    """`1 round`, `2 rounds`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def percent(share: float) -> str:
    """`62.5 %`."""
    return f"{100 * share:.1f} %"


def size(count: int) -> str:
    """`1.5 kB`, `2.0 MB`."""
    from rich.filesize import decimal

    return decimal(count)


# Directories that a command writes into.


def make_folder(path: Path, purpose: str = "") -> None:
    """The directory, made if need be; `purpose` ends the advice where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if os.path.exists(path):
            raise TaskError(f"{place(path)}: is a file; name a directory{purpose}") from None
        reason = error.strerror or error
        raise TaskError(
            f"{place(path)}: cannot be made ({reason}); name a directory{purpose} where you may write"
        ) from None
