"""`adamab classes` and `adamab add-class`: changes of a run's classes, which the next fit follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import counted, echo, print_json, print_table, say, say_passed_over
from adamab.cli.help import Command, Group
from adamab.cli.options import Prices, prices_of
from adamab.errors import RunError, TaskError, place, short

if TYPE_CHECKING:
    from adamab.run.add_class import Added
    from adamab.task.spec import Sample, Task

app = typer.Typer(cls=Group, add_completion=False)
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The class.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The new class.")]
Description = Annotated[
    str | None, typer.Option("--description", metavar="TEXT", help="What belongs to it, in a sentence.")
]
Examples = Annotated[
    str | None,
    typer.Option(
        "--examples",
        metavar="FILE",
        help="Its examples: CSV, TSV or JSONL with text, TXT with one a line; of images a folder, "
        "one image, or a file with their paths.",
    ),
]
RunsEmbedder = Annotated[
    str | None,
    typer.Option("--embedder", metavar="SPEC", help="Where the run's own embedder is to be found now."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Use no vectors of other runs, and leave none.")]
NoFit = Annotated[
    bool, typer.Option("--no-fit", help="Leave the fit to a later adamab fit --run RUN, after more changes.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]
# In one trial with eight new texts of such a class.
_WORTH = "0 of 8 right in a trial with a description alone, 3 with four examples, 7 after a fit"


@app.callback(invoke_without_command=True)
def classes(context: typer.Context, run: Run) -> None:
    """Show the classes of RUN; rename, merge, remove or add some, and it is fitted again.

    What has arrived is not bought again: synthetic samples go along with a renamed or merged class.

    Those of a removed class stay in the run, out of training, until the class comes back.
    """
    from adamab.run.directory import has_journal, read_task

    if not has_journal(run):
        raise RunError(f"{place(run)}: there is no run; name the directory of one")
    context.obj = run
    if context.invoked_subcommand is not None:
        return
    task = read_task(run)
    rows = [(c.name, len(task.samples_of(c.name)), c.description or "") for c in task.classes]
    print_table(("class", "given#", "description"), rows)


@app.command(cls=Command)
def rename(
    context: typer.Context,
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its name from now on.")],
    no_fit: NoFit = False,
    as_json: AsJson = False,
) -> None:
    """Give a class another name."""
    from adamab.run.classes import rename_class
    from adamab.task.words import checked

    new = checked(new, "NEW", "the class")
    _change(context.obj, lambda run: rename_class(run, name, new), no_fit=no_fit, as_json=as_json)


@app.command(cls=Command)
def merge(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The classes.")],
    into: Annotated[
        str,
        typer.Option(metavar="CLASS", help="The class that gets their samples; it may be a new one."),
    ],
    no_fit: NoFit = False,
    as_json: AsJson = False,
) -> None:
    """Make one class of several."""
    from adamab.run.classes import merge_classes
    from adamab.task.words import checked

    into = checked(into, "--into", "the class")
    _change(context.obj, lambda run: merge_classes(run, names, into), no_fit=no_fit, as_json=as_json)


@app.command(cls=Command)
def remove(context: typer.Context, name: Name, no_fit: NoFit = False, as_json: AsJson = False) -> None:
    """Take a class and its examples out."""
    from adamab.run.classes import remove_class

    _change(context.obj, lambda run: remove_class(run, name), no_fit=no_fit, as_json=as_json)


@app.command(cls=Command)
def add(
    context: typer.Context,
    name: NewName,
    description: Description = None,
    examples: Examples = None,
    embedder: RunsEmbedder = None,
    price: Prices = None,
    no_cache: NoCache = False,
    no_fit: NoFit = False,
    as_json: AsJson = False,
) -> None:
    """Add a class, from a description or examples, better both."""
    add_class(context.obj, name, description, examples, embedder, price, no_cache, no_fit, as_json)


def add_class(
    run: Run,
    name: NewName,
    description: Description = None,
    examples: Examples = None,
    embedder: RunsEmbedder = None,
    price: Prices = None,
    no_cache: NoCache = False,
    no_fit: NoFit = False,
    as_json: AsJson = False,
) -> None:
    """Add a class to RUN and fit it again; what has arrived is not bought again.

    It needs a description or examples, better both. With --no-fit the classifier knows it at once, untrained.
    """
    from adamab.cli.errors import need_torch_for
    from adamab.run.classes import Addition, edit_task, with_class
    from adamab.run.directory import read_summary
    from adamab.task.words import checked

    name = checked(name, "NAME", "the class")
    is_image = read_summary(run)["task"]["modality"] == "image"
    samples = () if examples is None else _samples(examples, name, is_image)
    addition = Addition(name, description, samples, prices_of(price))
    if embedder is not None:
        need_torch_for(embedder)
    if not no_fit:
        from adamab.cli.fit import fit_again

        _check_can_fit(run, embedder)
        edit_task(run, lambda task: with_class(task, addition))
        fit_again(run, embedder=embedder, prices=addition.prices, cache=not no_cache, as_json=as_json)
        return
    from adamab.run.add_class import add_class as add_at_once

    def on_calls(texts: int) -> None:
        say(f"asking the run's embedder for {counted(texts, 'vector')}, which counts in the run's budget")

    added = add_at_once(run, addition, embedder=embedder, cache=not no_cache, on_calls=on_calls)
    _report(run, added, as_json=as_json)


def _change(run: Path, change: Callable[[Path], Task], *, no_fit: bool, as_json: bool) -> None:
    if not no_fit:
        _check_can_fit(run)
    task = change(run)
    if not no_fit:
        from adamab.cli.fit import fit_again

        fit_again(run, as_json=as_json)
    elif as_json:
        print_json({"run": str(run), "classes": task.class_names, "next": _next(run)})
    else:
        echo(f"the task has {_listed(task.class_names)} now, and the classifier after {_next(run)}")


def _check_can_fit(run: Path, embedder: str | None = None) -> None:
    """Say before anything is changed that a run cannot be fitted from here."""
    from adamab.run.settings import stored_settings

    try:
        stored_settings(run, embedder=embedder)
    except RunError:
        raise RunError(
            f"{place(run)}: does not say how it was started; add --no-fit, and fit it as it was begun"
        ) from None


def _next(run: Path) -> str:
    return f"adamab fit --run {place(run)}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(short(name) for name in names[:8])
    return f"{len(names)} classes ({shown}{', …' if len(names) > 8 else ''})"


def _samples(source: str, name: str, is_image: bool) -> tuple[Sample, ...]:
    from adamab.task import read_images, read_texts
    from adamab.task.spec import Sample

    rows = list(read_images(source) if is_image else read_texts(source))
    if is_image:
        say_passed_over(source)
    for row in rows:
        for label in (row.fields.get("label", name), row.fields.get("class", name)):
            if label != name:
                raise TaskError(
                    f"{source}:{row.line}: is of class {short(label)}, not of {short(name)}; "
                    "give the examples of the new class only"
                )
    return tuple(Sample(row.text, name, id=row.id, image=row.image) for row in rows)


def _report(run: Path, added: Added, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "run": str(run),
                "class": added.name,
                "classes": added.classes,
                "examples": added.examples,
                "repeats": added.repeats,
                "overlong": added.overlong,
                "next": _next(run),
            }
        )
        return
    left_out = f" ({counted(added.repeats, 'repeat')} left out)" if added.repeats else ""
    echo(
        f"added class {short(added.name)} with {counted(added.examples, 'example')}{left_out}; "
        f"the classifier knows {added.classes} classes now"
    )
    echo(
        f"it is not trained on the new one ({_WORTH}): {_next(run)} does that; "
        "what has arrived is not bought again"
    )
