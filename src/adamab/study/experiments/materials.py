"""What cells need and all of them share: the draws, and the vectors of every sample that is known before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.providers.image_store import ImageStore, temporary_store
from adamab.providers.sync import run_sync
from adamab.run.outside import Outside
from adamab.run.resolve import embedder_key, open_embedder, shared_images
from adamab.study.datasets.base import DataSet, Draw
from adamab.study.experiments.cells import POOL, RECORDED, DrawKey
from adamab.study.experiments.definition import Experiment
from adamab.task import Sample, Task
from adamab.task.spec import Modality

ZERO_SHOT, FEW_SHOT = "zero-shot", "few-shot"


class KnownVectors(Embedder):
    """Vectors from memory; what they lack comes from the embedder that `spec` names, and is kept.

    Without a spec they are all there is. The embedder is opened when it is first needed, so that a
    process which needs none loads no model.
    """

    def __init__(self, embedder: Embedder, spec: str | None) -> None:
        self.fingerprint, self.views, self.spec = embedder.fingerprint, embedder.views, spec
        self.api, self.modalities = embedder.api, embedder.modalities
        self.cacheable = embedder.cacheable  # or samples with ids would be looked up by their texts
        self._opened: Embedder | None = embedder
        self._rows: dict[tuple[Kind, Item], dict[str, NDArray[np.float32]]] = {}
        self._overlong: set[tuple[Kind, Item]] = set()

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
        if known.all() or self.spec is None or not super().has(items).any():
            return known
        return known | self._rest().has(items)

    def put(self, items: Sequence[Item], kind: Kind, embedded: Embedded) -> None:
        """Remember the vectors of `items`."""
        for row, item in enumerate(items):
            self._rows[kind, item] = {view: matrix[row] for view, matrix in embedded.views.items()}
            if embedded.overlong[row]:
                self._overlong.add((kind, item))

    async def _embed(self, items: Sequence[Item], *, kind: Kind, views: Sequence[str]) -> Embedded:
        lacking = [item for item in items if (kind, item) not in self._rows]
        if lacking:
            self.put(lacking, kind, await self._rest().embed(lacking, kind=kind, views=self.views))
        rows = [self._rows[kind, item] for item in items]
        overlong = np.array([(kind, item) in self._overlong for item in items], dtype=np.bool_)
        return Embedded({view: np.stack([row[view] for row in rows]) for view in views}, overlong)


class DrawnSamples(Generator):
    """Texts or pictures that a draw holds ready, each at most once, in the draw's order."""

    def __init__(self, texts: Mapping[str, Sequence[str]], modality: Modality, fingerprint: str) -> None:
        self.fingerprint, self.modality = fingerprint, modality
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
    images: ImageStore | None = None  # where pictures are found and put; None if all samples are texts

    def task(self, key: DrawKey, setting: str) -> Task:
        """The draw's task; in the few-shot setting its wordings quote the given samples."""
        task = self.draws[key].task
        if setting != FEW_SHOT:
            return task
        return replace(task, prompts=replace(task.prompts, with_examples=True))

    def generator(self, key: DrawKey) -> Generator | None:
        """What a set itself can serve with; None where an API has to."""
        draw = self.draws[key]
        if key.generator not in (RECORDED, POOL):
            return None
        samples = draw.recorded if key.generator == RECORDED else draw.pool
        return DrawnSamples(samples, draw.task.modality, f"{key.generator} {draw.digest}")


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
    if own is not None:
        return own, None
    embedder = open_embedder(spec)
    check_takes(embedder, data)
    return embedder, spec


def check_takes(embedder: Embedder, data: DataSet) -> None:
    """Refuse pictures to an embedder of texts before anything is sent."""
    if data.images and "image" not in embedder.modalities:
        raise EmbedderError(
            f"{embedder} embeds no images, and {data.name} are pictures; name another with --embedder, such "
            "as clip-vit-large"
        )


def gather(
    draws: Mapping[DrawKey, Draw],
    sets: Mapping[str, DataSet],
    spec: str,
    settings: Sequence[str],
    outside: Outside | None = None,
) -> Materials:
    """Embed every sample that is known before the first fit once; the user's cache keeps the vectors."""
    vectors = {}
    for name in dict.fromkeys(key.set for key in draws):
        embedder, named = embedder_of(sets[name], spec)
        known = KnownVectors(embedder, named)
        of_set = [draw for key, draw in draws.items() if key.set == name]
        with (outside or Outside()).connected(embedder, None):
            _fill(known, embedder, "query", [item for draw in of_set for item in known_items(draw, embedder)])
            if named is not None and "text" in embedder.modalities:
                _fill(known, embedder, "class", [w for draw in of_set for w in wordings(draw, settings)])
        vectors[name] = known
    return Materials(draws, vectors, images=_store(draws.values()))


def _store(draws: Iterable[Draw]) -> ImageStore | None:
    """A place for generated pictures; those that are paid for are kept for the next run too."""
    drawn = [draw for draw in draws if draw.task.modality == "image"]
    if not drawn:
        return None
    store = temporary_store(shared=shared_images())
    for draw in drawn:
        store.know(draw.images.values())
    return store


def known_items(draw: Draw, embedder: Embedder) -> Iterable[Item]:
    """Every text or picture of a draw, as the embedder gets it."""
    drawn = [
        Sample(text, name, image=draw.images.get(text))
        for by_class in (draw.pool, draw.recorded)
        for name, texts in by_class.items()
        for text in texts
    ]
    for sample in (*draw.task.samples, *draw.test, *drawn):
        yield embedder_key(sample, embedder, draw.task.prompts)


def wordings(draw: Draw, settings: Sequence[str]) -> Iterable[str]:
    """The classes as the embedder reads them: without examples, and in each of the settings."""
    task = draw.task
    for setting in dict.fromkeys((ZERO_SHOT, *settings)):
        prompts = replace(task.prompts, with_examples=setting == FEW_SHOT)
        for c in task.classes:
            yield prompts.class_text(c, [s.text for s in task.samples_of(c.name)])


def _fill(known: KnownVectors, embedder: Embedder, kind: Kind, items: Iterable[Item]) -> None:
    distinct = list(dict.fromkeys(items))
    known.put(distinct, kind, run_sync(embedder.embed(distinct, kind=kind)))
