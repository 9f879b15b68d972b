"""What baselines behind an API share: questions about samples, each bought once and under the caps."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from adamab.errors import ApiError, RecipeError, TaskError
from adamab.providers.embedders.base import Item
from adamab.providers.ledger import Ledger
from adamab.providers.prices import check_prices, find_price
from adamab.providers.replies import Ask, MemoryReplies, Replies, Reply
from adamab.providers.sync import run_sync
from adamab.providers.usage import Usage
from adamab.study.baselines.base import Baseline, TrainingData
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient
    from adamab.run.outside import Outside

Keep: TypeAlias = Callable[[Reply], None]


@dataclass(frozen=True)
class Wording:
    """What a question says of the classes."""

    prompts: Prompts
    specs: tuple[ClassSpec, ...]
    examples: Mapping[str, tuple[str, ...]]  # by class; none unless the prompts want them

    @classmethod
    def of(cls, data: TrainingData) -> Wording:
        """Of training data; its given samples are the examples where `prompts.with_examples` says so."""
        specs = data.specs or tuple(ClassSpec(name) for name in data.classes)
        if tuple(spec.name for spec in specs) != data.classes:
            raise TaskError("the classes' descriptions are not in the order of the classes; give one each")
        return cls(data.prompts, specs, _examples(data) if data.prompts.with_examples else {})

    def documents(self) -> list[str]:
        """The classes as a reranker reads them."""
        return [self.prompts.rerank_class_text(spec, self.examples.get(spec.name, ())) for spec in self.specs]


class Halves(NamedTuple):
    """A question in two smaller ones, and how their answers become its own."""

    questions: Callable[[], Sequence[Question]]
    joined: Callable[[Sequence[Reply]], Reply]


@dataclass(frozen=True)
class Question:
    """One request: what it is kept under, what it may cost, how it is bought, how it can be halved."""

    digest: str
    expected: Usage
    most: Usage
    buy: Callable[[Keep], Awaitable[Reply]]
    halves: Halves | None = None

    @property
    def ask(self) -> Ask:
        """Its name where answers are kept."""
        return Ask("", 0, 0, self.digest)


class RemoteBaseline(Baseline):
    """A baseline that sends samples to an API. An implementation writes `_questions`.

    Nothing is trained. Every answer is looked for in `replies` before it is bought, and kept there before
    it is used; `metered` puts the calls under a budget.
    """

    api: ApiClient

    def __init__(self) -> None:
        self.replies: Replies = MemoryReplies()

    def planned(self, data: TrainingData, texts: Sequence[Item]) -> list[tuple[Usage, Usage]]:
        """The requests that predicting `texts` would make: the tokens to expect, and the most of each.

        What is in `replies` already is not asked again, nor is a text that occurs twice.
        """
        distinct = self._distinct(Wording.of(data), texts, [])
        return [(q.expected, q.most) for q in distinct if self.replies.get(q.ask) is None]

    @abstractmethod
    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        """What is asked about a sample."""

    def _fit(self, data: TrainingData) -> None:
        self.wording_ = Wording.of(data)
        self.n_parameters_ = 0

    def _replies(self, texts: Sequence[Item]) -> list[list[Reply]]:
        """The answers to the questions about each sample."""
        if not texts:
            return []
        order: list[list[str]] = []
        found = run_sync(self._bought(self._distinct(self.wording_, texts, order)))
        return [[found[digest] for digest in digests] for digests in order]

    def _distinct(
        self, wording: Wording, texts: Sequence[Item], order: list[list[str]]
    ) -> Iterator[Question]:
        """Each question once; `order` gets the names of those about each sample."""
        seen: set[str] = set()
        for item in texts:
            order.append([])
            for question in self._questions(wording, item):
                order[-1].append(question.digest)
                if question.digest not in seen:
                    seen.add(question.digest)
                    yield question

    async def _bought(self, questions: Iterator[Question]) -> dict[str, Reply]:
        """All answers. After a failure nothing more is begun, and what is under way is waited for."""
        found: dict[str, Reply] = {}
        failures: list[Exception] = []

        async def work() -> None:
            for question in questions:  # of all workers together
                try:
                    found[question.digest] = await self._answer(question)
                except Exception as error:
                    failures.append(error)
                if failures:
                    return

        await asyncio.gather(*(work() for _ in range(self.api.limits.concurrency)))
        if failures:
            raise failures[0]
        return found

    async def _answer(self, question: Question) -> Reply:
        kept = self.replies.get(question.ask)
        if kept is not None:
            return kept
        try:
            return await question.buy(lambda reply: self.replies.put(question.ask, reply))
        except ApiError as error:
            if not error.too_large:
                raise
            if question.halves is None:
                remedy = "show fewer or shorter examples, or use a model that takes more"
                raise ApiError(f"{error}; {remedy}", status=error.status, too_large=True) from None
        halves = question.halves
        reply = halves.joined([await self._answer(half) for half in halves.questions()])
        self.replies.put(question.ask, reply)
        return reply

    def _needs(self, texts: Sequence[Item], views: Mapping[str, Any]) -> None:
        """Refuse vectors without the samples that they are of."""
        rows = len(next(iter(views.values()))) if views else len(texts)
        if len(texts) != rows:
            raise TaskError(
                f"{self.name}: {len(texts)} samples for {rows} vectors; pass the samples as texts"
            )


@contextmanager
def metered(baseline: Baseline, outside: Outside) -> Iterator[None]:
    """Put a baseline's calls under the caps, and its answers where `outside` keeps them.

    It may be used again afterwards, or by another. A baseline without an API passes through.
    """
    if not isinstance(baseline, RemoteBaseline):
        yield
        return
    api, before = baseline.api, baseline.replies
    name = f"{api.service.name}:{api.model}"
    price = find_price(api.service.name, api.model, outside.prices, address=api.service.base_url)
    if price is not None and price.image is not None:
        raise RecipeError(
            f"{name} makes no pictures, so its price cannot be by the picture; give it by tokens"
        )
    check_prices(outside.budget, {name: price})
    api.check()
    outside.ledger = outside.ledger or Ledger(outside.budget)
    try:
        api.ledger, api.price, api.stop = outside.ledger, price, outside.stop
        baseline.replies = outside.replies or before
        yield
    finally:
        api.ledger = api.price = api.stop = None
        baseline.replies = before


def _examples(data: TrainingData) -> dict[str, tuple[str, ...]]:
    items = data.items or data.texts
    if any(isinstance(item, Image) for item in items):
        raise TaskError("prompts.with_examples: a wording cannot quote a picture; leave it out")
    if len(items) != len(data.labels):
        raise TaskError(f"{len(items)} texts for {len(data.labels)} labels; examples need both")
    found: dict[str, list[str]] = {name: [] for name in data.classes}
    for item, label in list(zip(items, data.labels, strict=True))[: data.given]:
        found[label].append(str(item))
    return {name: tuple(texts) for name, texts in found.items()}
