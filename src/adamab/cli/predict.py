"""`adamab predict`: classes for texts, images or vectors, as a stream, a file or a folder of parts."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adamab.cli.console import Bar, counted, print_json, progress, say, say_passed_over, standard_output
from adamab.cli.errors import stop_gently
from adamab.cli.options import (
    Address,
    Coverage,
    Delimiter,
    Encoding,
    EngineName,
    IdColumn,
    Model,
    NoVectors,
    OtherEmbedder,
    Prices,
    Prior,
    TextColumn,
    Unknown,
    notes,
    predict_options,
    prices_of,
    ray_address,
    table_options,
)
from adamab.errors import RecipeError, StoppedError, TaskError, place
from adamab.predict import CHUNK

if TYPE_CHECKING:
    from adamab.engines import WorkerMap
    from adamab.model import Confidence
    from adamab.model.predictor import Inference
    from adamab.predict.parts import Worker
    from adamab.predict.predictor import Predictor, Question
    from adamab.predict.readers import Source
    from adamab.providers.metering import Budget, Price

    Metered = Callable[[Inference, Path | None], AbstractContextManager[None]]

PART_ROWS = 16 * CHUNK  # whole chunks, so that parts do not change what is embedded together
UNANSWERED = 1  # the exit code of --strict


class Format(StrEnum):
    """How texts are written."""

    csv = "csv"
    tsv = "tsv"
    jsonl = "jsonl"
    txt = "txt"


def predict(
    context: typer.Context,
    run: Model,
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="CSV, TSV, JSONL, Parquet or XLSX with text, TXT with one per line, a folder of such files, "
            "NPZ with vectors, or - for stdin (plain lines, unless --format says otherwise); of images a "
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
    top_k: Annotated[int, typer.Option(min=1, help="So many classes per text, the best first.")] = 1,
    prior: Prior = None,
    unknown: Unknown = None,
    coverage: Coverage = None,
    embedder: OtherEmbedder = None,
    no_cache: NoVectors = False,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if a row has an error instead of an answer.")
    ] = False,
    budget: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Caps on paid calls, such as '1.50 usd, 500 calls'.")
    ] = None,
    price: Prices = None,
    engine: EngineName = "local",
    address: Address = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=1000, metavar="N", show_default="1", help="Tasks of Ray at a time."),
    ] = None,
    part_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**6,
            metavar="N",
            show_default=str(PART_ROWS),
            help="Rows per part, where OUT has parts.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSONL on stdout instead of CSV; of parts, a summary.")
    ] = False,
) -> None:
    """Name the class of each text or image and its probability; the input's own fields are kept.

    A row that cannot be answered says why in its column error. A field of the input that is called like one
    of ours is kept as input_NAME. Started again, it goes on where it was stopped.
    """
    from adamab.predict.predictor import Question
    from adamab.predict.writers import PARTS, is_special, output_kind
    from adamab.task.table_files import PARQUET

    address = ray_address(engine, address)
    to = output_kind(source, output, as_json=as_json)
    if engine == "ray" and to != PARTS:
        raise TaskError("--engine ray writes a folder of Parquet parts; name one with -o FOLDER")
    if workers is not None and engine != "ray":
        raise TaskError("--workers are those of Ray; add --engine ray or leave it out")
    if part_rows is not None and to not in (PARQUET, PARTS):
        raise TaskError("--part-rows is for a folder or a Parquet file; name one with -o, or leave it out")
    options = predict_options(top_k, prior, unknown, coverage)
    table = table_options(context.params)
    question = Question(str(run), source, kind, options, embedder, not no_cache, table)
    caps, prices = None, {}
    if budget is not None or price:
        from adamab.providers.metering import Budget

        caps, prices = Budget.parse(budget), prices_of(price)
        if caps.samples is not None:
            raise RecipeError("--budget: a prediction makes no samples; cap usd or calls, such as '9 calls'")
    metered = partial(_metered, caps, prices)
    if output is None or is_special(Path(os.path.realpath(output))):
        errors = _stream(question, metered, output, to)
    elif question.of_vectors:
        _vectors_to_file(question, output, to)
        errors = 0
    else:
        map_items = partial(_workers, engine, address, workers or 1)
        errors = _to_parts(question, metered, output, to, part_rows or PART_ROWS, map_items, as_json)
    if errors and strict:
        raise typer.Exit(UNANSWERED)


@contextmanager
def _metered(
    caps: Budget | None, prices: Mapping[str, Price], inference: Inference, book: Path | None
) -> Iterator[None]:
    """Count the embedder's calls in `book`, so that the caps hold over all starts; say what was spent."""
    embedder = inference.embedder
    if caps is None or embedder is None or embedder.api is None:
        yield
        return
    from adamab.cli.summaries import spending_lines
    from adamab.providers.metering import CallContext, Ledger
    from adamab.run.directory import spending

    with Ledger(caps, book) as ledger, stop_gently([embedder.api]) as stop:
        context = CallContext(caps, prices, ledger, stop=stop)
        with context.connected(embedder, None):
            yield
        spent = spending(context.spent())
        for line in spending_lines({"spent": spent}) if spent["calls"] else ():
            say(line)


