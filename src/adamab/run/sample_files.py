"""What a run leaves about its samples, for people who look into it: vectors, and held-out answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from adamab.errors import RunError
from adamab.task.messages import place

if TYPE_CHECKING:
    from adamab.method.evidence import HeldOut
    from adamab.run.training_set import TrainingSet
    from adamab.task.spec import Sample

VECTORS, HELD_OUT = "samples.safetensors", "held_out.jsonl"
MOST_NUMBERS = 100_000_000  # of a matrix that is kept for looking only: 200 MB
Halves = NDArray[np.float16]


@dataclass(frozen=True)
class SampleVectors:
    """The view in which samples meet descriptions, as the embedder gives it but in half precision.

    That is enough to say what is near. Rows are those of the kept task, of `synthetic.jsonl` and of the
    classes; empty where there are none.
    """

    given: Halves  # (n, d)
    synthetic: Halves  # (m, d)
    described: Halves  # (K, d)


@dataclass(frozen=True)
class HeldOutAnswer:
    """A given sample, and what heads that never saw it say."""

    label: str
    text: str
    predicted: str
    probability: float  # of the predicted class


def vectors_of(samples: TrainingSet) -> SampleVectors:
    """Those of a training set; none where they are too many for looking, or too long for half precision."""
    pooled = samples.views[samples.pooled]
    side = samples.class_side(samples.given)
    nothing = pooled[:0]
    described = nothing if side is None else side.views.get(samples.pooled, nothing)
    longest = max(np.abs(matrix).max(initial=0) for matrix in (pooled, described))
    if pooled.size + described.size > MOST_NUMBERS or longest > np.finfo(np.float16).max:
        return SampleVectors(*(nothing.astype(np.float16) for _ in range(3)))
    given, synthetic = pooled[samples.given], pooled[~samples.given & samples.has_texts]
    return SampleVectors(*(x.astype(np.float16) for x in (given, synthetic, described)))


def write_vectors(directory: Path, vectors: SampleVectors) -> None:
    """One file."""
    (directory / VECTORS).write_bytes(safetensors.numpy.save(asdict(vectors)))


def read_vectors(directory: Path) -> SampleVectors | None:
    """What `write_vectors` wrote; None in runs of earlier versions."""
    file = directory / VECTORS
    try:
        return SampleVectors(**safetensors.numpy.load(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, safetensors.SafetensorError, TypeError):
        raise RunError(f"{place(file)}: cannot be read; fit again to write it anew") from None


def held_out_answers(
    held_out: HeldOut | None, given: Sequence[Sample], classes: Sequence[str]
) -> list[HeldOutAnswer]:
    """One a held-out sample, in the order of the task."""
    if held_out is None:
        return []
    logits = held_out.scale() * held_out.logits.astype(np.float64)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability = (odds / odds.sum(axis=1, keepdims=True)).max(axis=1)
    return [
        HeldOutAnswer(given[i].class_name, given[i].text, classes[best], round(float(p), 6))
        for i, best, p in zip(held_out.position, logits.argmax(axis=1), probability, strict=True)
    ]


def write_held_out(directory: Path, answers: Sequence[HeldOutAnswer]) -> None:
    """One JSON object a line."""
    lines = (json.dumps(asdict(answer), ensure_ascii=False) + "\n" for answer in answers)
    file = directory / HELD_OUT
    file.touch(mode=0o600)  # given samples may be private
    file.write_text("".join(lines), encoding="utf-8", errors="surrogatepass")


def read_held_out(directory: Path) -> list[HeldOutAnswer]:
    """What `write_held_out` wrote; nothing in runs of earlier versions."""
    file = directory / HELD_OUT
    try:
        text = file.read_bytes().decode("utf-8", "surrogatepass")
        # Not splitlines: a text may hold a line separator of its own.
        return [HeldOutAnswer(**json.loads(line)) for line in text.split("\n")[:-1]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError):
        raise RunError(f"{place(file)}: cannot be read; fit again to write it anew") from None
