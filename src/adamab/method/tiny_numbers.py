"""Numbers too small for their format, which processors work out many times as slowly as others.

The gradients of samples that are well learned are full of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tiny_is_zero() -> Iterator[None]:
    """Count numbers below 1e-38 as zero, in torch and NumPy, as long as this lasts.

    In this thread: one that is started meanwhile keeps to it, and one that was there before does not.
    """
    before = _counts_as_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _counts_as_zero() -> bool:
    """What holds now: torch does not tell."""
    return float(torch.tensor([1e-30]).mul(1e-10)) == 0.0
