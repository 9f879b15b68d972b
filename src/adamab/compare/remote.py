"""What baselines behind an API share: questions about samples, each bought once and under the caps."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from adamab.compare.base import Baseline, TrainingData
from adamab.errors import ApiError, TaskError
from adamab.providers.async_bridge import run_sync
from adamab.providers.cache import Ask, MemoryReplies, Replies, Reply
from adamab.providers.embedders.base import Item
from adamab.providers.metering import Usage
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec

if TYPE_CHECKING:
    from adamab.providers.judges.chat import ChatModel
    from adamab.providers.judges.rerankers import Reranker
    from adamab.providers.metering import CallContext

Question: TypeAlias = tuple[Any, ...]  # what a judge's methods take


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


class RemoteBaseline(Baseline):
    """A baseline that asks a judge behind an API. An implementation writes `_questions`.

    Nothing is trained. Every answer is looked for in `replies` before it is bought, and kept there before
    it is used; `metered` puts the calls under a budget.
    """

    def __init__(self, judge: ChatModel | Reranker) -> None:
        self.judge, self.api = judge, judge.api
        self.replies: Replies = MemoryReplies()

    @property
    def fingerprint(self) -> str:
        """The model, its place and what it is asked with."""
        return self.judge.fingerprint

    def planned(self, data: TrainingData, texts: Sequence[Item]) -> list[tuple[Usage, Usage]]:
        """The requests that a prediction would make; known answers and repeated texts need none.

        Args:
            data: what the baseline would be fitted on.
            texts: the samples to predict.

        Returns:
            For each request the expected usage and the most that it may be.
        """
        distinct = self._distinct(Wording.of(data), texts, [])
        return [self.judge.usage(*q) for name, q in distinct if self.replies.get(_ask(name)) is None]

    @abstractmethod
    def _questions(self, wording: Wording, item: Item) -> Iterator[Question]:
        """What is asked about a sample."""

    def _fit(self, data: TrainingData) -> None:
        self.wording_ = Wording.of(data)

    def _replies(self, texts: Sequence[Item], views: Mapping[str, Any]) -> list[list[Reply]]:
        """The answers to the questions about each sample; refuses vectors without their samples."""
        rows = len(next(iter(views.values()))) if views else len(texts)
        if len(texts) != rows:
            raise TaskError(
                f"{self.name}: {len(texts)} samples for {rows} vectors; pass the samples as texts"
            )
        if not texts:
            return []
        order: list[list[str]] = []
        replies = run_sync(self._bought(self._distinct(self.wording_, texts, order)))
        return [[replies[name] for name in names] for names in order]

    def _distinct(
        self, wording: Wording, texts: Sequence[Item], order: list[list[str]]
    ) -> Iterator[tuple[str, Question]]:
        """Each question once, with its name; `order` gets the names of those about each sample."""
        seen: set[str] = set()
        for item in texts:
            order.append([])
            for question in self._questions(wording, item):
                name = self.judge.digest(*question)
                order[-1].append(name)
                if name not in seen:
                    seen.add(name)
                    yield name, question

    async def _bought(self, questions: Iterator[tuple[str, Question]]) -> dict[str, Reply]:
        """All answers. After a failure nothing more is begun, and what is under way is waited for."""
        replies: dict[str, Reply] = {}
        failures: list[Exception] = []

        async def work() -> None:
            for name, question in questions:  # of all workers together
                try:
                    replies[name] = await self._answer(name, question)
                except Exception as error:
                    failures.append(error)
                if failures:
                    return

        await asyncio.gather(*(work() for _ in range(self.api.limits.concurrency)))
        if failures:
            raise failures[0]
        return replies

    async def _answer(self, name: str, question: Question) -> Reply:
        kept = self.replies.get(_ask(name))
        if kept is not None:
            return kept
        try:
            return await self.judge.ask(*question, keep=partial(self.replies.put, _ask(name)))
        except ApiError as error:
            if not error.too_large:
                raise
            remedy = "show fewer or shorter examples, set a smaller batch, or use a model that takes more"
            raise ApiError(f"{error}; {remedy}", status=error.status, too_large=True) from None


@contextmanager
def metered(baseline: Baseline, calls: CallContext) -> Iterator[None]:
    """Put a baseline's calls under caps, and its answers where `calls` keeps them, until the block ends.

    Args:
        baseline: one without an API passes through.
        calls: the caps, the prices and the answers that are there already.
    """
    if not isinstance(baseline, RemoteBaseline):
        yield
        return
    before = baseline.replies
    with calls.connected(baseline, None):  # type: ignore[arg-type]  # which looks at the client alone
        try:
            baseline.replies = calls.replies or before
            yield
        finally:
            baseline.replies = before


def _ask(name: str) -> Ask:
    """A question's name where answers are kept."""
    return Ask("", 0, 0, name)


def _examples(data: TrainingData) -> dict[str, tuple[str, ...]]:
    items = data.items or data.texts
    if any(isinstance(item, Image) for item in items):
        raise TaskError("prompts.with_examples: a wording cannot quote an image; leave it out")
    if len(items) != len(data.labels):
        raise TaskError(f"{len(items)} texts for {len(data.labels)} labels; examples need both")
    given = list(zip(items, data.labels, strict=True))[: data.given]
    return {name: tuple(str(item) for item, label in given if label == name) for name in data.classes}
