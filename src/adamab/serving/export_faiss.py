"""A classifier of many classes as a FAISS index: one vector a class, logits as inner products.

    logit of class k = features · (linear_k, hidden_k of every head, sum of the biases of k)

A search computes the k largest logits. Probabilities need all of them, so an index does not give any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adamab.errors import MissingExtraError, RunError
from adamab.serving.export_checks import Rows, Verdict
from adamab.serving.export_metadata import describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.classifier import Classifier

FILE, NAMES = "classes.faiss", "classes.json"
TOLERANCE = 1e-4
_K = 10  # classes that a check searches for


def features(
    classifier: Classifier, views: Mapping[str, object], texts: Sequence[str] | None = None
) -> NDArray[np.float32]:
    """(n, D) what an index of this classifier is searched with.

    Example:
        >>> from adamab.classifier import Classifier, Head
        >>> head = Head(view="pooled", linear=np.eye(2, dtype=np.float32))
        >>> features(Classifier(classes=("no", "yes"), heads=(head,)), {"pooled": [[3, 4]]}).tolist()
        [[3.0, 4.0, 1.0]]
    """
    return classifier.features(views, texts)


def class_vectors(classifier: Classifier) -> NDArray[np.float32]:
    """(K, D) the vectors whose inner products with `features` are the logits."""
    parts, biases = [], np.zeros(len(classifier.classes), np.float32)
    for head in classifier.heads:
        parts += [head.linear] if head.hidden is None else [head.linear, head.hidden]
        if head.bias is not None:
            biases += head.bias
    return np.concatenate([*parts, biases[:, None]], axis=1)


def write_faiss(classifier: Classifier, folder: Path) -> None:
    """Write an exact index and the classes' names into `folder`."""
    library, vectors = _faiss(), class_vectors(classifier)
    index = library.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    library.write_index(index, str(folder / FILE))
    said = {**describe(classifier), "dimensions": vectors.shape[1]}
    text = json.dumps(said, ensure_ascii=False, indent=1)
    (folder / NAMES).write_text(text + "\n", encoding="utf-8")


def check_faiss(classifier: Classifier, folder: Path, rows: Rows) -> Verdict:
    """Search the written index and compare what it finds with NumPy; a `RunError` if they differ."""
    k = min(_K, len(classifier.classes))
    index = _faiss().read_index(str(folder / FILE))
    scores, found = index.search(features(classifier, rows.views, rows.texts), k)
    logits = classifier.logits(rows.views, rows.texts)
    best = -np.sort(-logits, axis=1)[:, :k]
    # Found by their logits, not by their numbers: equal ones may stand in any order.
    worst = max(
        float(np.abs(scores - best).max()),
        float(np.abs(np.take_along_axis(logits, found, axis=1) - best).max()),
    )
    if not worst <= TOLERANCE * (1 + float(np.abs(logits).max())):
        raise RunError(
            f"faiss differs from NumPy by {worst:.2g} in a logit; nothing was written, please report it"
        )
    return Verdict(f"faiss against NumPy's best {k} logits on {rows}", worst)


def _faiss() -> Any:
    if find_spec("faiss") is None:
        raise MissingExtraError("faiss-cpu", "faiss")
    import faiss

    return faiss
