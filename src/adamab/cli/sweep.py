"""`adamab sweep`: a search for a better recipe, by cross-validation on the task's own samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import Bar, counted, echo, print_json, print_table, progress, say, say_missing
from adamab.cli.engine_options import Address, EngineName, Jobs, engine_of
from adamab.cli.fit import BudgetText, Embedder, LongTexts, Prices, RecipeName, Settings, Task

if TYPE_CHECKING:
    from adamab.run.fit_run import Order
    from adamab.study.engines import Engine
    from adamab.study.sweep import Outcome, Search, Sweep
    from adamab.study.sweep_report import SweepReport
    from adamab.study.sweep_space import Space
    from adamab.task.recipe import Recipe

Searched = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        metavar="FIELD=…",
        help="An option of the recipe with its values, words=true,false or pull=0.3:30:log; repeat. "
        "Without it those are searched that have mattered before.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Its directory; a sweep there is taken up.")
]
Sampler = Annotated[str, typer.Option(metavar="NAME", help="What Optuna proposes by: tpe or random.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be searched; fit and send nothing.")
]


def sweep(
    task: Task,
    output: Output = Path("sweep"),
    trials: Annotated[int, typer.Option(min=2, max=10_000, help="Recipes to try, the first as it is.")] = 30,
    folds: Annotated[int, typer.Option(min=2, max=100, help="Parts of which each is held out once.")] = 5,
    search: Searched = None,
    sampler: Sampler = "tpe",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of everything random.")] = 0,
    embedder: Embedder = "local",
    recipe: RecipeName = "default",
    settings: Settings = None,
    jobs: Jobs = 2,
    engine: EngineName = "local",
    address: Address = None,
    budget: BudgetText = None,
    price: Prices = None,
    long_texts: LongTexts = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Search for a better recipe for TASK by cross-validation on its samples; nothing is generated.

    Started again on the same directory it goes on where it was stopped; more --trials may be asked for.
    """
    from adamab.cli.extras import need_torch_for
    from adamab.cli.recipe_options import recipe_of
    from adamab.errors import RecipeError
    from adamab.study.sweep import Search
    from adamab.study.sweep_report import SweepReport
    from adamab.study.sweep_trials import need_optuna
    from adamab.task.messages import short

    chosen = engine_of(engine, address, jobs)
    if sampler not in ("tpe", "random"):
        raise RecipeError(f"--sampler {short(sampler)} is unknown; choose tpe or random")
    need_optuna()
    need_torch_for(embedder)
    order = _order(task, embedder, long_texts, recipe_of(recipe, settings or ()), budget, price)
    found = Search(_space(order, search), trials, seed, "random" if sampler == "random" else "tpe")
    asked = _sweep(order, found, folds, output)
    if dry_run:
        _dry_run(asked, order, as_json=as_json)
        return
    outcome = _run(asked, order, chosen, quiet=quiet)
    fit = _fit_command(
        task, {"--embedder": embedder, "--recipe": recipe, "--long-texts": long_texts}, settings
    )
    _report(SweepReport(asked, outcome, fit), as_json=as_json, quiet=quiet)


def _order(
    task: str,
    embedder: str,
    long_texts: str | None,
    recipe: Recipe,
    budget: str | None,
    price: Sequence[str] | None,
) -> Order:
    from adamab.errors import RecipeError
    from adamab.providers.budget import Budget
    from adamab.providers.prices import Price
    from adamab.run.fit_run import Order
    from adamab.run.resolve import embedder_name, open_embedder
    from adamab.task import load_task

    caps, read = Budget.parse(budget), load_task(task)
    if caps.samples is not None:
        raise RecipeError("a sweep generates nothing; leave samples out of --budget")
    if read.modality == "image":
        say_missing(task)
    spec = embedder_name(embedder, long_texts)
    return Order(
        task=read,
        embedder=open_embedder(spec),
        embedder_spec=spec,
        recipe=recipe.for_modality(read.modality),
        budget=caps,
        prices=dict(Price.parse(text) for text in price or ()),
    )


