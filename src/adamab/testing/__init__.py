"""What tests need, this project's and other people's: toy embedders, conformance suites, a provider.

Names are loaded when they are first used, so that `python -m adamab.testing` starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adamab.testing.conformance import check_embedder, check_generator
    from adamab.testing.hash_embedder import HashEmbedder
    from adamab.testing.pixel_embedder import PixelEmbedder
    from adamab.testing.policies import KnownShift, check_policy
    from adamab.testing.provider_book import Seen
    from adamab.testing.provider_faults import Fault
    from adamab.testing.provider_server import ProviderServer

_PLACES = {
    "Fault": "provider_faults",
    "HashEmbedder": "hash_embedder",
    "KnownShift": "policies",
    "PixelEmbedder": "pixel_embedder",
    "ProviderServer": "provider_server",
    "Seen": "provider_book",
    "check_embedder": "conformance",
    "check_generator": "conformance",
    "check_policy": "policies",
}

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
    if name not in _PLACES:
        raise AttributeError(f"module 'adamab.testing' has no attribute {name!r}")
    return getattr(import_module(f"adamab.testing.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
