"""Missing packages, told before anything heavy is imported and with the one pip line that is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from adamab.errors import MissingExtraError

TORCH = "PyTorch, which training needs,"
_DEMO = {"torch": TORCH, "sentence_transformers": "sentence-transformers", "matplotlib": "matplotlib"}
_NEEDING_TORCH = {"local": "local", "st": "local", "clip": "clip", "timm": "timm"}  # embedder -> extra
_DEMO_EXTRAS = "local,plots"


def need_torch_for(embedder: str) -> None:
    """Without torch a local model cannot be run either, so name the extra that brings both."""
    name = embedder.partition("?")[0].partition(":")[0]
    if name in _NEEDING_TORCH and find_spec("torch") is None:
        raise MissingExtraError(TORCH, _NEEDING_TORCH[name])


@contextmanager
def demo_extras() -> Iterator[None]:
    """Around the demo: whatever is missing, the line installs all that it needs."""
    for module, what in _DEMO.items():
        if find_spec(module) is None:
            raise MissingExtraError(what, _DEMO_EXTRAS)
    try:
        yield
    except MissingExtraError as error:
        raise MissingExtraError(error.what, _DEMO_EXTRAS) from None
