"""What a run directory holds, and how its results get there.

    journal.sqlite                  what was bought, decided and changed; from the first second on
    vectors.sqlite                  paid vectors of this run (embedders behind an API only)
    images/                         generated images by content, with thumbnails (tasks of images only)
    checkpoint.safetensors          the model's state after some round, to start again faster
    writer.lock                     held by the process that writes
    model.safetensors, model.json   the classifier
    classes.safetensors             what a class that is added later gets its weights from
    task.json                       what was to be learned: classes, given samples, wording
    reviews.jsonl                   what people think of the synthetic samples
    history.jsonl                   one record per round
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
import json
import os
import platform
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from adamab.errors import RunError, one_line, os_errors, place, short
from adamab.model.storage import CLASSES, DOCUMENT, JOURNAL, WEIGHTS, replace_file, unfinished
from adamab.providers.image_store import FOLDER as IMAGES
from adamab.providers.metering import NANO, Budget, Spend
from adamab.providers.sqlite_file import LOCK as LOCK
from adamab.run.resume import CHECKPOINT as CHECKPOINT
from adamab.run.resume import json_digest, sample_digest
from adamab.run.reviews import REVIEWS as REVIEWS
from adamab.task.images import Image, is_url
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.task.words import normalised_text
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.run.fit import FitResult
    from adamab.run.samples import TrainingSet
    from adamab.run.settings import FitSetup


# The task of a run, kept with it: what the page and the report show, and what `fit` goes on with.

TASK = "task.json"
TASK_FORMAT, TASK_VERSION = "adamab-task", 1


class TaskPart(NamedTuple):
    """A class, its description, or one of its examples."""

    class_name: str
    kind: Literal["class", "description", "example"]
    digest: str = ""  # of the text, however it is written


@dataclass(frozen=True)
class TaskEdits:
    """What was changed in a run's own task, for the next fit, and for a task file that does not have it."""

    gained: frozenset[TaskPart] = frozenset()
    lost: frozenset[TaskPart] = frozenset()
    # Class -> where its samples belong; None where it was removed.
    moved: Mapping[str, str | None] = field(default_factory=dict)
    segment: int = 0  # the segments that the run had when its classes were moved; a later one has done so


def parts_of(task: Task) -> set[TaskPart]:
    """All that can be changed in a run's own task; ids of samples cannot."""
    classes = (TaskPart(name, "class") for name in task.class_names)
    descriptions = (TaskPart(c.name, "description", json_digest(c.description)) for c in task.classes)
    samples = (TaskPart(s.class_name, "example", json_digest(normalised_text(s.text))) for s in task.samples)
    return {*classes, *descriptions, *samples}


def read_edits(directory: Path) -> TaskEdits:
    """Those of the run in `directory`; none where it keeps no task."""
    try:
        document = json.loads((directory / TASK).read_bytes()).get("edits", {})
        parts = {
            name: frozenset(TaskPart(*part) for part in document.get(name, ())) for name in ("gained", "lost")
        }
        return TaskEdits(**parts, moved=dict(document.get("moved", {})), segment=document.get("segment", 0))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return TaskEdits()  # a damaged task is written again


def write_task(directory: Path, task: Task, edits: TaskEdits | None = None) -> None:
    """Put a task into a run's directory, in place of the one that is there.

    Args:
        directory: the run's.
        task: what the next fit without a task file is about.
        edits: what was changed in it since a task file was read.
    """
    samples = []
    for sample in task.samples:
        row: dict[str, Any] = {"label": sample.class_name, "text": sample.text}
        if sample.id is not None:
            row["id"] = sample.id
        if sample.image is not None:
            row["image"] = path_between(directory, sample.image.path)
        samples.append(row)
    document = {
        "format": TASK_FORMAT,
        "version": TASK_VERSION,
        "name": task.name,
        "modality": task.modality,
        "classes": [asdict(spec) for spec in task.classes],
        "samples": samples,
        "prompts": asdict(task.prompts),
    }
    if edits is not None and edits != TaskEdits():
        document["edits"] = {**vars(edits), "gained": sorted(edits.gained), "lost": sorted(edits.lost)}
    _write_json(directory / TASK, document, mode=0o600)  # given samples may be private


