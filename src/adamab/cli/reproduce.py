"""`adamab reproduce`: an experiment of the paper, or one of your own, from data to tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adamab.cli.console import Bar, counted, echo, print_json, print_table, progress, say
from adamab.cli.engine_options import Address, EngineName, Jobs, engine_of

if TYPE_CHECKING:
    from adamab.cli.quality import QualityCommand
    from adamab.providers.budget import Budget
    from adamab.providers.http import ApiClient
    from adamab.study.engines import Engine
    from adamab.study.experiments.definition import Experiment
    from adamab.study.experiments.estimate import Estimate
    from adamab.study.experiments.runner import Runner
    from adamab.study.experiments.summary import Summary

CONVERGENCE = "convergence"
QUALITY = ("quality", "quality-full")
_ABOUT_CONVERGENCE = "The theory: gradient shift and regret by policy, and the bound of the first theorem"

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

    Cells that are finished are kept: started again, it goes on where it was stopped.
    """
    from adamab.errors import TaskError

    if listed:
        _list(as_json=as_json)
        return
    if experiment is None:
        raise TaskError("which experiment? See adamab reproduce --list")
    chosen = engine_of(engine, address, jobs)
    names = [name.strip() for text in sets or () for name in text.split(",") if name.strip()] or None
    if experiment == CONVERGENCE:
        refused: dict[str, object] = {"embedder": embedder, "generator": generator, "split": split}
        refused |= {"part": part, "engine ray": chosen.name == "ray"}
        _refuse(CONVERGENCE, **refused, budget=budget, price=price, work=work, dry_run=dry_run, json=as_json)
        _convergence(data, output, names, seeds, jobs, quiet=quiet)
        return
    if experiment in QUALITY:
        _refuse(experiment, generator=generator, split=split, budget=budget, price=price)
        quality = _quality(experiment, part=part, sets=names, seeds=seeds, embedder=embedder)
        if dry_run:
            quality.dry_run(data, work or output, as_json=as_json)
            return
        command = _command(experiment, names, seeds, embedder, part=part)
        quality.run(
            data, output, work or output, command, _teller, engine=chosen, as_json=as_json, quiet=quiet
        )
        return
    found = _experiment(
        experiment,
        sets=names,
        seeds=seeds,
        embedder=embedder,
        generators=generator or None,
        split=split,
        part=part,
    )
    caps = _caps(budget)
    runner = _runner(found, data, output, work or output, dry_run=dry_run)
    if dry_run:
        _dry_run(runner, price, as_json=as_json)
        return
    summary = _run(runner, work or output, caps, price, engine=chosen, quiet=quiet)
    _report(
        summary, output, _command(experiment, names, seeds, embedder, generator, split, part), as_json, quiet
    )


def _list(*, as_json: bool) -> None:
    from adamab.study.experiments.definition import built_in
    from adamab.study.quality_plan import SETS, TITLES

    found = [(e.name, ", ".join(e.sets), e.title) for e in built_in()]
    found.append((CONVERGENCE, "hwu64-office, hwu64-home", _ABOUT_CONVERGENCE))
    found += [(name, ", ".join(SETS), TITLES[name]) for name in QUALITY]
    if as_json:
        print_json([{"name": name, "sets": sets, "title": title} for name, sets, title in found])
    else:
        print_table(("experiment", "sets", "what"), found)


def _experiment(name: str, *, generators: list[str] | None, **changes: Any) -> Experiment:
    from adamab.study.experiments.definition import load_experiment

    return load_experiment(name).with_changes(generators=generators, **changes)


def _runner(experiment: Experiment, data: Path | None, output: Path, work: Path, *, dry_run: bool) -> Runner:
    from adamab.cli.extras import need_torch_for
    from adamab.cli.folders import make_folder
    from adamab.study.datasets.base import data_directory
    from adamab.study.experiments.runner import Runner, load_sets
    from adamab.study.figures import check_matplotlib

    if not dry_run:
        need_torch_for(experiment.embedder)
        if experiment.figure != "none":
            check_matplotlib()
        make_folder(output, " for the results")  # a place that cannot be written to fails now
        make_folder(work, " for finished cells")
    needs_files = any(name != "demo" for name in experiment.sets)
    sets = load_sets(experiment, data_directory(data) if needs_files else Path())
    return Runner(experiment, sets, work)


def _caps(budget: str | None) -> Budget:
    """What may be spent; a text that says nothing is refused before anything is read."""
    from adamab.providers.budget import Budget

    return Budget.parse(budget)


def _run(
    runner: Runner, work: Path, caps: Budget, price: list[str] | None, *, engine: Engine, quiet: bool
) -> Summary:
    from adamab.cli.stopping import stop_gently
    from adamab.providers.ledger import Ledger
    from adamab.providers.prices import Price
    from adamab.run.outside import Outside
    from adamab.run.resolve import shared_replies
    from adamab.study.engines import HERE
    from adamab.study.experiments.summary import summarise

    outside = None
    if runner.remote():
        if engine.name == "ray" and not quiet:
            say("note: an API is asked under one budget, so one process does it all, without Ray")
        engine = HERE
        ledger = Ledger(caps, work / f"{runner.experiment.name}.spending.db")
        prices = dict(Price.parse(text) for text in price or ())
        outside = Outside(caps, prices, ledger, shared_replies())
    # Cells open their own clients, so nobody here knows who is called.
    called: list[ApiClient | None] | None = [] if outside is None else None
    with progress("reading", quiet=quiet) as bar, stop_gently(called) as stop, engine.ready():
        if outside is not None:
            outside.stop = stop
        return summarise(runner.run(engine=engine, outside=outside, on_cell=_teller(bar, quiet)))


