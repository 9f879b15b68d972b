"""`adamab add-class`: one more class for a run, at once and without training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import counted, echo, print_json, say, say_passed_over
from adamab.cli.options import Prices, prices_of
from adamab.errors import TaskError, place, short

if TYPE_CHECKING:
    from adamab.run.add_class import Added
    from adamab.task.spec import Sample


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
            help="Its examples: CSV, TSV or JSONL with text, TXT with one a line; of images a folder, "
            "one image, or a file with their paths.",
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
    from adamab.cli.errors import need_torch_for
    from adamab.run.add_class import Addition
    from adamab.run.add_class import add_class as add
    from adamab.run.directory import read_summary
    from adamab.task.words import checked

    name = checked(name, "NAME", "the class")
    is_image = examples is not None and read_summary(run)["task"]["modality"] == "image"
    samples = () if examples is None else _samples(examples, name, is_image)
    addition = Addition(name, description, samples, prices_of(price))
    if embedder is not None:
        need_torch_for(embedder)

    def on_calls(texts: int) -> None:
        say(f"asking the run's embedder for {counted(texts, 'vector')}, which counts in the run's budget")

    added = add(run, addition, embedder=embedder, cache=not no_cache, on_calls=on_calls)
    _report(run, added, as_json=as_json)


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
    left_out = f" ({counted(added.repeats, 'repeat')} left out)" if added.repeats else ""
    echo(
        f"added class {short(added.name)} with {counted(added.examples, 'example')}{left_out}; "
        f"the classifier knows {added.classes} classes now"
    )
    echo(f"it has not been trained on the new one: {next_step} does that, and buys nothing again")
