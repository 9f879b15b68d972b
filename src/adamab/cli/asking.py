"""Options that `adamab predict` and `adamab evaluate` share: priors, unknown, coverage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from adamab.cli.console import counted, percent

if TYPE_CHECKING:
    from adamab.classifier import Asked, Confidence

Prior: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SHARE",
        help="Share of a class where the model is used, or a JSON file of them; others share the rest.",
    ),
]
_LARGEST = 2**20  # bytes of a file of priors


def asked_for(k: int, priors: Sequence[str] | None, unknown: float | None, coverage: float | None) -> Asked:
    """What the options ask for."""
    from adamab.classifier import Asked

    return Asked(k, read_priors(priors) if priors else None, unknown, coverage)


def read_priors(values: Sequence[str]) -> dict[str, float]:
    """Shares by class, from `NAME=SHARE` and from files."""
    from adamab.errors import TaskError
    from adamab.task.messages import short

    found: dict[str, float] = {}
    for value in values:
        for name, share in _pairs(value):
            if name in found:
                raise TaskError(f"--prior: class {short(name)} stands there twice; name it once")
            found[name] = share
    return found


def _pairs(value: str) -> Iterator[tuple[str, float]]:
    from adamab.errors import TaskError
    from adamab.task.messages import short

    name, equals, share = value.rpartition("=")
    if not equals:
        yield from _of_file(Path(value))
        return
    try:
        yield name, float(share)
    except ValueError:
        raise TaskError(
            f"--prior: {short(share)} is no number; write NAME=SHARE, such as refund=0.2"
        ) from None


def _of_file(path: Path) -> Iterator[tuple[str, float]]:
    from adamab.errors import TaskError
    from adamab.task.messages import place

    try:
        with open(path, "rb") as stream:
            content = stream.read(_LARGEST + 1)
        # Objects as tuples of pairs, so that a class that stands there twice is seen.
        small = len(content) <= _LARGEST
        shares = json.loads(content.decode(), object_pairs_hook=tuple) if small else None
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise TaskError(f"--prior: {place(path)}: {reason}; write NAME=SHARE or name a JSON file") from None
    except (ValueError, RecursionError):
        shares = None
    if not isinstance(shares, tuple):
        raise TaskError(f'--prior: {place(path)}: is no JSON object of shares, such as {{"refund": 0.2}}')
    yield from shares


NOTHING_HELD_OUT = (
    "note: no sample was held out when the model was fitted (one example a class, a recipe without folds, "
    "or an earlier version), so it has no temperature"
)


def notes(confidence: Confidence | None, asked: Asked) -> Iterator[str]:
    """Where too few samples were held out for what is asked; none at all are an error elsewhere."""
    from adamab.classifier.answers import too_few  # NumPy comes with it

    if confidence is None or not confidence.n:
        return
    for share, result in too_few(confidence, asked):
        few = counted(confidence.n, "held-out sample")
        yield f"note: {few} cannot vouch for {percent(share)}, so {result}; add examples"
