"""A model's files: read within bounds, replaced as one.

Weights and document cannot be renamed in one step, so the order makes the document decide.
New weights are first stored under a name that holds their digest; then the document, which
gives that digest, replaces the old one; then the weights take their usual name. Killed at any
point, the directory holds a document and, under one of the two names, the weights it means.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from adamab.errors import ModelFileError
from adamab.task.messages import one_line, place

WEIGHTS = "model.safetensors"
DOCUMENT = "model.json"
CLASSES = "classes.safetensors"  # for classes that come later; prediction never reads it
# A file that claims more is refused before it is read; a classifier is a few megabytes.
_LARGEST = {WEIGHTS: 2 * 2**30, DOCUMENT: 32 * 2**20, CLASSES: 2 * 2**30}


def write_model(directory: Path, weights: bytes, document: bytes) -> None:
    """Replace the model in `directory`; whatever happens meanwhile, it holds the old or the new one."""
    _check_size(directory / WEIGHTS, len(weights))
    _check_size(directory / DOCUMENT, len(document))
    pending = _pending(directory, hashlib.sha256(weights).hexdigest())
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _replace(pending, weights)
        _replace(directory / DOCUMENT, document)
        os.replace(pending, directory / WEIGHTS)
        _sync_directory(directory)
        _remove_leftovers(directory)
    except (OSError, ValueError) as exc:  # ValueError: a path that holds a NUL
        raise ModelFileError(f"{place(directory)}: cannot be written ({_reason(exc)})") from None


def write_classes(directory: Path, content: bytes) -> None:
    """Replace the file for classes that come later, as a whole."""
    _check_size(directory / CLASSES, len(content))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _replace(directory / CLASSES, content)
    except (OSError, ValueError) as exc:
        raise ModelFileError(f"{place(directory)}: cannot be written ({_reason(exc)})") from None


def read_classes(directory: Path) -> bytes:
    """The bytes of the file for classes that come later."""
    if not (directory / CLASSES).exists():
        raise ModelFileError(
            f"{place(directory)}: has no {CLASSES}, so the model is of an earlier version or only a part of "
            "it was copied; fit again to add classes"
        )
    return _read(directory / CLASSES)


def read_document(directory: Path) -> bytes:
    """The bytes of the document, a bounded number."""
    return _read(directory / DOCUMENT)


def read_weights(directory: Path, digest: str, size: int) -> bytes:
    """The bytes of the weights, if they are the ones that the document means."""
    usual, pending = directory / WEIGHTS, _pending(directory, digest)
    for path in (usual, pending):
        # A wrong size saves reading the file.
        if _size(path) == size:
            content = _read(path)
            if hashlib.sha256(content).hexdigest() == digest:
                return content
    if _size(usual) is None:
        raise ModelFileError(f"{place(usual)}: no such file; copy the model's directory as a whole")
    raise ModelFileError(
        f"{place(usual)}: damaged, or not of the same model as {DOCUMENT}; "
        "save it again, or run adamab fit again"
    )


def _pending(directory: Path, digest: str) -> Path:
    return directory / f".model-{digest}.safetensors"


def _size(path: Path) -> int | None:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return None


def _read(path: Path) -> bytes:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a named pipe would block, a device never end
            raise ModelFileError(f"{place(path)}: is not a regular file; name a saved model's directory")
        _check_size(path, status.st_size)
        with open(path, "rb") as handle:
            return handle.read(status.st_size)
    except FileNotFoundError:
        raise ModelFileError(f"{place(path)}: no such file; name a saved model's directory") from None
    except (OSError, ValueError) as exc:
        if isinstance(exc, ModelFileError):
            raise
        raise ModelFileError(f"{place(path)}: cannot be read ({_reason(exc)})") from None


def _check_size(path: Path, size: int) -> None:
    largest = _LARGEST.get(path.name, _LARGEST[WEIGHTS])
    if size > largest:
        raise ModelFileError(f"{place(path)}: has {size} bytes; a model's file has at most {largest}")


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".model-{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    # Makes the renaming survive a power cut, in this order; not every system can do it.
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_leftovers(directory: Path) -> None:
    for path in [*directory.glob(".model-*.safetensors"), *directory.glob(".model-*.tmp")]:
        path.unlink(missing_ok=True)


def _reason(exc: Exception) -> str:
    return one_line(exc.strerror if isinstance(exc, OSError) and exc.strerror else exc)
