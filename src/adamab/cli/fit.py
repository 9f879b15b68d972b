"""`adamab fit`: from a task file to a run directory; started again, it goes on where it was."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adamab.cli.console import counted, print_json, progress, say, say_passed_over
from adamab.cli.errors import need_torch_for, stop_gently
from adamab.cli.options import (
    TABLE_OPTIONS,
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
    Quiet,
    RecipeName,
    Seed,
    Settings,
    TextColumn,
    command_line,
    table_options,
)
from adamab.errors import RunError, one_line, place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adamab.providers.metering import Price
    from adamab.run.run_log import JournalRunLog
    from adamab.run.settings import FitSetup
    from adamab.task.spec import Task

TaskOfNewRun = Annotated[
    str | None,
    typer.Argument(
        metavar="TASK",
        help="A task file (YAML), a data file with text and label (CSV, TSV, JSONL, Parquet, XLSX), or a "
        "folder with a folder of images for each class; without it a run that is there goes on as it was "
        "started.",
        show_default=False,
    ),
]
Run = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="DIR",
        help="The run's directory; one that is there is resumed.",
        show_default="runs/NAME, after the task or the file",
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Which class gets the next ones: adamab, tight, greedy, random, round-robin or none.",
    ),
]
Prefetch = Annotated[
    int,
    typer.Option(min=0, max=64, help="Batches to fetch from an API before the policy asks for them."),
]
HoldoutFile = Annotated[
    str | None,
    typer.Option("--holdout", metavar="FILE", help="Texts, or a folder of images, not to be trained on."),
]
RejectFile = Annotated[
    Path | None,
    typer.Option("--reject", metavar="FILE", help="Synthetic samples of this run to train without."),
]


def fit(
    context: typer.Context,
    task: TaskOfNewRun = None,
    run: Run = None,
    embedder: Embedder = "auto",
    generator: Generator = "none",
    policy: Policy = "adamab",
    recipe: RecipeName = "default",
    settings: Settings = None,
    budget: BudgetText = None,
    price: Prices = None,
    dry_run: DryRun = False,
    prefetch: Prefetch = 4,
    holdout: HoldoutFile = None,
    reject: RejectFile = None,
    seed: Seed = 0,
    long_texts: LongTexts = None,
    all_scores: Annotated[
        bool, typer.Option("--all-scores", help="Record the exact score of every class in every round.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start over instead of resuming the run that is there.")
    ] = False,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    no_cache: NoCache = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier for TASK and write it, with its history, into a run directory.

    Started again on the same directory it goes on where it was stopped; what has arrived is not bought again.
    Options that are not given then stay what they were.
    """
    from adamab.cli.options import settings_of
    from adamab.run.directory import check_place

    if run is not None:
        check_place(run, overwrite=overwrite)
    from adamab.run.run_log import classes_of_run, has_progress, task_to_go_on
    from adamab.run.settings import set_up, stored_settings
    from adamab.task import load_task

    options, read = _given(context, with_task=task is not None), None
    if task is None:
        if run is None:
            raise RunError("name TASK, or --run DIR of a run that is to go on")
    else:
        read = load_task(task, table_options(context.params))
        if run is None:
            run = _place_of(read.name)
            if not overwrite:
                _check_same_task(read, run)
        # A run in the folder of the images would be taken for a class by whatever reads that folder.
        if os.path.isdir(task) and Path(task).resolve() in (run.resolve(), *run.resolve().parents):
            raise RunError(f"{place(run)}: lies in the folder of the images; name a directory beside it")
        if read.modality == "image":
            say_passed_over(task)
    before = None
    if read is None or (not overwrite and has_progress(run)):
        named = {name: options[name] for name in ("embedder", "generator") if name in options}
        before = stored_settings(run, **named)
    chosen = settings_of(
        context.params if before is None else options,
        before,
        prefetch=prefetch,
        reject=reject or (),
        run_dir=None if dry_run else run,  # a plan is that of a new run
    )
    need_torch_for(str(chosen.embedder))
    setup = set_up(task_to_go_on(run) if read is None else read, chosen)
    if chosen.embedder == "auto" and setup.task.modality == "image" and not quiet:
        say(f"embedder: {setup.embedder_spec}; --embedder names another")
    if dry_run:
        from adamab.cli.summaries import print_plan
        from adamab.run.plan import plan_fit

        if task is None and setup.generator is not None:
            setup.generator.follow(classes_of_run(run))
        print_plan(plan_fit(setup), as_json=as_json)
    else:
        train(setup, run, own_task=task is None, as_json=as_json, quiet=quiet)
        described = any(spec.description for spec in setup.task.classes)
        if not (as_json or quiet or described) and setup.embedder.cacheable:
            _say_without_descriptions(context, task)


