"""What lies in the directory of a saved classifier or of a run, beside the classifier itself."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adamab.classifier import load
from adamab.classifier.class_files import load_class_side
from adamab.errors import ModelFileError, RunError
from adamab.run.directory import HISTORY, SUMMARY, read_summary
from adamab.run.records import History, RoundRecord
from adamab.task.messages import place

if TYPE_CHECKING:
    from adamab.classifier import Classifier
    from adamab.classifier.class_side import ClassSide, Reference
    from adamab.method.evidence import Estimate


def read_history(directory: Path) -> History:
    """The rounds of the run in `directory`; without them there is no such attribute."""
    file = directory / HISTORY
    if not file.is_file():
        raise AttributeError(f"{place(directory)} holds no {HISTORY}, so the rounds of the fit are not known")
    try:
        with open(file, encoding="utf-8") as lines:
            return History(RoundRecord.from_json(json.loads(line)) for line in lines)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise RunError(f"{place(file)}: is damaged; fit again") from None


def read_estimate(directory: Path) -> Estimate | None:
    """The out-of-fold estimate of the run in `directory`; without a run there is no such attribute."""
    from adamab.method.evidence import Estimate

    if not (directory / SUMMARY).is_file():
        raise AttributeError(f"{place(directory)} holds no {SUMMARY}, so the estimate is not known")
    known = read_summary(directory).get("estimate")
    try:
        return None if known is None else Estimate(**known)
    except TypeError:
        raise RunError(f"{place(directory / SUMMARY)}: is damaged; fit again") from None


def models_with(side: ClassSide, directory: Path) -> tuple[Classifier, ...]:
    """The classifier in `directory` if `side` is good for it too: both come from one fit."""
    with suppress(ModelFileError):  # nothing there yet, or nothing that could be gone on with
        there = load(directory)
        if _same(side, load_class_side(directory, there)):
            return (there,)
    return ()


def _same(one: ClassSide, other: ClassSide) -> bool:
    if (one.wording, one.with_examples, len(one.heads)) != (
        other.wording,
        other.with_examples,
        len(other.heads),
    ):
        return False
    heads = zip(one.heads, other.heads, strict=True)
    return _same_reference(one.reference, other.reference) and all(
        type(a) is type(b)
        and a.arrays.keys() == b.arrays.keys()
        and all(np.array_equal(array, b.arrays[name]) for name, array in a.arrays.items())
        for a, b in heads
    )


def _same_reference(one: Reference | None, other: Reference | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.lack == other.lack and np.array_equal(one.logits, other.logits)
