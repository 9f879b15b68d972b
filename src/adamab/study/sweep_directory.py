"""The directory of a sweep: one process at a time, and nothing but what was begun there.

inputs.json    what the sweep is about; another is refused
rows.jsonl     one line a recipe and fold
optuna.jsonl   Optuna's journal of the trials
sweep.json     everything that was found, written at the end
best.yaml      the options of the best recipe
spending.db    the calls of an embedder behind an API, of all starts
writer.lock    held by the process that writes
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adamab.errors import RunError
from adamab.run.journal_file import LOCK_NAME, WriterLock
from adamab.study.sweep_cells import SweepMaterials
from adamab.study.sweep_space import Space, said
from adamab.task import Task
from adamab.task.messages import place

DEFINITION = 1  # of what a row measures; raise it when that changes
INPUTS, SPENDING = "inputs.json", "spending.db"
_OPTIONS = {"recipe": "--recipe and --set", "space": "--search", "embedder": "--embedder"}


@dataclass(frozen=True)
class SweepInputs:
    """All that rows and proposals depend on; more trials may be asked for later."""

    task: str  # a hash
    embedder: str  # a fingerprint
    recipe: dict[str, Any]
    space: dict[str, Any]
    folds: int
    seed: int
    sampler: str
    definition: int = DEFINITION

    @classmethod
    def of(cls, materials: SweepMaterials, space: Space, seed: int, sampler: str) -> SweepInputs:
        """As plain data."""
        return cls(
            task=_hash(materials.task),
            embedder=materials.vectors.fingerprint,
            recipe=materials.recipe.model_dump(mode="json"),
            space=said(space),
            folds=materials.n_folds,
            seed=seed,
            sampler=sampler,
        )


@contextmanager
def taken_up(directory: Path, inputs: SweepInputs) -> Iterator[None]:
    """The directory for this process alone, with the sweep that was begun there or a new one."""
    if not (directory / INPUTS).exists() and any(
        not name.startswith(LOCK_NAME) for name in os.listdir(directory)
    ):
        raise RunError(f"{place(directory)}: holds other files; name a new or an empty folder with --output")
    lock = WriterLock(directory)
    try:
        path, now = directory / INPUTS, asdict(inputs)
        if path.exists():
            _check_same(path, now)
        else:
            replace_text(path, json.dumps(now, indent=1) + "\n")
        yield
    finally:
        lock.release()


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be written ({error.strerror})") from None


def _check_same(path: Path, now: dict[str, Any]) -> None:
    try:
        then = json.loads(path.read_text(encoding="utf-8"))
        differing = [name for name in now if then[name] != now[name]]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{place(path)}: cannot be read as that of a sweep; name another --output") from None
    if differing:
        name = differing[0]
        what = {"task": "task", "definition": "version of adamab"}.get(name)
        told = f"of another {what}" if what else f"with another {_OPTIONS.get(name, f'--{name}')}"
        raise RunError(
            f"{place(path.parent)}: holds a sweep {told}; go on as it began, or name another --output"
        )


def _hash(task: Task) -> str:
    parts = [
        [asdict(spec) for spec in task.classes],
        [[sample.text, sample.class_name, sample.id] for sample in task.samples],
        asdict(task.prompts),
        task.modality,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
