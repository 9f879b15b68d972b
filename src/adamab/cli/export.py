"""`adamab export`: a run's classifier as an ONNX file, or as a folder for the Hub."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adamab.cli.console import echo, print_json, say, size
from adamab.cli.options import Model


class Format(StrEnum):
    """What a run can be exported as."""

    onnx = "onnx"
    hub = "hub"


def export(
    run: Model,
    kind: Annotated[
        Format,
        typer.Option(
            "--format",
            help="onnx: takes texts without adamab (local, onnx-text), else vectors; hub: the model.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="A folder; else RUN-FORMAT beside the run."),
    ] = None,
    licence: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="For the model card, such as apache-2.0.")
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="To check with, instead of the one that the model names."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of an earlier export.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Take a classifier along: write it in another format, with a model card, and check what was written.

    Nothing is embedded by an API for the check, and nothing is uploaded.
    """
    from adamab.errors import one_line
    from adamab.publish.export import export as write

    done = write(run, kind.value, output, licence=licence, embedder=embedder, overwrite=overwrite)
    for note in done.notes:
        say(f"note: {note}")
    if as_json:
        print_json(asdict(done))
        return
    files = ", ".join(f"{name} ({size(count)})" for name, count in done.files.items())
    echo(one_line(f"wrote {files} into {done.folder}"))
    inputs = ", ".join(f"{view} ({width} wide)" for view, width in done.inputs.items())
    echo(one_line(f"{done.classes} classes; views: {inputs}"))
    worst = done.largest_difference
    echo(f"checked: {done.checked}" + (f"; largest difference {worst:.1e}" if worst else ""))
