"""A run's checkpoint on disk: tensors and random numbers in one safetensors file, replaced as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.run.journal import outcome_to_json
from adamab.run.past import Checkpoint, RoundOutcome, rng_state
from adamab.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

    from adamab.run.loop import Loop

FILE_NAME = "checkpoint.safetensors"


def save_checkpoint(directory: Path, loop: Loop, outcome: RoundOutcome, segment: int) -> None:
    """Write the state after a round; a process that is killed meanwhile leaves the one before.

    Where it cannot be written, the run goes on: all that is lost is time.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {} if loop.model is None else loop.model.state()
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    about = {
        "adamab": __version__,
        "segment": segment,
        "round": outcome.record.round,
        "after": _digest(outcome),
        "tensors": _sum(tensors),
        "n_model": loop.n_model if loop.model is not None else 0,
        "rng": rng_state(loop.rng),
    }
    new = directory / f".{FILE_NAME}.new"
    with contextlib.suppress(OSError, SafetensorError):
        save_file(tensors, new, {"checkpoint": json.dumps(about)})
        os.replace(new, directory / FILE_NAME)
    with contextlib.suppress(OSError):
        new.unlink(missing_ok=True)


def load_checkpoint(directory: Path, segment: int, rounds: Sequence[RoundOutcome]) -> Checkpoint | None:
    """The state that was written last, if it is of one of these rounds of this segment.

    None where it is damaged, of another run, or of a round that was lost with the power: replay does
    without, a checkpoint only saves time.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(directory / FILE_NAME, "pt") as file:
            about = json.loads((file.metadata() or {})["checkpoint"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
        after = {_digest(r) for r in rounds if r.record.round == about["round"]}
        known = (__version__, segment) == (about["adamab"], about["segment"]) and about["after"] in after
        if known and about["tensors"] == _sum(tensors):
            return Checkpoint(about["round"], about["n_model"], tensors, about["rng"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        pass
    return None


def _digest(outcome: RoundOutcome) -> str:
    """No two rounds have the same: a record says how long everything took."""
    return hashlib.sha256(json.dumps(outcome_to_json(outcome), sort_keys=True).encode()).hexdigest()


def _sum(tensors: Mapping[str, Tensor]) -> str:
    """safetensors itself does not notice a changed byte."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        found.update(tensors[name].numpy().tobytes())
    return found.hexdigest()
