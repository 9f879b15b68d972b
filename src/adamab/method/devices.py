"""Where tensors live: the processor, or a graphics card where there is one.

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

_CURRENT: ContextVar[str] = ContextVar("device", default="cpu")


@contextmanager
def on_device(wanted: str) -> Iterator[torch.device]:
    """Train and score on that device as long as this lasts; `auto` is a graphics card if there is one."""
    found = find_device(wanted)
    if found is None:
        raise RecipeError(f"there is no device {wanted!r} here; use auto or cpu")
    token = _CURRENT.set(str(found))
    try:
        yield current_device()
    finally:
        _CURRENT.reset(token)


def current_device() -> torch.device:
    """Where training and scoring happen now."""
    return torch.device(_CURRENT.get())


def as_tensor(array: NDArray[np.float32] | NDArray[np.float64] | NDArray[np.int64]) -> Tensor:
    """The array on the current device; on the processor it shares the array's memory."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(current_device())


def as_array(tensor: Tensor) -> NDArray[np.float32]:
    """The tensor's numbers, wherever they are."""
    found: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return found


def wide(values: Tensor) -> Tensor:
    """In double precision, on the processor."""
    return values.cpu().double()


def wide_sum(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Sums over `dims` in double precision, on the processor."""
    if values.device.type == "mps":
        values = values.cpu()
    return values.sum(dims, dtype=torch.float64).cpu()
