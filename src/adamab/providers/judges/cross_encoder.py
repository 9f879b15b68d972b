"""A cross-encoder on this machine: it reads two texts together and scores how well they fit."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError, MissingExtraError, TaskError
from adamab.providers.embedders.local_models import check_name, find_model, quiet
from adamab.providers.embedders.sentence_transformers import open_model

SCHEME = "cross-encoder"


class CrossEncoder:
    """A model by sentence-transformers; its weights are safetensors, and no code of a model's is run.

    Args:
        path_or_id: a directory, or an id that is on this machine or on the Hub.
        batch_size: pairs that go through it together.
        device: where torch runs it; "auto" is a graphics card if there is one.
    """

    def __init__(self, path_or_id: str, *, batch_size: int = 32, device: str = "auto") -> None:
        if batch_size < 1:
            raise TaskError(f"{SCHEME}: batch_size is {batch_size}; use 1 or more")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingExtraError("sentence-transformers", "st")
        check_name(path_or_id, scheme=SCHEME)
        self.path_or_id, self.batch_size, self.device = path_or_id, batch_size, device
        self._model: Any = None

    def __str__(self) -> str:
        return f"{SCHEME}:{self.path_or_id}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process loads the model itself.
        return {**self.__dict__, "_model": None}

    @property
    def fingerprint(self) -> str:
        """The model's files, or the revision of an id that is on this machine."""
        if Path(self.path_or_id).expanduser().is_dir():
            return find_model(self.path_or_id, scheme=SCHEME).identity
        hub: Any = import_module("huggingface_hub")  # comes with sentence-transformers
        config = hub.try_to_load_from_cache(self.path_or_id, "config.json")
        return f"{self.path_or_id}@{Path(config).parent.name if isinstance(config, str) else 'none'}"

    @property
    def n_parameters(self) -> int:
        """The model's own numbers."""
        return sum(numbers.numel() for numbers in self._loaded().model.parameters())

    def scores(self, pairs: list[tuple[str, str]]) -> NDArray[np.float64]:
        """(n,) logits: squashed to probabilities, many would be equal where the model is sure."""
        import torch

        model = self._loaded()
        with quiet():
            scores = model.predict(
                pairs,
                batch_size=self.batch_size,
                show_progress_bar=False,
                activation_fn=torch.nn.Identity(),
            )
        if not np.isfinite(scores).all():
            raise EmbedderError(f"{self}: a score is not finite; the model is damaged")
        return np.asarray(scores, dtype=np.float64)

    def _loaded(self) -> Any:
        if self._model is None:
            files = find_model(self.path_or_id, scheme=SCHEME)
            files.check()
            model = open_model("CrossEncoder", files, self.device, str(self))
            if model.num_labels != 1:
                raise EmbedderError(
                    f"{self}: gives {model.num_labels} scores per pair, so it is no reranker; use a model "
                    "with one"
                )
            model.eval()
            self._model = model
        return self._model
