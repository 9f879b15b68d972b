"""Which samples are held out, and by which fold."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adamab.method.evidence import stratified_folds
from adamab.task.recipe import Recipe

MOST_EVIDENCE = 4_000_000  # held-out logits of one option of a component: 16 MB, and there are dozens
LEAST_EVIDENCE = 100  # held-out samples that a choice should rest on, however many classes there are


def held_out_folds(
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,)
    counted: NDArray[np.float32],  # (n,) in evidence
    recipe: Recipe,
    seed: int,
    originals: NDArray[np.int64] | None = None,  # (n,)
) -> NDArray[np.int64]:
    """(n,) the fold that holds a sample out; -1 for samples that are never held out.

    Given and synthetic samples are spread over the folds apart from each other, so that no fold lacks
    those that count most. Of many samples a part of the folds is evidence enough. Copies of a sample are
    held out with it: one in training would give it away.
    """
    folds = np.full(len(class_index), -1, dtype=np.int64)
    first = _first(originals, len(class_index))
    judged = first & (counted > 0)
    most = int(np.bincount(class_index[judged], minlength=1).max())
    n_folds = min(recipe.folds, most)
    if n_folds < 2:
        return folds
    rng = np.random.default_rng(seed)
    for of_source in (first & given, judged & ~given):
        folds[of_source] = stratified_folds(class_index[of_source], n_folds, rng)
    found = _enough(folds, class_index, given, counted, recipe)
    return found if originals is None else found[originals]


def possible_classes(
    class_index: NDArray[np.int64],  # (n,)
    given: NDArray[np.bool_],  # (n,)
    counted: NDArray[np.float32],  # (n,) in evidence
    n_classes: int,
    originals: NDArray[np.int64] | None = None,  # (n,)
) -> NDArray[np.bool_]:
    """(K,) those with two samples of a source, copies aside, so that one of them can be held out."""
    found = np.zeros(n_classes, dtype=np.bool_)
    first = _first(originals, len(class_index))
    for of_source in (first & given, first & (counted > 0) & ~given):
        found |= np.bincount(class_index[of_source], minlength=n_classes) > 1
    return found


def judged_samples(
    folds: NDArray[np.int64],
    given: NDArray[np.bool_],
    n_classes: int,
    seed: int,
    originals: NDArray[np.int64] | None = None,  # (n,)
) -> NDArray[np.bool_]:
    """(n,) the held-out samples whose logits are looked at; of copies one.

    Of very many classes the logits of all would not fit into memory, and the choices that they serve need
    no more than some: given ones first, drawn by chance. The others stay held out: if they were learned
    from, the few classes that lack a sample would be those of the judged ones.
    """
    judged = (folds >= 0) & _first(originals, len(folds))
    out = np.flatnonzero(judged)
    most = max(LEAST_EVIDENCE, MOST_EVIDENCE // n_classes)
    if len(out) > most:
        drawn = np.random.default_rng(seed).permutation(out)
        judged[drawn[np.argsort(~given[drawn], kind="stable")][most:]] = False
    return judged


def _first(originals: NDArray[np.int64] | None, n: int) -> NDArray[np.bool_]:
    """(n,) the samples that stand for themselves."""
    return np.ones(n, dtype=np.bool_) if originals is None else originals == np.arange(n)


def _enough(
    folds: NDArray[np.int64],
    class_index: NDArray[np.int64],
    given: NDArray[np.bool_],
    counted: NDArray[np.float32],
    recipe: Recipe,
) -> NDArray[np.int64]:
    """The folds whose evidence is enough; none where it would be lopsided."""
    out = folds >= 0
    numbers, folds[out] = np.unique(folds[out], return_inverse=True)  # a fold may have come out empty
    judged_classes = len(np.unique(class_index[out]))
    # The batches that some classes have got would speak for these classes alone.
    lopsided = not given[out].any() and judged_classes < len(np.unique(class_index))
    if len(numbers) < 2 or judged_classes < 2 or lopsided:
        return np.full_like(folds, -1)
    evidence = float(counted[out].sum())
    if evidence > recipe.evidence:
        folds[folds >= max(2, math.ceil(len(numbers) * recipe.evidence / evidence))] = -1
    return folds
