"""`adamab init`: a commented task file to fill in."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from adamab.cli.console import echo, make_folder
from adamab.errors import TaskError, place

FILE_NAME = "task.yaml"


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put it; made if need be.")],
) -> None:
    """Write a commented task file that can be fitted at once and then filled in."""
    from importlib.resources import files

    path = directory / FILE_NAME
    template = files("adamab.task").joinpath("template.yaml").read_text("utf-8")
    make_folder(directory)
    try:
        with open(path, "x", encoding="utf-8") as stream:
            stream.write(template)
    except FileExistsError:
        raise TaskError(f"{place(path)}: is there already and stays as it is; name another folder") from None
    except OSError as error:
        with contextlib.suppress(OSError):  # what is half written would stand in the way of the next try
            path.unlink(missing_ok=True)
        reason = error.strerror or error
        raise TaskError(
            f"{place(path)}: cannot be written ({reason}); name a directory where you may write"
        ) from None
    echo(f"wrote {path}; fill it in, then: adamab fit {path} --run {directory / 'run'}")