def _open(question: Question) -> Inference:
    """The model and its embedder; refuses what they cannot tell."""
    inference = question.open()
    inference.check(question.options)
    _say_notes(question, inference.classifier.confidence)
    return inference


def _say_notes(question: Question, confidence: Confidence | None) -> None:
    for note in notes(confidence, question.options):
        say(note)


def _stream(question: Question, metered: Metered, output: Path | None, kind: str) -> int:
    """Rows to stdout, a device or a pipe as they come; returns how many have an error."""
    from adamab.predict.predictor import Predictor
    from adamab.predict.readers import fields_vary, none_answered
    from adamab.predict.writers import row_writer

    count, errors = 0, list[str]()

    with progress("predicting") as bar:
        if question.of_vectors:
            chunks, spill = _vector_rows(question), False
        else:
            predictor = Predictor(question, _open(question))
            sources = question.sources(predictor.inference)
            _count_rows(sources, bar)
            chunks, spill = _streamed_rows(predictor, metered), fields_vary(sources)
        first = list(islice(chunks, 1))  # what is wrong with the input shows before the output is touched
        try:
            with (
                nullcontext(sys.stdout.buffer) if output is None else open(output, "wb") as stream,
                standard_output() if output is None else nullcontext(),
            ):
                write = row_writer(kind, stream, chain.from_iterable(first), spill=spill)
                for rows in chain(first, chunks):
                    for row in rows:
                        write(row)
                    bar.step(len(rows))
                    count += len(rows)
                    errors += [str(row["error"]) for row in rows if row.get("error") is not None]
        except OSError as error:
            if output is None or isinstance(error, BrokenPipeError):
                raise
            raise TaskError(f"{place(output)}: cannot be written ({error.strerror or error})") from None
    if errors and len(errors) == count:
        raise none_answered(question.input, count, errors[0])
    _say_errors(len(errors))
    return len(errors)


def _streamed_rows(predictor: Predictor, metered: Metered) -> Iterator[list[dict[str, object]]]:
    with metered(predictor.inference, None):
        yield from predictor.chunks()
    _say_overlong(predictor.inference, predictor.inference.overlong)


def _vector_rows(question: Question) -> Iterator[list[dict[str, object]]]:
    from adamab.model import load
    from adamab.predict.predictor import vector_rows

    classifier = load(question.run)
    _say_notes(question, classifier.confidence)
    return vector_rows(question, classifier)


def _vectors_to_file(question: Question, output: Path, kind: str) -> None:
    from adamab.predict.parts import PartsFolder, parts_beside

    if kind not in ("csv", "tsv", "jsonl"):
        raise TaskError("vectors are predicted into one file; name one that ends in .csv, .tsv or .jsonl")
    folder, total = PartsFolder(parts_beside(output), "jsonl", output), 0
    with folder.begun(None, say), progress("predicting") as bar:
        for number, rows in enumerate(_vector_rows(question)):
            folder.write(0, number, rows)
            total += len(rows)
            bar.step(len(rows))
        folder.join(kind, output, total, spill=False)


