"""`adamab report`: one HTML file about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adamab.cli.console import echo, print_json, size


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, of a fit that ended or not.")],
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Where it goes, never into RUN; - is standard output."
        ),
    ] = Path("report.html"),
    no_samples: Annotated[
        bool, typer.Option("--no-samples", help="Leave out every text and image of a sample.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print path and size as JSON.")] = False,
) -> None:
    """Write what is known about a run into one HTML file that loads nothing else and prints well.

    A report of the same run is replaced, any other file is not.
    """
    from adamab.errors import RunError, one_line
    from adamab.serving.report import report_html, write_report

    if str(out) == "-":
        if as_json:
            raise RunError("-o - writes the report itself to standard output; leave --json out")
        echo(report_html(run, samples=not no_samples))
        return
    written = write_report(run, out, samples=not no_samples)
    if as_json:
        known = {"path": str(written.path), "bytes": written.bytes, "replaced": written.replaced}
        print_json({**known, "samples": not no_samples})
    else:
        left_out = ", without samples" if no_samples else ""
        echo(f"{one_line(written.path)} ({size(written.bytes)}{left_out})")
