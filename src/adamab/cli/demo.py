"""`adamab demo`: the whole story, offline, on the built-in task."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import echo, make_folder, print_json, print_table, progress
from adamab.cli.errors import need_modules

if TYPE_CHECKING:
    from adamab.demo.story import Plan, Summary

SEEDS = 3


def demo(
    seeds: Annotated[
        int | None, typer.Option(min=1, help=f"Seeds to average over; {SEEDS}, or 1 with --quick.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where figures and tables are written.")] = Path("adamab-demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first look: one seed, no point in the middle of the curve.")
    ] = False,
) -> None:
    """Compare zero-shot, linear probe, calibrator and policies on the built-in support-desk task."""
    need_modules({"matplotlib": "matplotlib"}, "local,plots")
    from adamab.demo.story import Plan, write_report

    make_folder(output, " for the results")  # a place that cannot be written to fails now
    n_seeds = seeds if seeds is not None else 1 if quick else SEEDS
    summary = _run(Plan(tuple(range(n_seeds)), per_class=(10,) if quick else (5, 10)))
    command = f"adamab demo --seeds {n_seeds} --output {output}" + (" --quick" if quick else "")
    written = write_report(summary, output, command=command)
    if as_json:
        print_json({**summary.to_json(), "files": [str(path) for path in written]})
    else:
        _print(summary, written)


def _run(plan: Plan) -> Summary:
    from adamab.demo.story import gather, measure, summarise
    from adamab.providers.registry import open_embedder

    with progress("Embedding") as bar:
        materials = gather(open_embedder("local"), plan.recipe)
        bar.phase("Fitting", len(plan.jobs()))
        return summarise(list(measure(plan, materials, on_job=bar.step)))


def _print(summary: Summary, written: list[Path]) -> None:
    from adamab.demo.story import HEADER, caption, cells, findings

    columns = [HEADER[0], *(f"{name}#" for name in HEADER[1:])]
    print_table(columns, cells(summary), title="Support desk: which class is this message?")
    for line in (caption(summary), *findings(summary)):
        echo(fill(line, 88, subsequent_indent="  ", initial_indent="- "))
    echo(f"Written to {written[0].parent}: {', '.join(path.name for path in written)}")
