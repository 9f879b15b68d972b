"""`adamab init`: a commented task file to fill in, or one with the classes of a data file."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import counted, echo, make_folder
from adamab.cli.options import Delimiter, Encoding, IdColumn, LabelColumn, TextColumn, table_options
from adamab.errors import TaskError, one_line, place

if TYPE_CHECKING:
    from adamab.task.table_files import TableOptions

FILE_NAME = "task.yaml"


def init(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to put it; made if need be.")
    ] = Path("."),
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="A data file with text and label: its classes are listed."
        ),
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
) -> None:
    """Write a commented task file that can be fitted at once and then filled in."""
    from importlib.resources import files

    path = directory / FILE_NAME
    if source is None:
        template = files("adamab.task").joinpath("template.yaml").read_text("utf-8")
    else:
        template = _of_table(source, directory, table_options(context.params))
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
    if source is None:
        fit = shlex.join(["adamab", "fit", str(path), "--run", str(directory / "run")])
        echo(f"wrote {path}; fill it in, then: {fit}")
    else:
        fit = shlex.join(["adamab", "fit", str(path)])
        echo(f"wrote {path}; write a description beside each class, then: {fit}")


def _of_table(source: Path, directory: Path, options: TableOptions) -> str:
    """A task file that lists the classes of a data file and refers to it for the examples."""
    from adamab.task import load_task
    from adamab.task.table_files import ENDINGS
    from adamab.task.tables import read_columns
    from adamab.task.task_file import is_table

    if not is_table(source):
        raise TaskError(
            f"--from {place(source)}: is no data file; name one in CSV, TSV, JSONL, Parquet or XLSX"
        )
    task = load_task(source, options)
    kind, wanted = ENDINGS[source.suffix.lower()], ("text", "image")
    columns = read_columns(source, kind, wanted, options, labelled=True)
    recognised = {"text_column": columns.text, "label_column": columns.labels[0]}
    said = {name: value for name, value in recognised.items() if value not in (*wanted, "label", "class")}
    counts = Counter(sample.class_name for sample in task.samples)
    classes = [
        line
        for name in task.class_names
        for line in (
            f"  - name: {_quoted(name)}  # {counted(counts[name], 'example')}",
            "    description:",
        )
    ]
    named = {"file": os.path.relpath(source, directory), **options.as_written(), **said}
    files = [f"  {key}: {_quoted(value)}" for key, value in named.items()]
    return "\n".join(
        [
            f"# The classes of {one_line(source.name)}. A description is one plain sentence about",
            "# what belongs to a class; it raises accuracy, most of all where examples are few. Then:",
            "#   adamab fit task.yaml",
            "",
            f"name: {_quoted(task.name)}",
            *(["modality: image"] if task.modality == "image" else []),
            "classes:",
            *classes,
            "examples:",
            *files,
            "",
        ]
    )


def _quoted(text: str) -> str:
    """As YAML reads it back, whatever it holds."""
    return json.dumps(text, ensure_ascii=False)
