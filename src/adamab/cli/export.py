"""`adamab export`: a run's classifier as ONNX, NumPy or FAISS files, or as a folder for the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import echo, print_json, say, size
from adamab.serving.export_metadata import Format

if TYPE_CHECKING:
    from adamab.serving.export import Exported


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a saved model's.")],
    kind: Annotated[
        Format,
        typer.Option(
            "--format",
            help="onnx: vectors in, probabilities out; npz: the arrays; faiss: an index of many classes; "
            "hub: the model itself.",
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
    index: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="FAISS' name of an index, such as HNSW32 or IVF64,Flat:nprobe=8; else Flat, which is exact.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of an earlier export.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Take a classifier along: write it in another format, with a model card, and check what was written.

    Nothing is embedded by an API for the check, and nothing is uploaded.
    """
    from adamab.serving.export import export as write

    done = write(run, kind, output, licence=licence, embedder=embedder, index=index, overwrite=overwrite)
    for note in done.notes:
        say(f"note: {note}")
    if as_json:
        print_json(done.to_json())
    else:
        _print(done)


def _print(done: Exported) -> None:
    from adamab.task.messages import one_line

    files = ", ".join(f"{name} ({size(count)})" for name, count in done.files.items())
    echo(one_line(f"wrote {files} into {done.folder}"))
    inputs = ", ".join(f"{view} ({width} wide)" for view, width in done.inputs.items())
    echo(one_line(f"{done.classes} classes; views: {inputs}"))
    worst = done.checked.worst
    echo(f"checked: {done.checked.said}" + (f"; largest difference {worst:.1e}" if worst else ""))
    if done.checked.recall:
        found = "; ".join(str(one) for one in done.checked.recall)
        echo(f"recall@1 and recall@10 against the exact answer: {found}")
