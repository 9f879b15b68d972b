"""`adamab add-class`: one more class for a run, at once and without training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import counted, echo, print_json, say, say_missing
from adamab.cli.fit import Prices

if TYPE_CHECKING:
    from adamab.run.add_class import Added
    from adamab.task.samples import TextRow
    from adamab.task.spec import Modality, Sample


def add_class(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new class.")],
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What belongs to it, in a sentence.")
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Its examples: CSV, TSV or JSONL with text, TXT with one a line; of pictures a folder, "
            "one picture, or a file with their paths.",
        ),
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Where the run's own embedder is to be found now.")
    ] = None,
    price: Prices = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Use no vectors of other runs, and leave none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Add a class to the classifier of RUN; it is known at once, and `adamab fit --run RUN` trains it in.

    It needs a description or examples, better both.
    """
    from adamab.cli.extras import need_torch_for
    from adamab.providers.prices import Price
    from adamab.run.add_class import Addition
    from adamab.run.add_class import add_class as add
    from adamab.task.messages import checked

    name = checked(name, "NAME", "the class")
    addition = Addition(
        name,
        description,
        () if examples is None else tuple(_samples(examples, name, _modality(run))),
        dict(Price.parse(text) for text in price or ()),
    )
    if embedder is not None:
        need_torch_for(embedder)
    added = add(run, addition, embedder=embedder, cache=not no_cache, on_calls=_say_calls)
    _report(run, added, as_json=as_json)


def _modality(run: Path) -> Modality:
    from adamab.run.directory import read_summary

    return "image" if read_summary(run)["task"]["modality"] == "image" else "text"


def _samples(source: str, name: str, modality: Modality) -> list[Sample]:
    from adamab.task import read_images, read_texts
    from adamab.task.spec import Sample

    rows = list(read_images(source) if modality == "image" else read_texts(source))
    if modality == "image":
        say_missing(source)
    for row in rows:
        _check_label(source, row, name)
    return [Sample(row.text, name, id=row.id, image=row.image) for row in rows]


def _check_label(source: str, row: TextRow, name: str) -> None:
    from adamab.errors import TaskError
    from adamab.task.messages import short

    for key in ("label", "class"):
        if row.fields.get(key, name) != name:
            raise TaskError(
                f"{source}:{row.line}: is of class {short(row.fields[key])}, not of {short(name)}; "
                "give the examples of the new class only"
            )


def _say_calls(texts: int) -> None:
    say(f"asking the run's embedder for {counted(texts, 'vector')}, which counts in the run's budget")


def _report(run: Path, added: Added, *, as_json: bool) -> None:
    from adamab.task.messages import place, short

    next_step = f"adamab fit --run {place(run)}"
    if as_json:
        print_json(
            {
                "run": str(run),
                "class": added.name,
                "classes": added.classes,
                "examples": added.examples,
                "repeats": added.repeats,
                "overlong": added.overlong,
                "next": next_step,
            }
        )
        return
    told = f" ({counted(added.repeats, 'repeat')} left out)" if added.repeats else ""
    echo(
        f"added class {short(added.name)} with {counted(added.examples, 'example')}{told}; "
        f"the classifier knows {added.classes} classes now"
    )
    echo(f"it has not been trained on the new one: {next_step} does that, and buys nothing again")
