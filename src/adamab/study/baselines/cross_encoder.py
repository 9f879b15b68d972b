"""`cross-encoder:PATH-or-id`: a local reranker such as BGE-reranker-v2-m3, by sentence-transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.errors import EmbedderError, MissingExtraError, TaskError
from adamab.providers.embedders.base import Item
from adamab.providers.embedders.model_files import ModelFiles, check_name, find_model, quiet
from adamab.providers.embedders.sentence_transformers import open_model
from adamab.providers.presets import expand
from adamab.study.baselines.base import Baseline, Floats, TrainingData
from adamab.study.baselines.remote import Wording
from adamab.task.specs import split_spec

SCHEME = "cross-encoder"


class CrossEncoderBaseline(Baseline):
    """The class whose wording a cross-encoder scores highest beside the text: every pair goes through it.

    Weights are safetensors, and no code of a model's is run. The scores are the model's logits: squashed
    to probabilities, many would be equal where it is sure. `model_parameters_` counts the model's own
    numbers, of which none is trained here.
    """

    name = "cross-encoder"

    def __init__(self, path_or_id: str, *, batch_size: int = 32, device: str = "auto") -> None:
        if batch_size < 1:
            raise TaskError(f"{SCHEME}: batch_size is {batch_size}; use 1 or more")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingExtraError("sentence-transformers", "local")
        check_name(path_or_id, scheme=SCHEME)
        self.path_or_id = path_or_id
        self.batch_size = batch_size
        self.device = device
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
        return f"{self.path_or_id}@{_revision(self.path_or_id)}"

    def _fit(self, data: TrainingData) -> None:
        self.wording_ = Wording.of(data)
        self.n_parameters_ = 0
        self._model = self._model or _load(find_model(self.path_or_id, scheme=SCHEME), self.device, str(self))
        self.model_parameters_ = sum(numbers.numel() for numbers in self._model.model.parameters())

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        queries = [self._query(item) for item in texts]
        distinct = list(dict.fromkeys(queries))
        documents = self.wording_.documents()
        scores = self._scores([(query, document) for query in distinct for document in documents])
        rows = dict(zip(distinct, scores.reshape(len(distinct), len(documents)), strict=True))
        logits = np.array([rows[query] for query in queries]).reshape(len(queries), len(documents))
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)

    def _query(self, item: Item) -> str:
        if not isinstance(item, str):
            raise TaskError(f"{self}: takes no pictures; use rerank:jina:jina-reranker-m0")
        return self.wording_.prompts.rerank_query_text(item)

    def _scores(self, pairs: list[tuple[str, str]]) -> NDArray[np.float64]:
        if not pairs:
            return np.zeros(0)
        import torch

        self._model = self._model or _load(find_model(self.path_or_id, scheme=SCHEME), self.device, str(self))
        with quiet():
            scores = self._model.predict(
                pairs,
                batch_size=self.batch_size,
                show_progress_bar=False,
                activation_fn=torch.nn.Identity(),
            )
        found = np.asarray(scores, dtype=np.float64).reshape(len(pairs))
        if not np.isfinite(found).all():
            raise EmbedderError(f"{self}: a score is not finite; the model is damaged")
        return found


def _revision(name: str) -> str:
    """Of the hub's model in the local cache; one that is not there yet has none."""
    hub: Any = import_module("huggingface_hub")  # comes with sentence-transformers
    found = hub.try_to_load_from_cache(name, "config.json")
    return Path(found).parent.name if isinstance(found, str) else "none"


def _load(files: ModelFiles, device: str, name: str) -> Any:
    files.check()
    model = open_model("CrossEncoder", files, device, name)
    if model.num_labels != 1:
        raise EmbedderError(
            f"{name}: gives {model.num_labels} scores a pair, so it is no reranker; use a model with one"
        )
    model.eval()
    return model


def from_spec(path_or_id: str, *, batch_size: str | int = 32, device: str = "auto") -> CrossEncoderBaseline:
    """The baseline that follows `cross-encoder:`, a directory, an id, or a preset's name."""
    bare, _ = split_spec(expand(f"{SCHEME}:{path_or_id}", "reranker"))
    try:
        size = int(batch_size)
    except ValueError:
        raise TaskError(f"{SCHEME}: batch_size is {batch_size}; give a whole number") from None
    return CrossEncoderBaseline(bare.partition(":")[2], batch_size=size, device=device)
