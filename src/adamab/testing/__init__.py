"""What tests need, this project's and other people's: a toy embedder and conformance suites."""

from adamab.testing.conformance import check_embedder, check_generator
from adamab.testing.hash_embedder import HashEmbedder
from adamab.testing.policies import KnownShift, check_policy

__all__ = ["HashEmbedder", "KnownShift", "check_embedder", "check_generator", "check_policy"]
