"""`--engine`, `--address` and `--jobs`: who works out the cells of a study, or predicts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.errors import RecipeError

if TYPE_CHECKING:
    from adamab.study.engines import Engine

EngineName = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="local (processes of this machine) or ray (Ray tasks)."),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR",
        help="HOST:PORT of a Ray cluster that is there, or RAY_ADDRESS says it; else one is started here.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(min=0, max=64, metavar="N", help="Processes, or processors of a local Ray; 0 is this one."),
]


def engine_of(name: str, address: str | None, jobs: int) -> Engine:
    """What the three options say together; refuses what does not go together."""
    from adamab.study.engines import Engine

    found = ray_address(name, address)
    if name == "ray" and jobs == 0:
        raise RecipeError("--jobs 0 is this process, and Ray has its own; leave out --jobs or --engine ray")
    return Engine("ray" if name == "ray" else "local", jobs, found)


def ray_address(engine: str, address: str | None) -> str | None:
    """Where Ray is; None if it has to be started, or if nobody asks for it."""
    from adamab.task.messages import short

    if engine not in ("local", "ray"):
        raise RecipeError(f"--engine {short(engine)} is unknown; choose local or ray")
    if engine == "ray":
        return address or os.environ.get("RAY_ADDRESS") or None
    if address is not None:
        raise RecipeError("--address is that of a Ray cluster; add --engine ray or leave it out")
    return None
