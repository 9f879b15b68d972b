"""`rerank:SERVICE:MODEL`: the text is the query, the wordings of the classes are the documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from adamab.errors import TaskError
from adamab.providers.embedders.base import Item
from adamab.providers.presets import expand
from adamab.providers.replies import Reply
from adamab.providers.rerankers.base import Query, Reranker, joined, scores_of
from adamab.providers.rerankers.cohere import CohereReranker
from adamab.providers.rerankers.jina import JinaReranker
from adamab.providers.rerankers.voyage import VoyageReranker
from adamab.study.baselines.base import Baseline, Floats
from adamab.study.baselines.remote import Halves, Keep, Question, RemoteBaseline, Wording
from adamab.task.messages import short, suggestion
from adamab.task.specs import split_spec

SERVICES: dict[str, Callable[..., Reranker]] = {
    "cohere": CohereReranker,
    "jina": JinaReranker,
    "voyage": VoyageReranker,
}


class RerankBaseline(RemoteBaseline):
    """The class whose wording a reranker finds most relevant to the sample, one request a sample.

    With `prompts.with_examples` a wording is followed by the given samples of its class (few-shot).
    More classes than a request takes are spread over several. `scale` turns scores, which lie between 0
    and 1, into logits; it changes the probabilities and never the prediction.
    """

    name = "reranker"

    def __init__(self, reranker: Reranker, *, scale: float = 10.0) -> None:
        super().__init__()
        self.reranker = reranker
        self.api = reranker.api
        self.scale = scale

    def __str__(self) -> str:
        return f"rerank:{self.reranker.name}:{self.reranker.model}"

    @property
    def fingerprint(self) -> str:
        """The service and its model."""
        return self.reranker.fingerprint

    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        query = wording.prompts.rerank_query_text(item) if isinstance(item, str) else item
        documents = wording.documents()
        for start in range(0, len(documents), self.reranker.batch):
            yield self._question(query, tuple(documents[start : start + self.reranker.batch]))

    def _question(self, query: Query, documents: tuple[str, ...]) -> Question:
        expected, most = self.reranker.usage(query, documents)
        halves = Halves(partial(self._halves, query, documents), joined) if len(documents) > 1 else None
        buy = partial(self._ask, query, documents)
        return Question(self.reranker.digest(query, documents), expected, most, buy, halves)

    async def _ask(self, query: Query, documents: tuple[str, ...], keep: Keep) -> Reply:
        return await self.reranker.ask(query, documents, keep=keep)

    def _halves(self, query: Query, documents: tuple[str, ...]) -> list[Question]:
        middle = len(documents) // 2
        return [self._question(query, part) for part in (documents[:middle], documents[middle:])]

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        self._needs(texts, views)
        rows = [scores_of(joined(replies)) for replies in self._replies(texts)]
        scores = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.classes_))
        return np.asarray(softmax(self.scale * scores, axis=1), dtype=np.float64)


def from_spec(service_and_model: str, *, scale: float = 10.0, **options: str | float | None) -> Baseline:
    """The baseline that follows `rerank:`, a service and its model, or a preset's name."""
    bare, preset = split_spec(expand(service_and_model, "reranker"))
    given = {**preset, **{name: value for name, value in options.items() if value is not None}}
    method, _, rest = bare.partition(":")
    if method == "cross-encoder":
        from adamab.study.baselines.cross_encoder import from_spec as cross_encoder

        return cross_encoder(rest, **given)  # type: ignore[arg-type]
    service, _, model = rest.partition(":")
    if service not in SERVICES or not model:
        raise TaskError(
            f"rerank:{short(rest)} does not read; write rerank:SERVICE:MODEL with a service of "
            f"{', '.join(SERVICES)}; {suggestion(service, SERVICES)}"
        )
    return RerankBaseline(SERVICES[service](model, **given), scale=scale)
