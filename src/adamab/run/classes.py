"""Changes of the task that a run keeps: its classes, and whatever else; the next fit follows them.

Samples that were bought stay with their class when it is renamed or merged, and out of training when it
is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adamab.errors import TaskError, short, suggestion
from adamab.providers.sqlite_file import WriterLock
from adamab.run.directory import parts_of, read_edits, read_task, write_task
from adamab.run.run_log import SEGMENT, Journal
from adamab.task.spec import ClassSpec, Sample, Task

if TYPE_CHECKING:
    from adamab.providers.metering import Price


@dataclass(frozen=True)
class Addition:
    """A class to add to a run."""

    name: str
    description: str | None = None
    examples: tuple[Sample, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)  # the user's own, by model


def edit_task(
    path: Path, change: Callable[[Task], Task], *, moved: Mapping[str, str | None] | None = None
) -> Task:
    """Change the task of the run at `path`. Its classifier stays as it is until the next fit.

    Args:
        path: the run's directory.
        change: makes the new task of the one that is there.
        moved: classes whose samples belong to another one from now on, and to which; None: to none.

    Returns:
        The new task.
    """
    with ExitStack() as held:
        held.callback(WriterLock(path).release)
        task = read_task(path)
        changed = change(task)
        write_edited(path, task, changed, moved)
    return changed


def write_edited(
    path: Path, task: Task, changed: Task, moved: Mapping[str, str | None] | None = None
) -> None:
    """Write the changed task of a run that this process holds, with what was changed.

    Args:
        path: the run's directory.
        task: what it was.
        changed: what it is now.
        moved: classes whose samples belong to another one from now on, and to which; None: to none.
    """
    edits, before, after = read_edits(path), parts_of(task), parts_of(changed)
    gained, lost = after - before, before - after
    edits = replace(edits, gained=(edits.gained - lost) | gained, lost=(edits.lost - gained) | lost)
    if moved:
        with Journal(path) as journal:
            segment = sum(1 for _ in journal.events(SEGMENT))
        earlier = edits.moved if edits.segment == segment else {}
        moves = {name: target and moved.get(target, target) for name, target in earlier.items()}
        edits = replace(edits, moved={**moved, **moves}, segment=segment)
    write_task(path, changed, edits)


def rename_class(path: Path, name: str, new: str) -> Task:
    """Give a class of the run at `path` another name.

    Args:
        path: the run's directory.
        name: the class.
        new: its name from now on.

    Returns:
        The new task.
    """
    return edit_task(path, lambda task: _renamed(task, name, new), moved={name: new})


def edit_class(path: Path, name: str, new: str, description: str | None) -> Task:
    """Give a class of the run at `path` another name, or the same, or another description.

    Args:
        path: the run's directory.
        name: the class.
        new: its name from now on.
        description: what belongs to it; empty for no description, None for the one that is there.

    Returns:
        The new task.
    """

    def edited(task: Task) -> Task:
        _check_known(task, [name])
        renamed = task if new == name else _renamed(task, name, new)
        if description is None:
            return renamed
        specs = (replace(s, description=description or None) if s.name == new else s for s in renamed.classes)
        return replace(renamed, classes=tuple(specs))

    return edit_task(path, edited, moved={} if new == name else {name: new})


def merge_classes(path: Path, names: Sequence[str], into: str) -> Task:
    """Make one class of several in the run at `path`.

    Args:
        path: the run's directory.
        names: the classes.
        into: the class that has their samples from now on; one of them, another one, or a new one, which
            takes the place and the description of the first.

    Returns:
        The new task.
    """
    names = [name for name in dict.fromkeys(names) if name != into]

    def merged(task: Task) -> Task:
        _check_known(task, names)
        if not names or (len(names) == 1 and into not in task.class_names):
            raise TaskError(f"there is nothing to merge into {short(into)}; name two classes, or rename one")
        return _relabelled(task, names, into)

    return edit_task(path, merged, moved=dict.fromkeys(names, into))


def remove_class(path: Path, name: str) -> Task:
    """Take a class and its examples out of the run at `path`; what was bought for it stays in the journal.

    Args:
        path: the run's directory.
        name: the class.

    Returns:
        The new task.
    """

    def without(task: Task) -> Task:
        _check_known(task, [name])
        return replace(
            task,
            classes=tuple(spec for spec in task.classes if spec.name != name),
            samples=tuple(sample for sample in task.samples if sample.class_name != name),
        )

    return edit_task(path, without, moved={name: None})


def with_class(task: Task, addition: Addition) -> Task:
    """The task with one more class; it stays as it is if a process that was killed has added the same.

    Args:
        task: what it is added to.
        addition: the class and its examples.
    """
    spec = ClassSpec(addition.name, addition.description)
    classes = tuple(known for known in task.classes if known.name != spec.name)
    samples = tuple(sample for sample in task.samples if sample.class_name != spec.name)
    grown = replace(task, classes=(*classes, spec), samples=(*samples, *addition.examples))
    if spec.name not in task.class_names:
        return grown
    if parts_of(grown) != parts_of(task):
        raise TaskError(f"class {short(spec.name)} is there already; name another, or remove it first")
    return task


def _check_known(task: Task, names: Sequence[str]) -> None:
    for name in names:
        if name not in task.class_names:
            raise TaskError(
                f"class {short(name)} is not among the run's; {suggestion(name, task.class_names)}"
            )


def _renamed(task: Task, name: str, new: str) -> Task:
    _check_known(task, [name])
    if new in task.class_names:
        raise TaskError(f"class {short(new)} is there already; merge the two instead")
    return _relabelled(task, [name], new)


def _relabelled(task: Task, names: Sequence[str], into: str) -> Task:
    """The task with the samples of some classes in another one, in the place of the first if it is new."""
    place = into if into in task.class_names else names[0]
    return replace(
        task,
        classes=tuple(
            replace(spec, name=into) if spec.name == place else spec
            for spec in task.classes
            if spec.name == place or spec.name not in names
        ),
        samples=tuple(
            replace(sample, class_name=into) if sample.class_name in names else sample
            for sample in task.samples
        ),
    )
