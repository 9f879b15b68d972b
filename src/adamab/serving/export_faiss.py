"""A classifier of many classes as a FAISS index: one vector a class, logits as inner products.

    logit of class k = features · (linear_k, hidden_k of every head, sum of the biases of k)

A search computes the k largest logits, or most of them where the index is not exact. Probabilities need all
logits, so an index does not give any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adamab.errors import MissingExtraError, RunError
from adamab.serving.export_checks import Rows, Verdict
from adamab.serving.export_metadata import describe
from adamab.serving.export_recall import BEST, TOLERANCE, recalls
from adamab.task.messages import one_line, short

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.classifier import Classifier
    from adamab.serving.export_recall import Recall

    Array = NDArray[np.float32]

FILE, NAMES = "classes.faiss", "classes.json"
FLAT = "Flat"  # exact
# With such numbers FAISS ends the process, never returns or takes all memory: there is no error to catch.
_DEADLY = re.compile(r"(?<!\d)0+(?!\d)|\d{7}|(?:HNSW|NSG)(?:0*1(?!\d)|\d{5})")


def features(
    classifier: Classifier, views: Mapping[str, object], texts: Sequence[str] | None = None
) -> Array:
    """(n, D) what an index of this classifier is searched with.

    Example:
        >>> from adamab.classifier import Classifier, Head
        >>> head = Head(view="pooled", linear=np.eye(2, dtype=np.float32))
        >>> features(Classifier(classes=("no", "yes"), heads=(head,)), {"pooled": [[3, 4]]}).tolist()
        [[3.0, 4.0, 1.0]]
    """
    return classifier.features(views, texts)


def class_vectors(classifier: Classifier) -> Array:
    """(K, D) the vectors whose inner products with `features` are the logits."""
    parts, biases = [], np.zeros(len(classifier.classes), np.float32)
    for head in classifier.heads:
        parts += [head.linear] if head.hidden is None else [head.linear, head.hidden]
        if head.bias is not None:
            biases += head.bias
    return np.concatenate([*parts, biases[:, None]], axis=1)


def write_faiss(classifier: Classifier, folder: Path, spec: str = FLAT) -> None:
    """Write an index of the class vectors into `folder`: FAISS' name for it, then settings of its search.

    Such as `HNSW32` or `IVF256,Flat:nprobe=16`. What has to be trained is trained on the class vectors.
    """
    library, vectors = _faiss(), class_vectors(classifier)
    kind, _, settings = spec.partition(":")
    with _refusal(spec, vectors):
        if _DEADLY.search(kind):
            raise ValueError("a number in it is too small or too large")
        index = library.index_factory(vectors.shape[1], kind, library.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(vectors)
        index.add(vectors)
        library.ParameterSpace().set_index_parameters(index, settings)
        index.search(vectors[:1], 1)  # some settings are refused only here
    library.write_index(index, str(folder / FILE))


def check_faiss(classifier: Classifier, folder: Path, rows: Rows) -> Verdict:
    """Search the written index and compare what it finds with NumPy.

    An exact index that differs is a `RunError`; of any other one it is told how much it finds.
    """
    index = _faiss().read_index(str(folder / FILE))
    found = features(classifier, rows.views, rows.texts)
    worst = _difference(classifier, index, rows, found) if isinstance(index, _faiss().IndexFlat) else None
    recall = recalls(index, found, rows.parts, class_vectors(classifier))
    return Verdict(f"faiss against NumPy's best {min(BEST, index.ntotal)} logits on {rows}", worst, recall)


def write_names(classifier: Classifier, folder: Path, spec: str, recall: Sequence[Recall]) -> None:
    """Write beside the index what its numbers mean, which index it is and how much it finds."""
    said = {
        **describe(classifier),
        "dimensions": class_vectors(classifier).shape[1],
        "index": spec,
        "recall": [one.to_json() for one in recall],
    }
    text = json.dumps(said, ensure_ascii=False, indent=1)
    (folder / NAMES).write_text(text + "\n", encoding="utf-8")


def _difference(classifier: Classifier, index: Any, rows: Rows, found: Array) -> float:
    """Between the best logits of an exact index and NumPy's, at most; refused if that is not rounding."""
    k = min(BEST, len(classifier.classes))
    scores, numbers = index.search(found, k)
    logits = classifier.logits(rows.views, rows.texts)
    best = -np.sort(-logits, axis=1)[:, :k]
    # Found by their logits, not by their numbers: equal ones may stand in any order.
    worst = max(
        float(np.abs(scores - best).max()),
        float(np.abs(np.take_along_axis(logits, numbers, axis=1) - best).max()),
    )
    if not worst <= TOLERANCE * (1 + float(np.abs(logits).max())):
        raise RunError(
            f"faiss differs from NumPy by {worst:.2g} in a logit; nothing was written, please report it"
        )
    return worst


@contextmanager
def _refusal(spec: str, vectors: Array) -> Iterator[None]:
    """One line instead of FAISS' errors, which name functions and source files before the reason."""
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        reason = re.split(r"failed: |\.cpp:\d+: ", str(error))[-1].strip()
        raise RunError(
            f"--index {short(spec)}: FAISS makes no such index of {len(vectors)} class vectors, "
            f"{vectors.shape[1]} wide ({one_line(reason)[:160]}); try Flat, HNSW32 or IVF16,Flat"
        ) from None


def _faiss() -> Any:
    if find_spec("faiss") is None:
        raise MissingExtraError("faiss-cpu", "faiss")
    import faiss

    return faiss