def _to_parts(
    question: Question,
    metered: Metered,
    output: Path,
    kind: str,
    part_rows: int,
    map_items: Callable[[Worker], AbstractContextManager[WorkerMap]],
    as_json: bool,
) -> int:
    """Parts that a later start goes on with, and the file that they become; returns how many rows failed."""
    from adamab.predict.parts import SPENDING, PartsFolder, Worker, make_job, parts_beside, run_job
    from adamab.predict.readers import STDIN, fields_vary
    from adamab.predict.writers import PARTS
    from adamab.task.table_files import PARQUET, pyarrow

    parquet = kind in (PARQUET, PARTS)
    if parquet and question.input == STDIN:
        raise TaskError("stdin cannot be read twice, so it has no parts; save it as a file first")
    if parquet:
        pyarrow()  # its absence is reported before a model is loaded
    inference = _open(question)
    path = output if kind == PARTS else parts_beside(output)
    rows = part_rows if parquet else CHUNK
    job = make_job(question, inference, path, rows, parquet=parquet)
    folder, worker, identity = PartsFolder(path, job.kind, output), Worker(job, inference), job.identity()
    if inference.modality == "image":
        say_passed_over(question.input)
    with _resumable() if identity is not None else nullcontext(), folder.begun(identity, say):
        earlier = 0 if parquet else sum(folder.status(*numbers).rows for numbers in folder.finished())
        if earlier:
            say(f"going on after {counted(earlier, 'row')} that an earlier start has written")
        book = None if identity is None else path / SPENDING
        with progress("predicting") as bar, metered(inference, book), map_items(worker) as predict:
            _count_rows(job.sources, bar)
            total = run_job(job, folder, predict, lambda status: bar.step(status.rows))
        if kind != PARTS:
            folder.join(kind, output, total.rows, spill=fields_vary(job.sources))
    if parquet and as_json:
        print_json({"output": str(output), **asdict(total)})
        return total.errors
    if parquet:
        before = f", {total.reused} of them finished before" if total.reused else ""
        say(f"{output}: {counted(total.rows, 'row')} in {counted(total.parts, 'part')}{before}")
    _say_errors(total.errors)
    _say_overlong(inference, total.overlong)
    return total.errors


def _count_rows(sources: Sequence[Source], bar: Bar) -> None:
    """Tell the bar how many rows there are, if somebody sees it and that can be known."""
    from adamab.predict.readers import count_rows

    if bar.visible:
        counts = [count_rows(source) for source in sources]
        bar.phase("predicting", None if None in counts else sum(filter(None, counts)))


@contextmanager
def _workers(engine: str, address: str | None, workers: int, worker: Worker) -> Iterator[WorkerMap]:
    """What predicts parts: this process, or tasks of Ray in processes that have a model each."""
    is_remote = worker.predictor.inference.remote
    if engine == "ray" and is_remote:
        say("note: an API is called under one limit and one budget, so this process does it all, without Ray")
    if engine == "local" or is_remote:
        yield lambda parts: ((part, worker(part)) for part in parts)
        return
    from adamab.engines import Engine
    from adamab.predict.parts import Worker, predict_part

    tasks = Engine("ray", workers, address, task_cpus=0.5, most_tasks=workers)
    # Ray writes about workers that died to stdout, which is for results.
    with redirect_stdout(io.StringIO()), tasks.workers(predict_part, Worker(worker.job)) as map_items:
        yield map_items


@contextmanager
def _resumable() -> Iterator[None]:
    """Whoever stops a prediction hears that it is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError("stopped; what is finished is kept: run the same command again to go on") from None


def _say_errors(count: int) -> None:
    if count:
        say(f"{counted(count, 'row')} could not be classified; see the column error")


def _say_overlong(inference: Inference, count: int) -> None:
    from adamab.cli.summaries import long_text_warning

    if count:
        say(long_text_warning(count, inference.classifier.embedder_spec))
