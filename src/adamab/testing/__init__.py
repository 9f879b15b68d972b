"""What tests need, this project's and other people's: toy embedders, conformance suites, a provider.

Names are loaded when they are first used, so that `python -m adamab.testing` starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adamab.testing._conformance import (
        HashEmbedder,
        KnownShift,
        PixelEmbedder,
        check_embedder,
        check_generator,
        check_policy,
    )
    from adamab.testing._provider_protocol import Fault
    from adamab.testing._provider_server import ProviderServer, Seen

_PLACES = {"Fault": "_provider_protocol", "ProviderServer": "_provider_server", "Seen": "_provider_server"}

__all__ = [
    "Fault",
    "HashEmbedder",
    "KnownShift",
    "PixelEmbedder",
    "ProviderServer",
    "Seen",
    "check_embedder",
    "check_generator",
    "check_policy",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'adamab.testing' has no attribute {name!r}")
    return getattr(import_module(f"adamab.testing.{_PLACES.get(name, '_conformance')}"), name)
