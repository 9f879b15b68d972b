"""What a run directory holds, and how its results get there.

    journal.sqlite                  what was bought, decided and changed; from the first second on
    vectors.sqlite                  paid vectors of this run (embedders behind an API only)
    images/                         generated pictures by content, with thumbnails (tasks of pictures only)
    checkpoint.safetensors          the model's state after some round, to start again faster
    writer.lock                     held by the process that writes
    model.safetensors, model.json   the classifier
    classes.safetensors             what a class that is added later gets its weights from
    task.json                       what was to be learned: classes, given samples, wording
    reviews.jsonl                   what people think of the synthetic samples
    history.jsonl                   one record a round
    synthetic.jsonl                 accepted synthetic samples, label and text
    samples.safetensors             the samples' vectors, to find those near a new one
    held_out.jsonl                  what folds that did not see a given sample say about it
    fit.json                        how it was made and what can be expected of it

Those from `model.safetensors` on, but not the task and the reviews, are results: they are written
together when the fit has ended, `fit.json` last. A killed
fit leaves the results that were there before, and a journal to go on from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.classifier.files import CLASSES, DOCUMENT, WEIGHTS
from adamab.errors import RunError
from adamab.providers.budget import NANO, Budget, Spend
from adamab.providers.image_store import FOLDER as IMAGES
from adamab.run.checkpoint import FILE_NAME as CHECKPOINT
from adamab.run.journal_file import FILE_NAME as JOURNAL
from adamab.run.journal_file import LOCK_NAME as LOCK
from adamab.run.kept_task import FILE_NAME as TASK
from adamab.run.reviews import FILE_NAME as REVIEWS
from adamab.run.sample_files import HELD_OUT, held_out_answers, write_held_out, write_vectors
from adamab.run.sample_files import VECTORS as SAMPLES
from adamab.task.images import is_url
from adamab.task.messages import one_line, place, short
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.run.fit import FitResult
    from adamab.task.recipe import Recipe
    from adamab.task.spec import Task

SUMMARY, HISTORY, SYNTHETIC = "fit.json", "history.jsonl", "synthetic.jsonl"
RESULTS = (WEIGHTS, DOCUMENT, CLASSES, HISTORY, SYNTHETIC, SAMPLES, HELD_OUT, SUMMARY)
VECTORS = "vectors.sqlite"
_OLD = ".old"
_ENDS = ("", "-wal", "-shm", "-journal")  # of the files that SQLite keeps beside a database
_PROGRESS = [(CHECKPOINT, ""), *((name, end) for name in (JOURNAL, VECTORS) for end in _ENDS)]
_ASIDE = {name + end: name + _OLD + end for name, end in _PROGRESS}
FILES = (*RESULTS, TASK, REVIEWS, IMAGES, *_ASIDE, *_ASIDE.values(), *(LOCK + end for end in _ENDS))
FORMAT = "adamab-run"
VERSION = 1
_PACKAGES = ("numpy", "scipy", "torch", "sentence-transformers")


def summarise(
    task: Task,
    result: FitResult,
    recipe: Recipe,
    *,
    policy: str,
    generator: str,
    budget: Budget,
    seed: int,
    seconds: float,
) -> dict[str, Any]:
    """The contents of `fit.json`."""
    classifier = result.classifier
    by_class = result.synthetic_by_class
    return {
        "format": FORMAT,
        "version": VERSION,
        "adamab": __version__,
        "python": platform.python_version(),
        "packages": versions(),
        "task": {"name": task.name, "modality": task.modality, "sha256": task_digest(task)},
        "embedder": {"spec": classifier.embedder_spec, "fingerprint": classifier.fingerprint},
        "generator": generator,
        "policy": policy,
        "budget": None if budget == Budget() else str(budget),
        "seed": seed,
        "recipe": recipe.model_dump(mode="json"),
        "classes": len(task.classes),
        "given": len(task.samples),
        "repeats": task.repeats,
        "synthetic": sum(by_class.values()),
        "synthetic_by_class": by_class,
        "rounds": len(result.history),
        "views": list(dict.fromkeys(head.view for head in classifier.heads)),  # a view may have two heads
        "estimate": None if result.estimate is None else asdict(result.estimate),
        "closed": result.closed,
        "ended": result.ended,
        "rejected": result.history.rejected_by_class(),
        "refused": result.history.refused_by_class(),
        "diversity": {
            name: figures._asdict() for name, figures in zip(task.class_names, result.diversity, strict=True)
        },
        "spent": spending(result.spent),
        "unused_batches": result.unused,
        "overlong": result.overlong,
        "seconds": round(seconds, 3),
    }


def spending(spent: Mapping[tuple[str, str | None], Spend]) -> dict[str, Any]:
    """What was spent in all, by purpose and by class."""
    by_class: dict[str, Spend] = {}
    by_purpose: dict[str, Spend] = {}
    for (purpose, name), spend in spent.items():
        by_purpose[purpose] = by_purpose.get(purpose, Spend()) + spend
        if name is not None:
            by_class[name] = by_class.get(name, Spend()) + spend
    return {
        **_spend(sum(spent.values(), Spend())),
        "by_purpose": {purpose: _spend(spend) for purpose, spend in by_purpose.items()},
        "by_class": {name: _spend(spend) for name, spend in by_class.items()},
    }


def _spend(spend: Spend) -> dict[str, Any]:
    counts = asdict(spend)
    return {"usd": counts.pop("nano_usd") / NANO, **counts}


def task_digest(task: Task) -> str:
    """sha256 of what the task says, however its file is laid out."""
    said = asdict(task)
    del said["repeats"]  # a text says the same however often
    for sample in said["samples"]:
        del sample["image"]  # the text is its content; where it lies says nothing
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def check_place(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a place where a run can be neither begun nor taken up, before an hour is spent on it.

    Only a directory that holds a run and nothing else is ever taken over.
    """
    if is_url(path):
        raise RunError(f"{place(path)}: is a web address; name a directory of this machine for the run")
    try:
        entries = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    except NotADirectoryError:
        raise RunError(f"{place(path)}: is a file; name a directory for the run") from None
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be used ({_reason(error)})") from None
    foreign = [name for name in entries if name not in FILES and not name.startswith(".")]
    if entries and not (is_run(path) or has_journal(path)):
        if foreign or not set(entries) <= {LOCK}:
            raise RunError(f"{place(path)}: holds something else than a run; name another directory")
    elif foreign:
        raise RunError(
            f"{place(path)}: holds {short(foreign[0])}, which is no part of a run; "
            "move it away or name another directory"
        )
    elif entries and not has_journal(path) and not overwrite:
        raise RunError(
            f"{place(path)}: holds a run without a journal, which cannot be taken up; "
            "name another directory or add --overwrite"
        )
    _check_writable(path)


