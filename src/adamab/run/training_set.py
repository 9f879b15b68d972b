"""The samples of a run, given and synthetic, in all their views."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adamab.run.growing import Dtype, GrowingRows
from adamab.task.recipe import Recipe
from adamab.task.words import Vocabulary, folded

if TYPE_CHECKING:
    from adamab.method.views import RawView, Rows

Floats = NDArray[np.float32]
WORDS, POOLED = "words", "pooled"
MAX_TERMS = 30_000  # beyond it only terms of several texts count: rare pairs grow without end


@dataclass(frozen=True)
class DescribedClasses:
    """The class side of a match: wordings and their vectors in the views that have them."""

    texts: tuple[str, ...]
    views: Mapping[str, Floats]  # (K, d) each


# Which samples may be learned from -> the class side; it depends on them where wordings quote examples.
ClassSide = Callable[[NDArray[np.bool_]], "DescribedClasses | None"]


class TrainingSet:
    """Samples in the order in which they came; grows by whole batches."""

    def __init__(self, n_classes: int, class_side: ClassSide, *, has_texts: bool = True) -> None:
        self.n_classes = n_classes
        self.class_side = class_side
        self.has_texts = has_texts  # False where samples are vectors only
        self.copies = False  # True where synthetic samples are near copies of given ones
        self.texts: list[str] = []
        self.keys: set[str] = set()  # folded texts
        self.class_index: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.given: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.views: dict[str, Floats] = {}
        self._growing: dict[str, GrowingRows[Any]] = {}

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
        """Append samples, with their texts if the set has some."""
        if self.has_texts:
            self.texts += texts
            self.keys.update(folded(text) for text in texts)
        classes = np.asarray(class_index, dtype=np.int64)
        self.class_index = self._with("class", self.class_index, classes)
        self.given = self._with("given", self.given, np.full(len(classes), given))
        for name, matrix in views.items():
            self.views[name] = self._with(f"view/{name}", self.views.get(name, matrix[:0]), matrix)

    def _with(self, key: str, present: NDArray[Dtype], rows: NDArray[Dtype]) -> NDArray[Dtype]:
        growing = self._growing.setdefault(key, GrowingRows(present))
        growing.add(rows)
        return growing.rows

    def counts(self) -> NDArray[np.int64]:
        """(K,) samples of each class."""
        return np.bincount(self.class_index, minlength=self.n_classes)

    def texts_of(self, class_index: int, *, given: bool) -> tuple[str, ...]:
        """Texts of one class and one source."""
        rows = np.flatnonzero((self.class_index == class_index) & (self.given == given))
        return tuple(self.texts[i] for i in rows) if self.has_texts else ()

    def canonical(self) -> TrainingSet:
        """The same samples, the synthetic ones by class and text instead of by arrival.

        A classifier should depend on what was generated, not on the order of the rounds.
        """
        given, synthetic = np.flatnonzero(self.given), np.flatnonzero(~self.given)
        by_text = sorted(
            synthetic, key=lambda i: (self.class_index[i], self.texts[i] if self.has_texts else "")
        )
        return self._some(np.concatenate([given, np.array(by_text, dtype=np.intp)]))

    def canonical_classes(self) -> NDArray[np.int64]:
        """(n,) the classes of the samples in that order."""
        synthetic = np.sort(self.class_index[~self.given])
        return np.concatenate([self.class_index[self.given], synthetic])

    def only_given(self) -> TrainingSet:
        """A copy of the given samples, whatever is added later."""
        return self._some(np.flatnonzero(self.given))

    def _some(self, rows: NDArray[np.intp]) -> TrainingSet:
        copy = TrainingSet(self.n_classes, self.class_side, has_texts=self.has_texts)
        copy.copies = self.copies
        copy.texts = [self.texts[i] for i in rows] if self.has_texts else []
        copy.class_index, copy.given = self.class_index[rows], self.given[rows]
        copy.views = {name: matrix[rows] for name, matrix in self.views.items()}
        return copy

    @property
    def pooled(self) -> str:
        """The view in which texts meet descriptions: `pooled`, or the first if none has that name."""
        return POOLED if POOLED in self.views else next(iter(self.views))

    def raw_views(self, recipe: Recipe) -> list[RawView]:
        """The views that heads are trained on: the embedder's, then the words."""
        described = self.pooled
        views: list[RawView] = [
            DenseView(
                name, matrix, self.class_side if name == described else _no_class_side, name != described
            )
            for name, matrix in self.views.items()
            if len(matrix) or name == described  # descriptions alone make no other view
        ]
        if recipe.words and self.has_texts:
            views.append(WordsView(tuple(self.texts), self.class_side))
        return views


def _no_class_side(learned_from: NDArray[np.bool_]) -> DescribedClasses | None:
    """Layer and token summaries of a description say nothing about those of a message."""
    return None


@dataclass(frozen=True)
class DenseView:
    """A view that the embedder delivers."""

    name: str
    matrix: Floats  # (n, d)
    class_side: ClassSide
    wide: bool = False

    def rows(self, learned_from: NDArray[np.bool_]) -> tuple[Rows, Rows | None]:
        """The embedder's vectors; they depend on no sample but their own."""
        side = self.class_side(learned_from)
        return self.matrix, None if side is None else side.views.get(self.name)


@dataclass(frozen=True)
class WordsView:
    """TF-IDF of words and pairs, fitted on the samples that may be learned from and the wordings."""

    texts: tuple[str, ...]
    class_side: ClassSide
    name: str = WORDS
    wide: bool = False

    def vocabulary(self, learned_from: NDArray[np.bool_]) -> Vocabulary:
        """The vocabulary that those samples give."""
        side = self.class_side(learned_from)
        learned = [text for text, use in zip(self.texts, learned_from, strict=True) if use]
        texts = [*learned, *(() if side is None else side.texts)]
        for min_count in itertools.count(1):
            vocabulary = Vocabulary.fit(texts, min_count=min_count)
            if len(vocabulary.terms) <= MAX_TERMS:
                break
        return vocabulary

    def rows(self, learned_from: NDArray[np.bool_]) -> tuple[Rows, Rows | None]:
        """Sparse rows of all samples, and of the wordings."""
        vocabulary, side = self.vocabulary(learned_from), self.class_side(learned_from)
        return vocabulary.transform(self.texts), None if side is None else vocabulary.transform(side.texts)
