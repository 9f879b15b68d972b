"""One cell of a sweep: a recipe, fitted without one fold of the given samples and scored on them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.providers.embedders.base import Embedder
from adamab.providers.sync import run_sync
from adamab.run.resolve import embedder_key
from adamab.study.experiments.materials import KnownVectors
from adamab.study.folds import folds_of, split
from adamab.task import Task
from adamab.task.recipe import Recipe

_LEAST = 1e-6  # probability: or one sample that was given none would decide everything


@dataclass(frozen=True)
class FoldCell:
    """`seed` is that of the folds and of the fit."""

    options: str  # JSON: what differs from the recipe that the search begins with
    seed: int
    fold: int

    @classmethod
    def of(cls, options: Mapping[str, Any], seed: int, fold: int) -> FoldCell:
        """Of options as values."""
        return cls(json.dumps(dict(options), sort_keys=True), seed, fold)

    @property
    def key(self) -> str:
        """What its row is found by; everything else is the same in all of a sweep."""
        parts = json.dumps([self.options, self.seed, self.fold])
        return hashlib.sha256(parts.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class FoldRow:
    """What a cell yields: of each held-out sample, in the task's order."""

    cell: FoldCell
    hits: tuple[bool, ...]
    losses: tuple[float, ...]  # minus the logarithm of the true class's probability
    seconds: float

    @property
    def key(self) -> str:
        """What it is found by."""
        return self.cell.key

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "key": self.key,
            "options": json.loads(self.cell.options),
            "seed": self.cell.seed,
            "fold": self.cell.fold,
            "hits": [int(hit) for hit in self.hits],
            "losses": list(self.losses),
            "fit_seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> FoldRow:
        """The reverse of `to_json`."""
        cell = FoldCell.of(read["options"], read["seed"], read["fold"])
        hits = tuple(bool(hit) for hit in read["hits"])
        return cls(cell, hits, tuple(read["losses"]), read["fit_seconds"])


@dataclass(frozen=True)
class SweepMaterials:
    """What all cells share, and a worker is handed once."""

    task: Task
    vectors: KnownVectors
    recipe: Recipe
    n_folds: int

    def folds(self, seed: int) -> NDArray[np.int64]:
        """(n,) the fold of each given sample; -1 for a class's only one, which is never held out."""
        task = self.task
        counts = {name: len(task.samples_of(name)) for name in task.class_names}
        alone = np.array([counts[sample.class_name] < 2 for sample in task.samples], dtype=np.bool_)
        return np.where(alone, -1, folds_of(task, self.n_folds, seed))

    def used_folds(self, seed: int) -> list[int]:
        """Those that hold something out."""
        return [int(fold) for fold in np.unique(self.folds(seed)) if fold >= 0]


def asks_while_fitting(task: Task, embedder: Embedder) -> bool:
    """Whether fits call an API. Wordings that quote examples differ from fold to fold, also inside a fit."""
    return embedder.api is not None and task.prompts.with_examples


def vectors_for(task: Task, embedder: Embedder, spec: str) -> KnownVectors:
    """To be filled by `embed_all`; behind an API fits find nothing more than that, unless they have to."""
    free = embedder.api is None
    vectors = KnownVectors(embedder, spec if free or asks_while_fitting(task, embedder) else None)
    vectors.api = None  # a fit would meter it anew, and forget the budget of the sweep
    return vectors


def embed_all(materials: SweepMaterials, embedder: Embedder) -> None:
    """Work out the vectors of all samples and wordings once, before the first fit."""
    task, known = materials.task, materials.vectors
    items = list(dict.fromkeys(embedder_key(sample, embedder, task.prompts) for sample in task.samples))
    known.put(items, "query", run_sync(embedder.embed(items, kind="query")))
    worded = [task.prompts.class_text(c, [s.text for s in task.samples_of(c.name)]) for c in task.classes]
    for wordings in (worded, task.class_names):  # stored vectors may have the names only
        if embedder.has(wordings).all():
            known.put(wordings, "class", run_sync(embedder.embed(wordings, kind="class")))
            break


def score(cell: FoldCell, materials: SweepMaterials) -> FoldRow:
    """Fit without the fold, then look at it."""
    from adamab.run.fit import fit_task  # torch: only processes that fit pay for it

    rest, held_out = split(materials.task, materials.folds(cell.seed) == cell.fold)
    recipe = materials.recipe.with_options(**json.loads(cell.options))
    started = time.perf_counter()
    fit = fit_task(rest, materials.vectors, policy="none", recipe=recipe, seed=cell.seed)
    seconds = time.perf_counter() - started
    items = [embedder_key(sample, materials.vectors, rest.prompts) for sample in held_out]
    views = run_sync(materials.vectors.embed(items)).views
    probabilities = fit.classifier.predict_proba(views, [sample.text for sample in held_out])  # (n, K)
    true = np.array([materials.task.class_names.index(sample.class_name) for sample in held_out])
    # A fit that came to no number at all (fmax passes NaN over) is as bad as can be.
    losses = -np.log(np.fmax(probabilities[np.arange(len(true)), true].astype(np.float64), _LEAST))
    hits = np.argmax(probabilities, axis=1) == true
    return FoldRow(cell, tuple(hits.tolist()), tuple((np.round(losses, 6) + 0.0).tolist()), seconds)
