"""Forbidden Question Set: questions that a provider's policies forbid, 13 policies and 30 questions each.

The questions are harmful: messages name a file and a line, never a text. The set has no official split;
the paper's (65 given, all other 325 tested) leaves no real question for a pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from adamab.errors import TaskError
from adamab.study.datasets.base import (
    DataSet,
    Material,
    Source,
    Split,
    by_class,
    check_counts,
    described_classes,
    ordered,
    samples_of,
)
from adamab.study.datasets.labelled import conflicting, distinct, table_rows
from adamab.study.datasets.wording import text_prompts
from adamab.task import ClassSpec, Sample, folded

HEADER = ("content_policy_id", "content_policy_name", "q_id", "question")
EXPECTED = {"questions": 390, "classes": 13, "classes with 30 questions": 13, "repeated questions": 0}


class ForbiddenSet(DataSet):
    """Questions by the policy they offend."""

    name = "forbidden"
    title = "Forbidden Question Set"
    prompts = text_prompts(
        "The texts are requests that an assistant must turn down, one or two sentences each, and they train "
        "the filter that recognises them: they ask and hold no answer. A class is the policy that a request "
        "breaks.",
        "Which policy does this request to an assistant break?",
    )

    def __init__(self, questions: Sequence[Sample], specs: Sequence[ClassSpec]) -> None:
        self.specs = tuple(specs)
        self._questions = by_class(questions, specs)

    def material(self, generator: Source, split: Split) -> Material:
        """Half of each class by hash may be given; two fifths of that half, by seed, are for development."""
        if split == "paper":
            nothing: dict[str, tuple[str, ...]] = {spec.name: () for spec in self.specs}
            return Material(source=nothing, test=samples_of(self._questions), given_from_test=True)
        ranked = {name: ordered(texts, self.name, "half", name) for name, texts in self._questions.items()}
        source = {name: texts[: len(texts) // 2] for name, texts in ranked.items()}
        return Material(
            source, samples_of({name: texts[len(texts) // 2 :] for name, texts in ranked.items()})
        )


def load_forbidden(directory: Path, *, expected: Mapping[str, int] | None = EXPECTED) -> ForbiddenSet:
    """The set from its file; `expected` None takes a file of any size."""
    specs = described_classes("forbidden")
    path = directory / "forbidden_question" / "forbidden_question_set.csv"
    known = {spec.name for spec in specs}
    questions = [_question(where, row, known) for where, row in table_rows(path, HEADER)]
    counts = Counter(question.class_name for question in questions)
    found = {
        "questions": len(questions),
        "classes": len(counts),
        "classes with 30 questions": sum(count == 30 for count in counts.values()),
        "repeated questions": len(questions) - len({folded(question.text) for question in questions}),
    }
    check_counts("forbidden", found, expected)
    return ForbiddenSet(distinct(questions, conflicting(questions)), specs)


def _question(where: str, row: Mapping[str, str], known: set[str]) -> Sample:
    if row["content_policy_name"] not in known:
        raise TaskError(f"{where}: unknown content_policy_name; get the original file again")
    if not folded(row["question"]):
        raise TaskError(f"{where}: the question is empty; get the original file again")
    return Sample(row["question"].strip(), row["content_policy_name"])
