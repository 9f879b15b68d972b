"""`adamab predict -o FOLDER` and `-o FILE.parquet`: parts that are made once, here or by Ray's workers."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.cli.console import counted, print_json, progress, say, say_missing
from adamab.cli.fit_summary import long_text_warning
from adamab.cli.prediction_files import PARQUET, STDIN
from adamab.errors import TaskError
from adamab.serving.bulk import Finished, begin_bulk, here, run_bulk
from adamab.serving.bulk_job import make_job
from adamab.serving.bulk_parts import SPENDING, PartsFolder
from adamab.serving.bulk_ray import on_ray
from adamab.serving.bulk_sources import pyarrow
from adamab.task.messages import place

if TYPE_CHECKING:
    from adamab.cli.caps import Caps
    from adamab.cli.predict import Question, Spread
    from adamab.run.inference import Inference
    from adamab.serving.bulk import Engine
    from adamab.serving.bulk_job import Job


def bulk_predict(question: Question, caps: Caps, output: Path, kind: str, spread: Spread) -> None:
    """Every row of the input in a part, with its answer or its error."""
    _refuse(question, kind, spread)
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
    begin_bulk(job)
    with progress("predicting") as bar, caps.held(inference, Path(job.output) / SPENDING):
        total = run_bulk(job, _engine(spread, inference), lambda status: bar.step(status.rows))
    if kind == PARQUET:
        _join(job, output)
    if spread.as_json:
        print_json({"output": str(output), **asdict(total)})
    else:
        _tell(total, inference, output)


def _refuse(question: Question, kind: str, spread: Spread) -> None:
    if spread.engine == "ray" and kind == PARQUET:
        raise TaskError("--engine ray writes a folder of Parquet parts; name one with -o FOLDER")
    if question.source == STDIN:
        raise TaskError("stdin cannot be read twice, so it has no parts; save it as a file first")
    if question.kind is None and question.source.lower().endswith(".npz"):
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


def _join(job: Job, output: Path) -> None:
    """One file of all parts; it appears under its name when it is whole."""
    pa = pyarrow()
    folder, target = PartsFolder(Path(job.output)), Path(os.path.realpath(output))
    paths = [folder.part(s, n) for s, numbers in sorted(folder.finished().items()) for n in sorted(numbers)]
    temporary = folder.path / ".part-joined"
    try:
        schema = pa.parquet.read_schema(paths[0]).remove_metadata()
        with pa.parquet.ParquetWriter(temporary, schema) as writer:
            for path in paths:
                writer.write_table(pa.parquet.read_table(path).replace_schema_metadata(None))
        os.replace(temporary, target)
        shutil.rmtree(folder.path)
    except OSError as error:
        raise TaskError(f"{place(output)}: cannot be written ({error.strerror or error})") from None


def _tell(total: Finished, inference: Inference, output: Path) -> None:
    before = f", {total.found} of them finished before" if total.found else ""
    say(f"{output}: {counted(total.rows, 'row')} in {counted(total.parts, 'part')}{before}")
    if total.errors:
        say(f"{counted(total.errors, 'row')} could not be classified; see the column error")
    if warning := long_text_warning(total.overlong, inference.classifier.embedder_spec):
        say(warning)
