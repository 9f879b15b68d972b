"""What cells need and all of them share: the draws, and the vectors of every text that is known before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind, only_texts
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.providers.sync import run_sync
from adamab.run.outside import Outside
from adamab.run.resolve import open_embedder
from adamab.study.datasets.base import DataSet, Draw
from adamab.study.experiments.cells import POOL, RECORDED, DrawKey
from adamab.study.experiments.definition import Experiment
from adamab.task import Sample, Task

FEW_SHOT = "few-shot"


class KnownVectors(Embedder):
    """Vectors from memory; what they lack comes from the embedder that `spec` names, and is kept.

    Without a spec they are all there is. The embedder is opened when it is first needed, so that a
    process which needs none loads no model.
    """

    def __init__(self, embedder: Embedder, spec: str | None) -> None:
        self.fingerprint, self.views, self.spec = embedder.fingerprint, embedder.views, spec
        self.api = embedder.api
        self._opened: Embedder | None = embedder
        self._rows: dict[tuple[Kind, str], dict[str, NDArray[np.float32]]] = {}
        self._overlong: set[tuple[Kind, str]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None, "api": None}  # models and clients stay where they are

    def _rest(self) -> Embedder:
        if self.spec is None:
            raise KeyError("a sample without a vector")
        self._opened = self._opened or open_embedder(self.spec)
        return self._opened

    def has(self, items: Sequence[Item]) -> NDArray[np.bool_]:
        """What is known, and what the embedder behind has."""
        known = np.array([("query", item) in self._rows or ("class", item) in self._rows for item in items])
        return known if known.all() or self.spec is None else known | self._rest().has(items)

    def put(self, texts: Sequence[str], kind: Kind, embedded: Embedded) -> None:
        """Remember the vectors of `texts`."""
        for row, text in enumerate(texts):
            self._rows[kind, text] = {view: matrix[row] for view, matrix in embedded.views.items()}
            if embedded.overlong[row]:
                self._overlong.add((kind, text))

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        texts = only_texts(items)
        lacking = [text for text in texts if (kind, text) not in self._rows]
        if lacking:
            self.put(lacking, kind, await self._rest().embed(lacking, kind=kind, views=self.views))
        rows = [self._rows[kind, text] for text in texts]
        overlong = np.array([(kind, text) in self._overlong for text in texts], dtype=np.bool_)
        return Embedded({view: np.stack([row[view] for row in rows]) for view in views}, overlong)


class DrawnTexts(Generator):
    """Texts that a draw holds ready, each at most once, in the draw's order."""

    def __init__(self, texts: Mapping[str, Sequence[str]], fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._texts = texts

    async def generate(self, request: Request) -> Batch:
        """The next ones of the class."""
        existing = set(request.existing)
        left = [text for text in self._texts.get(request.spec.name, ()) if text not in existing]
        taken = left[: request.count]
        return Batch(tuple(taken), closed="no more of them" if len(taken) == len(left) else None)


@dataclass(frozen=True)
class Materials:
    """Everything that a worker is handed."""

    draws: Mapping[DrawKey, Draw]
    vectors: Mapping[str, KnownVectors]  # by set
    # What round-robin has added to a draw, by samples a round and rounds: every baseline wants the same.
    added: dict[tuple[DrawKey, int, int], tuple[Sample, ...]] = field(default_factory=dict)

    def task(self, key: DrawKey, setting: str) -> Task:
        """The draw's task; in the few-shot setting its wordings quote the given samples."""
        task = self.draws[key].task
        if setting != FEW_SHOT:
            return task
        return replace(task, prompts=replace(task.prompts, with_examples=True))

    def generator(self, key: DrawKey) -> Generator | None:
        """What a set itself can serve with; None where an API has to."""
        draw = self.draws[key]
        if key.generator == RECORDED:
            return DrawnTexts(draw.recorded, f"recorded {draw.digest}")
        return DrawnTexts(draw.pool, f"pool {draw.digest}") if key.generator == POOL else None


def draws_of(
    keys: Iterable[DrawKey], sets: Mapping[str, DataSet], experiment: Experiment
) -> dict[DrawKey, Draw]:
    """One draw a key."""
    return {
        key: sets[key.set].draw(
            key.seed,
            given=key.given,
            generator=key.source,  # type: ignore[arg-type]  # one of the two by construction
            part=experiment.part,
            split=experiment.split,
        )
        for key in dict.fromkeys(keys)
    }


def embedder_of(data: DataSet, spec: str) -> tuple[Embedder, str | None]:
    """The set's own vectors, or the embedder that is asked for and what it is called."""
    own = data.embedder()
    return (open_embedder(spec), spec) if own is None else (own, None)


def gather(
    draws: Mapping[DrawKey, Draw],
    sets: Mapping[str, DataSet],
    spec: str,
    settings: Sequence[str],
    outside: Outside | None = None,
) -> Materials:
    """Embed every text that is known before the first fit once; the user's cache keeps the vectors."""
    vectors = {}
    for name in dict.fromkeys(key.set for key in draws):
        embedder, named = embedder_of(sets[name], spec)
        known = KnownVectors(embedder, named)
        of_set = [draw for key, draw in draws.items() if key.set == name]
        with (outside or Outside()).connected(embedder, None):
            _fill(known, embedder, "query", [text for draw in of_set for text in texts_of(draw)])
            if named is not None:
                _fill(known, embedder, "class", [w for draw in of_set for w in wordings(draw, settings)])
        vectors[name] = known
    return Materials(draws, vectors)


def texts_of(draw: Draw) -> Iterable[str]:
    """Every text of a draw, as the embedder reads it."""
    prompts = draw.task.prompts
    for sample in (*draw.task.samples, *draw.test):
        yield prompts.query_text(sample.text)
    for by_class in (draw.pool, draw.recorded):
        for texts in by_class.values():
            yield from map(prompts.query_text, texts)


def wordings(draw: Draw, settings: Sequence[str]) -> Iterable[str]:
    """The classes as the embedder reads them, in each of the settings."""
    task = draw.task
    for setting in settings:
        prompts = replace(task.prompts, with_examples=setting == FEW_SHOT)
        for c in task.classes:
            yield prompts.class_text(c, [s.text for s in task.samples_of(c.name)])


def _fill(known: KnownVectors, embedder: Embedder, kind: Kind, texts: Iterable[str]) -> None:
    distinct = list(dict.fromkeys(texts))
    known.put(distinct, kind, run_sync(embedder.embed(distinct, kind=kind)))
