"""A classifier on disk: `model.safetensors` for the arrays, `model.json` for the rest. Never a pickle.

Whatever the bytes are, `load` gives the classifier that was saved or one `ModelFileError`. The
document holds a digest of itself and one of the weights, so that neither can change alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import safetensors
import safetensors.numpy

from adamab.classifier.classifier import Classifier
from adamab.classifier.confidence import Confidence
from adamab.classifier.files import DOCUMENT, WEIGHTS, read_document, read_weights, write_model
from adamab.classifier.heads import Head
from adamab.errors import ModelFileError
from adamab.task.messages import one_line, place, short
from adamab.task.words import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from adamab.classifier.heads import Array

FORMAT = "adamab-classifier"
VERSION = 2  # 1 had no 'confidence'
_ANYTHING = object
_DOCUMENT_KEYS: dict[str, type] = {
    "format": str,
    "version": int,
    "classes": list,
    "embedder": dict,
    "query_prompt": str,
    "heads": list,
    "metadata": dict,
    "weights": dict,
    "vocabulary": _ANYTHING,  # these two check themselves
    "confidence": _ANYTHING,
    "digest": str,
}
_EMBEDDER_KEYS: dict[str, type] = {"spec": str, "fingerprint": str}
_HEAD_KEYS: dict[str, type] = {"view": str, "activation": str, "normalise": bool, "arrays": list}
_WEIGHTS_KEYS: dict[str, type] = {"sha256": str, "bytes": int}
_SINGLE_ARRAYS = ("linear", "hidden", "bias", "centre", "basis")


def save(classifier: Classifier, directory: str | PathLike[str]) -> None:
    """Write `classifier` into `directory`, in place of a model that is there.

    A process killed meanwhile leaves the old model or the new one.
    """
    weights = weights_of(classifier)
    document = _document(classifier, weights)
    document["digest"] = _digest(document)
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    write_model(Path(directory), weights, text.encode())


def weights_of(classifier: Classifier) -> bytes:
    """The bytes of the file of the arrays."""
    tensors = {
        f"{number}.{name}": np.ascontiguousarray(array)
        for number, head in enumerate(classifier.heads)
        for name, array in head.arrays.items()
    }
    weights: bytes = safetensors.numpy.save(tensors)
    return weights


def load(directory: str | PathLike[str]) -> Classifier:
    """The classifier that `save` wrote into `directory`; anything else is a `ModelFileError`."""
    folder = Path(directory)
    content = read_document(folder)
    with _blaming(folder / DOCUMENT):
        document = _parsed(content)
        expected = [f"{n}.{name}" for n, head in enumerate(document["heads"]) for name in head["arrays"]]
    weights = read_weights(folder, document["weights"]["sha256"], document["weights"]["bytes"])
    with _blaming(folder / WEIGHTS):
        tensors = _tensors(weights, expected)
        heads = tuple(_head(number, head, tensors) for number, head in enumerate(document["heads"]))
    with _blaming(folder / DOCUMENT):
        return _classifier(document, heads)


def _document(classifier: Classifier, weights: bytes) -> dict[str, Any]:
    vocabulary = classifier.vocabulary
    return {
        "format": FORMAT,
        "version": VERSION,
        "classes": list(classifier.classes),
        "embedder": {"spec": classifier.embedder_spec, "fingerprint": classifier.fingerprint},
        "query_prompt": classifier.query_prompt,
        "heads": [_head_document(head) for head in classifier.heads],
        "metadata": classifier.metadata,
        "weights": {"sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights)},
        "vocabulary": None if vocabulary is None else vocabulary.to_json(),
        "confidence": None if classifier.confidence is None else classifier.confidence.to_json(),
    }


def _head_document(head: Head) -> dict[str, Any]:
    return {
        "view": head.view,
        "activation": head.activation,
        "normalise": head.normalise,
        "arrays": list(head.arrays),
    }


def _digest(document: Mapping[str, Any]) -> str:
    """Of what the document says, however it is laid out; the digest itself is left out."""
    said = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(said, sort_keys=True, allow_nan=False).encode()).hexdigest()


@contextlib.contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Whatever is wrong inside is wrong with the file at `path`."""
    try:
        yield
    except ModelFileError as exc:
        raise ModelFileError(f"{place(path)}: {exc}") from None
    except RecursionError:
        raise ModelFileError(f"{place(path)}: nested too deeply; save the model again") from None
    except (ValueError, safetensors.SafetensorError) as exc:
        raise ModelFileError(f"{place(path)}: {one_line(exc)}; save the model again") from None