def _place_of(name: str) -> Path:
    """Where a run goes that nobody gave a directory."""
    return Path("runs") / (re.sub(r"[^\w.-]+", "-", name)[:80].strip("-.") or "task")


def _check_same_task(task: Task, run: Path) -> None:
    """Another file of the same name is no later state of the task that this run was started with."""
    from adamab.run.directory import read_task
    from adamab.task.words import normalised_text

    try:
        stored = read_task(run)
    except RunError:  # there is none yet, or a damaged one, which is written again
        return
    then, now = ({normalised_text(sample.text) for sample in each.samples} for each in (stored, task))
    if not then or not now:  # descriptions alone
        then, now = set(stored.class_names), set(task.class_names)
    if then.isdisjoint(now):
        raise RunError(
            f"{place(run)}: is the run of another task, which has nothing in common with this one; name "
            "another directory with --run, or this one to go on in it, or add --overwrite to start over"
        )


def _say_without_descriptions(context: typer.Context, task: str | None) -> None:
    """Data files and folders have classes without descriptions, and those are worth points."""
    from adamab.task.task_file import is_table

    how = "add them to the task file"
    if task is not None and is_table(Path(task)):
        init = shlex.join(command_line(context, "init", "--from", task, options=TABLE_OPTIONS))
        how = f"{init} writes a task file to put them in"
    elif task is not None and os.path.isdir(task):
        how = "write a task file with them, and with the folder under 'examples'"
    say(
        one_line(
            "note: no class has a description; a sentence about each raises accuracy, most of all where "
            f"examples are few: {how}"
        )
    )


def fit_again(
    run: Path,
    *,
    embedder: str | None = None,
    prices: Mapping[str, Price] | None = None,
    cache: bool = True,
    as_json: bool = False,
) -> None:
    """Fit a run with the task that it keeps, as it was started.

    Args:
        run: its directory.
        embedder: where its embedder is to be found now.
        prices: the user's own besides those that the run remembers.
        cache: use what other runs bought, and leave them some.
        as_json: print the summary as JSON.
    """
    from adamab.cli.errors import need_torch_for
    from adamab.run.run_log import task_to_go_on
    from adamab.run.settings import set_up, stored_settings

    stored = stored_settings(run, embedder=embedder)
    varying: dict[str, Any] = {"prices": {**stored.prices, **(prices or {})}, "cache": cache, "run_dir": run}
    need_torch_for(str(stored.embedder))
    setup = set_up(task_to_go_on(run), stored.model_copy(update=varying))
    train(setup, run, own_task=True, as_json=as_json, quiet=False)


def _given(context: typer.Context, *, with_task: bool) -> dict[str, Any]:
    """The options that somebody wrote; without TASK those about it are refused."""
    given = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE":
            continue
        if parameter.name in ("overwrite", *TABLE_OPTIONS) and not with_task:
            option = parameter.opts[0]
            raise RunError(f"without TASK a run goes on as it was started; leave out {option}, or name TASK")
        given[str(parameter.name)] = context.params[str(parameter.name)]
    return given


def train(setup: FitSetup, run: Path, *, own_task: bool, as_json: bool, quiet: bool) -> None:
    """Fit into the run and print its summary."""
    from adamab.cli.summaries import print_summary
    from adamab.display import round_counter
    from adamab.run.fit import resume_run

    with progress("embedding the samples", quiet=quiet) as bar, stop_gently(setup.apis) as stop:
        summary: dict[str, Any] = resume_run(
            setup,
            own_task=own_task,
            stop=stop,
            on_start=None if quiet else _say_resumed,
            on_round=round_counter(bar, setup.recipe.n_rounds(len(setup.task.classes))),
        )
    try:
        if as_json:
            print_json({"run": str(run), **summary})
        elif not quiet:
            if summary["complete"]:
                say("the run is complete and nothing has changed, so there was nothing to do")
            print_summary(run, summary)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(
            f"{place(run)} was written, but its summary could not be printed: "
            f"{error.filename}: {error.strerror or error}"
        ) from None


def _say_resumed(session: JournalRunLog) -> None:
    if session.complete:
        return
    for change in session.changes:
        say(f"changed since the last fit: {change}")
    if session.replayed:
        replayed = counted(session.replayed, "round")
        say(f"resuming the run after {replayed}; what has arrived is not bought again")
