"""BLAS with one thread, where more would only wait for each other.

A fit of a few hundred samples makes thousands of small products and dozens of small decompositions. BLAS
shares each among all processors that it sees and spins until the last is done, which may be long where one is
busy or, in a container, not to be had. On two cores beside two other jobs a decomposition of 512 columns took
75 times as long as with one thread, and a fit of 434 samples three times the processor time. On a quiet
machine threads gain little at this size.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

SMALL = 1000  # samples of a fit, and columns of a decomposition, up to which one thread is best


def one_thread_if_small(size: int) -> AbstractContextManager[Any]:
    """For samples of a fit or columns of a decomposition."""
    limited: AbstractContextManager[Any] = nullcontext()
    if size <= SMALL:
        limited = _pools().limit(limits=1, user_api="blas")
    return limited


def eigen(symmetric: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:  # (r, r) -> (r,), (r, r)
    """Eigenvalues in rising order, and their vectors as columns.

    Example:
        >>> values, _ = eigen(np.array([[2.0, 0.0], [0.0, 1.0]]))
        >>> values.tolist()
        [1.0, 2.0]
    """
    with one_thread_if_small(len(symmetric)):
        values, vectors = np.linalg.eigh(symmetric)
    return values, vectors


@cache
def _pools() -> ThreadpoolController:
    """Found once: looking for the libraries takes longer than a small decomposition."""
    return ThreadpoolController()