def _write_json(file: Path, document: Mapping[str, Any], mode: int = 0o666) -> None:
    """Put a file in place of another, as a whole."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    with os_errors(file.parent, "cannot be written"):
        replace_file(file, text.encode("utf-8", "surrogatepass"), mode)


def read_task(directory: Path) -> Task:
    """The task of the run in `directory`.

    Images are named by their content then; whether a file has changed is seen when it is opened.
    """
    file = directory / TASK
    try:
        document = json.loads(file.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError:
        raise RunError(f"{place(directory)}: keeps no task; name the task file") from None
    except OSError as error:
        raise RunError(f"{place(file)}: cannot be read ({_reason(error)})") from None
    except (ValueError, RecursionError):
        raise _damaged(file) from None
    if not isinstance(document, dict) or document.get("format") != TASK_FORMAT:
        raise _damaged(file)
    if document.get("version") != TASK_VERSION:
        raise RunError(f"{place(file)}: was written by another version of adamab; name the task file")
    samples = []
    try:
        for row in document["samples"]:
            image = None
            if "image" in row:
                image = Image(row["text"].rpartition(":")[2], directory / row["image"])
            samples.append(Sample(row["text"], row["label"], id=row.get("id"), image=image))
        return Task(
            classes=tuple(ClassSpec(**spec) for spec in document["classes"]),
            samples=tuple(samples),
            prompts=Prompts(**document["prompts"]),
            name=document["name"],
            modality=document["modality"],
        )
    except (KeyError, TypeError, AttributeError):
        raise _damaged(file) from None


def path_between(directory: Path, path: Path) -> str:
    """How to get from a run to something else, so that both can be moved together."""
    target = os.path.realpath(path)
    try:
        return Path(os.path.relpath(target, os.path.realpath(directory))).as_posix()
    except ValueError:  # another drive
        return Path(target).as_posix()


def _damaged(file: Path) -> RunError:
    return RunError(f"{place(file)}: is damaged; name the task file, and it is written again")


# What a run leaves about its samples, for people who look into it: vectors, and held-out answers.

SAMPLES, HELD_OUT = "samples.safetensors", "held_out.jsonl"
MOST_NUMBERS = 100_000_000  # of a matrix that is kept for looking only: 200 MB
Halves = NDArray[np.float16]


@dataclass(frozen=True)
class SampleVectors:
    """The view in which samples meet descriptions, as the embedder gives it but in half precision.

    That is enough to say what is near. Rows are those of the task that was fitted, of `synthetic.jsonl` and
    of the classes; empty where there are none.
    """

    given: Halves  # (n, d)
    synthetic: Halves  # (m, d)
    described: Halves  # (K, d)
    # Of the given samples, by which they are found in a task that was changed since.
    digests: tuple[str, ...] = field(default=(), kw_only=True)


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
    classes = samples.describe_classes(samples.given)
    nothing = pooled[:0]
    described = nothing if classes is None else classes.views.get(samples.pooled, nothing)
    longest = max(np.abs(matrix).max(initial=0) for matrix in (pooled, described))
    if pooled.size + described.size > MOST_NUMBERS or longest > np.finfo(np.float16).max:
        return SampleVectors(*(nothing.astype(np.float16) for _ in range(3)))
    given, synthetic = pooled[samples.given], pooled[~samples.given & samples.has_texts]
    return SampleVectors(*(x.astype(np.float16) for x in (given, synthetic, described)))


def read_vectors(directory: Path) -> SampleVectors | None:
    """Those that a fit left; None where none has ended yet."""
    file = directory / SAMPLES
    try:
        with safetensors.safe_open(file, "np") as stored:
            vectors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  # not a dict
            return SampleVectors(**vectors, digests=tuple(json.loads(stored.metadata()["given"])))
    except FileNotFoundError:
        return None
    except (OSError, safetensors.SafetensorError, TypeError, KeyError, ValueError):
        raise RunError(f"{place(file)}: cannot be read; fit again to replace it") from None


def read_held_out(directory: Path) -> list[HeldOutAnswer]:
    """Those that a fit left; none where none has ended yet."""
    file = directory / HELD_OUT
    try:
        text = file.read_bytes().decode("utf-8", "surrogatepass")
        # Not splitlines: a text may hold a line separator of its own.
        return [HeldOutAnswer(**json.loads(line)) for line in text.split("\n")[:-1]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError):
        raise RunError(f"{place(file)}: cannot be read; fit again to replace it") from None


SUMMARY, HISTORY, SYNTHETIC = "fit.json", "history.jsonl", "synthetic.jsonl"
RESULTS = (WEIGHTS, DOCUMENT, CLASSES, HISTORY, SYNTHETIC, SAMPLES, HELD_OUT, SUMMARY)
VECTORS = "vectors.sqlite"
_OLD = ".old"
_ENDS = ("", "-wal", "-shm", "-journal")  # of the files that SQLite keeps beside a database
_PROGRESS = [(CHECKPOINT, ""), *((name, end) for name in (JOURNAL, VECTORS) for end in _ENDS)]
ASIDE = {name + end: name + _OLD + end for name, end in _PROGRESS}
_LOCKS = tuple(LOCK + end for end in _ENDS)  # all that a run killed before its journal leaves
FILES = (*RESULTS, TASK, REVIEWS, IMAGES, *ASIDE, *ASIDE.values(), *_LOCKS)
FORMAT = "adamab-run"
VERSION = 1
_PACKAGES = ("numpy", "scipy", "sentence-transformers")


def summarise(
    setup: FitSetup, result: FitResult, *, seconds: float, classes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The contents of `fit.json`.

    Args:
        setup: the task and its settings.
        result: what was made of them.
        seconds: how long that took.
        classes: every class that the run has had -> the one that it is now.

    Returns:
        Plain data.
    """
    task, classifier = setup.task, result.classifier
    by_class = result.synthetic_by_class
    rejected: dict[str, Counter[str]] = {}  # by class and reason
    for record in result.history:
        if record.chosen is not None and record.rejected:
            rejected.setdefault(record.chosen, Counter()).update(record.rejected)
    return {
        "format": FORMAT,
        "version": VERSION,
        "adamab": __version__,
        "python": platform.python_version(),
        "packages": versions(),
        "task": {"name": task.name, "modality": task.modality, "sha256": task_digest(task)},
        "embedder": {"spec": classifier.embedder_spec, "fingerprint": classifier.fingerprint},
        "generator": setup.generator_spec,
        "policy": setup.settings.policy,
        "budget": None if setup.budget == Budget() else str(setup.budget),
        "seed": setup.settings.seed,
        "recipe": setup.recipe.model_dump(mode="json"),
        "classes": len(task.classes),
        "given": len(task.samples),
        "repeats": task.repeats,
        "synthetic": sum(by_class.values()),
        "synthetic_by_class": by_class,
        "rounds": len(result.history),
        "views": list(dict.fromkeys(head.view for head in classifier.heads)),  # a view may have two heads
        "estimate": None if result.held_out is None else asdict(result.held_out.estimate()),
        "reused": result.reused,
        "set_aside": result.set_aside,
        "closed": result.closed,
        "ended": result.ended,
        "rejected": {name: dict(reasons) for name, reasons in rejected.items()},
        "refused": dict(Counter(r.chosen for r in result.history if r.refused and r.chosen is not None)),
        "diversity": {
            name: figures._asdict() for name, figures in zip(task.class_names, result.diversity, strict=True)
        },
        "spent": spending(result.spent, classes),
        "unused_batches": result.unused,
        "overlong": result.overlong,
        "seconds": round(seconds, 3),
    }


