"""How many of the best classes an index finds, compared with the product with every class vector."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

BEST = 10  # classes that a search asks for
TOLERANCE = 1e-4  # of the largest logit: classes as near as that are equally good
_BLOCK = 2**22  # logits at a time: 16 MB, whatever the number of classes
_QUERIES = 256  # class vectors that are searched for


@dataclass(frozen=True)
class Recall:
    """Of some rows: how often the class found first is the best, and the share of the best ten found."""

    of: str
    rows: int
    at_1: float
    at_10: float

    def __str__(self) -> str:
        return f"{self.at_1:.3f} and {self.at_10:.3f} on {self.rows} {self.of}"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def recalls(index: Any, features: Floats, parts: Mapping[str, int], vectors: Floats) -> list[Recall]:
    """One for each of the parts that `features` (n, D) consist of, and one for class vectors as queries."""
    shares = found_shares(index, features, vectors)
    ends = np.cumsum([*parts.values()])[:-1]
    told = [_recall(of, part) for of, part in zip(parts, np.split(shares, ends), strict=True)]
    return [*told, _recall("class vectors", found_shares(index, _class_queries(vectors), vectors))]


def found_shares(index: Any, queries: Floats, vectors: Floats) -> NDArray[np.float64]:
    """(n, 2) of each query: whether what is found first is best, and how much of the best ten is found.

    Counted by logits, not by numbers: of equal classes any is right.
    """
    k = min(BEST, len(vectors))
    out = np.empty((len(queries), 2))
    size = max(1, _BLOCK // len(vectors))
    for start in range(0, len(queries), size):
        rows = slice(start, start + size)
        logits = queries[rows] @ vectors.T  # (n, K)
        best = np.partition(logits, -k, axis=1)[:, -k:]  # the k best, the least of them first
        found = index.search(queries[rows], k)[1]  # (n, k), -1 where an index gives up
        theirs = np.take_along_axis(logits, np.maximum(found, 0), axis=1)
        theirs = np.where(found < 0, -np.inf, theirs)
        slack = TOLERANCE * (1 + np.abs(logits).max(axis=1))
        out[rows, 0] = theirs[:, 0] >= best.max(axis=1) - slack
        out[rows, 1] = (theirs >= (best[:, 0] - slack)[:, None]).mean(axis=1)
    return out


def _class_queries(vectors: Floats) -> Floats:
    """(n, D) some class vectors as samples, spread over all classes: the last entry of a sample is 1."""
    count = min(_QUERIES, len(vectors))
    queries: Floats = vectors[np.linspace(0, len(vectors) - 1, count).astype(int)]  # a copy
    queries[:, -1] = 1
    return queries


def _recall(of: str, shares: NDArray[np.float64]) -> Recall:
    first, best = shares.mean(axis=0)
    return Recall(of, len(shares), float(first), float(best))