def _parsed(content: bytes) -> dict[str, Any]:
    document = json.loads(content.decode(), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError("is not a saved ADAMAB classifier; name a saved model's directory")
    _check_version(document.get("version"))
    _check_keys(document, _keys_of(document["version"]), "the document")
    if document["digest"] != _digest(document):
        raise ValueError("damaged or edited: its digest does not fit")
    _check_keys(document["embedder"], _EMBEDDER_KEYS, "'embedder'")
    _check_keys(document["weights"], _WEIGHTS_KEYS, "'weights'")
    if not re.fullmatch("[0-9a-f]{64}", document["weights"]["sha256"]):  # it becomes part of a path
        raise ValueError("'weights' has no valid sha256")
    for head in document["heads"]:
        _check_keys(head, _HEAD_KEYS, "a head")
        _check_names(head["arrays"])
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_version(version: object) -> None:
    if type(version) is not int or version < 1:
        raise ValueError("the version is not a positive number")
    if version > VERSION:
        raise ModelFileError(
            f"was saved by a newer version of adamab (this one reads up to format {VERSION}); "
            "upgrade: pip install -U adamab"
        )


def _keys_of(version: int) -> dict[str, type]:
    return {key: kind for key, kind in _DOCUMENT_KEYS.items() if version > 1 or key != "confidence"}


def _check_keys(value: object, kinds: dict[str, type], where: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    if set(value) != set(kinds):
        odd = min(set(value) ^ set(kinds))
        raise ValueError(f"{where}: key {short(odd)} is {'unknown' if odd in value else 'missing'}")
    for key, kind in kinds.items():
        # The exact type: true is not a number here.
        if kind is not _ANYTHING and type(value[key]) is not kind:
            raise ValueError(f"{where}: {key!r} is of type {type(value[key]).__name__}, not {kind.__name__}")


def _check_names(names: list[object]) -> None:
    single = [name for name in _SINGLE_ARRAYS if name in names]
    layers = [f"tower.{number}" for number in range(len(names) - len(single))]
    if names != single + layers or "linear" not in single:
        raise ValueError("a head's 'arrays' are not those of a head")


def _tensors(weights: bytes, expected: list[str]) -> dict[str, Array]:
    found: dict[str, Any] = dict(safetensors.deserialize(weights))  # type: ignore[no-untyped-call,unused-ignore]
    if set(found) != set(expected):
        odd = min(set(found) ^ set(expected))
        raise ValueError(f"tensor {short(odd)} is {'not expected' if odd in found else 'missing'}")
    return {name: _array(name, found[name]) for name in expected}


def _array(name: str, tensor: Mapping[str, Any]) -> Array:
    if tensor["dtype"] != "F32":
        raise ValueError(f"tensor {short(name)} is of type {short(tensor['dtype'])}, not F32")
    stored = np.frombuffer(tensor["data"], "<f4").reshape(tensor["shape"])
    return stored.astype(np.float32, copy=False)


def _head(number: int, head: Mapping[str, Any], tensors: Mapping[str, Array]) -> Head:
    arrays: dict[str, Any] = {name: tensors[f"{number}.{name}"] for name in head["arrays"]}
    tower = tuple(arrays.pop(name) for name in head["arrays"] if name not in _SINGLE_ARRAYS)
    return Head(
        view=head["view"], activation=head["activation"], normalise=head["normalise"], tower=tower, **arrays
    )


def _classifier(document: Mapping[str, Any], heads: tuple[Head, ...]) -> Classifier:
    vocabulary, confidence = document["vocabulary"], document.get("confidence")
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
