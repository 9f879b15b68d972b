"""The samples of a run, given and synthetic, in all their views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError
from adamab.method.views import View
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedded, Embedder, Item, Kind
from adamab.providers.generators.base import Generator
from adamab.providers.image_store import ImageStore
from adamab.providers.registry import embedder_key
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.task.words import Vocabulary, normalised_text

# Arrays that grow row by row, as the samples of a run do.

Dtype = TypeVar("Dtype", bound=np.generic)
_SPARE = 8  # an eighth more room than needed: each row is copied about nine times, however many there are


@dataclass
class GrowingRows(Generic[Dtype]):
    """Rows to which others are added at the end, mostly without copying those that are there.

    Example:
        >>> GrowingRows(np.array([1, 2])).add(np.array([3]))
        array([1, 2, 3])
    """

    rows: NDArray[Dtype]
    _room: NDArray[Dtype] | None = None  # what `rows` are the filled part of

    def add(self, rows: NDArray[Any]) -> NDArray[Dtype]:
        """All rows with these; an array without rows takes over their shape and kind.

        What was handed out before stays as it was.
        """
        filled = len(self.rows)
        if not filled:
            self.rows = rows
            return rows
        needed = filled + len(rows)
        if self._room is None or needed > len(self._room):
            self._room = np.empty((needed + needed // _SPARE, *rows.shape[1:]), self.rows.dtype)
            self._room[:filled] = self.rows
        self._room[filled:needed] = rows
        self.rows = self._room[:needed]
        return self.rows


Floats = NDArray[np.float32]
WORDS, POOLED = "words", "pooled"
MAX_TERMS = 30_000  # beyond it only terms of several texts count: rare pairs grow without end


@dataclass(frozen=True)
class DescribedClasses:
    """Wordings of the classes, and their vectors in the views that have them."""

    texts: tuple[str, ...]
    views: Mapping[str, Floats]  # (K, d) each


# Which samples may be learned from -> the classes; they depend on them where wordings quote examples.
ClassDescriber = Callable[[NDArray[np.bool_]], "DescribedClasses | None"]


@dataclass(eq=False)
class TrainingSet:
    """Samples in the order in which they came; grows by whole batches."""

    n_classes: int
    describe_classes: ClassDescriber
    has_texts: bool = True  # False where samples are vectors only
    copies: bool = False  # True where synthetic samples are made of given ones alone
    texts: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)  # normalised texts
    class_index: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    given: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    views: dict[str, Floats] = field(default_factory=dict)
    _growing: dict[str, GrowingRows[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.class_index)

    def add(
        self,
        class_index: Sequence[int],
        views: Mapping[str, Floats],
        *,
        given: bool,
        texts: Sequence[str] = (),
    ) -> None:
        """Append samples.

        Args:
            class_index: the class of each.
            views: their vectors by view, rows in the same order.
            given: whether the user gave them; otherwise they are synthetic.
            texts: their texts, where the set has texts.
        """
        if self.has_texts:
            self.texts += texts
            self.keys.update(normalised_text(text) for text in texts)
        classes = np.asarray(class_index, dtype=np.int64)
        growing = self._growing
        self.class_index = growing.setdefault("class", GrowingRows(self.class_index)).add(classes)
        self.given = growing.setdefault("given", GrowingRows(self.given)).add(np.full(len(classes), given))
        for name, matrix in views.items():
            present = GrowingRows(self.views.get(name, matrix[:0]))
            self.views[name] = growing.setdefault(f"view/{name}", present).add(matrix)

    def counts(self) -> NDArray[np.int64]:
        """(K,) samples per class."""
        return np.bincount(self.class_index, minlength=self.n_classes)

    def given_texts(self, class_index: int) -> tuple[str, ...]:
        """The given samples of a class; none where samples are vectors only."""
        rows = np.flatnonzero((self.class_index == class_index) & self.given)
        return tuple(self.texts[i] for i in rows) if self.has_texts else ()

    def canonical(self) -> TrainingSet:
        """The same samples, the synthetic ones by class and text instead of by arrival.

        A classifier should depend on what was generated, not on the order of the rounds.
        """
        given, synthetic = np.flatnonzero(self.given), np.flatnonzero(~self.given)
        by_text = sorted(
            synthetic, key=lambda i: (self.class_index[i], self.texts[i] if self.has_texts else "")
        )
        return self.only(np.concatenate([given, np.array(by_text, dtype=np.intp)]))

    def only_given(self) -> TrainingSet:
        """A copy of the given samples, whatever is added later."""
        return self.only(np.flatnonzero(self.given))

    def only(self, rows: NDArray[np.intp]) -> TrainingSet:
        """A copy with some of the samples.

        Args:
            rows: their numbers, in the order of the copy.
        """
        return replace(
            self,
            texts=[self.texts[i] for i in rows] if self.has_texts else [],
            keys=set(),
            class_index=self.class_index[rows],
            given=self.given[rows],
            views={name: matrix[rows] for name, matrix in self.views.items()},
            _growing={},
        )

    @property
    def pooled(self) -> str:
        """The view in which texts meet descriptions: `pooled`, or the first if none has that name."""
        return POOLED if POOLED in self.views else next(iter(self.views))

    def head_views(self, recipe: Recipe) -> tuple[list[View], Vocabulary | None]:
        """The views that heads are fitted on: the embedder's, then TF-IDF of words and pairs.

        Args:
            recipe: says whether there are words, and which views know descriptions.

        Returns:
            The views, and the vocabulary of the words if they are among them.
        """
        everything = np.ones(len(self), dtype=np.bool_)
        classes, unquoted = self.describe_classes(everything), self.describe_classes(~everything)
        views = []
        for name, matrix in self.views.items():
            known = recipe.described_views if name in recipe.described_views else (self.pooled,)
            described = None if classes is None or name not in known else classes.views.get(name)
            plain = None if unquoted is None or unquoted is classes else unquoted.views.get(name)
            if len(matrix) or described is not None:  # descriptions alone make no other view
                views.append(View(name, matrix, described, None if described is None else plain))
        if not (recipe.words and self.has_texts):
            return views, None
        wordings = () if classes is None else classes.texts
        texts, min_count = [*self.texts, *wordings], 1
        vocabulary = Vocabulary.learn(texts)
        while len(vocabulary.terms) > MAX_TERMS:
            min_count += 1
            vocabulary = Vocabulary.learn(texts, min_count=min_count)
        worded = plain = None
        if classes is not None and WORDS in recipe.described_views:
            worded = vocabulary.transform(wordings)
            if unquoted is not None and unquoted is not classes:
                plain = vocabulary.transform(unquoted.texts)
        if self.texts or worded is not None:
            views.append(View(WORDS, vocabulary.transform(self.texts), worded, plain))
        return views, vocabulary


# A task as vectors: given samples, synthetic samples, and the wordings of the classes.


class TaskEmbedder:
    """Embeds what a fit needs and counts the texts that were too long for the embedder.

    In a task of images new samples are references, which `images` finds.
    """

    def __init__(
        self, task: Task, embedder: Embedder, recipe: Recipe, images: ImageStore | None = None
    ) -> None:
        self._task, self._embedder, self._images = task, embedder, images
        if images is not None:
            images.know(sample.image for sample in task.samples if sample.image is not None)
        self._views = recipe.views or embedder.views
        self.overlong = 0
        self._widths: dict[str, int] = {}  # by view
        self._described: dict[tuple[bool, ...], DescribedClasses] = {}  # by the samples that wordings quote

    def training_set(self, generator: Generator | None = None) -> TrainingSet:
        """The given samples; with a generator of vectors a sample is its vector, without a text."""
        index = {name: i for i, name in enumerate(self._task.class_names)}
        samples = TrainingSet(
            len(index),
            self.describe_classes,
            has_texts=generator is None or not generator.yields_vectors,
            copies=generator is not None and generator.copies,
        )
        items = [embedder_key(s, self._embedder, self._task.prompts) for s in self._task.samples]
        if items:
            views = self._embed(items, "query")
        else:
            described = self.describe_classes(np.zeros(0, dtype=np.bool_)).views
            views = {view: matrix[:0] for view, matrix in described.items()}
        if not views:
            raise EmbedderError("the task has no example and the embedder no vector of a class; add examples")
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
        """Views of new texts, without blocking."""
        items = self._items(texts)
        return self._checked(await self._embedder.embed(items, kind="query", views=self._views))

    def embed(self, texts: Sequence[str]) -> dict[str, Floats]:
        """Views of new texts."""
        return self._embed(self._items(texts), "query")

    def _items(self, texts: Sequence[str]) -> list[Item]:
        if self._images is not None:
            return [self._images.find(text) for text in texts]
        return [self._task.prompts.query_text(text) for text in texts]

    def _embed(self, items: Sequence[Item], kind: Kind) -> dict[str, Floats]:
        return self._checked(run_sync(self._embedder.embed(items, kind=kind, views=self._views))).views

    def _checked(self, answer: Embedded) -> Embedded:
        """Vectors of one width; those that a run has kept may be of another model under the same name."""
        self.overlong += int(answer.overlong.sum())
        for view, matrix in answer.views.items():
            width = self._widths.setdefault(view, matrix.shape[1])
            if matrix.shape[1] != width:
                raise EmbedderError(
                    f"{self._embedder}: some vectors of view {view!r} have width {width}, others "
                    f"{matrix.shape[1]}; what serves the model has changed or lied: "
                    f"run adamab cache purge --embedder '{self._embedder.fingerprint}' "
                    "and start over with --overwrite"
                )
        return answer

    def describe_classes(self, learned_from: NDArray[np.bool_]) -> DescribedClasses:
        """Wordings and vectors of the classes; they differ only where wordings quote examples.

        Vectors are found by wording or, for an embedder of stored vectors, by name.
        """
        task, prompts = self._task, self._task.prompts
        quoted = tuple(learned_from.tolist()) if prompts.with_examples else ()
        if quoted not in self._described:
            examples: dict[str, list[str]] = {name: [] for name in task.class_names}
            # Given samples come first in a training set, so the mask's head is theirs.
            for sample, use in zip(task.samples, quoted, strict=False):
                if use:
                    examples[sample.class_name].append(sample.text)
            wordings = tuple(prompts.class_text(spec, examples[spec.name]) for spec in task.classes)
            keys = next((k for k in (wordings, task.class_names) if self._embedder.has(k).all()), None)
            views = {} if keys is None else self._embed(keys, "class")
            self._described[quoted] = DescribedClasses(wordings, views)
        return self._described[quoted]
