"""`adamab compare`: the method and what it has to beat, on one task and one set of test data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import echo, print_json, print_table, progress, say
from adamab.cli.errors import need_torch_for, stop_gently
from adamab.cli.options import (
    TABLE_OPTIONS,
    AllJson,
    BudgetText,
    Delimiter,
    DryRun,
    Embedder,
    Encoding,
    Generator,
    IdColumn,
    LabelColumn,
    LongTexts,
    NoCache,
    Prices,
    RecipeName,
    Seed,
    Settings,
    Task,
    TextColumn,
    command_line,
    known_samples,
    settings_of,
    table_options,
)
from adamab.errors import one_line

if TYPE_CHECKING:
    from adamab.compare.bench import Comparison
    from adamab.compare.methods import Method
    from adamab.providers.http import ApiClient
    from adamab.providers.metering import CallContext
    from adamab.run.settings import FitSetup
    from adamab.task import Sample

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Test data: CSV, TSV, JSONL, Parquet or XLSX with text and label; of images image and label, or "
        "folders.",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="zero-shot, centred, class-mean, linear-probe, linear-svm, knn, cache-adapter, calibrator, "
        "setfit, chat:MODEL, rerank:SERVICE:MODEL, cross-encoder:PATH; +POLICY adds synthetic samples, "
        "as in calibrator+adamab.",
    ),
]


# What the command is repeated with in a report.
_OF_COMMAND = (
    "methods", "against", "embedder", "generator", "recipe", "settings", "budget", "seed", "long_texts",
    *TABLE_OPTIONS,
)  # fmt: skip


def compare(
    context: typer.Context,
    task: Task,
    data: Data,
    methods: Methods = None,
    against: Annotated[
        str | None, typer.Option(metavar="METHOD", help="What the others are compared with.")
    ] = None,
    embedder: Embedder = "auto",
    generator: Generator = "none",
    recipe: RecipeName = "default",
    settings: Settings = None,
    budget: BudgetText = None,
    price: Prices = None,
    dry_run: DryRun = False,
    seed: Seed = 0,
    long_texts: LongTexts = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out rows of classes that the task does not have.")
    ] = False,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    no_cache: NoCache = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also as .md, .csv or .json.")
    ] = None,
    as_json: AllJson = False,
) -> None:
    """Fit several methods on TASK's samples and judge them on DATA, in one table.

    Test samples that are also given ones are left out. A method that cannot be fitted is named below the
    table; only where none can is that an error. --budget caps samples of each policy, and money and calls
    of all methods together.
    """
    from adamab.cli.summaries import print_plan
    from adamab.compare.bench import plan_comparison
    from adamab.compare.methods import check_method, chosen_methods, reference_of
    from adamab.compare.report import check_output
    from adamab.run.settings import set_up
    from adamab.task import load_task, read_image_samples, read_samples

    chosen = chosen_methods(methods, generator=generator != "none")
    reference_of(chosen, against)
    if output is not None:
        check_output(output, [task, data])
    for method in chosen:
        check_method(method.spec)
    settings_chosen = settings_of(context.params)
    need_torch_for(embedder)
    table = table_options(context.params)
    setup = set_up(load_task(task, table), settings_chosen)
    is_image = setup.task.modality == "image"
    samples = read_image_samples(data, table) if is_image else read_samples(data, options=table)
    test = known_samples(data, samples, setup.task.class_names, skip_unknown)
    if dry_run:
        print_plan(plan_comparison(setup, test, chosen), as_json=as_json)
        return
    comparison, calls = _compare(setup, test, chosen, against)
    command = shlex.join(command_line(context, "compare", task, data, options=_OF_COMMAND))
    _report(comparison, calls, command, output, embedder=setup.embedder_spec, as_json=as_json)


def _compare(
    setup: FitSetup, test: Sequence[Sample], methods: Sequence[Method], against: str | None
) -> tuple[Comparison, CallContext]:
    from adamab.compare.bench import compare as run
    from adamab.providers.cache import MemoryReplies
    from adamab.providers.embedders.stored import MemoryEmbedder
    from adamab.providers.registry import shared_replies

    apis: list[ApiClient | None] = [setup.embedder.api]  # grows as methods are fitted
    embedder = MemoryEmbedder(setup.embedder, lambda: setup.embedder)  # all fits share vectors
    with progress("embedding") as bar, stop_gently(apis) as stop:
        replies = shared_replies() if setup.settings.cache else MemoryReplies()
        calls = setup.call_context(replies=replies, stop=stop)
        comparison = run(
            replace(setup, embedder=embedder),
            test,
            methods,
            against=against,
            calls=calls,
            on_method=lambda method: bar.phase(f"fitting {method}"),
            on_api=apis.append,
        )
    return comparison, calls


def _report(
    comparison: Comparison,
    calls: CallContext,
    command: str,
    output: Path | None,
    *,
    embedder: str,
    as_json: bool,
) -> None:
    from adamab.cli.summaries import long_text_warning, spending_lines
    from adamab.compare import report
    from adamab.run.directory import spending

    if output is not None:
        report.write_output(comparison, output, command=command)
    spent = spending(calls.spent())
    if as_json:
        print_json({**report.as_json(comparison, command), "spent": spent})
    else:
        columns = [report.HEADER[0], *(f"{name}#" for name in report.HEADER[1:])]
        print_table(columns, report.cells(comparison))
        for line in report.caption(comparison):
            echo(fill(one_line(line), 88, initial_indent="- ", subsequent_indent="  "))
        for line in spending_lines({"spent": spent}) if spent["calls"] else ():
            echo(line)
    if warning := report.leak_warning(comparison):
        say(warning)
    if comparison.overlong:
        say(long_text_warning(comparison.overlong, embedder))
