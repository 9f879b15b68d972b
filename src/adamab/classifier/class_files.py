"""What makes the rows of later classes, on disk: `classes.safetensors` beside the model. Never a pickle.

The file's metadata say of which weights it is, by their sha256. A class that is added changes the weights
and not what this file is good for, so it may name two: those before and those after. It is written before
the model is replaced; killed at any point, a directory holds a model and a file that fits it.
"""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy

from adamab.classifier.class_rows import ClassHead, Matching, Scatter
from adamab.classifier.class_side import ClassSide, Reference
from adamab.classifier.files import CLASSES, read_classes, write_classes
from adamab.classifier.storage import weights_of
from adamab.errors import AdamabError, ModelFileError
from adamab.task.messages import one_line, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adamab.classifier.classifier import Classifier
    from adamab.classifier.heads import Array

FORMAT, VERSION = "adamab-classes", 1
_KEY = "adamab"  # of the metadata, which safetensors wants to be texts


def save_class_side(side: ClassSide, directory: str | PathLike[str], *models: Classifier) -> None:
    """Write `side` into `directory`, good for these classifiers."""
    tensors = _tensors(side)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "models": [hashlib.sha256(weights_of(model)).hexdigest() for model in models],
        "wording": side.wording,
        "with_examples": side.with_examples,
        "lack": None if side.reference is None else side.reference.lack,
        "heads": [_head_document(head) for head in side.heads],
        "arrays": _digest(tensors),
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    metadata = {_KEY: text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    write_classes(Path(directory), safetensors.numpy.save(tensors, metadata))


def load_class_side(directory: str | PathLike[str], classifier: Classifier) -> ClassSide:
    """What `save_class_side` wrote for the classifier in `directory`; anything else is a `ModelFileError`."""
    folder = Path(directory)
    content = read_classes(folder)
    try:
        document, tensors = _parsed(content)
        if hashlib.sha256(weights_of(classifier)).hexdigest() not in document["models"]:
            raise ValueError("belongs to another model")
        side = _class_side(document, tensors)
        side.check(classifier)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, AdamabError) as error:
        why = one_line(error) if isinstance(error, ValueError) else "damaged"
        raise ModelFileError(f"{place(folder / CLASSES)}: {why}; fit again to add classes") from None
    except safetensors.SafetensorError:
        raise ModelFileError(f"{place(folder / CLASSES)}: damaged; fit again to add classes") from None
    return side


def _tensors(side: ClassSide) -> dict[str, Array]:
    tensors = {
        f"{number}.{name}": np.ascontiguousarray(array)
        for number, head in enumerate(side.heads)
        for name, array in head.arrays.items()
    }
    if side.reference is not None:
        tensors["logits"] = np.ascontiguousarray(side.reference.logits)
        for number, queries in enumerate(side.reference.queries):
            tensors[f"{number}.queries"] = np.ascontiguousarray(queries)
    return tensors


def _head_document(head: ClassHead) -> dict[str, Any]:
    if isinstance(head, Scatter):
        lengths = None if head.lengths is None else list(head.lengths)
        return {"kind": "scatter", "scale": head.scale, "lengths": lengths}
    return {
        "kind": "matching",
        "scale": head.scale,
        "similarity": head.similarity,
        "class_input": head.class_input,
        "described": head.described,
        "layers": len(head.tower),
    }


def _digest(tensors: Mapping[str, Array]) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        found.update(json.dumps([name, array.shape]).encode() + array.astype("<f4", copy=False).tobytes())
    return found.hexdigest()


def _parsed(content: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    text = metadata[_KEY]
    if hashlib.sha256(text.encode()).hexdigest() != metadata["sha256"]:
        raise ValueError("damaged or edited")
    document = json.loads(text)
    if document["format"] != FORMAT or document["version"] != VERSION:
        raise ValueError("was written by another version of adamab")
    tensors: dict[str, Array] = safetensors.numpy.load(content)
    if _digest(tensors) != document["arrays"]:
        raise ValueError("damaged or edited")
    return document, tensors


def _class_side(document: Mapping[str, Any], tensors: Mapping[str, Array]) -> ClassSide:
    heads = tuple(_head(number, head, tensors) for number, head in enumerate(document["heads"]))
    return ClassSide(
        heads=heads,
        reference=_reference(document["lack"], len(heads), tensors),
        wording=document["wording"],
        with_examples=document["with_examples"],
    )


def _head(number: int, head: Mapping[str, Any], tensors: Mapping[str, Array]) -> ClassHead:
    if head["kind"] == "scatter":
        lengths = head.get("lengths")  # models of before they came have none
        return Scatter(
            scale=head["scale"],
            inverse=tensors.get(f"{number}.inverse"),
            lengths=None if lengths is None else tuple(float(figure) for figure in lengths),
        )
    return Matching(
        class_input=head["class_input"],
        described=head["described"],
        similarity=head["similarity"],
        scale=head["scale"],
        described_centre=tensors.get(f"{number}.described_centre"),
        tower=tuple(tensors[f"{number}.tower.{layer}"] for layer in range(head["layers"])),
        free=tensors.get(f"{number}.free"),
        last=tensors.get(f"{number}.last"),
    )


def _reference(lack: float | None, n_heads: int, tensors: Mapping[str, Array]) -> Reference | None:
    if lack is None:
        return None
    queries: Sequence[Array] = [tensors[f"{number}.queries"] for number in range(n_heads)]
    return Reference(queries=tuple(queries), logits=tensors["logits"], lack=lack)
