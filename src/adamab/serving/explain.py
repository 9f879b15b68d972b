"""Why a classifier answers as it does: the ranking before and after calibration, and the nearest samples.

Before calibration a sample is ranked by the cosine of its raw pooled vector with those of the classes'
wordings, or with the means of the classes' given samples where the embedder has no vectors of wordings.
Nearest are the samples with the largest cosine once the mean of all samples is subtracted: raw vectors of
one domain all point the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adamab.classifier.confidence import softmax
from adamab.errors import RunError
from adamab.run.directory import SYNTHETIC, is_run, read_summary
from adamab.run.kept_task import FILE_NAME as TASK
from adamab.run.kept_task import read_task
from adamab.run.reading import sample_id
from adamab.run.sample_files import read_vectors
from adamab.task.messages import place

if TYPE_CHECKING:
    from adamab.run.inference import Inference
    from adamab.run.resolve import HasText
    from adamab.task.spec import Source

Floats = NDArray[np.float32]
TEMPERATURE = 0.05  # of the softmax over raw cosines, which all lie close together
NEAREST = 5  # of each source
SHOWN = 10  # best classes of each ranking
_BLOCK = 8192  # rows that are widened to float32 at a time
_SMALLEST = 1e-12
_POOLED = "pooled"


@dataclass(frozen=True)
class Ranked:
    """A class in both rankings; ranks count from 1, and nothing is said where there is no ranking before."""

    class_name: str
    after: float
    after_rank: int
    before: float | None = None
    before_rank: int | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class Neighbour:
    """A sample of the run near the one that was asked about."""

    id: str
    text: str
    class_name: str
    source: Source
    similarity: float
    picture: bool


@dataclass(frozen=True)
class Explanation:
    """The best classes of either ranking, the most probable first; the nearest samples, the nearest first."""

    classes: tuple[Ranked, ...]
    given: tuple[Neighbour, ...]
    synthetic: tuple[Neighbour, ...]
    compared_with: str | None  # descriptions or class means; None without a ranking before
    without: tuple[str, ...] = ()  # classes that have no place before: nothing of them was kept
    temperature: float = TEMPERATURE


@dataclass(frozen=True)
class _Known:
    """A sample whose vector was kept."""

    text: str
    class_name: str
    source: Source
    picture: bool


class Surroundings:
    """The kept vectors of a run, ready to compare a new one with."""

    def __init__(
        self,
        known: Sequence[_Known],
        vectors: NDArray[np.float16],  # (n, d), rows of `known`
        described: NDArray[np.float16],  # (K, d), or no rows; fewer where the last classes were added later
        classes: Sequence[str],
    ) -> None:
        self.compared_with = "descriptions" if len(described) else "class means"
        self._known, self._vectors = known, vectors
        self._centre = _mean(vectors)
        self._lengths = _lengths(vectors, self._centre)  # (n,)
        self._given = np.array([sample.source == "given" for sample in known], dtype=np.bool_)
        anchors = self._means(classes)
        if len(described):
            anchors[:] = 0
            anchors[: len(described)] = described
        self._anchors = _units(anchors)  # (K, d)
        self.without = tuple(name for name, row in zip(classes, anchors, strict=True) if not row.any())

    @classmethod
    def of(cls, directory: Path, classes: Sequence[str]) -> Surroundings | None:
        """Those of the run in `directory`; None where it kept no vectors, or of other samples or classes.

        Classes that were added since the fit have none, and do not keep the others from being compared.
        Runs of earlier versions and very large ones keep no vectors; and while a fit goes on with another
        task, they are of other samples.
        """
        vectors = read_vectors(directory)
        if vectors is None or not len(vectors.given) + len(vectors.described):
            return None
        if not (directory / TASK).exists():
            return None
        added = _added(directory)
        known = [*(s for s in _given(directory) if s.class_name not in added), *_synthetic(directory)]
        rows = np.concatenate([vectors.given, vectors.synthetic])
        kept = [name for name in classes if name not in added]
        if len(rows) != len(known) or len(vectors.described) not in (0, len(kept)):
            return None
        if list(classes[: len(kept)]) != kept:
            return None
        return cls(known, rows, vectors.described, classes)

    def similarities(self, pooled: Floats) -> Floats:  # (d,) -> (K,)
        """The cosine with every class; NaN for a class that has neither wording nor sample."""
        found: Floats = self._anchors @ _unit(pooled)
        return np.where(self._anchors.any(axis=1), found, np.nan).astype(np.float32)

    def nearest(
        self, pooled: Floats, count: int = NEAREST
    ) -> tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]:
        """The given and the synthetic samples with the largest centred cosine."""
        cosines = self._cosines(pooled)
        return self._best(cosines, self._given, count), self._best(cosines, ~self._given, count)

    def _best(self, cosines: Floats, of: NDArray[np.bool_], count: int) -> tuple[Neighbour, ...]:
        rows = np.flatnonzero(of)
        best = rows[np.argsort(-cosines[rows], kind="stable")[:count]]
        return tuple(self._neighbour(int(row), float(cosines[row])) for row in best)

    def _neighbour(self, row: int, cosine: float) -> Neighbour:
        sample = self._known[row]
        name = sample_id(sample.class_name, sample.text)
        return Neighbour(name, sample.text, sample.class_name, sample.source, cosine, sample.picture)

    def _cosines(self, pooled: Floats) -> Floats:  # (n,)
        target = _unit(pooled - self._centre)
        shift = float(self._centre @ target)
        parts = [block @ target - shift for block in _blocks(self._vectors)]
        found: Floats = np.concatenate(parts or [np.zeros(0, np.float32)])
        return found / self._lengths

    def _means(self, classes: Sequence[str]) -> Floats:  # (K, d)
        place_of = {name: i for i, name in enumerate(classes)}
        sums = np.zeros((len(classes), self._vectors.shape[1]), np.float32)
        for sample, vector in zip(self._known, self._vectors, strict=True):
            if sample.source == "given" and sample.class_name in place_of:
                sums[place_of[sample.class_name]] += vector
        return sums


def explained(inference: Inference, surroundings: Surroundings | None, row: HasText) -> Explanation:
    """Embed a row once and say what there is to say."""
    classifier = inference.classifier
    extra = () if surroundings is None else pooled_view(inference)
    views = inference.views([row], extra)
    after = classifier.predict_proba(views, [row.text])[0].astype(np.float64)
    if surroundings is None or not extra:
        return Explanation(_ranked(classifier.classes, after, None), (), (), None)
    pooled = views[extra[0]][0].astype(np.float32)
    ranked = _ranked(classifier.classes, after, surroundings.similarities(pooled))
    return Explanation(
        ranked, *surroundings.nearest(pooled), surroundings.compared_with, surroundings.without
    )


def pooled_view(inference: Inference) -> tuple[str, ...]:
    """The view whose vectors a run keeps; none where nothing is embedded."""
    if inference.embedder is None:
        return ()
    recipe: Any = inference.classifier.metadata.get("recipe")
    names = (recipe.get("views") if isinstance(recipe, dict) else None) or inference.embedder.views
    return (_POOLED if _POOLED in names else names[0],)


def _ranked(
    classes: Sequence[str], after: NDArray[np.float64], similarities: Floats | None
) -> tuple[Ranked, ...]:
    order = np.argsort(-after, kind="stable")
    rank = _ranks(order)
    if similarities is None:
        return tuple(Ranked(classes[c], float(after[c]), int(rank[c])) for c in order[:SHOWN])
    known = ~np.isnan(similarities)  # (K,)
    cosines = np.where(known, similarities, -np.inf).astype(np.float64)
    before = softmax((cosines / TEMPERATURE).astype(np.float32)[None])[0] if known.any() else cosines
    order_before = np.argsort(-cosines, kind="stable")
    rank_before = _ranks(order_before)
    among_best = set(order_before[:SHOWN].tolist()) | set(order[:SHOWN].tolist())

    def ranked(c: int) -> Ranked:
        told = (float(before[c]), int(rank_before[c]), float(cosines[c])) if known[c] else ()
        return Ranked(classes[c], float(after[c]), int(rank[c]), *told)

    return tuple(ranked(c) for c in order.tolist() if c in among_best)


def _ranks(order: NDArray[np.intp]) -> NDArray[np.intp]:
    """(K,) the place of each class in an order, from 1."""
    ranks = np.empty_like(order)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def _added(directory: Path) -> set[str]:
    """Classes that the model has got since the fit that left the vectors."""
    return set(read_summary(directory).get("added", ())) if is_run(directory) else set()


def _given(directory: Path) -> list[_Known]:
    return [
        _Known(sample.text, sample.class_name, "given", sample.image is not None)
        for sample in read_task(directory).samples
    ]


def _synthetic(directory: Path) -> list[_Known]:
    """In the order of their file, which is that of their vectors."""
    file = directory / SYNTHETIC
    try:
        # Texts may hold other characters that Python takes for the end of a line.
        lines = file.read_bytes().decode("utf-8", "surrogatepass").split("\n")
        rows = [json.loads(line) for line in lines if line]
        return [_Known(row["text"], row["label"], "synthetic", "image" in row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{place(file)}: cannot be read; fit again to write it anew") from None


def _blocks(vectors: NDArray[np.float16]) -> Iterator[Floats]:
    for start in range(0, len(vectors), _BLOCK):
        yield vectors[start : start + _BLOCK].astype(np.float32)


def _mean(vectors: NDArray[np.float16]) -> Floats:  # (d,)
    if not len(vectors):
        return np.zeros(vectors.shape[1], np.float32)
    found: Floats = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    return found


def _lengths(vectors: NDArray[np.float16], centre: Floats) -> Floats:  # (n,)
    parts = [np.linalg.norm(block - centre, axis=1) for block in _blocks(vectors)]
    found: Floats = np.maximum(np.concatenate(parts or [np.zeros(0, np.float32)]), _SMALLEST)
    return found


def _units(rows: Floats) -> Floats:
    found: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _SMALLEST)
    return found


def _unit(x: Floats) -> Floats:
    found: Floats = _units(x[None])[0]
    return found
