"""`adamab predict -o FOLDER` and `-o FILE.parquet`: parts that are made once, here or by Ray's workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.cli.console import counted, print_json, progress, say, say_missing
from adamab.cli.fit_summary import long_text_warning
from adamab.cli.prediction_files import PARQUET, STDIN
from adamab.errors import RunError, TaskError
from adamab.serving.bulk import Finished, bulk_begun, here, run_bulk
from adamab.serving.bulk_job import make_job
from adamab.serving.bulk_parts import SPENDING, PartsFolder, read_part, sync
from adamab.serving.bulk_ray import on_ray
from adamab.serving.bulk_sources import pyarrow
from adamab.task.messages import one_line, place

if TYPE_CHECKING:
    from adamab.cli.caps import Caps
    from adamab.cli.predict import Question, Spread
    from adamab.run.inference import Inference
    from adamab.serving.bulk import Engine


def bulk_predict(question: Question, caps: Caps, output: Path, kind: str, spread: Spread) -> None:
    """Every row of the input in a part, with its answer or its error."""
    _refuse(question)
    pyarrow()  # its absence is told before a model is loaded
    inference = question.open()
    folder = _parts_beside(output) if kind == PARQUET else output
    job = make_job(
        question.run,
        question.source,
        folder,
        inference,
        kind=question.kind,
        part_rows=spread.part_rows,
        asked=question.asked,
        embedder=question.embedder,
        cache=question.cache,
    )
    if inference.modality == "image":
        say_missing(question.source)
    with bulk_begun(job) as parts:
        with progress("predicting") as bar, caps.held(inference, parts.path / SPENDING):
            total = run_bulk(job, _engine(spread, inference), lambda status: bar.step(status.rows))
        if kind == PARQUET:
            _join(parts, total.rows, output)
    if spread.as_json:
        print_json({"output": str(output), **asdict(total)})
    else:
        _tell(total, inference, output)


def _refuse(question: Question) -> None:
    if question.source == STDIN:
        raise TaskError("stdin cannot be read twice, so it has no parts; save it as a file first")
    if question.of_vectors:
        raise TaskError("vectors are predicted into one file; name one that ends in .csv, .tsv or .jsonl")


def _engine(spread: Spread, inference: Inference) -> Engine:
    if spread.engine == "local":
        return here(inference)
    if inference.remote:
        say("note: an API is asked under one limit and one budget, so this process does it all, without Ray")
        return here(inference)
    return on_ray(spread.address, spread.workers, say)


def _parts_beside(output: Path) -> Path:
    target = Path(os.path.realpath(output))
    return target.with_name(f".{target.name}.parts")


def _join(folder: PartsFolder, rows: int, output: Path) -> None:
    """One file of all parts; it appears under its name when it is whole."""
    temporary = folder.path / ".part-joined"
    try:
        joined = _written(folder.parts(), temporary)
        if joined != rows:
            raise RunError(
                f"{place(folder.path)}: holds {counted(joined, 'row')} where {rows} were predicted; "
                "remove the folder, then start again"
            )
        sync(temporary)  # the parts, which are on the disk, go next
        os.replace(temporary, os.path.realpath(output))
        folder.clear()
    except (OSError, ValueError, pyarrow().ArrowException) as error:
        raise TaskError(f"{place(output)}: cannot be written ({one_line(error)[:200]})") from None


def _written(parts: Sequence[Path], target: Path) -> int:
    """How many rows the parts have together, which are in one file now."""
    rows = 0
    with ExitStack() as at_end:
        writer = None
        for table in map(read_part, parts):
            if writer is None:
                writer = at_end.enter_context(pyarrow().parquet.ParquetWriter(target, table.schema))
            writer.write_table(table)
            rows += len(table)
    return rows


def _tell(total: Finished, inference: Inference, output: Path) -> None:
    before = f", {total.found} of them finished before" if total.found else ""
    say(f"{output}: {counted(total.rows, 'row')} in {counted(total.parts, 'part')}{before}")
    if total.errors:
        say(f"{counted(total.errors, 'row')} could not be classified; see the column error")
    if warning := long_text_warning(total.overlong, inference.classifier.embedder_spec):
        say(warning)
