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
from adamab.study.datasets.base import ByClass, DataSet, data_directory, load_data_set
from adamab.study.datasets.hwu64 import ANALYSED, SCENARIOS
from adamab.task.messages import short, suggestion

TEXTS = ANALYSED  # of each class
DEMO = "demo"
RESERVED = {f"hwu64-{group}": scenarios for group, scenarios in SCENARIOS.items()}
NAMES = (*RESERVED, DEMO)


def population_of(
    name: str, data: Path | None, *, embedder: Embedder | None = None, texts: int = TEXTS
) -> Population:
    """`texts` texts of each class of the population `name` (of `NAMES`).

    Those of HWU64 are in no other experiment: neither given nor drawn, neither developed on nor tested.
    `demo` is for a look without a folder of data sets: its texts are those that its own examples and
    samples come from. `data` may be None for it, and otherwise where `data_directory` finds the folder.
    """
    if name not in NAMES:
        raise TaskError(f"convergence: no population {short(name)}; {suggestion(name, NAMES)}")
    data_set, of_class = _demo() if name == DEMO else _reserved(RESERVED[name], data_directory(data))
    specs = [spec for spec in data_set.specs if spec.name in of_class]
    fewest = min(len(found) for found in of_class.values())
    if fewest < texts:
        raise TaskError(f"convergence: a class of {name} has {fewest} texts, not {texts}; ask for fewer")
    chosen = [of_class[spec.name][:texts] for spec in specs]
    wordings = [data_set.prompts.class_text(spec) for spec in specs]
    queries = [data_set.prompts.query_text(text) for row in chosen for text in row]
    embedder = embedder or _local()
    return Population(
        name=name,
        class_names=tuple(spec.name for spec in specs),
        queries=_vectors(queries, "query", embedder).reshape(len(specs), texts, -1),
        classes=_vectors(wordings, "class", embedder),
        digest=hashlib.sha256(json.dumps([wordings, chosen]).encode()).hexdigest(),
    )


def _reserved(scenarios: Sequence[str], directory: Path) -> tuple[DataSet, ByClass]:
    """What HWU64 keeps for this study, of the classes of some scenarios."""
    data_set = load_data_set("hwu64", directory)
    wanted = {name: texts for name, texts in data_set.analysis.items() if name.partition("_")[0] in scenarios}
    return data_set, wanted


def _demo() -> tuple[DataSet, ByClass]:
    """No test texts: the 20 messages a class that examples are drawn from, and the recorded ones."""
    data_set = load_data_set(DEMO, Path())
    source = data_set.material("pool", "readme").source
    recorded = data_set.material("recorded", "readme").recorded or {}
    return data_set, {name: (*texts, *recorded[name]) for name, texts in source.items()}


def _local() -> Embedder:
    from adamab.providers.cache import CachedEmbedder, VectorCache
    from adamab.providers.registry import resolve_embedder

    return CachedEmbedder(resolve_embedder("local"), VectorCache())


def _vectors(texts: Sequence[str], kind: Kind, embedder: Embedder) -> NDArray[np.float32]:
    view = embedder.views[0]
    return run_sync(embedder.embed(list(texts), kind=kind, views=(view,))).views[view]