def _space(order: Order, texts: Sequence[str] | None) -> Space:
    from adamab.study.sweep_space import default_space, parse_space

    if texts:
        return parse_space(order.recipe, texts)
    return default_space(
        order.recipe,
        modality=order.task.modality,
        views=order.embedder.views,
        described="text" in order.embedder.modalities,
    )


def _sweep(order: Order, search: Search, folds: int, output: Path) -> Sweep:
    from adamab.study.sweep import Sweep
    from adamab.study.sweep_cells import SweepMaterials, vectors_for

    vectors = vectors_for(order.task, order.embedder, order.embedder_spec)
    return Sweep(SweepMaterials(order.task, vectors, order.recipe, folds), search, output)


def _dry_run(sweep: Sweep, order: Order, *, as_json: bool) -> None:
    from adamab.cli.plan_summary import print_plan
    from adamab.run.plan import plan_fit
    from adamab.study.sweep_space import in_words, said

    plan, space = plan_fit(order), sweep.search.space
    fits = {"search": sweep.n_search, "examination": sweep.n_examination}
    if as_json:
        print_json({"fits": fits, "space": said(space), "plan": plan.to_json()})
        return
    print_plan(plan)
    trials = counted(sweep.search.trials, "trial")
    echo(f"{trials}: at most {fits['search']} fits, and {fits['examination']} to examine the best")
    for name, part in space.items():
        echo(f"--search {name}={in_words(part)}")


def _run(sweep: Sweep, order: Order, engine: Engine, *, quiet: bool) -> Outcome:
    from adamab.cli.folders import make_folder
    from adamab.cli.stopping import stop_gently
    from adamab.providers.ledger import Ledger
    from adamab.run.outside import Outside
    from adamab.study.sweep_cells import embed_all
    from adamab.study.sweep_directory import SPENDING

    make_folder(sweep.directory, " for the sweep")
    engine = _engine_for(order, engine, quiet=quiet)
    with (
        progress("embedding", quiet=quiet) as bar,
        Ledger(order.caps, sweep.directory / SPENDING) as ledger,
        stop_gently([order.embedder.api]) as stop,
        engine.ready(),
        Outside(order.caps, order.prices, ledger, stop=stop).connected(order.embedder, None),
    ):
        embed = partial(embed_all, sweep.materials, order.embedder)
        return sweep.run(engine=engine, on_cell=_teller(bar), prepare=embed)


def _engine_for(order: Order, engine: Engine, *, quiet: bool) -> Engine:
    from adamab.study.engines import HERE
    from adamab.study.sweep_cells import asks_while_fitting

    if not asks_while_fitting(order.task, order.embedder):
        return engine
    if engine != HERE and not quiet:
        say(
            "note: wordings quote examples, so fits ask the API under one budget, and one process does it all"
        )
    return HERE


def _teller(bar: Bar) -> Callable[[int, int, str], None]:
    """A bar for the search, and one for the examination."""
    shown: tuple[str, int] = "", 0

    def on_cell(done: int, total: int, what: str) -> None:
        nonlocal shown
        if shown[0] != what:
            bar.phase(what, total)
            shown = what, 0
        bar.step(done - shown[1])
        shown = what, done

    return on_cell


def _fit_command(task: str, options: Mapping[str, str | None], settings: Sequence[str] | None) -> list[str]:
    """The fit that trial 0 stands for, as a person would write it."""
    usual = {"--embedder": "local", "--recipe": "default"}
    parts = ["adamab", "fit", task, "--run", "run"]
    for option, value in options.items():
        if value is not None and value != usual.get(option):
            parts += [option, value]
    return [*parts, *(part for setting in settings or () for part in ("--set", setting))]


def _report(report: SweepReport, *, as_json: bool, quiet: bool) -> None:
    from adamab.study.sweep_report import HEADER
    from adamab.task.messages import one_line

    written = report.write()
    if as_json:
        print_json({**report.to_json(), "files": [str(path) for path in written]})
        return
    if quiet:
        return
    columns = get_terminal_size().columns
    print_table(HEADER, report.table())
    for line in report.lines():
        echo(fill(one_line(line), min(88, columns), initial_indent="- ", subsequent_indent="  "))
    echo(report.command)
    echo(f"Written to {report.sweep.directory}: {', '.join(path.name for path in written)}")
