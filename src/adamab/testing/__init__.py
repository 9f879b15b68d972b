"""What tests need, this project's and other people's: toy embedders, conformance suites, a provider."""

from adamab.testing._conformance import (
    HashEmbedder,
    KnownShift,
    PixelEmbedder,
    check_embedder,
    check_generator,
    check_policy,
)
from adamab.testing._provider_protocol import Fault
from adamab.testing._provider_server import ProviderServer, ReceivedRequest

__all__ = [
    "Fault",
    "HashEmbedder",
    "KnownShift",
    "PixelEmbedder",
    "ProviderServer",
    "ReceivedRequest",
    "check_embedder",
    "check_generator",
    "check_policy",
]