def spending(
    spent: Mapping[tuple[str, str | None], Spend], classes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What was spent in all, by purpose and by class; `classes` says what those of earlier names are now."""
    by_class: dict[str, Spend] = {}
    by_purpose: dict[str, Spend] = {}
    for (purpose, name), spend in spent.items():
        by_purpose[purpose] = by_purpose.get(purpose, Spend()) + spend
        if name is not None:
            name = (classes or {}).get(name, name)
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
    content = asdict(task)
    del content["repeats"]  # a text says the same however often
    for sample in content["samples"]:
        del sample["image"]  # the text is its content; its path does not matter
    return json_digest(content)


def check_place(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a place where a run can be neither begun nor resumed, before time is spent on it.

    Only a directory that holds a run and nothing else is ever taken over.

    Args:
        path: where the run is to be.
        overwrite: whether it starts over, so that a run that cannot be resumed is no obstacle.
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
        if not set(entries).issubset(_LOCKS):
            raise RunError(f"{place(path)}: holds something else than a run; name another directory")
    elif foreign:
        raise RunError(
            f"{place(path)}: holds {short(foreign[0])}, which is no part of a run; "
            "move it away or name another directory"
        )
    elif entries and not overwrite and is_run(path) and not _journal_size(path):
        raise RunError(
            f"{place(path)}: holds a run without a journal, which cannot be resumed; "
            "name another directory or add --overwrite"
        )
    parent = Path(os.path.realpath(path))
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"{place(path)}: cannot be made, {place(parent)} is not a directory to write in")


def _journal_size(path: Path) -> int:
    return (path / JOURNAL).stat().st_size if has_journal(path) else 0


def has_journal(path: Path) -> bool:
    """Whether a directory holds a run that was begun."""
    return (path / JOURNAL).exists()


def has_set_aside(path: Path) -> bool:
    """Whether an earlier run gave way to the one that is there."""
    return (path / ASIDE[JOURNAL]).exists()


def is_run(path: Path) -> bool:
    """Whether a directory holds a run of ours."""
    try:
        read_summary(path)
    except RunError:
        return False
    return True


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
    """Write all results, each file as a whole.

    Args:
        path: the run's directory.
        task: has the texts of the samples that were held out.
        result: the classifier and what happened on the way to it.
        summary: the contents of `fit.json`.
    """
    from scipy.special import softmax

    from adamab.model import save
    from adamab.model.new_class import save_new_class_model

    new = path / f".results.{os.getpid()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(new, ignore_errors=True)  # of a killed process that had the same number
        new.mkdir()
        save(result.classifier, new)
        save_new_class_model(result.new_class, new, result.classifier)
        with open(new / HISTORY, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(r.to_json(), allow_nan=False) + "\n" for r in result.history)
        with open(new / SYNTHETIC, "w", encoding="utf-8") as stream:
            for sample in result.synthetic:
                row = {"label": sample.class_name, "text": sample.text}
                if sample.image is not None:
                    row["image"] = f"{IMAGES}/{sample.image.path.name}"
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        vectors = asdict(result.vectors)
        del vectors["digests"]
        digests = {"given": json.dumps([sample_digest(sample) for sample in task.samples])}
        (new / SAMPLES).write_bytes(safetensors.numpy.save(vectors, digests))
        (new / HELD_OUT).touch(mode=0o600)  # given samples may be private
        with open(new / HELD_OUT, "w", encoding="utf-8", errors="surrogatepass") as stream:
            if (held_out := result.held_out) is not None:
                logits = held_out.scale() * held_out.foretold.astype(np.float64)
                best, sure = logits.argmax(axis=1), softmax(logits, axis=1).max(axis=1)
                for i, predicted, p in zip(held_out.position, best, sure, strict=True):
                    sample, name = task.samples[i], task.class_names[predicted]
                    answer = HeldOutAnswer(sample.class_name, sample.text, name, round(float(p), 6))
                    stream.write(json.dumps(asdict(answer), ensure_ascii=False) + "\n")
        _write_json(new / SUMMARY, summary)
        for name in RESULTS:
            os.replace(new / name, path / name)
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be written ({_reason(error)})") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def note_added(path: Path, name: str) -> None:
    """Say in `fit.json` that a class was added after the fit; the next fit replaces it."""
    summary = read_summary(path)
    added = dict.fromkeys([*summary.get("added", []), name])
    _write_json(path / SUMMARY, {**summary, "added": list(added)})


def versions() -> dict[str, str]:
    """Of the packages that a result depends on."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _reason(error: OSError) -> str:
    return one_line(error.strerror or error)