def _teller(bar: Bar, quiet: bool) -> Any:
    """A bar for people, and lines for logs."""
    import sys

    told = not quiet and not sys.stderr.isatty()
    begun: list[int] = []

    def on_cell(done: int, total: int, what: str) -> None:
        if begun != [total] or what == "embedding":
            begun[:] = [total]
            bar.phase("cells", total)
            bar.step(done)
        else:
            bar.step()
        if told:
            say(f"{done}/{total} {what}")

    return on_cell


def _dry_run(runner: Runner, price: list[str] | None, *, as_json: bool) -> None:
    from adamab.providers.prices import Price
    from adamab.study.experiments.estimate import estimate

    found = estimate(runner, dict(Price.parse(text) for text in price or ()))
    if as_json:
        print_json(found.to_json())
    else:
        _print_estimate(found)


def _print_estimate(found: Estimate) -> None:
    by_set = ", ".join(f"{name} {count}" for name, count in found.by_set.items())
    echo(f"{found.experiment}: {counted(found.cells, 'cell')}, {found.done} done before")
    if by_set:
        echo(f"to run: {by_set}")
    if found.seconds is not None and found.by_set:
        echo(f"about {found.seconds / 60:.0f} minutes of one process, by finished cells of the same kinds")
    for line in found.left_out:
        echo(f"left out: {line}")
    if not found.parties:
        echo("no calls, nothing leaves the machine: 0 tokens, 0 usd")
        return
    _print_parties(found)
    for lacking in dict.fromkeys(party.lacking for party in found.parties if party.lacking):
        say(f"note: {lacking}")


def _print_parties(found: Estimate) -> None:
    from adamab.cli.plan_summary import cost

    columns = ("purpose", "model", "", "calls#", "input tokens#", "output tokens#", "cost#")
    rows = []
    for party in found.parties:
        for kind, amount in (("expected", party.expected), ("at most", party.at_most)):
            tokens = f"{amount.usage.input_tokens:,}", f"{amount.usage.output_tokens:,}"
            rows.append((party.purpose, party.spec, kind, f"{amount.calls:,}", *tokens, cost(amount)))
    print_table(columns, rows)
    for kind, amount in (("expected", found.expected), ("at most", found.at_most)):
        echo(f"in all {kind}: {amount.calls:,} calls, {cost(amount)}")
    if found.unpriced:
        unknown = ", ".join(found.unpriced)
        echo(f"not in the cost, because no price is known: {unknown}; give yours with --price")
    echo("a question that is certain to be the same counts once; what the cache holds costs nothing")


def _report(summary: Summary, output: Path, command: str, as_json: bool, quiet: bool) -> None:
    from adamab.study.experiments.findings import headline, in_short, notes
    from adamab.study.experiments.report import write_report
    from adamab.study.experiments.tables import tables

    written = write_report(summary, output, command=command)
    if as_json:
        print_json({**summary.to_json(), "files": [str(path) for path in written]})
        return
    if quiet:
        return
    for table in tables(summary):
        print_table([table.header[0], *(f"{h}#" for h in table.header[1:])], table.rows, title=table.title)
    for line in (headline(summary), *in_short(summary), *notes(summary)):
        echo(f"- {line}")
    echo(f"Written to {output}: {', '.join(path.name for path in written)}")


def _convergence(
    data: Path | None, output: Path, sets: list[str] | None, seeds: int | None, jobs: int, *, quiet: bool
) -> None:
    from adamab.cli.folders import make_folder
    from adamab.errors import TaskError
    from adamab.study.convergence import run
    from adamab.study.datasets.base import data_directory

    if seeds is not None and seeds < 2:
        raise TaskError(f"{CONVERGENCE} needs two seeds or more for its intervals; leave --seeds out")
    directory = data_directory(data) if sets != ["demo"] else data
    make_folder(output, " for the results")
    command = _command(CONVERGENCE, sets, seeds)
    for path in run(directory, output, sets=sets, seeds=seeds, jobs=jobs, command=command):
        if not quiet:
            echo(str(path))


def _quality(name: str, **options: Any) -> QualityCommand:
    from adamab.cli.quality import QualityCommand
    from adamab.study.quality_plan import plan

    return QualityCommand(plan(name, **options))  # type: ignore[arg-type]  # one of the two names


def _refuse(experiment: str, **options: object) -> None:
    from adamab.errors import TaskError

    for name, value in options.items():
        if value:
            raise TaskError(f"{experiment} takes no --{name.replace('_', '-')}; leave it out")


def _command(
    experiment: str,
    sets: list[str] | None,
    seeds: int | None,
    embedder: str | None = None,
    generators: list[str] | None = None,
    split: str | None = None,
    part: str | None = None,
) -> str:
    """What would do it again; folders are left out, because they differ from machine to machine."""
    options = {"sets": ",".join(sets or ()), "seeds": seeds, "embedder": embedder}
    options |= {"split": split, "part": part}
    written = [f"--{name} {value}" for name, value in options.items() if value]
    written += [f"--generator {generator}" for generator in generators or ()]
    return " ".join(["adamab reproduce", Path(experiment).name, *written])
