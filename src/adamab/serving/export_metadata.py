"""The formats, and what every export says about its classifier beside the arrays, as plain data."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from adamab.version import __version__

if TYPE_CHECKING:
    from adamab.classifier import Classifier


class Format(StrEnum):
    """What a run can be exported as."""

    onnx = "onnx"
    npz = "npz"
    faiss = "faiss"
    hub = "hub"


def describe(classifier: Classifier) -> dict[str, Any]:
    """Names and origin, without servers and folders of this machine.

    `temperature` is multiplied into the weights already, nobody has to apply it.
    """
    from adamab.run.public_names import public_fingerprint, without_place  # the help is shown without it

    confidence, vocabulary = classifier.confidence, classifier.vocabulary
    said: dict[str, Any] = {
        "format": "adamab-export",
        "adamab": __version__,
        "classes": list(classifier.classes),
        "views": list(dict.fromkeys(head.view for head in classifier.heads)),
        "modality": classifier.metadata.get("modality", "text"),
        "embedder": without_place(classifier.embedder_spec),
        "fingerprint": public_fingerprint(classifier.fingerprint),
        "query_prompt": classifier.query_prompt,
    }
    if (labels := classifier.metadata.get("labels")) is not None:
        said["labels"] = labels
    if confidence is not None:
        said["temperature"] = confidence.temperature
    if vocabulary is not None:
        said["vocabulary"] = vocabulary.to_json()
    return said
