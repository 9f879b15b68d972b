"""`adamab predict`: classes for texts, pictures or vectors, as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adamab.cli.asking import Prior, asked_for, notes
from adamab.cli.console import Bar, counted, progress, say, say_missing

if TYPE_CHECKING:
    from adamab.classifier import Answers, Asked, Classifier
    from adamab.cli.prediction_files import Row
    from adamab.run.inference import Inference

CHUNK = 512
_SHOWN = 3  # broken pictures that are named


class Format(StrEnum):
    """How texts are written."""

    csv = "csv"
    tsv = "tsv"
    jsonl = "jsonl"
    txt = "txt"


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a saved model's.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="CSV, TSV or JSONL with text, TXT with one a line, NPZ with vectors, or - for stdin "
            "(plain lines, unless --format says otherwise); of pictures a folder, or a file with image.",
        ),
    ],
    kind: Annotated[
        Format | None,
        typer.Option("--format", help="How INPUT is written; else its ending says so, and stdin is txt."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="CSV, TSV or JSONL file; else CSV on stdout."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="So many classes a text, the best first.")] = 1,
    prior: Prior = None,
    unknown: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Answer unknown where an input is stranger than this share of known ones, such as 0.95.",
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Add a set of classes that holds the right one this often, such as 0.9."
        ),
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Instead of the one that the model names.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor store vectors.")] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out pictures that cannot be read, and say how many.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSONL on stdout instead of CSV.")] = False,
) -> None:
    """Name the class of each text or picture and its probability; the input's own fields are kept.

    A field of the input that is called like one of ours is kept as input_NAME.
    """
    from adamab.cli.prediction_files import check_output, output_format, written

    check_output(source, output)
    output_kind = output_format(output, as_json)
    asked = asked_for(top_k, prior, unknown, coverage)
    with progress("predicting") as bar:
        rows = _predictions(
            run, source, kind, asked, embedder, cache=not no_cache, skip_broken=skip_broken, bar=bar
        )
        first = next(rows, None)  # whatever is wrong with the input shows before the output is touched
        with written(output, output_kind) as write:
            while first is not None:
                write(first)
                first = next(rows, None)


def _predictions(
    run: Path,
    source: str,
    kind: str | None,
    asked: Asked,
    embedder: str | None,
    *,
    cache: bool,
    skip_broken: bool,
    bar: Bar,
) -> Iterator[dict[str, Any]]:
    if kind is None and source.lower().endswith(".npz"):
        yield from _of_vectors(run, Path(source), asked, bar)
        return
    from adamab.cli.fit_summary import long_text_warning
    from adamab.run.inference import Inference

    inference = Inference.open(run, embedder, cache=cache)
    inference.check(asked)
    _say_notes(inference.classifier, asked)
    broken: list[str] = []
    for rows in _chunks(_read(source, kind, inference.modality, broken if skip_broken else None)):
        yield from _answers(inference, rows, asked, broken if skip_broken else None)
        bar.step(len(rows))
    if broken:
        say(f"left out {counted(len(broken), 'broken picture')}: {', '.join(broken[:_SHOWN])}{_more(broken)}")
    if warning := long_text_warning(inference.overlong, inference.classifier.embedder_spec):
        say(warning)


def _read(source: str, kind: str | None, modality: str, broken: list[str] | None) -> Iterator[Row]:
    from adamab.cli.prediction_files import read_rows

    if modality == "text":
        return read_rows(source, kind)
    from adamab.cli.image_rows import read_image_rows

    rows = read_image_rows(source, kind, broken)
    say_missing(source)
    return rows


def _more(names: list[str]) -> str:
    return ", …" if len(names) > _SHOWN else ""


def _readable(rows: list[Row], broken: list[str]) -> list[Row]:
    from adamab.cli.image_rows import only_readable

    return only_readable(rows, broken)


def _answers(
    inference: Inference, rows: list[Row], asked: Asked, broken: list[str] | None
) -> Iterator[dict[str, Any]]:
    from adamab.errors import ImageError

    if broken is not None and inference.remote:  # looked at before anything is paid for
        rows = _readable(rows, broken)
    try:
        told = inference.answers(rows, asked)
    except ImageError:
        if broken is None:
            raise
        rows = _readable(rows, broken)
        told = inference.answers(rows, asked)
    yield from _written((row.fields for row in rows), told, inference.classifier, asked)


def _written(
    fields: Iterable[Mapping[str, object]], told: Answers, classifier: Classifier, asked: Asked
) -> Iterator[dict[str, Any]]:
    from adamab.cli.prediction_files import answer

    for number, of_row in enumerate(fields):
        yield answer(of_row, classifier.classes, told, number, asked.k)


def _say_notes(classifier: Classifier, asked: Asked) -> None:
    for note in notes(classifier.confidence, asked):
        say(note)


def _of_vectors(run: Path, path: Path, asked: Asked, bar: Bar) -> Iterator[dict[str, Any]]:
    from adamab.classifier import load
    from adamab.cli.prediction_files import read_vectors

    classifier = load(run)
    _say_notes(classifier, asked)
    vectors = read_vectors(path, classifier)
    bar.phase("predicting", len(vectors.ids))
    for start in range(0, len(vectors.ids), CHUNK):
        part = vectors.part(start, start + CHUNK)
        told = classifier.answers(part.views, part.texts, asked)
        yield from _written(part.fields(), told, classifier, asked)
        bar.step(len(part.ids))


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
