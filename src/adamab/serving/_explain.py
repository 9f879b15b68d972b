"""Why a classifier answers as it does: the ranking before and after calibration, and the nearest samples.

Before calibration a sample is ranked by the cosine of its raw pooled vector with those of the classes'
wordings, or with the means of the classes' given samples where the embedder has no vectors of wordings.
Nearest are the samples with the largest cosine once the mean of all samples is subtracted: raw vectors of
one domain all point the same way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import RunError, place
from adamab.model.confidence import softmax
from adamab.run.directory import SYNTHETIC, TASK, is_run, read_summary, read_task, read_vectors
from adamab.serving.run_reader import sample_id

if TYPE_CHECKING:
    from adamab.model.predictor import Inference
    from adamab.providers.registry import HasText
    from adamab.task.spec import Source

Floats = NDArray[np.float32]
TEMPERATURE = 0.05  # of the softmax over raw cosines, which all lie close together
NEAREST = 5  # of each source
SHOWN = 10  # best classes of each ranking
_SMALLEST = 1e-12
_POOLED = "pooled"


@dataclass(frozen=True)
class Ranked:
    """A class in both rankings; ranks count from 1, and are None where there is no ranking before."""

    class_name: str
    after: float
    after_rank: int
    before_rank: int | None = None
    before: float | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class Neighbour:
    """A sample of the run whose vector was kept, and how near it is to the one that was asked about."""

    text: str
    class_name: str
    source: Source
    image: bool
    similarity: float = 0.0
    id: str = ""


@dataclass(frozen=True)
class Explanation:
    """The best classes of either ranking, the most probable first; the nearest samples, the nearest first."""

    classes: tuple[Ranked, ...]
    given: tuple[Neighbour, ...]
    synthetic: tuple[Neighbour, ...]
    compared_with: str | None  # descriptions or class means; None without a ranking before
    without: tuple[str, ...] = ()  # classes that have no place before: nothing of them was kept
    temperature: float = TEMPERATURE


class StoredVectors:
    """The kept vectors of a run, ready to compare a new one with."""

    def __init__(
        self,
        samples: Sequence[Neighbour],
        vectors: NDArray[np.float16],  # (n, d), rows of `samples`
        described: NDArray[np.float16],  # (K, d), or no rows; fewer where the last classes were added later
        classes: Sequence[str],
    ) -> None:
        self.compared_with = "descriptions" if len(described) else "class means"
        self._samples, wide = samples, vectors.astype(np.float32)
        self._centre = wide.mean(axis=0) if len(wide) else np.zeros(wide.shape[1], np.float32)  # (d,)
        self._directions = _units(wide - self._centre)  # (n, d)
        anchors = np.zeros((len(classes), wide.shape[1]), np.float32)
        if len(described):
            anchors[: len(described)] = described
        else:
            place_of = {name: i for i, name in enumerate(classes)}
            for sample, vector in zip(samples, wide, strict=True):
                if sample.source == "given" and sample.class_name in place_of:
                    anchors[place_of[sample.class_name]] += vector
        self._anchors = _units(anchors)  # (K, d)
        self.without = tuple(name for name, row in zip(classes, anchors, strict=True) if not row.any())

    @classmethod
    def of(cls, directory: Path, classes: Sequence[str]) -> StoredVectors | None:
        """Those of the run in `directory`; None where it kept no vectors, or of other samples or classes.

        Classes that were added since the fit have none, and do not keep the others from being compared.
        Very large runs keep no vectors; and while a fit goes on with another task, they are of other samples.
        """
        vectors = read_vectors(directory)
        if vectors is None or not len(vectors.given) + len(vectors.described):
            return None
        if not (directory / TASK).exists():
            return None
        # Classes that the model has got since the fit that left the vectors.
        added = read_summary(directory).get("added", ()) if is_run(directory) else ()
        given = [s for s in read_task(directory).samples if s.class_name not in added]
        samples = [Neighbour(s.text, s.class_name, "given", s.image is not None) for s in given]
        samples += _synthetic(directory)
        rows = np.concatenate([vectors.given, vectors.synthetic])
        kept = [name for name in classes if name not in added]
        if len(rows) != len(samples) or len(vectors.described) not in (0, len(kept)):
            return None
        return None if list(classes[: len(kept)]) != kept else cls(samples, rows, vectors.described, classes)

    def similarities(self, pooled: Floats) -> Floats:  # (d,) -> (K,)
        """The cosine with every class; NaN for a class that has neither wording nor sample."""
        cosines = self._anchors @ _units(pooled)
        return np.where(self._anchors.any(axis=1), cosines, np.nan).astype(np.float32)

    def nearest(self, pooled: Floats, source: Source) -> tuple[Neighbour, ...]:
        """The given or the synthetic samples with the largest centred cosine."""
        cosines = self._directions @ _units(pooled - self._centre)  # (n,)
        order = np.argsort(-cosines, kind="stable").tolist()
        best = islice((row for row in order if self._samples[row].source == source), NEAREST)
        near = ((self._samples[row], float(cosines[row])) for row in best)
        return tuple(replace(s, similarity=cosine, id=sample_id(s.class_name, s.text)) for s, cosine in near)


def explained(inference: Inference, stored: StoredVectors | None, row: HasText) -> Explanation:
    """Embed a row once and say what there is to say."""
    classes = inference.classifier.classes
    extra = () if stored is None else pooled_view(inference)
    views = inference.views([row], extra)
    after = inference.classifier.predict_proba(views, [row.text])[0].astype(np.float64)
    if stored is None or not extra:
        return Explanation(_ranked(classes, after, np.full(len(classes), np.nan, np.float32)), (), (), None)
    pooled = views[extra[0]][0].astype(np.float32)
    return Explanation(
        _ranked(classes, after, stored.similarities(pooled)),
        stored.nearest(pooled, "given"),
        stored.nearest(pooled, "synthetic"),
        stored.compared_with,
        stored.without,
    )


def pooled_view(inference: Inference) -> tuple[str, ...]:
    """The view whose vectors a run keeps; none where nothing is embedded."""
    if inference.embedder is None:
        return ()
    recipe: Any = inference.classifier.metadata.get("recipe")
    names = (recipe.get("views") if isinstance(recipe, dict) else None) or inference.embedder.views
    return (_POOLED if _POOLED in names else names[0],)


def _ranked(classes: Sequence[str], after: NDArray[np.float64], similarities: Floats) -> tuple[Ranked, ...]:
    """The best classes of either ranking; a class whose similarity is NaN has no place before."""
    known = np.flatnonzero(~np.isnan(similarities))
    order_before = known[np.argsort(-similarities[known], kind="stable")].tolist()
    rank_before = {c: rank for rank, c in enumerate(order_before, 1)}
    before = np.full(len(classes), np.nan, np.float32)
    if len(known):
        before[known] = softmax(similarities[None, known] / TEMPERATURE)[0]
    ranked = []
    for rank, c in enumerate(np.argsort(-after, kind="stable").tolist(), 1):
        if min(rank, rank_before.get(c, rank)) > SHOWN:
            continue
        one = Ranked(classes[c], float(after[c]), rank)
        if c in rank_before:
            similarity = float(similarities[c])
            one = replace(one, before_rank=rank_before[c], before=float(before[c]), similarity=similarity)
        ranked.append(one)
    return tuple(ranked)


def _synthetic(directory: Path) -> list[Neighbour]:
    """In the order of their file, which is that of their vectors."""
    file = directory / SYNTHETIC
    try:
        # Texts may hold other characters that Python takes for the end of a line.
        lines = file.read_bytes().decode("utf-8", "surrogatepass").split("\n")
        rows = [json.loads(line) for line in lines if line]
        return [Neighbour(row["text"], row["label"], "synthetic", "image" in row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{place(file)}: cannot be read; fit again to write it") from None


def _units(x: Floats) -> Floats:  # (..., d)
    units: Floats = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), _SMALLEST)
    return units
