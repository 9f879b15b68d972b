"""A classifier as one NumPy file: the arrays of all heads, and a JSON text that says what they are.

metadata            JSON: classes, embedder and the like, and `heads`: view, activation, normalise, arrays
0.linear, 0.bias …  the arrays of head 0, and so on
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adamab.errors import RunError
from adamab.serving.export_checks import Verdict
from adamab.serving.export_metadata import describe

if TYPE_CHECKING:
    from adamab.classifier import Classifier

FILE = "model.npz"
METADATA = "metadata"


def write_npz(classifier: Classifier, folder: Path) -> None:
    """Write the arrays into `folder`."""
    arrays: dict[str, Any] = _arrays(classifier)
    arrays[METADATA] = np.array(_metadata(classifier))
    np.savez(folder / FILE, **arrays)


def check_npz(classifier: Classifier, folder: Path) -> Verdict:
    """Read the file again and compare it with the classifier, bit by bit."""
    expected = _arrays(classifier)
    with np.load(folder / FILE, allow_pickle=False) as stored:
        same = set(stored.files) == {*expected, METADATA} and str(stored[METADATA]) == _metadata(classifier)
        same = same and all(np.array_equal(stored[name], array) for name, array in expected.items())
    if not same:
        raise RunError(f"{FILE} does not hold what was written into it; check the disk and export again")
    return Verdict("read again without pickle, the same bit by bit", 0.0)


def _arrays(classifier: Classifier) -> dict[str, Any]:
    return {
        f"{number}.{name}": array
        for number, head in enumerate(classifier.heads)
        for name, array in head.arrays.items()
    }


def _metadata(classifier: Classifier) -> str:
    heads = [
        {
            "view": head.view,
            "activation": head.activation,
            "normalise": head.normalise,
            "arrays": list(head.arrays),
        }
        for head in classifier.heads
    ]
    return json.dumps({**describe(classifier), "heads": heads})
