"""`--engine`, `--address` and `--jobs`: who works out the cells of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from adamab.study.engines import Engine

EngineName = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="local (processes of this machine) or ray (Ray tasks)."),
]
Address = Annotated[
    str | None,
    typer.Option(metavar="ADDR", help="Of a Ray cluster that is there; a local one is started if not given."),
]
Jobs = Annotated[
    int,
    typer.Option(min=0, max=64, metavar="N", help="Processes, or processors of a local Ray; 0 is this one."),
]


def engine_of(name: str, address: str | None, jobs: int) -> Engine:
    """What the three options say together; refuses what does not go together."""
    from adamab.errors import RecipeError
    from adamab.study.engines import Engine
    from adamab.task.messages import short

    if name not in ("local", "ray"):
        raise RecipeError(f"--engine {short(name)} is unknown; choose local or ray")
    if name == "local" and address is not None:
        raise RecipeError("--address is that of a Ray cluster; add --engine ray or leave it out")
    if name == "ray" and jobs == 0:
        raise RecipeError("--jobs 0 is this process, and Ray has its own; leave out --jobs or --engine ray")
    return Engine("ray" if name == "ray" else "local", jobs, address)
