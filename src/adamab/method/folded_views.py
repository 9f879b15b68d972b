"""A view as each fold may see it: everything learned from samples is learned again inside the fold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from adamab.method.evidence import Judged
from adamab.method.views import (
    PreparedView,
    RawView,
    Rows,
    isometric,
    learned_span,
    prepare,
    too_wide,
)
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class FitSamples:
    """The samples of a fit, and what its folds hold out: what all views share."""

    class_index: NDArray[np.int64]  # (n,)
    folds: NDArray[np.int64]  # (n,) the fold that holds a sample out; -1 where none does
    asked: NDArray[np.bool_]  # (n,) held-out samples that are judged
    seen: NDArray[np.bool_]  # (n,) what folds may train on
    weight: Floats  # (n,) in training
    counted: Floats  # (n,) in evidence
    possible: NDArray[np.bool_]  # (K,) classes of which samples can be held out
    n_classes: int

    @cached_property
    def held(self) -> list[NDArray[np.bool_]]:
        """(n,) what each fold holds out."""
        return [self.folds == k for k in range(self.folds.max(initial=-1) + 1)]

    @cached_property
    def asked_of(self) -> list[NDArray[np.bool_]]:
        """(n,) what each fold is judged by."""
        return [held & self.asked for held in self.held]

    @cached_property
    def lone(self) -> bool:
        """Whether no class has more than one sample; there are no folds then."""
        return 0 < len(self.class_index) == len(np.unique(self.class_index))

    def judged(self) -> Judged:
        """The samples that are judged, each by the fold that holds it out."""
        return Judged(self.class_index[self.asked], self.counted[self.asked], self.possible)

    def learned_from(self) -> list[NDArray[np.bool_]]:
        """(n,) what each fold may learn from."""
        return [self.seen & ~out for out in self.held]

    def weights(self) -> Floats:  # (folds + 1, n)
        """Weights in every fold, and of the final member, which sees every sample."""
        return np.stack([self.weight * learned for learned in self.learned_from()] + [self.weight])


class FoldedView:
    """A view's rows as each fold may see them, and last as the final member does."""

    def __init__(self, view: RawView, samples: FitSamples, recipe: Recipe) -> None:
        self.name = view.name
        self._samples, self._recipe = samples, recipe
        self._rows: list[tuple[Rows, Rows | None]] = []
        raw: tuple[Rows, Rows | None] | None = None
        for learned in samples.learned_from():
            rows = view.rows(learned)
            # Rotated once where all folds start from the same rows.
            if raw is None or rows[0] is not raw[0] or rows[1] is not raw[1]:
                raw, rotated = rows, isometric(*rows)
            self._rows.append(rotated)
        everything = np.ones(len(samples.class_index), dtype=np.bool_)
        self._rows.append(view.rows(everything))
        self._learned = [*samples.learned_from(), everything]

    def members(self, width: int | None) -> list[PreparedView]:
        """The view prepared for heads of at most `width` columns, fold by fold; the last for all samples."""
        bases = self._spans if self._must_shrink(width) else [None] * len(self._rows)
        return [
            prepare(
                *rows,
                self._samples.class_index,
                learned,
                self._samples.n_classes,
                self._recipe,
                None if basis is None else np.ascontiguousarray(basis[:, :width]),
            )
            for basis, rows, learned in zip(bases, self._rows, self._learned, strict=True)
        ]

    def _must_shrink(self, width: int | None) -> TypeGuard[int]:
        """As the final member must, whatever the rotation has saved the folds."""
        return width is not None and too_wide(self._rows[-1][0], width)

    @cached_property
    def _spans(self) -> list[Floats]:
        """For the widest head that does not take the view as it is; narrower ones have its first columns."""
        widths = filter(self._must_shrink, (self._recipe.max_width, self._recipe.discriminant_width))
        widest = max(widths)
        return [
            learned_span(*rows, learned, self._recipe, widest)
            for rows, learned in zip(self._rows, self._learned, strict=True)
        ]
