"""The task of a run, kept with it: what the page and the report show, and what `fit` goes on with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adamab.errors import RunError
from adamab.task.images import Image
from adamab.task.messages import one_line, place
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec, Sample, Task

FILE_NAME = "task.json"
FORMAT, VERSION = "adamab-task", 1


def write_task(directory: Path, task: Task) -> None:
    """Put a task into a run's directory, in place of the one that is there."""
    samples = [_sample_to_json(sample, directory) for sample in task.samples]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "name": task.name,
        "modality": task.modality,
        "classes": [asdict(spec) for spec in task.classes],
        "samples": samples,
        "prompts": asdict(task.prompts),
    }
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    new = directory / f".{FILE_NAME}.{os.getpid()}"
    try:
        with open(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
            stream.write(text.encode("utf-8", "surrogatepass"))
        os.replace(new, directory / FILE_NAME)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise RunError(
            f"{place(directory)}: cannot be written ({one_line(error.strerror or error)})"
        ) from None


def read_task(directory: Path) -> Task:
    """The task of the run in `directory`.

    Pictures are known by what they were; whether they still are is for whoever opens them to see.
    """
    file = directory / FILE_NAME
    try:
        document = json.loads(file.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError:
        raise RunError(f"{place(directory)}: keeps no task; name the task file") from None
    except OSError as error:
        raise RunError(f"{place(file)}: cannot be read ({one_line(error.strerror or error)})") from None
    except (ValueError, RecursionError):
        raise _damaged(file) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _damaged(file)
    if document.get("version") != VERSION:
        raise RunError(f"{place(file)}: was written by another version of adamab; name the task file")
    try:
        return _task(document, directory)
    except (KeyError, TypeError, AttributeError):
        raise _damaged(file) from None


def _task(document: Mapping[str, Any], directory: Path) -> Task:
    return Task(
        classes=tuple(ClassSpec(**spec) for spec in document["classes"]),
        samples=tuple(_sample_from_json(sample, directory) for sample in document["samples"]),
        prompts=Prompts(**document["prompts"]),
        name=document["name"],
        modality=document["modality"],
    )


def _sample_to_json(sample: Sample, directory: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"label": sample.class_name, "text": sample.text}
    if sample.id is not None:
        row["id"] = sample.id
    if sample.image is not None:
        row["image"] = _from(directory, sample.image.path)
    return row


def _sample_from_json(row: Mapping[str, Any], directory: Path) -> Sample:
    image = None
    if "image" in row:
        image = Image(row["text"].rpartition(":")[2], directory / row["image"])
    return Sample(row["text"], row["label"], id=row.get("id"), image=image)


def _from(directory: Path, path: Path) -> str:
    """How to get from a run to a picture, so that both can be moved together."""
    try:
        return Path(os.path.relpath(os.path.realpath(path), os.path.realpath(directory))).as_posix()
    except ValueError:  # another drive
        return path.absolute().as_posix()


def _damaged(file: Path) -> RunError:
    return RunError(f"{place(file)}: is damaged; name the task file, which writes it anew")
