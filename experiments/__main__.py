"""`python -m experiments NAME`: an experiment, built in or your own, from data to tables and figures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from adamab.cli.console import Bar, counted, echo, make_folder, print_json, print_table, progress, say
from adamab.cli.errors import exit_code, need_torch_for, stop_gently
from adamab.cli.options import Address, EngineName, Jobs, engine_of
from adamab.cli.summaries import cost
from adamab.demo.story import check_matplotlib
from adamab.engines import HERE, Engine
from adamab.errors import TaskError
from adamab.providers.metering import Budget, CallContext, Ledger, Price
from adamab.providers.registry import shared_replies
from experiments import accuracy_estimate, added_classes, convergence, out_of_scope, probabilities
from experiments.datasets.base import SCORED_ONCE, data_directory, load_data_set
from experiments.definition import built_in, load_experiment
from experiments.estimate import Estimate, estimate
from experiments.findings import headline, in_short, notes
from experiments.quality import Yardstick
from experiments.quality_plan import NAMES as QUALITY
from experiments.quality_plan import ONCE, SETS, TITLES, plan
from experiments.quality_report import Report, bar_table, lead_table
from experiments.quality_report import write_report as write_quality_report
from experiments.quality_summary import in_words
from experiments.report import tables, write_report
from experiments.runner import Runner
from experiments.summary import Summary, summarise

CONVERGENCE = "convergence"
_ABOUT_CONVERGENCE = "The theory: gradient shift and regret by policy, and the bound of the first theorem"
# Studies with options of their own, and what they are about.
STUDIES: dict[str, tuple[Callable[[list[str]], object], str]] = {
    "probabilities": (probabilities.main, "Calibration, unknown inputs and prediction sets"),
    "added-classes": (added_classes.main, "A class that is added after the fit"),
    "accuracy-estimate": (accuracy_estimate.main, "The accuracy that a fit foretells, and what it is"),
    "out-of-scope": (out_of_scope.main, "Texts of no class of CLINC150, scored once"),
}
_NARROW = 8  # columns of the yardstick's table of sets that a terminal has room for; the rest are log losses

Name = Annotated[
    str | None,
    typer.Argument(metavar="EXPERIMENT", help="A name of --list, or a file of your own: my.yaml."),
]
Data = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of data sets; ADAMAB_DATA or ../shared/data.")
]
Output = Annotated[Path, typer.Option(metavar="DIR", help="Where tables and figures are written.")]
Work = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where finished cells are kept; the folder of the output if not given."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only these sets, with commas between them; or repeat it."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="METHOD", help="Measure these methods of the yardstick alone, and write no page."),
]
Seeds = Annotated[int | None, typer.Option(min=1, max=100, metavar="N", help="So many seeds.")]
EmbedderSpec = Annotated[str | None, typer.Option(metavar="SPEC", help="Another embedder, as in adamab fit.")]
GeneratorSpecs = Annotated[
    list[str] | None,
    typer.Option(metavar="SPEC", help="recorded, pool, or a generator as in adamab fit; repeat for others."),
]
Split = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="readme, or paper: given samples from the official test split."),
]
Part = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="test, or development: where choices are made."),
]
BudgetText = Annotated[
    str | None, typer.Option("--budget", metavar="TEXT", help="Caps, such as '1.50 usd, 500 calls'.")
]
Prices = Annotated[
    list[str] | None,
    typer.Option("--price", metavar="MODEL=IN/OUT", help="Your price in usd a million tokens; repeat."),
]


@dataclass(frozen=True)
class Request:
    """What is asked for, whichever experiment it is."""

    experiment: str
    data: Path | None
    output: Path
    work: Path
    changes: dict[str, Any]  # of the experiment: sets, seeds, embedder and so on
    engine: Engine
    as_json: bool
    quiet: bool

    @property
    def command(self) -> str:
        """What would do it again; folders are left out, because they differ from machine to machine."""
        written = ["python -m experiments", Path(self.experiment).name]
        for name, value in self.changes.items():
            if value and name != "generators":
                written.append(f"--{name} {','.join(value) if isinstance(value, list) else value}")
        written += [f"--generator {generator}" for generator in self.changes["generators"] or ()]
        return " ".join(written)

    def make_folders(self) -> None:
        """A place that cannot be written to fails now."""
        make_folder(self.output, " for the results")
        make_folder(self.work, " for finished cells")

    def folder_of(self, sets: Any) -> Path:
        """Of the data sets; the demo needs none."""
        return data_directory(self.data) if any(name != "demo" for name in sets) else Path()


class Command(TyperCommand):
    """Ends with one line for what a user can fix, as the commands of `adamab` do."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run and exit; `standalone_mode` is off inside, so that exceptions arrive here."""
        run = super().main
        options["standalone_mode"] = False
        sys.exit(exit_code(lambda: run(*args, **options)))


app = typer.Typer(add_completion=False)


