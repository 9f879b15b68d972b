"""A task as vectors: given samples, synthetic samples, and the wordings of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.providers.embedders.base import Embedded, Embedder, Item
from adamab.providers.image_store import ImageStore
from adamab.providers.sync import run_sync
from adamab.run.resolve import embedder_key
from adamab.run.training_set import ClassSide, DescribedClasses, TrainingSet
from adamab.task.recipe import Recipe
from adamab.task.spec import Task

Floats = NDArray[np.float32]
_REMEDY = {
    "image": "use one that does, such as clip:PATH-or-id or onnx:FILE",
    "text": "use one that does, such as local, or set modality: image",
}


class SampleSide:
    """Embeds what a fit needs and counts the texts that were too long for the embedder.

    In a task of pictures new samples are references, which `images` finds.
    """

    def __init__(
        self, task: Task, embedder: Embedder, recipe: Recipe, images: ImageStore | None = None
    ) -> None:
        if task.modality not in embedder.modalities and embedder.cacheable:
            raise EmbedderError(f"{embedder} embeds no {task.modality}s; {_REMEDY[task.modality]}")
        self._task, self._embedder, self._images = task, embedder, images
        if images is not None:
            images.know(sample.image for sample in task.samples if sample.image is not None)
        self._views = recipe.views or embedder.views
        self.overlong = 0
        self._widths: dict[str, int] = {}  # by view

    def training_set(self) -> TrainingSet:
        """The given samples."""
        index = {name: i for i, name in enumerate(self._task.class_names)}
        samples = TrainingSet(len(index), self._class_side())
        items = [embedder_key(s, self._embedder, self._task.prompts) for s in self._task.samples]
        views = self._embed(items) if items else self._empty_views()
        samples.add(
            [index[s.class_name] for s in self._task.samples],
            views,
            given=True,
            texts=[s.text for s in self._task.samples],
        )
        return samples

    @property
    def remote(self) -> bool:
        """Whether embedding is a call to wait for, which can be made ahead."""
        return self._embedder.api is not None

    async def embed_ahead(self, texts: Sequence[str]) -> Embedded:
        """Views of new texts, for whoever waits for several things at once."""
        items = self._items(texts)
        return self._checked(await self._embedder.embed(items, kind="query", views=self._views))

    def embed(self, texts: Sequence[str]) -> dict[str, Floats]:
        """Views of new texts."""
        return self._embed(self._items(texts))

    def _items(self, texts: Sequence[str]) -> list[Item]:
        if self._images is not None:
            return [self._images.find(text) for text in texts]
        return [self._task.prompts.query_text(text) for text in texts]

    def _embed(self, items: Sequence[Item]) -> dict[str, Floats]:
        answer = self._checked(run_sync(self._embedder.embed(items, kind="query", views=self._views)))
        self.overlong += int(answer.overlong.sum())
        return answer.views

    def _checked(self, answer: Embedded) -> Embedded:
        """Vectors of one width; those that a run has kept may be of another model under the same name."""
        for view, matrix in answer.views.items():
            width = self._widths.setdefault(view, matrix.shape[1])
            if matrix.shape[1] != width:
                raise EmbedderError(
                    f"{self._embedder}: some vectors of view {view!r} have width {width}, others "
                    f"{matrix.shape[1]}; what serves the model has changed or lied: "
                    f"run adamab cache purge --embedder '{self._embedder.fingerprint}' "
                    "and fit into another directory"
                )
        return answer

    def _empty_views(self) -> dict[str, Floats]:
        widths = self._class_vectors(self._wordings(()))
        if not widths:
            raise EmbedderError("the task has no example and the embedder no vector of a class; add examples")
        return {view: np.zeros((0, x.shape[1]), np.float32) for view, x in widths.items()}

    def _class_side(self) -> ClassSide:
        """Wordings and vectors of the classes; worked out anew only where wordings quote examples."""

        def side(learned_from: tuple[bool, ...]) -> DescribedClasses:
            wordings = self._wordings(learned_from)
            return DescribedClasses(wordings, self._class_vectors(wordings))

        known = cache(side)
        quoting = self._task.prompts.with_examples
        return lambda learned_from: known(tuple(learned_from.tolist()) if quoting else ())

    def _wordings(self, learned_from: Sequence[bool]) -> tuple[str, ...]:
        """Given samples come first in a training set, so the mask's head is theirs."""
        examples: dict[str, list[str]] = {name: [] for name in self._task.class_names}
        for sample, use in zip(self._task.samples, learned_from, strict=False):
            if use:
                examples[sample.class_name].append(sample.text)
        return tuple(self._task.prompts.class_text(c, examples[c.name]) for c in self._task.classes)

    def _class_vectors(self, wordings: Sequence[str]) -> dict[str, Floats]:
        """Vectors of the classes by wording or, for an embedder of stored vectors, by name."""
        for keys in (wordings, self._task.class_names):
            if self._embedder.has(keys).all():
                answer = self._checked(run_sync(self._embedder.embed(keys, kind="class", views=self._views)))
                self.overlong += int(answer.overlong.sum())
                return answer.views
        return {}
