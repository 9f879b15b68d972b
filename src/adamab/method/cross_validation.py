"""Which samples are held out by which fold, and what a view may know inside a fold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.method.stacking import EvaluationSet, stratified_folds
from adamab.method.views import (
    PreparedView,
    Rows,
    View,
    evenly_spread,
    isometric,
    learned_span,
    needs_span,
    prepare,
)
from adamab.task.recipe import Recipe

Floats = NDArray[np.float32]
MOST_EVIDENCE = 4_000_000  # held-out logits of one option of a component: 16 MB, and there are dozens
LEAST_EVIDENCE = 100  # held-out samples that a choice should rest on, however many classes there are
BLOCK = 1024  # rows that are compared at a time, so that no second matrix as large as the first is made
NEIGHBOURS = 3  # on the direction


@dataclass(frozen=True)
class FitSamples:
    """The samples of a fit, and what its folds hold out: what all views share."""

    class_index: NDArray[np.int64]  # (n,)
    given: NDArray[np.bool_]  # (n,) the others are synthetic
    n_classes: int
    folds: NDArray[np.int64]  # (n,) the fold that holds a sample out; -1 where none does
    scored: NDArray[np.bool_]  # (n,) the held-out samples whose logits are looked at
    scored_rows: list[NDArray[np.intp]]  # those of each fold; empty without folds
    learned_from: list[NDArray[np.bool_]]  # (n,) each, what a fold may learn from; the last is everything
    weights: Floats  # (folds + 1, n) in training, 0 for what may not be learned from
    evaluation: EvaluationSet  # the scored samples, in the order of the samples


def split_samples(
    class_index: NDArray[np.int64],
    given: NDArray[np.bool_],
    n_classes: int,
    recipe: Recipe,
    *,
    seed: int,
    copies: bool = False,
    originals: NDArray[np.int64] | None = None,
) -> FitSamples:
    """Folds for a cross-validation.

    Of very many classes the logits of all held-out samples would not fit into memory, and the choices that
    they serve need no more than some: given ones first, drawn by chance. The others stay held out: if they
    were learned from, the few classes that lack a sample would be those of the scored ones.

    Args:
        class_index: (n,) class of each sample.
        given: (n,) whether a sample is a given one, not a synthetic one.
        n_classes: K.
        recipe: number of folds, weights of synthetic samples.
        seed: of the folds.
        copies: whether synthetic samples are near copies of given ones. No fold trains on them or is scored
            by them then: a copy of a held-out sample would give it away.
        originals: (n,) for each sample one that it repeats (`originals_of`). They are held out together and
            scored once.
    """
    n = len(class_index)
    everything = np.ones(n, dtype=np.bool_)
    trainable = given if copies else everything
    originals = np.arange(n) if originals is None else originals
    first = originals == np.arange(n)
    evidence_weight = (np.where(given, 1.0, recipe.synthetic_evidence) * trainable).astype(np.float32)
    sources = (first & given, first & (evidence_weight > 0) & ~given)
    folds = _held_out_folds(class_index, sources, evidence_weight, recipe, seed)[originals]
    scored = (folds >= 0) & first
    rows = np.flatnonzero(scored)
    most = max(LEAST_EVIDENCE, MOST_EVIDENCE // n_classes)
    if len(rows) > most:
        drawn = np.random.default_rng(seed).permutation(rows)
        scored[drawn[np.argsort(~given[drawn], kind="stable")][most:]] = False
    evaluable = np.zeros(n_classes, dtype=np.bool_)
    for of_source in sources:
        evaluable |= np.bincount(class_index[of_source], minlength=n_classes) > 1
    held_out = [folds == fold for fold in range(folds.max(initial=-1) + 1)]
    learned_from = [*(trainable & ~out for out in held_out), everything]
    weight = np.where(given, 1.0, recipe.synthetic_weight).astype(np.float32)
    return FitSamples(
        class_index,
        given,
        n_classes,
        folds,
        scored,
        [np.flatnonzero(out & scored) for out in held_out],
        learned_from,
        np.stack([weight * learned for learned in learned_from]),
        EvaluationSet(class_index[scored], evidence_weight[scored], evaluable),
    )


def _held_out_folds(
    class_index: NDArray[np.int64],  # (n,)
    sources: tuple[NDArray[np.bool_], NDArray[np.bool_]],  # (n,) given and synthetic samples, copies aside
    evidence_weight: Floats,  # (n,)
    recipe: Recipe,
    seed: int,
) -> NDArray[np.int64]:
    """(n,) the fold that holds a sample out; -1 for samples that are never held out.

    Given and synthetic samples are spread over the folds apart from each other, so that no fold lacks
    those that count most. Of many samples a part of the folds is evidence enough.
    """
    nothing = np.full(len(class_index), -1, dtype=np.int64)
    given, synthetic = sources
    n_folds = min(recipe.folds, int(np.bincount(class_index[given | synthetic], minlength=1).max()))
    if n_folds < 2:
        return nothing
    folds, rng = nothing.copy(), np.random.default_rng(seed)
    for of_source in sources:
        folds[of_source] = stratified_folds(class_index[of_source], n_folds, rng)
    out = folds >= 0
    numbers, folds[out] = np.unique(folds[out], return_inverse=True)  # a fold may have come out empty
    held_out_classes = len(np.unique(class_index[out]))
    # The batches that some classes have got would speak for these classes alone.
    lopsided = not given[out].any() and held_out_classes < len(np.unique(class_index))
    if len(numbers) < 2 or held_out_classes < 2 or lopsided:
        return nothing
    evidence = float(evidence_weight[out].sum())
    if evidence > recipe.evidence:
        folds[folds >= max(2, math.ceil(len(numbers) * recipe.evidence / evidence))] = -1
    return folds


def originals_of(
    vectors: NDArray[np.float32],
    class_index: NDArray[np.int64],
    given: NDArray[np.bool_],
    distance: float,
) -> NDArray[np.int64]:
    """One of the samples of the same class and source that a sample repeats; itself if none.

    Copies have the same projection on any direction, so only those that are near each other on a drawn one
    are compared. Of exact copies none is missed; of copies that differ a little, a few are, where a class
    has thousands of samples and others come between.

    Args:
        vectors: (n, d) the samples.
        class_index: (n,) class of each sample.
        given: (n,) whether a sample is a given one.
        distance: below which two are the same, as a share of the typical distance from the middle.

    Returns:
        (n,) numbers of samples.
    """
    n, width = vectors.shape
    if not n:
        return np.arange(0)
    centre = np.median(vectors, axis=0).astype(np.float64)  # a mean follows the longest ones
    direction = np.random.default_rng(0).standard_normal(width)
    projection, lengths = np.empty(n), np.empty(n)
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        centred = vectors[rows] - centre
        projection[rows], lengths[rows] = centred @ direction, np.linalg.norm(centred, axis=1)
    order = np.lexsort((projection, given, class_index))
    # A few samples that are far away must not make the others look alike.
    typical = float(np.median(lengths)) or float(np.sqrt(np.square(lengths).mean()))
    least = distance * typical
    originals = np.arange(n)
    for step in range(1, min(NEIGHBOURS, n - 1) + 1):
        before, after = order[:-step], order[step:]
        near = (class_index[after] == class_index[before]) & (given[after] == given[before])
        for start in range(0, len(near), BLOCK):
            rows = slice(start, start + BLOCK)
            apart = vectors[after[rows]].astype(np.float64) - vectors[before[rows]]
            near[rows] &= np.linalg.norm(apart, axis=1) <= least
        for i, j in zip(before[near], after[near], strict=True):  # in order, so runs are followed
            first = originals[i]  # not the neighbour: else a crowd of neighbours would be one sample
            if originals[j] == j and np.linalg.norm(vectors[j].astype(np.float64) - vectors[first]) <= least:
                originals[j] = first
    for _ in range(NEIGHBOURS):  # a first one may itself repeat another before it
        originals = originals[originals]
    return originals


class CrossValidatedView:
    """A view prepared for heads as each fold may see it, and last as the final heads do."""

    def __init__(self, view: View, samples: FitSamples, recipe: Recipe) -> None:
        self.name, self._samples, self._recipe = view.name, samples, recipe
        self._rows: list[tuple[Rows, Rows | None]] = []
        rotated = before = None
        for rows in view.rows[:-1]:
            # Rotated once where all folds start from the same rows.
            if rotated is None or before is None or rows[0] is not before[0] or rows[1] is not before[1]:
                before, rotated = rows, isometric(*rows)
            self._rows.append(rotated)
        final = view.rows[-1]
        self._rows.append(final)
        # Folds are reduced where the final heads must be, whatever the rotation has saved them.
        widths = (recipe.max_width, recipe.discriminant_width)
        self._reduced = [width for width in widths if width is not None and needs_span(final[0], width)]
        self._spans: list[Floats] = []

    def members(self, width: int | None) -> list[PreparedView]:
        """The view prepared for heads of at most `width` columns, fold by fold; the last for all samples."""
        samples, recipe = self._samples, self._recipe
        parts = list(zip(self._rows, samples.learned_from, strict=True))
        bases: list[Floats | None] = [None] * len(parts)
        if width in self._reduced:
            if not self._spans:  # for the widest head; narrower ones have its first columns
                widest = max(self._reduced)
                self._spans = [learned_span(*rows, learned, recipe, widest) for rows, learned in parts]
            bases = [np.ascontiguousarray(span[:, :width]) for span in self._spans]
        return [
            prepare(*rows, samples.class_index, learned, samples.n_classes, recipe, basis)
            for (rows, learned), basis in zip(parts, bases, strict=True)
        ]


def without_misleading_descriptions(view: View, samples: FitSamples, recipe: Recipe) -> View:
    """The view, or the view without its descriptions where they speak against the given samples.

    Without folds they are trusted for what names and sentences usually say. But similarity is untrained, so
    it can be scored by samples that it has not seen: by the odds at which it foretells their classes,
    against those of a guess. Codes and numbers as names foretell worse than that.

    Args:
        view: with or without descriptions.
        samples: classes, and which samples are given.
        recipe: how much descriptions are trusted.
    """
    rows, n_classes = np.flatnonzero(samples.given), samples.n_classes
    if view.rows[-1][1] is None or not len(rows):
        return view
    member = CrossValidatedView(view, samples, recipe).members(recipe.max_width)[-1]
    if member.described is None:
        return view
    # Logits of all samples of very many classes would not fit into memory.
    rows = rows[evenly_spread(len(rows), max(LEAST_EVIDENCE, MOST_EVIDENCE // n_classes))]
    logits = (member.queries[rows] @ member.described.T).astype(np.float64)
    logits *= recipe.prior_scale_similarity * recipe.similarity_scale
    foretold = np.take_along_axis(softmax(logits, axis=1), samples.class_index[rows][:, None], axis=1)
    surprises = recipe.description_surprises
    odds = (1 - surprises) * foretold * n_classes + surprises
    if float(np.log(odds).sum()) > recipe.description_log_odds:
        return view
    return replace(view, rows=[(x, None) for x, _ in view.rows])
