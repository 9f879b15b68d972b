"""`adamab predict`: classes for texts, pictures or vectors, as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adamab.cli.asking import Prior, asked_for, notes
from adamab.cli.caps import Caps
from adamab.cli.console import Bar, counted, progress, say, say_missing
from adamab.cli.engine_options import Address, EngineName, ray_address
from adamab.errors import AdamabError, TaskError
from adamab.serving import CHUNK

if TYPE_CHECKING:
    from adamab.classifier import Answers, Asked, Classifier
    from adamab.cli.prediction_files import Row
    from adamab.run.inference import Inference

PART_ROWS = 16 * CHUNK  # whole chunks, so that parts do not change what is embedded together
_SHOWN = 3  # broken pictures that are named


class Format(StrEnum):
    """How texts are written."""

    csv = "csv"
    tsv = "tsv"
    jsonl = "jsonl"
    txt = "txt"


Workers = Annotated[
    int | None,
    typer.Option(
        min=1, max=1000, metavar="N", show_default="1", help="Actors of Ray, each with its own model."
    ),
]
PartRows = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        metavar="N",
        show_default=str(PART_ROWS),
        help="Rows a part, where OUT has parts.",
    ),
]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a saved model's.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="CSV, TSV, JSONL or Parquet with text, TXT with one a line, a folder of such files, NPZ "
            "with vectors, or - for stdin (plain lines, unless --format says otherwise); of pictures a "
            "folder, or a file with image.",
        ),
    ],
    kind: Annotated[
        Format | None,
        typer.Option("--format", help="How INPUT is written; else its ending says so, and stdin is txt."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="CSV, TSV, JSONL or Parquet file, or a folder of Parquet parts; else CSV on stdout.",
        ),
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
    budget: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Caps on paid calls, such as '1.50 usd, 500 calls'.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=IN/OUT", help="Your price in usd a million tokens; repeat."),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    part_rows: PartRows = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSONL on stdout instead of CSV; of parts, a summary.")
    ] = False,
) -> None:
    """Name the class of each text or picture and its probability; the input's own fields are kept.

    A field of the input that is called like one of ours is kept as input_NAME. Started again, it goes on
    where it was stopped.
    """
    from adamab.cli.prediction_files import PARQUET, PARTS, check_output, output_format

    address = ray_address(engine, address)
    check_output(source, output)
    output_kind = output_format(output, as_json)
    _refuse_idle(engine, output_kind, workers=workers, part_rows=part_rows, skip_broken=skip_broken)
    question = Question(
        run, source, kind, asked_for(top_k, prior, unknown, coverage), embedder, not no_cache, skip_broken
    )
    caps = Caps.of(budget, price)
    if output is not None and output_kind in (PARQUET, PARTS):
        from adamab.cli.bulk_predict import bulk_predict

        spread = Spread(engine, address, workers or 1, part_rows or PART_ROWS, as_json)
        with _told_to_go_on():
            bulk_predict(question, caps, output, output_kind, spread)
        return
    with progress("predicting") as bar:
        _write(question, caps, output, output_kind, bar)


@contextmanager
def _told_to_go_on() -> Iterator[None]:
    """Whoever stops a prediction hears that it is not lost."""
    from adamab.errors import StoppedError

    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError("stopped; what is finished is kept: run the same command again to go on") from None


def _refuse_idle(
    engine: str, kind: str, *, workers: int | None, part_rows: int | None, skip_broken: bool
) -> None:
    """An option without an effect is a misunderstanding."""
    from adamab.cli.prediction_files import PARQUET, PARTS

    in_parts = kind in (PARQUET, PARTS)
    if engine == "ray" and kind != PARTS:
        raise TaskError("--engine ray writes a folder of Parquet parts; name one with -o FOLDER")
    if workers is not None and engine != "ray":
        raise TaskError("--workers are those of Ray; add --engine ray or leave it out")
    if part_rows is not None and not in_parts:
        raise TaskError("--part-rows is for a folder or a Parquet file; name one with -o, or leave it out")
    if skip_broken and in_parts:
        raise TaskError("--skip-broken: in Parquet a broken picture is a row with an error; leave it out")


@dataclass(frozen=True)
class Question:
    """What is asked, of which model and about which input."""

    run: Path
    source: str
    kind: str | None
    asked: Asked
    embedder: str | None
    cache: bool
    skip_broken: bool

    @property
    def of_vectors(self) -> bool:
        """Whether the input is vectors, so that nobody has to embed."""
        return self.kind is None and self.source.lower().endswith(".npz")

    def open(self) -> Inference:
        """The model and its embedder; refuses what they cannot tell."""
        from adamab.run.inference import Inference

        inference = Inference.open(self.run, self.embedder, cache=self.cache)
        inference.check(self.asked)
        say_notes(inference.classifier, self.asked)
        return inference


@dataclass(frozen=True)
class Spread:
    """Who does the work, and in which pieces."""

    engine: str
    address: str | None
    workers: int
    part_rows: int
    as_json: bool


def _write(question: Question, caps: Caps, output: Path | None, kind: str, bar: Bar) -> None:
    from adamab.cli.prediction_files import is_file, written

    inference = None if question.of_vectors else question.open()
    predictions = partial(_predictions, question, inference, caps, bar)
    if output is None or not is_file(output):
        chunks = predictions()
        begun = list(islice(chunks, 1))  # what is wrong with the input shows before the output is touched
        with written(output, kind) as write:
            for _, rows in chain(begun, chunks):
                for row in rows:
                    write(row)
        return
    from adamab.cli.resumed_file import ResumedFile

    identity = _identity(question, inference)
    kept = _told_to_go_on() if identity is not None else nullcontext()
    with kept, ResumedFile(output, kind, identity).opened() as file:
        if file.done:
            say(f"going on after {counted(file.done, 'row')} that an earlier start has written")
        for consumed, rows in predictions(file.book, file.done):
            file.put(rows, consumed)


def _identity(question: Question, inference: Inference | None) -> dict[str, Any] | None:
    """What a second start must find again; None where the input cannot be read twice."""
    import hashlib

    from adamab.classifier.files import read_document
    from adamab.cli.prediction_files import STDIN
    from adamab.serving.bulk_sources import find_sources, identity_of

    path = Path(question.source)
    if inference is None or question.source == STDIN or not (path.is_file() or path.is_dir()):
        return None
    try:
        found = find_sources(question.source, question.kind, inference.modality)
        sources = [identity_of(source) for source in found]
        document = read_document(question.run)
    except AdamabError:
        return None  # whoever opens them says what is wrong
    asked = {name: value for name, value in vars(question).items() if name not in ("run", "cache")}
    return {
        "input": sources,
        "model": hashlib.sha256(document).hexdigest(),
        "vectors": inference.vectors_version,
        "question": {name: str(value) for name, value in asked.items()},
    }


Chunk = tuple[int, list[dict[str, Any]]]  # rows of the input that were read, and what is told of them


def _predictions(
    question: Question,
    inference: Inference | None,
    caps: Caps,
    bar: Bar,
    book: Path | None = None,
    done: int = 0,
) -> Iterator[Chunk]:
    asked, source = question.asked, question.source
    if inference is None:
        yield from _of_vectors(question.run, Path(source), asked, bar)
        return
    from adamab.cli.fit_summary import long_text_warning

    broken: list[str] | None = [] if question.skip_broken else None
    with caps.held(inference, book):
        rows = islice(_read(source, question.kind, inference.modality, broken), done, None)
        for chunk in _chunks(rows):
            yield len(chunk), list(_answers(inference, chunk, asked, broken))
            bar.step(len(chunk))
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


def _answers(
    inference: Inference, rows: list[Row], asked: Asked, broken: list[str] | None
) -> Iterator[dict[str, Any]]:
    from adamab.cli.image_rows import only_readable
    from adamab.errors import ImageError

    if broken is not None and inference.remote:  # looked at before anything is paid for
        rows = only_readable(rows, broken)
    try:
        told = inference.answers(rows, asked)
    except ImageError:
        if broken is None:
            raise
        rows = only_readable(rows, broken)
        told = inference.answers(rows, asked)
    yield from _written((row.fields for row in rows), told, inference.classifier, asked)


def _written(
    fields: Iterable[Mapping[str, object]], told: Answers, classifier: Classifier, asked: Asked
) -> Iterator[dict[str, Any]]:
    from adamab.cli.prediction_files import answer

    for number, of_row in enumerate(fields):
        yield answer(of_row, classifier.classes, told, number, asked.k)


def say_notes(classifier: Classifier, asked: Asked) -> None:
    """Where too few samples were held out for what is asked."""
    for note in notes(classifier.confidence, asked):
        say(note)


def _of_vectors(run: Path, path: Path, asked: Asked, bar: Bar) -> Iterator[Chunk]:
    from adamab.classifier import load
    from adamab.cli.prediction_files import read_vectors

    classifier = load(run)
    say_notes(classifier, asked)
    vectors = read_vectors(path, classifier)
    bar.phase("predicting", len(vectors.ids))
    for start in range(0, len(vectors.ids), CHUNK):
        part = vectors.part(start, start + CHUNK)
        told = classifier.answers(part.views, part.texts, asked)
        yield len(part.ids), list(_written(part.fields(), told, classifier, asked))
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
