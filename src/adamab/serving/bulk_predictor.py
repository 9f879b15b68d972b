"""Predicts one part: every row gets its answer or its error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adamab.errors import AdamabError, ApiError, ImageError, TaskError
from adamab.providers.embedders.base import TextError
from adamab.run.inference import Inference
from adamab.serving import CHUNK
from adamab.serving.answer_rows import told_row
from adamab.serving.bulk_job import Job
from adamab.serving.bulk_rows import RawRow
from adamab.serving.bulk_schema import answer_types, output_names
from adamab.serving.bulk_sources import PARQUET, PICTURE_LIST, Part, Source, picture_of, pyarrow
from adamab.task.files import Row
from adamab.task.image_folders import image_at
from adamab.task.image_samples import picture_path
from adamab.task.messages import one_line, storable
from adamab.task.samples import TextRow, id_of, text_row

Outcome = dict[str, Any]  # our fields of a row: class, probability, …, or error


class Predictor:
    """A loaded model and embedder; `predicted` makes the table of a part."""

    def __init__(self, job: Job, inference: Inference | None = None) -> None:
        self.job = job
        self.inference = job.open() if inference is None else inference

    def predicted(self, part: Part) -> tuple[Any, int]:
        """The part's table, one row a row of the input, and how many of them have an error."""
        source = self.job.sources[part.source]
        fields, errors, lines = _content(source, part)
        outcomes: list[Outcome] = [{"error": error} for error in errors]
        good: list[tuple[int, TextRow]] = []
        for number, of_row in enumerate(fields):
            if of_row is None:
                continue
            try:
                good.append((number, _row(source, lines[number], of_row)))
            except AdamabError as error:
                outcomes[number] = {"error": one_line(error)}
        for start in range(0, len(good), CHUNK):
            chunk = good[start : start + CHUNK]
            for (number, _), outcome in zip(chunk, self._outcomes([row for _, row in chunk]), strict=True):
                outcomes[number] = outcome
        for outcome in outcomes:
            if "error" in outcome:
                outcome["error"] = source.without_folder(outcome["error"])
        return self._table(part, source, fields, outcomes), sum("error" in outcome for outcome in outcomes)

    def _outcomes(self, rows: Sequence[TextRow]) -> list[Outcome]:
        """An answer or an error of each row. What is wrong with the embedder itself is raised."""
        found: list[Outcome | None] = [self._known_problem(row) for row in rows]
        asked = [number for number, outcome in enumerate(found) if outcome is None]
        for number, outcome in zip(asked, self._answered([rows[number] for number in asked]), strict=True):
            found[number] = outcome
        return [outcome for outcome in found if outcome is not None]

    def _known_problem(self, row: TextRow) -> Outcome | None:
        """What can be told before anybody is asked, and paid."""
        embedder = self.inference.embedder
        if embedder is not None and not embedder.cacheable:
            key = row.id if row.id is not None else row.text
            if not embedder.has([key]).all():
                return {"error": "the embedder has no vector of this row"}
        if row.image is not None and self.inference.remote:
            from adamab.task.image_decoding import decoded

            try:
                decoded(row.image, least_side=1)
            except ImageError as error:
                return {"error": one_line(error)}
        return None

    def _answered(self, rows: Sequence[TextRow]) -> list[Outcome]:
        """Asked for together and, where something is wrong, around the broken row or by halves.

        What was embedded before is in the cache. A loop: hundreds of rows may be broken.
        """
        found: dict[int, Outcome] = {}
        spans = [range(len(rows))]
        while spans:
            if not (span := spans.pop()):
                continue
            try:
                answers = self._told(rows[span.start : span.stop])
            except TextError as error:  # it says which one
                at = span[error.number]
                found[at] = {"error": f"{error.embedder}: the text {error.problem}"}
                spans += [range(at + 1, span.stop), range(span.start, at)]
            except (ImageError, ApiError) as error:
                if isinstance(error, ApiError) and not (error.refused or error.too_large):
                    raise  # the service is down, or takes nothing from us: no fault of the row
                if len(span) == 1:
                    found[span.start] = {"error": one_line(error)}
                else:
                    spans += [span[len(span) // 2 :], span[: len(span) // 2]]
            else:
                found |= dict(zip(span, answers, strict=True))
        return [found[number] for number in range(len(rows))]

    def _told(self, rows: Sequence[TextRow]) -> list[Outcome]:
        told = self.inference.answers(rows, self.job.asked)
        names, k = self.inference.classifier.classes, self.job.asked.k
        return [told_row(names, told, number, k) for number in range(len(rows))]

    def _table(self, part: Part, source: Source, fields: Sequence[Any], outcomes: Sequence[Outcome]) -> Any:
        pa = pyarrow()
        if source.kind == PARQUET:
            names = output_names(part.table.column_names)
            columns = {names[name]: part.table.column(name) for name in part.table.column_names}
        else:
            columns = self.job.columns.arrays(fields)
        if self.job.several:
            columns["source"] = pa.array([storable(source.name)] * len(outcomes), pa.string())
        columns["row"] = pa.array(range(part.first, part.first + len(outcomes)), pa.int64())
        for name, kind in answer_types(self.job.asked).items():
            columns[name] = pa.array([outcome.get(name) for outcome in outcomes], kind)
        return pa.table(columns)


def _content(source: Source, part: Part) -> tuple[list[dict[str, Any] | None], list[str | None], list[int]]:
    """Fields, errors and lines of a part's rows."""
    if source.kind == PARQUET:
        wanted = [name for name in (*source.columns, "id") if name in part.table.column_names]
        rows = part.table.select(wanted).to_pylist()
        return rows, [None] * len(rows), [part.first + number + 1 for number in range(len(rows))]
    texts = part.table.column("fields").to_pylist()
    fields = [None if text is None else json.loads(text) for text in texts]
    return fields, part.table.column("error").to_pylist(), part.table.column("line").to_pylist()


def _row(source: Source, line: int, fields: dict[str, Any]) -> TextRow:
    row = Row(Path(source.path), line, fields)
    if source.modality == "text":
        return text_row(row)
    if source.kind == PICTURE_LIST:
        image, id_ = image_at(picture_of(source, fields)), None
    else:
        image, id_ = image_at(picture_path(row)), id_of(row)
    return TextRow(image.reference, fields, line, id_, image)


def strict_row(source: Source, row: RawRow) -> TextRow:
    """A row for who wants all of them or none."""
    if row.fields is None:
        raise TaskError(row.error or "a row cannot be read")
    return _row(source, row.line, row.fields)
