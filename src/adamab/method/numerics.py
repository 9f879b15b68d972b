"""How a fit computes: random numbers by purpose, threads, and a softmax that never meets denormal numbers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Array: TypeAlias = NDArray[Any]  # of float32 in a fit; everything works in float64 too
START, ROUNDS, HEADS = range(3)  # purposes of random numbers
SMALL_PRODUCT = 100_000_000  # floating point operations; one thread does this in a few milliseconds
NEGLIGIBLE = 1e-15  # share of the largest residual that is far below the rounding of every sum it enters
LEAST_RESIDUAL = 1e-15  # its square, of which the optimiser keeps track, is far from denormal in float32
LEAST_LOGIT = -75.0  # below the largest: exp of it, divided by the sum, is far below the least residual

# A training that diverges ends with a loss that is not finite, which is reported; no warning is needed.
overflow_allowed = partial(np.errstate, over="ignore", invalid="ignore")

_thread_pools = cache(ThreadpoolController)  # looking for them takes longer than a small decomposition


def random_stream(*seed: int) -> np.random.Generator:
    """Random numbers for one purpose.

    Args:
        seed: of the run, of the purpose, of the round; they are mixed, so that the streams of neighbouring
            seeds and rounds have nothing in common.
    """
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed)))


def one_thread() -> AbstractContextManager[Any]:
    """BLAS with one thread as long as this lasts."""
    limited: AbstractContextManager[Any] = _thread_pools().limit(limits=1, user_api="blas")
    return limited


def threads_for(rows: int, width: int, columns: int) -> AbstractContextManager[Any]:
    """One thread where products are small, BLAS's own number where they are not.

    Threads that wait for each other after every small product gain nothing on a quiet machine, and
    on a busy one each wait lasts until the other thread gets its turn.

    Args:
        rows: of a typical product.
        width: its inner dimension.
        columns: of the result.
    """
    return one_thread() if 2 * rows * width * columns < SMALL_PRODUCT else nullcontext()


def cross_entropy(logits: Array, own: NDArray[np.intp]) -> Array:
    """(m,) losses; `logits` (m, K) become their derivatives: the softmax, less one for the own class.

    A trained softmax is full of numbers like 1e-40, on which processors are many times slower. So residuals
    below 1e-15, and below 1e-15 of the largest, are exactly zero. The own class's residual is the negative
    sum of the others': probability − 1 would lose all digits where the class is certain.

    Args:
        logits: (m, K), changed in place.
        own: (m,) class of each row.

    Example:
        >>> logits = np.array([[0.0, 0.0], [0.0, 100.0]])
        >>> cross_entropy(logits, np.array([0, 1])).round(3).tolist(), logits.tolist()
        ([0.693, 0.0], [[-0.5, 0.5], [0.0, -0.0]])
    """
    rows = np.arange(len(logits))
    logits -= logits.max(axis=1, keepdims=True)
    losses = -logits[rows, own]
    np.maximum(logits, LEAST_LOGIT, out=logits)
    np.exp(logits, out=logits)
    sums = logits.sum(axis=1, keepdims=True)
    losses += np.log(sums[:, 0])
    logits /= sums
    logits[rows, own] = 0
    logits *= logits >= max(LEAST_RESIDUAL, NEGLIGIBLE * float(logits.max(initial=0)))
    logits[rows, own] = -logits.sum(axis=1)
    return losses