def has_journal(path: Path) -> bool:
    """Whether a directory holds a run that was begun."""
    return (path / JOURNAL).exists()


def set_aside(path: Path) -> None:
    """Put the progress of an earlier run aside, so that a new one can begin; results stay till then.

    A run in which nothing has happened is no reason to give up what was set aside before it.
    """
    worthless = has_set_aside(path) and _is_blank(path)
    for name, aside in _ASIDE.items():
        if worthless:
            (path / name).unlink(missing_ok=True)
        elif (path / name).exists():
            os.replace(path / name, path / aside)
        else:
            (path / aside).unlink(missing_ok=True)


def _is_blank(path: Path) -> bool:
    from adamab.run.journal import Journal

    try:
        with Journal(path) as journal:
            return journal.is_blank()
    except RunError:
        return not has_journal(path)  # one that is damaged may be worth something to somebody


def has_set_aside(path: Path) -> bool:
    """Whether an earlier run gave way to the one that is there."""
    return (path / _ASIDE[JOURNAL]).exists()


def drop_set_aside(path: Path) -> None:
    """Delete what `set_aside` kept."""
    for aside in _ASIDE.values():
        (path / aside).unlink(missing_ok=True)


def has_results(path: Path) -> bool:
    """Whether a directory holds everything that a fit leaves."""
    return is_run(path) and all((path / name).is_file() for name in RESULTS)


def is_run(path: Path) -> bool:
    """Whether a directory holds a run of ours."""
    try:
        read_summary(path)
    except RunError:
        return False
    return True


def unfinished(path: Path) -> RunError:
    """The error for a run without results."""
    return RunError(
        f"{place(path)}: its fit has not ended yet; adamab fit --run {place(path)} goes on with it"
    )


def read_summary(path: Path) -> dict[str, Any]:
    """The contents of a run's `fit.json`."""
    file = path / SUMMARY
    if not file.exists() and has_journal(path):
        raise unfinished(path)
    try:
        summary = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise RunError(f"{place(file)}: cannot be read ({_reason(error)}); is this a run?") from None
    except (ValueError, RecursionError):
        raise RunError(f"{place(file)}: is damaged; fit again") from None
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise RunError(f"{place(file)}: was not written by adamab fit; name a run's directory")
    return summary


def write_results(path: Path, task: Task, result: FitResult, summary: Mapping[str, Any]) -> None:
    """Write all results, each file as a whole."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with _inside(path) as new:
            _fill(new, task, result, summary)
            for name in RESULTS:
                os.replace(new / name, path / name)
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be written ({_reason(error)})") from None


def _fill(directory: Path, task: Task, result: FitResult, summary: Mapping[str, Any]) -> None:
    from adamab.classifier import save
    from adamab.classifier.class_files import save_class_side

    save(result.classifier, directory)
    save_class_side(result.class_side, directory, result.classifier)
    result.history.write(directory / HISTORY)
    with open(directory / SYNTHETIC, "w", encoding="utf-8") as stream:
        for sample in result.synthetic:
            row = {"label": sample.class_name, "text": sample.text}
            if sample.image is not None:
                row["image"] = f"{IMAGES}/{sample.image.path.name}"
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    write_vectors(directory, result.vectors)
    write_held_out(directory, held_out_answers(result.held_out, task.samples, task.class_names))
    _write_summary(directory, summary)


def _write_summary(directory: Path, summary: Mapping[str, Any]) -> None:
    text = json.dumps(summary, ensure_ascii=False, allow_nan=False, indent=1)
    (directory / SUMMARY).write_text(text + "\n", encoding="utf-8")


def note_added(path: Path, name: str) -> None:
    """Say in `fit.json` that a class was added after the fit; the next fit writes it anew."""
    summary = read_summary(path)
    added = [*summary.get("added", []), name]
    try:
        with _inside(path) as new:
            _write_summary(new, {**summary, "added": list(dict.fromkeys(added))})
            os.replace(new / SUMMARY, path / SUMMARY)
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be written ({_reason(error)})") from None


@contextlib.contextmanager
def _inside(directory: Path) -> Iterator[Path]:
    """A new directory in the run's, gone at the end with what is left in it."""
    path = directory / f".results.{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)  # of a killed process that had the same number
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _check_writable(path: Path) -> None:
    parent = Path(os.path.realpath(path))
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"{place(path)}: cannot be made, {place(parent)} is not a directory to write in")


def versions() -> dict[str, str]:
    """Of the packages that a result depends on."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _reason(error: OSError) -> str:
    return one_line(error.strerror or error)
