"""A classifier on disk: `model.safetensors` for the arrays, `model.json` for the rest. Never a pickle.

Whatever the bytes are, `load` gives the classifier that was saved or one `ModelFileError`. The
document holds a digest of itself and one of the weights, so that neither can change alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy

from adamab.errors import ModelFileError, RunError, one_line, place, short
from adamab.model.classifier import Classifier
from adamab.model.confidence import Confidence
from adamab.model.heads import Head
from adamab.task.words import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adamab.model.heads import Array, ArrayParts


# A model's files: read within bounds, replaced as one.
#
# Weights and document cannot be renamed in one step, so the order makes the document decide. New weights
# are first stored under a name that holds their digest; then the document, which gives that digest,
# replaces the old one; then the weights take their usual name. Killed at any point, the directory holds a
# document and, under one of the two names, the weights it means.

WEIGHTS = "model.safetensors"
DOCUMENT = "model.json"
JOURNAL = "journal.sqlite"  # beside the model of a run: its fit as it happens
CLASSES = "classes.safetensors"  # for classes that come later; prediction never reads it
# A file that claims more is refused before it is read; a classifier is a few megabytes.
_LARGEST = {WEIGHTS: 2 * 2**30, DOCUMENT: 32 * 2**20, CLASSES: 2 * 2**30}


_PENDING = ".model-{digest}.safetensors"


@contextlib.contextmanager
def writing(directory: Path, contents: Mapping[str, bytes]) -> Iterator[None]:
    """For writing these files: the directory is made, what cannot be written is one line."""
    for name, content in contents.items():
        _check_size(directory / name, len(content))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except (OSError, ValueError) as exc:  # ValueError: a path that holds a NUL
        raise ModelFileError(f"{place(directory)}: cannot be written ({_reason(exc)})") from None


def read_file(path: Path) -> bytes:
    """The bytes of a model's file, a bounded number."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a named pipe would block, a device never end
            raise ModelFileError(f"{place(path)}: is not a regular file; name a saved model's directory")
        _check_size(path, status.st_size)
        with open(path, "rb") as handle:
            return handle.read(status.st_size)
    except FileNotFoundError:
        raise ModelFileError(f"{place(path)}: no such file; name a saved model's directory") from None
    except ModelFileError:
        raise
    except (OSError, ValueError) as exc:
        raise ModelFileError(f"{place(path)}: cannot be read ({_reason(exc)})") from None


def _read_weights(directory: Path, digest: str, size: int) -> bytes:
    """The bytes of the weights, if they are the ones that the document means."""
    usual = directory / WEIGHTS
    for path in (usual, directory / _PENDING.format(digest=digest)):
        # A wrong size saves reading the file.
        if os.path.exists(path) and os.path.getsize(path) == size:
            content = read_file(path)
            if hashlib.sha256(content).hexdigest() == digest:
                return content
    if not os.path.exists(usual):
        raise ModelFileError(f"{place(usual)}: no such file; copy the model's directory as a whole")
    raise ModelFileError(
        f"{place(usual)}: damaged, or not of the same model as {DOCUMENT}; "
        "save it again, or run adamab fit again"
    )


