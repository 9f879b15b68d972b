"""How torch computes: on which device, with how many threads, from which random numbers.

Random numbers are drawn on the processor and moved, so every device starts from the same ones. Sums in
double precision end on the processor, because Apple's devices have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adamab.errors import RecipeError
from adamab.torch_device import find_device

_CURRENT: ContextVar[torch.device] = ContextVar("device", default=torch.device("cpu"))  # noqa: B039
current_device = _CURRENT.get  # where training and scoring happen now


@contextmanager
def on_device(wanted: str) -> Iterator[torch.device]:
    """Train and score on that device as long as this lasts; `auto` is a graphics card if there is one."""
    device = find_device(wanted)
    if device is None:
        raise RecipeError(f"there is no device {wanted!r} here; use auto or cpu")
    token = _CURRENT.set(device)
    try:
        yield device
    finally:
        _CURRENT.reset(token)


def as_tensor(array: NDArray[np.float32] | NDArray[np.float64] | NDArray[np.int64]) -> Tensor:
    """The array on the current device; on the processor it shares the array's memory."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(current_device())


def as_array(tensor: Tensor) -> NDArray[np.float32]:
    """The tensor's numbers, wherever they are."""
    array: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return array


def to_float64(values: Tensor) -> Tensor:
    """In double precision, on the processor."""
    return values.cpu().double()


def sum_float64(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Sums over `dims` in double precision, on the processor."""
    if values.device.type == "mps":
        values = values.cpu()
    return values.sum(dims, dtype=torch.float64).cpu()


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Count numbers below 1e-38 as zero, in torch and NumPy, as long as this lasts.

    Processors work them out many times as slowly as others, and the gradients of samples that are well
    learned are full of them. In this thread: one that is started meanwhile keeps to it, and one that was
    there before does not.
    """
    before = float(torch.tensor([1e-30]).mul(1e-10)) == 0.0  # torch does not say
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


START, ROUNDS, HEADS = range(3)  # purposes of random numbers
SMALL_PRODUCT = 100_000_000  # floating point operations; one thread does this in a few milliseconds


@contextmanager
def seeded(*seed: int) -> Iterator[torch.Generator]:
    """A generator for starts and orders; torch's own, which dropout draws from, is seeded too and
    put back afterwards.

    The numbers of `seed` (of the run, of the purpose, of the round) are mixed, so that the streams of
    neighbouring seeds and rounds have nothing in common.
    """
    starts, dropout = (int(word) for word in np.random.SeedSequence(seed).generate_state(2, np.uint64) >> 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(dropout)
        yield torch.Generator().manual_seed(starts)


@contextmanager
def threads_for(rows: int, width: int, columns: int) -> Iterator[None]:
    """One thread where products are small, torch's own number where they are not.

    Threads that wait for each other after every small product gain nothing on a quiet machine, and
    on a busy one each wait lasts until the other thread gets its turn: a fit of seconds becomes one
    of minutes.

    Args:
        rows: of a typical product.
        width: its inner dimension.
        columns: of the result.
    """
    before = torch.get_num_threads()
    small = 2 * rows * width * columns < SMALL_PRODUCT
    torch.set_num_threads(1 if small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
