"""Answers to rows: all of them or an error, or for each row its answer or its error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import AdamabError, ApiError, EmbedderError, ImageError, one_line, place
from adamab.predict import CHUNK
from adamab.predict.readers import Source, find_sources, no_rows, parts_of, read_vectors
from adamab.predict.writers import answer_rows, output_row

if TYPE_CHECKING:
    from adamab.model import Classifier, PredictOptions
    from adamab.model.predictor import Inference
    from adamab.task.tables import Row, TextRow

Answer = dict[str, Any]  # our fields of a row: class, probability, …, or error
_CACHE = "ADAMAB_CACHE"


@dataclass(frozen=True)
class Question:
    """What is asked, of which model and about which input; plain values, the same in a worker's process."""

    run: str
    input: str  # a file, a folder, or `-` for stdin
    kind: str | None  # how the input is written, if its ending does not say so
    options: PredictOptions
    embedder: str | None = None
    cache: bool = True
    skip_broken: bool = False
    cache_file: str | None = field(default_factory=lambda: os.environ.get(_CACHE))
    folder: str = field(default_factory=os.getcwd)

    @property
    def of_vectors(self) -> bool:
        """Whether the input is vectors, so that nobody has to embed."""
        return self.kind is None and self.input.lower().endswith(".npz")

    def open(self) -> Inference:
        """The model with its embedder, as the user meant it who started the job."""
        from adamab.model.predictor import Inference

        if self.cache_file is not None:
            os.environ[_CACHE] = self.cache_file
        return Inference.open(self.run, self.embedder, cache="paid" if self.cache else False)

    def sources(self, inference: Inference) -> list[Source]:
        """The files that the input names."""
        return find_sources(self.input, self.kind, inference.modality)


def vector_rows(question: Question, classifier: Classifier) -> Iterator[list[dict[str, Any]]]:
    """Output rows of an npz file, a chunk at a time.

    Args:
        question: whose input is the file.
        classifier: that answers it.

    Returns:
        Rows of ids, texts where the classifier looks at words, and answers.
    """
    vectors = read_vectors(Path(question.input), classifier)
    for start in range(0, len(vectors.ids), CHUNK):
        rows = slice(start, start + CHUNK)
        fields: dict[str, Sequence[str]] = {"id": vectors.ids[rows]}
        if vectors.texts is not None:
            fields["text"] = vectors.texts[rows]
        views = {view: matrix[rows] for view, matrix in vectors.views.items()}
        answers = classifier.answers(views, fields.get("text"), question.options)
        inputs = (dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True))
        answered = answer_rows(classifier.classes, answers, question.options.k)
        yield [output_row(*pair) for pair in zip(inputs, answered, strict=True)]


class Predictor:
    """A loaded model and embedder, and what is asked of them.

    `broken` has the names of images that were left out because they cannot be read.
    """

    def __init__(self, question: Question, inference: Inference | None = None) -> None:
        self.question, self.inference = question, inference or question.open()
        self.broken: list[str] = []

    def chunks(self) -> Iterator[list[dict[str, Any]]]:
        """Output rows of the whole input, a chunk at a time."""
        empty = True
        for source in self.question.sources(self.inference):
            for part in parts_of(0, source, CHUNK):
                yield list(self.rows(source, part.rows(source)))
                empty = False
        if empty:
            raise no_rows(self.question.input)

    def rows(self, source: Source, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        """Output rows; the first row without an answer is an error.

        Args:
            source: where the rows are from.
            rows: as they were read.

        Returns:
            The fields of each row with its answer; broken images are left out if the question says so.
        """
        for start in range(0, len(rows), CHUNK):
            samples = list(self._samples(source, rows[start : start + CHUNK]))
            for sample, answer in zip(samples, self._answers(samples), strict=True):
                yield output_row(sample.fields, answer)

    def _samples(self, source: Source, rows: Iterable[Row]) -> Iterator[TextRow]:
        for row in rows:
            try:
                sample = source.sample(row)
                if self.question.skip_broken:
                    _check_image(sample)
            except ImageError:
                if not self.question.skip_broken:
                    raise
                self.broken.append(place(source.image_path(row)))
            else:
                yield sample

    def answers(self, source: Source, rows: Sequence[Row]) -> list[Answer]:
        """An answer or an error for each row. What is wrong with the embedder itself is raised.

        Args:
            source: where the rows are from.
            rows: as they were read.

        Returns:
            Our fields of each row.
        """
        answers: list[Answer] = [{"error": row.error} for row in rows]
        good: list[tuple[int, TextRow]] = []
        for number, row in enumerate(rows):
            if row.error is not None:
                continue
            try:
                sample = source.sample(row)
                self._check(sample)
            except AdamabError as error:
                answers[number] = {"error": one_line(error)}
            else:
                good.append((number, sample))
        for start in range(0, len(good), CHUNK):
            chunk = good[start : start + CHUNK]
            parts = self._each([sample for _, sample in chunk])
            for (number, _), answer in zip(chunk, parts, strict=True):
                answers[number] = answer
        for answer in answers:
            if "error" in answer:
                answer["error"] = source.without_folder(answer["error"])
        return answers

    def _check(self, sample: TextRow) -> None:
        """What can be found out before anything is embedded."""
        embedder = self.inference.embedder
        if embedder is not None and not embedder.cacheable:
            key = sample.id if sample.id is not None else sample.text
            if not embedder.has([key]).all():
                raise EmbedderError("the embedder has no vector of this row")
        _check_image(sample)

    def _each(self, samples: Sequence[TextRow]) -> list[Answer]:
        """Predicted together and, where something is wrong, around the broken row or by halves.

        What was paid for before is in the cache. A loop: hundreds of rows may be broken.
        """
        from adamab.providers.embedders.base import TextError

        known: dict[int, Answer] = {}
        spans = [range(len(samples))]
        while spans:
            if not (span := spans.pop()):
                continue
            try:
                answers = self._answers(samples[span.start : span.stop])
            except TextError as error:  # it says which one
                at = span[error.number]
                known[at] = {"error": f"{error.embedder}: the text {error.problem}"}
                spans += [range(at + 1, span.stop), range(span.start, at)]
            except (ImageError, ApiError) as error:
                if isinstance(error, ApiError) and not (error.refused or error.too_large):
                    raise  # the service is down, or takes nothing from us: no fault of the row
                if len(span) == 1:
                    known[span.start] = {"error": one_line(error)}
                else:
                    spans += [span[len(span) // 2 :], span[: len(span) // 2]]
            else:
                known |= dict(zip(span, answers, strict=True))
        return [known[number] for number in range(len(samples))]

    def _answers(self, samples: Sequence[TextRow]) -> list[Answer]:
        if not samples:
            return []
        options = self.question.options
        answers = self.inference.answers(samples, options)
        return answer_rows(self.inference.classifier.classes, answers, options.k)


def _check_image(sample: TextRow) -> None:
    if sample.image is not None:
        from adamab.task.images import decoded

        decoded(sample.image, least_side=1)
