"""Whether descriptions of the classes can be trusted where nothing can be held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.method.folded_views import FitSamples, FoldedView
from adamab.method.folds import LEAST_EVIDENCE, MOST_EVIDENCE
from adamab.method.views import RawView, Rows
from adamab.task.recipe import Recipe

TYPICAL_SIMILARITY = 2.0  # factor of untrained similarity, typical of what folds choose where there are many
SURPRISES = 0.1  # share of samples that descriptions need not foretell: no single one speaks against them
MISTRUST = -4.0  # logarithm of the odds, 1 to 55, at which descriptions are not believed any more


@dataclass(frozen=True)
class Undescribed:
    """A view without the descriptions of the classes."""

    view: RawView

    @property
    def name(self) -> str:
        """That of the view."""
        return self.view.name

    @property
    def wide(self) -> bool:
        """As the view is."""
        return self.view.wide

    def rows(self, learned_from: NDArray[np.bool_]) -> tuple[Rows, Rows | None]:
        """Those of the samples alone."""
        return self.view.rows(learned_from)[0], None


def is_described(view: RawView, seen: NDArray[np.bool_]) -> bool:
    """Whether it has vectors of the class descriptions."""
    return view.rows(seen)[1] is not None


def without_misleading_descriptions(
    view: RawView,
    samples: FitSamples,
    given: NDArray[np.bool_],  # (n,)
    recipe: Recipe,
) -> RawView:
    """The view, or the view without its descriptions where they speak against the given samples.

    Without folds they are trusted for what names and sentences usually say. But similarity is untrained, so
    it can be judged by samples that it has not seen: by the odds at which it foretells their classes,
    against those of a guess. Codes and numbers as names foretell worse than that.
    """
    # Of all samples, as the final heads see them: other wordings would have to be embedded, perhaps paid for.
    if not given.any() or not is_described(view, np.ones_like(given)):
        return view
    member = FoldedView(view, samples, recipe).members(recipe.max_width)[-1]
    if member.described is None:
        return view
    judges = _some(np.flatnonzero(given), samples.n_classes)
    logits = (member.queries[judges] @ member.described.T).astype(np.float64)
    logits *= TYPICAL_SIMILARITY * recipe.similarity_scale
    foretold = np.take_along_axis(softmax(logits, axis=1), samples.class_index[judges][:, None], axis=1)
    odds = (1 - SURPRISES) * foretold * samples.n_classes + SURPRISES
    return view if float(np.log(odds).sum()) > MISTRUST else Undescribed(view)


def _some(rows: NDArray[np.intp], n_classes: int) -> NDArray[np.intp]:
    """All, or evenly spread ones: logits of all samples of very many classes would not fit into memory."""
    most = max(LEAST_EVIDENCE, MOST_EVIDENCE // n_classes)
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.intp)]
