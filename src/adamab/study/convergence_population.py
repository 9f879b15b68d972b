"""The finite population of real texts that the convergence study takes for the true distribution."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adamab.errors import TaskError
from adamab.providers.embedders.base import Embedder, Kind
from adamab.providers.sync import run_sync
from adamab.study.convergence_descent import Population
from adamab.study.datasets.base import DataSet, data_directory, load_data_set
from adamab.task.prompts import Prompts

TEXTS = 40  # of each class


def population_of(
    name: str, data: Path | None, *, embedder: Embedder | None = None, texts: int = TEXTS
) -> Population:
    """`texts` texts of each class that has as many, from the part of the set that examples are given from.

    `data` may be None for the built-in set, and otherwise where `data_directory` finds the folder.
    """
    data_set = load_data_set(name, Path() if name == "demo" else data_directory(data))
    if data_set.embedder() is not None:
        raise TaskError(f"convergence: {name} has no texts; choose a set of texts such as trec")
    of_class = _texts(data_set)
    kept = [spec for spec in data_set.specs if len(of_class[spec.name]) >= texts]
    if len(kept) < 2:
        raise TaskError(f"convergence: {name} has no two classes with {texts} texts; choose another set")
    chosen = [of_class[spec.name][:texts] for spec in kept]
    wordings = [Prompts().class_text(spec) for spec in kept]
    embedder = embedder or _local()
    queries = _vectors([text for row in chosen for text in row], "query", embedder)
    return Population(
        name=name,
        class_names=tuple(spec.name for spec in kept),
        queries=queries.reshape(len(kept), texts, -1),
        classes=_vectors(wordings, "class", embedder),
        digest=hashlib.sha256(json.dumps([wordings, chosen]).encode()).hexdigest(),
        left_out=tuple(spec.name for spec in data_set.specs if spec not in kept),
    )


def _texts(data_set: DataSet) -> dict[str, list[str]]:
    """Neither test nor development texts; the built-in set has 20 a class, so its recorded ones join them."""
    drawn = data_set.draw(0, given=5, generator="pool")
    found = {name: list(texts) for name, texts in drawn.pool.items()}
    for sample in drawn.task.samples:
        found[sample.class_name].append(sample.text)
    if data_set.name == "demo":
        for name, texts in data_set.draw(0, given=5, generator="recorded").recorded.items():
            found[name] += texts
    return found


def _local() -> Embedder:
    from adamab.providers.cache import CachedEmbedder, VectorCache
    from adamab.providers.registry import resolve_embedder

    return CachedEmbedder(resolve_embedder("local"), VectorCache())


def _vectors(texts: Sequence[str], kind: Kind, embedder: Embedder) -> NDArray[np.float32]:
    view = embedder.views[0]
    return run_sync(embedder.embed(list(texts), kind=kind, views=(view,))).views[view]
