"""Rerankers: the sample is the query, the wordings of the classes are the documents.

`rerank:SERVICE:MODEL` is one behind an API, `cross-encoder:PATH-or-id` a local one by sentence-transformers,
such as BGE-reranker-v2-m3.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.compare.base import Baseline, Floats, TrainingData
from adamab.compare.remote import Question, RemoteBaseline, Wording
from adamab.errors import EmbedderError, MissingExtraError, TaskError, short, suggestion
from adamab.providers.embedders.base import Item
from adamab.providers.embedders.local_models import check_name, find_model, quiet
from adamab.providers.embedders.sentence_transformers import open_model
from adamab.providers.judges.rerankers import (
    CohereReranker,
    JinaReranker,
    Reranker,
    VoyageReranker,
    joined,
    scores_of,
)
from adamab.providers.registry import expand
from adamab.task.spec import split_spec

SERVICES: dict[str, Callable[..., Reranker]] = {
    "cohere": CohereReranker,
    "jina": JinaReranker,
    "voyage": VoyageReranker,
}
SCHEME = "cross-encoder"


class RerankBaseline(RemoteBaseline):
    """The class whose wording a reranker finds most relevant to the sample, one request per sample.

    With `prompts.with_examples` a wording is followed by the given samples of its class (few-shot).
    More classes than a request takes are spread over several. `scale` turns scores, which lie between 0
    and 1, into logits; it changes the probabilities and never the prediction.
    """

    name = "reranker"

    def __init__(self, reranker: Reranker, *, scale: float = 10.0) -> None:
        super().__init__(reranker)
        self.batch, self.scale = reranker.batch, scale

    def __str__(self) -> str:
        return f"rerank:{self.api.service.name}:{self.api.model}"

    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        query = wording.prompts.rerank_query_text(item) if isinstance(item, str) else item
        documents = tuple(wording.documents())
        for start in range(0, len(documents), self.batch):
            yield query, documents[start : start + self.batch]

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        rows = [scores_of(joined(replies)) for replies in self._replies(texts, views)]
        scores = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.classes_))
        return np.asarray(softmax(self.scale * scores, axis=1), dtype=np.float64)


def from_spec(service_and_model: str, *, scale: float = 10.0, **options: str | float | None) -> Baseline:
    """The baseline that follows `rerank:`, a service and its model, or a preset's name."""
    bare, preset = split_spec(expand(service_and_model, "reranker"))
    given = {**preset, **{name: value for name, value in options.items() if value is not None}}
    method, _, rest = bare.partition(":")
    if method == SCHEME:
        return cross_encoder_from_spec(rest, **given)  # type: ignore[arg-type]
    service, _, model = rest.partition(":")
    if service not in SERVICES or not model:
        raise TaskError(
            f"rerank:{short(rest)} does not read; write rerank:SERVICE:MODEL with a service of "
            f"{', '.join(SERVICES)}; {suggestion(service, SERVICES)}"
        )
    return RerankBaseline(SERVICES[service](model, **given), scale=scale)


class CrossEncoderBaseline(Baseline):
    """The class whose wording a cross-encoder scores highest beside the text: every pair goes through it.

    Weights are safetensors, and no code of a model's is run. The scores are the model's logits: squashed
    to probabilities, many would be equal where it is sure. `model_parameters_` counts the model's own
    numbers, of which none is trained here.
    """

    name = SCHEME

    def __init__(self, path_or_id: str, *, batch_size: int = 32, device: str = "auto") -> None:
        if batch_size < 1:
            raise TaskError(f"{SCHEME}: batch_size is {batch_size}; use 1 or more")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingExtraError("sentence-transformers", "st")
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
        hub: Any = import_module("huggingface_hub")  # comes with sentence-transformers
        config = hub.try_to_load_from_cache(self.path_or_id, "config.json")
        return f"{self.path_or_id}@{Path(config).parent.name if isinstance(config, str) else 'none'}"

    def _fit(self, data: TrainingData) -> None:
        self.wording_ = Wording.of(data)
        self.model_parameters_ = sum(numbers.numel() for numbers in self._loaded().model.parameters())

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        if any(not isinstance(item, str) for item in texts):
            raise TaskError(f"{self}: takes no images; use rerank:jina:jina-reranker-m0")
        if not texts:
            return np.zeros((0, len(self.classes_)))
        queries = [self.wording_.prompts.rerank_query_text(str(item)) for item in texts]
        distinct, row_of = np.unique(queries, return_inverse=True)
        documents = self.wording_.documents()
        scores = self._scores([(str(query), document) for query in distinct for document in documents])
        logits = scores.reshape(len(distinct), len(documents))[row_of]
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)

    def _scores(self, pairs: list[tuple[str, str]]) -> NDArray[np.float64]:
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


def cross_encoder_from_spec(
    path_or_id: str, *, batch_size: int = 32, device: str = "auto"
) -> CrossEncoderBaseline:
    """The baseline that follows `cross-encoder:`, a directory, an id, or a preset's name."""
    bare, _ = split_spec(expand(f"{SCHEME}:{path_or_id}", "reranker"))
    return CrossEncoderBaseline(bare.partition(":")[2], batch_size=batch_size, device=device)
