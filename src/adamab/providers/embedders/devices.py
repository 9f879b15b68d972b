"""Where a local model runs."""

from __future__ import annotations

from typing import Any

from adamab.errors import EmbedderError
from adamab.torch_device import find_device


def torch_device(wanted: str, name: str) -> Any:
    """The device that was asked for, or for `auto` a GPU if there is one."""
    found = find_device(wanted)
    if found is None:
        raise EmbedderError(f"{name}: there is no device {wanted!r} here; leave it out or write cpu")
    return found
