"""Which device torch works on: the processor, or a graphics card where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

AUTO = "auto"
_KINDS = ("cpu", "cuda", "mps", "xpu")  # torch knows others, on which nothing can be computed


def find_device(wanted: str = AUTO) -> torch.device | None:
    """The device of that name, for `auto` a graphics card if there is one; None if there is no such device.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    import torch

    if wanted == AUTO:
        mps = "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device("cuda" if torch.cuda.is_available() else mps)
    try:
        device = torch.empty(0, device=wanted).device
    except (RuntimeError, AssertionError, NotImplementedError):
        return None
    return device if device.type in _KINDS else None
