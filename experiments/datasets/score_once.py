"""Banking77 and CLINC150: intents on which many publish, scored once for a table and never chosen on.

They have no development part, so nothing that looks at development parts can look at them. Their classes
are described by their names alone, and given samples are drawn from the training file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adamab.errors import TaskError, place
from adamab.task import ClassSpec, Sample, normalised_text
from experiments.datasets.base import (
    DataSet,
    Material,
    Source,
    Split,
    apart_from,
    by_class,
    check_counts,
    conflicting,
    distinct,
    read_bytes,
    table_rows,
    text_prompts,
)

BANKING77_COUNTS = {"train rows": 10003, "test rows": 3080, "classes": 77}
CLINC150_COUNTS = {"train rows": 15000, "test rows": 4500, "out-of-scope rows": 1000, "classes": 150}


class ScoreOnceSet(DataSet):
    """Two files; what is in the test file is in no other part. `out_of_scope` are texts of no class."""

    def __init__(
        self,
        name: str,
        title: str,
        training: Sequence[Sample],
        testing: Sequence[Sample],
        out_of_scope: Sequence[str] = (),
    ) -> None:
        self.name, self.title, self.out_of_scope = name, title, tuple(out_of_scope)
        self.prompts = text_prompts(
            "The texts are what people write to an assistant, a sentence or two each. A class is what they "
            "want.",
            "What does the writer of this message want?",
        )
        names = sorted({sample.class_name for sample in training})
        self.specs = tuple(ClassSpec(name) for name in names)
        unclear = conflicting([*training, *testing])
        self._testing = distinct(testing, unclear)
        self._training = apart_from(distinct(training, unclear), self._testing)

    def material(self, generator: Source, split: Split) -> Material:
        """The two files are the two parts."""
        if split == "paper":
            raise TaskError(f"{self.name}: the paper does not use this set; use split 'readme'")
        return Material(source=by_class(self._training, self.specs), test=self._testing)

    def _check_request(self, seed: int, given: int, generator: str, part: str, split: str) -> None:
        if part == "development":
            raise TaskError(f"{self.name} is scored once and has no development part: choose on other sets")
        super()._check_request(seed, given, generator, part, split)


def load_banking77(directory: Path, *, expected: Mapping[str, int] | None = BANKING77_COUNTS) -> ScoreOnceSet:
    """Banking77 from its two files; `expected` None takes files of any size."""
    folder = directory / "banking77"
    rows = {
        name: [
            Sample(row["text"].strip(), row["category"])
            for _, row in table_rows(folder / f"{name}.csv", ("text", "category"))
            if normalised_text(row["text"])
        ]
        for name in ("train", "test")
    }
    check_counts("banking77", _sizes(rows["train"], rows["test"]), expected)
    return ScoreOnceSet("banking77", "Banking77 intents", rows["train"], rows["test"])


def load_clinc150(directory: Path, *, expected: Mapping[str, int] | None = CLINC150_COUNTS) -> ScoreOnceSet:
    """CLINC150 from its file; `expected` None takes one of any size."""
    path = directory / "clinc150" / "data_full.json"
    try:
        read: dict[str, Any] = json.loads(read_bytes(path))
        rows = {name: [Sample(text, label) for text, label in read[name]] for name in ("train", "test")}
        out_of_scope = [text for text, _ in read["oos_test"]]
    except (ValueError, KeyError, TypeError):
        raise TaskError(
            f"{place(path)}: not train, test and oos_test with a text and a label each; get it again"
        ) from None
    sizes = {**_sizes(rows["train"], rows["test"]), "out-of-scope rows": len(out_of_scope)}
    check_counts("clinc150", sizes, expected)
    return ScoreOnceSet("clinc150", "CLINC150 intents", rows["train"], rows["test"], out_of_scope)


def _sizes(training: Sequence[Sample], testing: Sequence[Sample]) -> dict[str, int]:
    return {
        "train rows": len(training),
        "test rows": len(testing),
        "classes": len(Counter(sample.class_name for sample in training)),
    }
