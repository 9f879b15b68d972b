"""How a run was started, as its journal tells, so that it can go on without being told again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import ImageError, RunError, TaskError
from adamab.run.journal import SEGMENT, STARTED, Journal
from adamab.run.kept_task import read_task
from adamab.task.image_folders import image_at
from adamab.task.messages import place, short
from adamab.task.recipe import Recipe
from adamab.task.specs import join_spec, split_spec

if TYPE_CHECKING:
    from adamab.task.spec import Task


@dataclass(frozen=True)
class Started:
    """The options of a fit that may not change while a run goes on, and the prices that it was told."""

    embedder: str
    generator: str
    policy: str
    recipe: Recipe
    seed: int
    holdout: str | None
    all_scores: bool
    prices: Mapping[str, str]  # by model, as they are written on the command line


def note_started(journal: Journal, directory: Path, said: Mapping[str, Any]) -> None:
    """Write down how the run was started, where that has changed."""
    data = {**said, "from": _way(directory, Path.cwd())}
    last = journal.last(STARTED)
    if last is None or last.data != data:
        journal.note(STARTED, data)


def started(directory: Path) -> Started:
    """How the run in `directory` was started last; files that it names are found from anywhere."""
    with Journal(directory) as journal:
        last, segment = journal.last(STARTED), journal.last(SEGMENT)
    if last is None or segment is None:
        raise RunError(f"{place(directory)}: does not tell how it was started; name TASK and its options")
    said, inputs = last.data, segment.data["inputs"]
    base = Path(os.path.realpath(directory)) / said["from"]
    holdout = said["holdout"]
    return Started(
        embedder=_found(said["embedder"], base),
        generator=_found(said["generator"], base),
        policy=inputs["policy"],
        recipe=Recipe(**inputs["recipe"]),
        seed=inputs["seed"],
        holdout=None if holdout is None else _there(holdout, base) or holdout,
        all_scores=said["all_scores"],
        prices=said["prices"],
    )


def task_to_go_on(directory: Path) -> Task:
    """The task that the run keeps; its pictures must still be what they were."""
    task = read_task(directory)
    for sample in task.samples:
        if sample.image is not None:
            _check_same(sample.image.path, sample.image.digest)
    return task


def _way(directory: Path, to: Path) -> str:
    """How to get from a run to a folder, so that both can be moved together."""
    try:
        return Path(os.path.relpath(os.path.realpath(to), os.path.realpath(directory))).as_posix()
    except ValueError:  # another drive
        return Path(os.path.realpath(to)).as_posix()


def _found(spec: str, base: Path) -> str:
    """A spec whose file was named from `base`, as it has to be named from here."""
    bare, options = split_spec(spec)
    kind, colon, name = bare.partition(":")
    path = _there(name, base) if colon else None
    return spec if path is None else join_spec(f"{kind}:{path}", options)


def _there(name: str, base: Path) -> str | None:
    """The file or folder that a relative name meant; None where there is none, as with a model's id."""
    path = base / name
    return None if not name or Path(name).is_absolute() or not path.exists() else os.path.relpath(path)


def _check_same(path: Path, digest: str) -> None:
    try:
        found = image_at(path)
    except ImageError as error:
        raise TaskError(f"{error}; or name the task, which says where the pictures are now") from None
    if found.digest != digest:
        raise TaskError(f"the picture {short(path.name)} has changed since the run began; put it back")
