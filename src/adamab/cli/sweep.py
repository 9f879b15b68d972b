"""`adamab sweep`: a search for a better recipe, by cross-validation on the task's own samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import counted, echo, print_json, print_table, progress, say, say_passed_over
from adamab.cli.errors import need_torch_for, stop_gently
from adamab.cli.options import (
    TABLE_OPTIONS,
    Address,
    AllJson,
    BudgetText,
    Delimiter,
    DryRun,
    Embedder,
    Encoding,
    EngineName,
    IdColumn,
    Jobs,
    LabelColumn,
    LongTexts,
    Prices,
    Quiet,
    RecipeName,
    Settings,
    Task,
    TextColumn,
    command_line,
    engine_of,
    settings_of,
    table_options,
)
from adamab.errors import RecipeError, one_line, short

if TYPE_CHECKING:
    from adamab.engines import Engine
    from adamab.run.settings import FitSetup
    from adamab.sweep import Outcome, Search, Sweep

Searched = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        metavar="FIELD=…",
        help="An option of the recipe with its values, words=true,false or weight_ridge=0.3:30:log; repeat. "
        "Without it those are searched that have mattered before.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Its directory; a sweep there is resumed.")
]
Sampler = Annotated[str, typer.Option(metavar="NAME", help="What Optuna proposes by: tpe or random.")]


def sweep(
    context: typer.Context,
    task: Task,
    output: Output = Path("sweep"),
    trials: Annotated[int, typer.Option(min=2, max=10_000, help="Recipes to try, the first as it is.")] = 30,
    folds: Annotated[int, typer.Option(min=2, max=100, help="Parts of which each is held out once.")] = 5,
    search: Searched = None,
    sampler: Sampler = "tpe",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of everything random.")] = 0,
    embedder: Embedder = "auto",
    recipe: RecipeName = "default",
    settings: Settings = None,
    jobs: Jobs = 2,
    engine: EngineName = "local",
    address: Address = None,
    budget: BudgetText = None,
    price: Prices = None,
    long_texts: LongTexts = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    dry_run: DryRun = False,
    as_json: AllJson = False,
    quiet: Quiet = False,
) -> None:
    """Search for a better recipe for TASK by cross-validation on its samples; nothing is generated.

    Started again on the same directory it goes on where it was stopped; more --trials may be asked for.
    """
    from adamab.providers.metering import Budget
    from adamab.run.settings import set_up
    from adamab.sweep import Search, Sweep, default_space, need_optuna, parse_space, vectors_for
    from adamab.task import load_task

    chosen = engine_of(engine, address, jobs)
    if sampler not in ("tpe", "random"):
        raise RecipeError(f"--sampler {short(sampler)} is unknown; choose tpe or random")
    need_optuna()
    if Budget.parse(budget).samples is not None:
        raise RecipeError("a sweep generates nothing; leave samples out of --budget")
    chosen_settings, read = settings_of(context.params), load_task(task, table_options(context.params))
    need_torch_for(embedder)
    if read.modality == "image":
        say_passed_over(task)
    setup = set_up(read, chosen_settings)
    recipes = Search(
        task=setup.task,
        vectors=vectors_for(setup.task, setup.embedder, setup.embedder_spec),
        recipe=setup.recipe,
        space=parse_space(setup.recipe, search) if search else default_space(setup),
        n_folds=folds,
        trials=trials,
        seed=seed,
        sampler="random" if sampler == "random" else "tpe",
    )
    searching = Sweep(recipes, output)  # refuses what cannot be searched
    if dry_run:
        _dry_run(recipes, setup, as_json=as_json)
        return
    outcome = _run(searching, setup, chosen, quiet=quiet)
    # The fit that trial 0 stands for.
    chosen_options = ("embedder", "recipe", "settings", "long_texts", *TABLE_OPTIONS)
    fit = command_line(context, "fit", task, "--run", "run", options=chosen_options)
    _report(outcome, output, fit, as_json=as_json, quiet=quiet)


def _dry_run(search: Search, setup: FitSetup, *, as_json: bool) -> None:
    from adamab.cli.summaries import print_plan
    from adamab.run.plan import plan_fit
    from adamab.sweep import in_words, space_to_json

    plan, fits = plan_fit(setup), search.n_fits()
    if as_json:
        print_json({"fits": fits, "space": space_to_json(search.space), "plan": plan.to_json()})
        return
    print_plan(plan)
    trials = counted(search.trials, "trial")
    echo(f"{trials}: at most {fits['search']} fits, and {fits['examination']} to examine the best")
    for name, part in search.space.items():
        echo(f"--search {name}={in_words(part)}")


def _run(sweep: Sweep, setup: FitSetup, engine: Engine, *, quiet: bool) -> Outcome:
    from adamab.cli.console import make_folder
    from adamab.engines import HERE
    from adamab.providers.metering import Ledger
    from adamab.sweep import SPENDING, asks_while_fitting, embed_all

    make_folder(sweep.directory, " for the sweep")
    if engine != HERE and asks_while_fitting(setup.task, setup.embedder):
        engine = HERE
        if not quiet:
            say("note: class prompts quote examples, so the fits call the API; one process does it all")
    with (
        progress("embedding", quiet=quiet) as bar,
        Ledger(setup.budget, sweep.directory / SPENDING) as ledger,
        stop_gently([setup.embedder.api]) as stop,
        engine.ready(),
        setup.call_context(ledger=ledger, stop=stop).connected(setup.embedder, None),
    ):
        embed = partial(embed_all, sweep.search, setup.embedder)
        return sweep.run(engine=engine, bar=bar, prepare=embed)


def _report(outcome: Outcome, directory: Path, fit: Sequence[str], *, as_json: bool, quiet: bool) -> None:
    from adamab.sweep import HEADER

    written = outcome.write(directory, fit)
    if as_json:
        print_json({**outcome.to_json(fit), "files": [str(path) for path in written]})
        return
    if quiet:
        return
    columns = get_terminal_size().columns
    print_table(HEADER, outcome.table())
    for line in outcome.lines():
        echo(fill(one_line(line), min(88, columns), initial_indent="- ", subsequent_indent="  "))
    echo(outcome.command(fit))
    echo(f"Written to {directory}: {', '.join(path.name for path in written)}")
