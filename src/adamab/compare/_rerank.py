"""Rerankers: the sample is the query, the wordings of the classes are the documents.

`rerank:SERVICE:MODEL` is one behind an API, `cross-encoder:PATH-or-id` a local one by sentence-transformers,
such as BGE-reranker-v2-m3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.compare.base import Baseline, Floats, TrainingData
from adamab.compare.remote import Question, RemoteBaseline, Wording
from adamab.errors import TaskError, short, suggestion
from adamab.providers.embedders.base import Item
from adamab.providers.judges.rerankers import (
    SCHEME,
    CohereReranker,
    CrossEncoder,
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

    `model_parameters_` counts the model's own numbers, of which none is trained here.
    """

    name = SCHEME

    def __init__(self, model: CrossEncoder) -> None:
        self.model = model

    def __str__(self) -> str:
        return str(self.model)

    @property
    def fingerprint(self) -> str:
        """The model's."""
        return self.model.fingerprint

    def _fit(self, data: TrainingData) -> None:
        self.wording_ = Wording.of(data)
        self.model_parameters_ = self.model.n_parameters

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        if any(not isinstance(item, str) for item in texts):
            raise TaskError(f"{self}: takes no images; use rerank:jina:jina-reranker-m0")
        if not texts:
            return np.zeros((0, len(self.classes_)))
        queries = [self.wording_.prompts.rerank_query_text(str(item)) for item in texts]
        distinct, row_of = np.unique(queries, return_inverse=True)
        documents = self.wording_.documents()
        scores = self.model.scores([(str(query), document) for query in distinct for document in documents])
        logits = scores.reshape(len(distinct), len(documents))[row_of]
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)


def cross_encoder_from_spec(
    path_or_id: str, *, batch_size: int = 32, device: str = "auto"
) -> CrossEncoderBaseline:
    """The baseline that follows `cross-encoder:`, a directory, an id, or a preset's name."""
    bare, _ = split_spec(expand(f"{SCHEME}:{path_or_id}", "reranker"))
    model = CrossEncoder(bare.partition(":")[2], batch_size=batch_size, device=device)
    return CrossEncoderBaseline(model)
