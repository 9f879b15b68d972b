"""What is told of one row: the same names and digits in every file that predictions go to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adamab.classifier.answers import UNKNOWN

if TYPE_CHECKING:
    from adamab.classifier import Answers

OURS = ("class", "probability", "classes", "probabilities", "set")


def told_row(names: Sequence[str], told: Answers, number: int, k: int) -> dict[str, Any]:
    """The answers of row `number`; an unknown input keeps the probability of the class it is nearest to."""
    classes = [names[index] for index in told.indices[number].tolist()]
    shares = [round(share, 6) for share in told.probabilities[number].tolist()]
    unknown = told.unknown is not None and bool(told.unknown[number])
    row: dict[str, Any] = {"class": UNKNOWN if unknown else classes[0], "probability": shares[0]}
    if k > 1:
        row |= {"classes": classes, "probabilities": shares}
    if told.sets is not None:
        row["set"] = [names[index] for index in told.sets[number]]
    return row
