"""Examples that are added to the task of a run, moved or taken out; the next fit follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adamab.run.classes import edit_task
from adamab.task.spec import Sample, Task
from adamab.task.words import normalised_text


def label_examples(path: Path, samples: Sequence[Sample], class_name: str | None) -> dict[str, str | None]:
    """Make samples examples of a class, whatever class they were examples of; nothing is fitted.

    Args:
        path: The run's directory.
        samples: Texts or images, given or new ones.
        class_name: One of the task's classes; None takes the samples out of the task.

    Returns:
        Text -> the class that it was an example of; None where it was of none.
    """
    new = {normalised_text(sample.text): sample for sample in samples}
    before: dict[str, str | None] = {sample.text: None for sample in samples}

    def labelled(task: Task) -> Task:
        kept = []
        for sample in task.samples:
            known = new.get(normalised_text(sample.text))
            if known is None:
                kept.append(sample)
                continue
            before[known.text] = sample.class_name
            if class_name is not None:  # where it was, with its id
                kept.append(replace(sample, class_name=class_name))
        if class_name is not None:
            kept += [
                replace(sample, class_name=class_name, source="given")
                for sample in new.values()
                if before[sample.text] is None
            ]
        return replace(task, samples=tuple(kept))

    edit_task(path, labelled)
    return before