@app.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
def reproduce(
    experiment: Name = None,
    data: Data = None,
    output: Output = Path("results"),
    work: Work = None,
    sets: Sets = None,
    seeds: Seeds = None,
    embedder: EmbedderSpec = None,
    generator: GeneratorSpecs = None,
    split: Split = None,
    part: Part = None,
    only: Only = None,
    budget: BudgetText = None,
    price: Prices = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print cells, calls, tokens and cost; run and send nothing.")
    ] = False,
    jobs: Jobs = 2,
    engine: EngineName = "local",
    address: Address = None,
    listed: Annotated[bool, typer.Option("--list", help="Print the experiments that there are.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Run an experiment of the paper, or your own, and write its tables and figures.

    Finished cells are kept: started again, it resumes where it was stopped.
    """
    if listed:
        _list(as_json=as_json)
        return
    if experiment is None:
        raise TaskError("which experiment? See python -m experiments --list")
    names, methods = _listed(sets), _listed(only)
    changes = {"sets": names, "seeds": seeds, "embedder": embedder, "split": split, "part": part}
    changes["generators"] = generator or None
    if experiment in QUALITY:
        changes["only"] = methods
    elif methods:
        raise TaskError(f"{experiment} takes no --only; leave it out")
    chosen = engine_of(engine, address, jobs)
    request = Request(experiment, data, output, work or output, changes, chosen, as_json, quiet)
    paid = {"generator": generator, "split": split, "budget": budget, "price": price}
    if experiment == CONVERGENCE:
        others = {"embedder": embedder, "part": part, "engine ray": chosen.name == "ray", "work": work}
        _refuse(CONVERGENCE, **paid, **others, dry_run=dry_run, json=as_json)
        _convergence(request)
    elif experiment in QUALITY:
        _refuse(experiment, **paid)
        _quality(request, dry_run=dry_run)
    else:
        _experiment(request, Budget.parse(budget), price or [], dry_run=dry_run)


def _listed(texts: list[str] | None) -> list[str] | None:
    """Names with commas between them, or repeated."""
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()] or None


def _refuse(experiment: str, **options: object) -> None:
    for name, value in options.items():
        if value:
            raise TaskError(f"{experiment} takes no --{name.replace('_', '-')}; leave it out")


def _list(*, as_json: bool) -> None:
    listed = [(e.name, ", ".join(e.sets), e.title) for e in built_in()]
    listed.append((CONVERGENCE, "hwu64-office, hwu64-home", _ABOUT_CONVERGENCE))
    listed += [(name, ", ".join(SCORED_ONCE if name == ONCE else SETS), TITLES[name]) for name in QUALITY]
    listed += [(name, "see --help", about) for name, (_, about) in STUDIES.items()]
    if as_json:
        print_json([{"name": name, "sets": sets, "title": title} for name, sets, title in listed])
    else:
        print_table(("experiment", "sets", "what"), listed)


def _experiment(request: Request, caps: Budget, price: list[str], *, dry_run: bool) -> None:
    definition = load_experiment(request.experiment).with_changes(**request.changes)
    if not dry_run:
        need_torch_for(definition.embedder)
        if definition.figure != "none":
            check_matplotlib()
        request.make_folders()
    folder = request.folder_of(definition.sets)
    sets = {name: load_data_set(name, folder) for name in definition.sets}
    runner, prices = Runner(definition, sets, request.work), dict(Price.parse(text) for text in price)
    if not dry_run:
        _report(request, _run(request, runner, caps, prices))
        return
    expected = estimate(runner, prices)
    if request.as_json:
        print_json(expected.to_json())
    else:
        _print_estimate(expected)


def _run(request: Request, runner: Runner, caps: Budget, prices: dict[str, Price]) -> Summary:
    call_context, engine = None, request.engine
    if runner.remote():
        if engine.name == "ray" and not request.quiet:
            say("note: an API is asked under one budget, so one process does it all, without Ray")
        engine = HERE
        ledger = Ledger(caps, request.work / f"{runner.experiment.name}.spending.db")
        call_context = CallContext(caps, prices, ledger, shared_replies())
    # Cells open their own clients, so it is not known here which are called.
    called: list[Any] | None = [] if call_context is None else None
    quiet = request.quiet
    with progress("reading", quiet=quiet) as bar, stop_gently(called) as stop, engine.ready():
        if call_context is not None:
            call_context.stop = stop
        return summarise(runner.run(engine=engine, call_context=call_context, on_cell=_on_cell(bar, quiet)))


def _on_cell(bar: Bar, quiet: bool) -> Callable[[int, int, str], None]:
    """A bar for people, and lines for logs."""
    lines = not quiet and not sys.stderr.isatty()
    begun: list[int] = []

    def on_cell(done: int, total: int, what: str) -> None:
        if begun != [total] or what == "embedding":
            begun[:] = [total]
            bar.phase("cells", total)
            bar.step(done)
        else:
            bar.step()
        if lines:
            say(f"{done}/{total} {what}")

    return on_cell


def _print_estimate(expected: Estimate) -> None:
    by_set = ", ".join(f"{name} {count}" for name, count in expected.by_set.items())
    echo(f"{expected.experiment}: {counted(expected.cells, 'cell')}, {expected.done} done before")
    if by_set:
        echo(f"to run: {by_set}")
    if expected.seconds is not None and by_set:
        echo(f"about {expected.seconds / 60:.0f} minutes of one process, by finished cells of the same kinds")
    for line in expected.left_out:
        echo(f"left out: {line}")
    if not expected.parties:
        echo("no calls, nothing leaves the machine: 0 tokens, 0 usd")
        return
    rows = []
    for party in expected.parties:
        for kind, amount in (("expected", party.expected), ("at most", party.at_most)):
            tokens = f"{amount.usage.input_tokens:,}", f"{amount.usage.output_tokens:,}"
            rows.append((party.purpose, party.spec, kind, f"{amount.calls:,}", *tokens, cost(amount)))
    print_table(("purpose", "model", "", "calls#", "input tokens#", "output tokens#", "cost#"), rows)
    for kind, amount in (("expected", expected.expected), ("at most", expected.at_most)):
        echo(f"in all {kind}: {amount.calls:,} calls, {cost(amount)}")
    if expected.unpriced:
        unknown = ", ".join(expected.unpriced)
        echo(f"not in the cost, because no price is known: {unknown}; give yours with --price")
    echo("a question that is certain to be the same counts once; what the cache holds costs nothing")
    for lacking in dict.fromkeys(party.lacking for party in expected.parties if party.lacking):
        say(f"note: {lacking}")


def _report(request: Request, summary: Summary) -> None:
    written = write_report(summary, request.output, command=request.command)
    if request.as_json:
        print_json({**summary.to_json(), "files": [str(path) for path in written]})
    elif not request.quiet:
        for table in tables(summary):
            header = [table.header[0], *(f"{name}#" for name in table.header[1:])]
            print_table(header, table.rows, title=table.title)
        for line in (headline(summary), *in_short(summary), *notes(summary)):
            echo(f"- {line}")
        echo(f"Written to {request.output}: {', '.join(path.name for path in written)}")


def _convergence(request: Request) -> None:
    sets, seeds = request.changes["sets"], request.changes["seeds"]
    if seeds is not None and seeds < 2:
        raise TaskError(f"{CONVERGENCE} needs two seeds or more for its intervals; leave --seeds out")
    directory = data_directory(request.data) if sets != ["demo"] else request.data
    make_folder(request.output, " for the results")
    for path in convergence.run(
        directory,
        request.output,
        sets=sets,
        seeds=seeds,
        jobs=request.engine.jobs,
        command=request.command,
    ):
        if not request.quiet:
            echo(str(path))


def _quality(request: Request, *, dry_run: bool) -> None:
    options = {name: request.changes[name] for name in ("part", "sets", "seeds", "embedder", "only")}
    cells = plan(request.experiment, **options)  # type: ignore[arg-type]  # one of the names
    if not dry_run:
        need_torch_for(cells.embedder)
        check_matplotlib()
        request.make_folders()
    folder = request.folder_of(cells.shapes)
    sets = {name: load_data_set(name, folder) for name in cells.shapes}
    yardstick = Yardstick(cells, sets, request.work)
    if dry_run:
        _count(yardstick, as_json=request.as_json)
        return
    with progress("reading", quiet=request.quiet) as bar, stop_gently([]), request.engine.ready():
        scores = yardstick.run(engine=request.engine, on_cell=_on_cell(bar, request.quiet))
    if cells.only:
        if not request.quiet:
            echo(f"{counted(yardstick.cells, 'cell')} measured; without --only there is a page")
        return
    report = write_quality_report(yardstick, scores, request.output, command=request.command)
    if request.as_json:
        print_json(report.to_json())
    elif not request.quiet:
        _print_quality(yardstick, report, request.output)


def _count(yardstick: Yardstick, *, as_json: bool) -> None:
    todo, cells = yardstick.to_do(), yardstick.cells
    if as_json:
        left_out = [str(cell) for cell in yardstick.left_out]
        print_json({"cells": cells, "to_run": todo, "left_out": left_out, "notes": yardstick.notes})
        return
    echo(f"{yardstick.plan.name}: {counted(cells, 'cell')}, {cells - sum(todo.values())} done before")
    echo(f"to run: {', '.join(f'{name} {count}' for name, count in todo.items()) or 'nothing'}")
    for cell in yardstick.left_out:
        echo(f"left out: {cell}")
    for note in yardstick.notes:
        echo(f"note: {note}")


def _print_quality(yardstick: Yardstick, report: Report, output: Path) -> None:
    leads, checked = lead_table("Set by set", report.summary.tallies), bar_table(report.bars)
    print_table(leads.header[:_NARROW], [row[:_NARROW] for row in leads.rows], title=leads.title)
    print_table(checked.header, checked.rows, title=checked.title)
    for line in (in_words(report.bars), *(f"left out: {cell}" for cell in yardstick.left_out)):
        echo(line)
    echo(f"Written to {output}: {', '.join(path.name for path in report.files)}")


def main(arguments: list[str]) -> None:
    """One of the studies, or an experiment."""
    name, *others = arguments or [""]
    if name in STUDIES:
        sys.exit(exit_code(lambda: STUDIES[name][0](others)))
    app(arguments, prog_name="python -m experiments")


if __name__ == "__main__":
    main(sys.argv[1:])
