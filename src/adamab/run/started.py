"""How a run was started, as its journal tells, so that it can go on without being told again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adamab.errors import ImageError, RunError, TaskError
from adamab.run.journal import SEGMENT, Journal
from adamab.run.kept_task import read_task
from adamab.task.image_folders import image_at
from adamab.task.messages import place, short
from adamab.task.recipe import Recipe
from adamab.task.spec import Task


@dataclass(frozen=True)
class Started:
    """The options of a fit that may not change while a run goes on."""

    embedder: str
    generator: str
    policy: str
    recipe: Recipe
    seed: int
    holdout: str | None
    all_scores: bool


def started(directory: Path) -> Started:
    """Those of the run in `directory`."""
    with Journal(directory) as journal:
        segments = list(journal.events(SEGMENT))
    said = segments[-1].data.get("started") if segments else None
    if not said:
        raise RunError(f"{place(directory)}: does not tell how it was started; name TASK and its options")
    inputs = segments[-1].data["inputs"]
    return Started(**said, policy=inputs["policy"], recipe=Recipe(**inputs["recipe"]), seed=inputs["seed"])


def task_to_go_on(directory: Path) -> Task:
    """The task that the run keeps; its pictures must still be what they were."""
    task = read_task(directory)
    for sample in task.samples:
        if sample.image is not None:
            _check_same(sample.image.path, sample.image.digest)
    return task


def _check_same(path: Path, digest: str) -> None:
    try:
        found = image_at(path)
    except ImageError as error:
        raise TaskError(f"{error}; or name the task, which says where the pictures are now") from None
    if found.digest != digest:
        raise TaskError(f"the picture {short(path.name)} has changed since the run began; put it back")