def _check_size(path: Path, size: int) -> None:
    largest = _LARGEST.get(path.name, _LARGEST[WEIGHTS])
    if size > largest:
        raise ModelFileError(f"{place(path)}: has {size} bytes; a model's file has at most {largest}")


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a file in place of another, as a whole; `mode` says who may read a new one."""
    temporary = path.with_name(f".model-{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode), "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # Makes the renaming survive a power cut, in this order; not every system can do it.
    with contextlib.suppress(OSError):
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _reason(exc: Exception) -> str:
    return one_line(exc.strerror if isinstance(exc, OSError) and exc.strerror else exc)


FORMAT = "adamab-classifier"
VERSION = 3
_HEAD_SETTINGS = ("view", "activation", "normalise")


def save(classifier: Classifier, directory: str | PathLike[str]) -> None:
    """Write a classifier to disk; a process killed meanwhile leaves the old model or the new one.

    Args:
        classifier: what to write.
        directory: where; it is made if it is missing, and a model in it is replaced.
    """
    folder, weights = Path(directory), weights_of(classifier.heads)
    digest = hashlib.sha256(weights).hexdigest()
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "classes": classifier.classes,
        "embedder": {"spec": classifier.embedder_spec, "fingerprint": classifier.fingerprint},
        "query_prompt": classifier.query_prompt,
        "heads": [
            {**{name: getattr(head, name) for name in _HEAD_SETTINGS}, "arrays": list(head.arrays)}
            for head in classifier.heads
        ],
        "metadata": classifier.metadata,
        "weights": {"sha256": digest, "bytes": len(weights)},
        "vocabulary": None if classifier.vocabulary is None else classifier.vocabulary.to_json(),
        "confidence": None if classifier.confidence is None else asdict(classifier.confidence),
    }
    document["digest"] = _digest(document)
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1).encode()
    with writing(folder, {WEIGHTS: weights, DOCUMENT: text}):
        pending = folder / _PENDING.format(digest=digest)
        replace_file(pending, weights)
        replace_file(folder / DOCUMENT, text)
        os.replace(pending, folder / WEIGHTS)
        for leftover in [*folder.glob(".model-*.safetensors"), *folder.glob(".model-*.tmp")]:
            leftover.unlink(missing_ok=True)


def weights_of(heads: Sequence[ArrayParts]) -> bytes:
    """The bytes of the file of the arrays."""
    weights: bytes = safetensors.numpy.save(tensors_of(heads))
    return weights


def tensors_of(parts: Sequence[ArrayParts]) -> dict[str, Array]:
    """The arrays of all parts, each with the number of its part before its name."""
    return {
        f"{number}.{name}": np.ascontiguousarray(array)
        for number, part in enumerate(parts)
        for name, array in part.arrays.items()
    }


def unfinished(path: Path) -> RunError:
    """The error for a run without results."""
    return RunError(f"{place(path)}: its fit has not ended yet; adamab fit --run {place(path)} resumes it")


def load(directory: str | PathLike[str]) -> Classifier:
    """The classifier that `save` wrote into `directory`; anything else is a `ModelFileError`."""
    folder = Path(directory)
    content = read_file(folder / DOCUMENT)
    with _blaming(folder / DOCUMENT):
        document = _parsed(content)
        digest, size = document["weights"]["sha256"], document["weights"]["bytes"]
    weights = _read_weights(folder, digest, size)
    with _blaming(folder / WEIGHTS):
        heads = _heads(document["heads"], dict(safetensors.deserialize(weights)))  # type: ignore[no-untyped-call,unused-ignore]
    with _blaming(folder / DOCUMENT):
        vocabulary, confidence = document["vocabulary"], document["confidence"]
        return Classifier(
            classes=tuple(document["classes"]),
            heads=heads,
            vocabulary=None if vocabulary is None else Vocabulary.from_json(vocabulary),
            embedder_spec=document["embedder"]["spec"],
            fingerprint=document["embedder"]["fingerprint"],
            query_prompt=document["query_prompt"],
            metadata=document["metadata"],
            confidence=None if confidence is None else Confidence.from_json(confidence),
        )


def _digest(document: Mapping[str, Any]) -> str:
    """Of what the document says, however it is laid out; the digest itself is left out."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


@contextlib.contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Whatever is wrong inside is wrong with the file at `path`."""
    try:
        yield
    except ModelFileError as exc:
        raise ModelFileError(f"{place(path)}: {exc}") from None
    except RecursionError:
        raise ModelFileError(f"{place(path)}: nested too deeply; save the model again") from None
    except (KeyError, TypeError, AttributeError):  # something is missing or of another type
        raise ModelFileError(f"{place(path)}: damaged; save the model again") from None
    except (ValueError, safetensors.SafetensorError) as exc:
        raise ModelFileError(f"{place(path)}: {one_line(exc)}; save the model again") from None


def _parsed(content: bytes) -> dict[str, Any]:
    """The document; its values are checked where heads and classifier are made of them."""
    document: dict[str, Any] = json.loads(content.decode())
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError("is not a saved ADAMAB classifier; name a saved model's directory")
    if document["version"] != VERSION:
        saved = short(document["version"])
        raise ModelFileError(
            f"was saved in format {saved} by another version of adamab, this one reads format {VERSION}; "
            "fit again or pip install -U adamab"
        )
    if document["digest"] != _digest(document):
        raise ValueError("damaged or edited: its digest does not fit")
    if not re.fullmatch("[0-9a-f]{64}", document["weights"]["sha256"]):  # it becomes part of a path
        raise ValueError("'weights' has no valid sha256")
    for head in document["heads"]:
        names = head["arrays"]
        single = [name for name in Head.DIMENSIONS if name in names]
        layers = [f"tower.{number}" for number in range(len(names) - len(single))]
        if names != single + layers or "linear" not in single:
            raise ValueError("a head's 'arrays' are not those of a head")
    return document


def _heads(documents: Sequence[Mapping[str, Any]], stored: Mapping[str, Any]) -> tuple[Head, ...]:
    """Heads of checked documents and of tensors as the file has them, which may be anything."""
    expected = {f"{number}.{name}" for number, head in enumerate(documents) for name in head["arrays"]}
    if odd := set(stored) ^ expected:
        raise ValueError(f"tensor {short(min(odd))} is missing or not expected")
    heads = []
    for number, head in enumerate(documents):
        arrays: dict[str, Any] = {}
        for name in head["arrays"]:
            tensor = stored[f"{number}.{name}"]
            if tensor["dtype"] != "F32":
                raise ValueError(f"tensor '{number}.{name}' is of type {short(tensor['dtype'])}, not F32")
            values = np.frombuffer(tensor["data"], "<f4").reshape(tensor["shape"])
            arrays[name] = values.astype(np.float32, copy=False)
        tower = tuple(arrays.pop(name) for name in head["arrays"] if name not in Head.DIMENSIONS)
        heads.append(Head(**{name: head[name] for name in _HEAD_SETTINGS}, tower=tower, **arrays))
    return tuple(heads)
