"""Answers to rows: for each its answer, or what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import AdamabError, one_line
from adamab.predict import CHUNK
from adamab.predict.readers import Source, find_sources, no_rows, parts_of, read_vectors
from adamab.predict.writers import answer_names, answer_rows, output_row
from adamab.task.table_files import AS_IT_IS, TableOptions

if TYPE_CHECKING:
    from adamab.model import Classifier, PredictOptions
    from adamab.model.predictor import Inference
    from adamab.providers.registry import HasText
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
    table: TableOptions = AS_IT_IS  # how the input is written
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
        return find_sources(self.input, self.kind, inference.modality, self.table)


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
    """A loaded model and embedder, and what is asked of them."""

    def __init__(self, question: Question, inference: Inference | None = None) -> None:
        self.question, self.inference = question, inference or question.open()

    def chunks(self) -> Iterator[list[dict[str, Any]]]:
        """Output rows of the whole input, a chunk at a time."""
        empty = True
        for source in self.question.sources(self.inference):
            for part in parts_of(0, source, CHUNK):
                yield self.rows(source, part.rows(source))
                empty = False
        if empty:
            raise no_rows(self.question.input)

    def rows(self, source: Source, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Output rows: the fields of each row with its answer, or with what is wrong with it.

        Args:
            source: where the rows are from.
            rows: as they were read.
        """
        answers = self.answers(source, rows)
        return [output_row(row.fields, answer) for row, answer in zip(rows, answers, strict=True)]

    def answers(self, source: Source, rows: Sequence[Row]) -> list[Answer]:
        """An answer or an error for each row. What is wrong with the embedder itself is raised.

        Args:
            source: where the rows are from.
            rows: as they were read.

        Returns:
            Our fields of each row; those of an answer are None where there is an `error`.
        """
        nothing = dict.fromkeys(answer_names(self.question.options))
        answers: list[Answer] = [nothing] * len(rows)
        for start in range(0, len(rows), CHUNK):
            good: list[tuple[int, TextRow]] = []
            for number, row in enumerate(rows[start : start + CHUNK], start):
                try:
                    good.append((number, _checked(source.sample(row))))
                except AdamabError as error:
                    answers[number] = {**nothing, "error": source.without_folder(one_line(error))}
            each = self.inference.each([sample for _, sample in good], self._answers)
            for (number, _), answer in zip(good, each, strict=True):
                if isinstance(answer, AdamabError):
                    answer = {**nothing, "error": source.without_folder(one_line(answer))}
                answers[number] = {**nothing, **answer}
        return answers

    def _answers(self, samples: Sequence[HasText]) -> list[Answer]:
        options = self.question.options
        answers = self.inference.answers(samples, options)
        return answer_rows(self.inference.classifier.classes, answers, options.k)


def _checked(sample: TextRow) -> TextRow:
    """Images are decoded before anything is embedded: a broken one costs its own row then."""
    if sample.image is not None:
        from adamab.task.images import decoded

        decoded(sample.image, least_side=1)
    return sample
