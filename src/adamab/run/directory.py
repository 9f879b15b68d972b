"""What a run directory holds, and how it comes to be: all at once, or not at all.

    model.safetensors, model.json   the classifier
    history.jsonl                   one record a round
    synthetic.jsonl                 accepted synthetic samples, label and text
    fit.json                        how it was made and what can be expected of it

A run is built in a sibling directory that is then renamed, so a killed fit leaves nothing
under the run's name.
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

from adamab.errors import RunError
from adamab.task.messages import one_line, place, short
from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.run.fit import FitResult
    from adamab.task.recipe import Recipe
    from adamab.task.spec import Task

SUMMARY, HISTORY, SYNTHETIC = "fit.json", "history.jsonl", "synthetic.jsonl"
FILES = ("model.safetensors", "model.json", HISTORY, SYNTHETIC, SUMMARY)
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
    budget: int | None,
    seed: int,
    seconds: float,
) -> dict[str, Any]:
    """The contents of `fit.json`."""
    classifier = result.classifier
    by_class = result.history.samples_by_class(task.class_names)
    return {
        "format": FORMAT,
        "version": VERSION,
        "adamab": __version__,
        "python": platform.python_version(),
        "packages": _versions(),
        "task": {"name": task.name, "sha256": task_digest(task)},
        "embedder": {"spec": classifier.embedder_spec, "fingerprint": classifier.fingerprint},
        "generator": generator,
        "policy": policy,
        "budget": budget,
        "seed": seed,
        "recipe": recipe.model_dump(mode="json"),
        "classes": len(task.classes),
        "given": len(task.samples),
        "repeats": task.repeats,
        "synthetic": sum(by_class.values()),
        "synthetic_by_class": by_class,
        "rounds": len(result.history),
        "views": [head.view for head in classifier.heads],
        "estimate": None if result.estimate is None else asdict(result.estimate),
        "closed": result.closed,
        "overlong": result.overlong,
        "seconds": round(seconds, 3),
    }


def task_digest(task: Task) -> str:
    """sha256 of what the task says, however its file is laid out."""
    said = asdict(task)
    del said["repeats"]  # a text says the same however often
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def check_free(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a place where a run cannot be written, before an hour is spent on it.

    Only a directory that holds a run and nothing else is ever replaced.
    """
    try:
        entries = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
        if not entries:
            _check_writable(path)
            return
    except NotADirectoryError:
        raise RunError(f"{place(path)}: is a file; name a directory for the run") from None
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be used ({_reason(error)})") from None
    if not is_run(path):
        raise RunError(f"{place(path)}: holds something else than a run; name another directory")
    if not overwrite:
        raise RunError(f"{place(path)}: holds a run already; name another directory or add --overwrite")
    foreign = [name for name in entries if name not in FILES and not name.startswith(".model-")]
    if foreign:
        raise RunError(
            f"{place(path)}: holds {short(foreign[0])}, which is no part of a run; "
            "move it away or name another directory"
        )
    _check_writable(path)


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
    try:
        summary = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise RunError(f"{place(file)}: cannot be read ({_reason(error)}); is this a run?") from None
    except (ValueError, RecursionError):
        raise RunError(f"{place(file)}: is damaged; fit again") from None
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise RunError(f"{place(file)}: was not written by adamab fit; name a run's directory")
    return summary


def write_run(path: Path, result: FitResult, summary: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write a whole run to `path`, or nothing."""
    check_free(path, overwrite=overwrite)
    target = Path(os.path.realpath(path))  # a link stays a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _sibling(target, "new") as new:
            _fill(new, result, summary)
            _put_in_place(new, target)
    except OSError as error:
        raise RunError(f"{place(path)}: cannot be written ({_reason(error)})") from None


def _fill(directory: Path, result: FitResult, summary: Mapping[str, Any]) -> None:
    from adamab.classifier import save

    save(result.classifier, directory)
    result.history.write(directory / HISTORY)
    with open(directory / SYNTHETIC, "w", encoding="utf-8") as stream:
        for sample in result.synthetic:
            row = {"label": sample.class_name, "text": sample.text}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    text = json.dumps(summary, ensure_ascii=False, allow_nan=False, indent=1)
    (directory / SUMMARY).write_text(text + "\n", encoding="utf-8")


def _put_in_place(new: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        os.replace(new, target)  # an empty directory may be replaced in one step
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    os.replace(target, old)
    try:
        os.replace(new, target)
    except BaseException:
        os.replace(old, target)
        raise
    shutil.rmtree(old)  # check_free has seen that nothing but a run is in it


@contextlib.contextmanager
def _sibling(target: Path, ending: str) -> Iterator[Path]:
    """A new directory beside `target`, gone at the end unless it was renamed."""
    path = target.with_name(f".{target.name}.{os.getpid()}.{ending}")
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _check_writable(path: Path) -> None:
    parent = Path(os.path.realpath(path)).parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"{place(path)}: cannot be made, {place(parent)} is not a directory to write in")


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _reason(error: OSError) -> str:
    return one_line(error.strerror or error)
