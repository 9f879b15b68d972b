"""The batches of every class in their order, fetched when they are needed or before.

Batch j of a class depends on the class, its given samples and its own earlier batches only. So it may
be fetched before the policy asks for it (`ahead`) without changing anything but the waiting: what has
arrived waits here until its class is chosen.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from adamab.errors import BudgetError
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.base import Embedded
from adamab.providers.generators.base import Batch, Generator, GivenVectors, Request
from adamab.providers.metering import AHEAD
from adamab.task.spec import ClassSpec

EmbedAhead = Callable[[Sequence[str]], Awaitable[Embedded]]


@dataclass(frozen=True)
class FetchedBatch:
    """A batch, with the vectors of its texts where embedding is a call that can be made ahead."""

    batch: Batch
    embedded: Embedded | None = None


class BatchLog(Protocol):
    """Where whole batches are written down as they arrive."""

    def batch(self, class_name: str, number: int) -> Batch | None:
        """A batch that arrived before, perhaps in an earlier process.

        Args:
            class_name: the class that it was generated for.
            number: of the batch among those of its class, from 0.
        """

    def put_batch(self, class_name: str, number: int, batch: Batch) -> None:
        """Write a batch down; returns when it is safe.

        Args:
            class_name: the class that it was generated for.
            number: of the batch among those of its class, from 0.
            batch: as the generator answered it.
        """


@dataclass
class _Stream:
    """One class: what came so far, what waits, and what is on its way."""

    number: int = 0  # of the next batch to fetch
    texts: list[str] = field(default_factory=list)  # of all batches so far, as they came
    waiting: deque[FetchedBatch] = field(default_factory=deque)
    fetching: asyncio.Task[None] | None = None
    failure: Exception | None = None  # of the last fetch, until its batch is needed
    failed_ahead: bool = False

    def __len__(self) -> int:
        return len(self.waiting) + (self.fetching is not None)


@dataclass
class BatchPrefetcher(AbstractContextManager["BatchPrefetcher", None]):
    """All classes' batches. Their state is changed by the background loop alone, once a fit runs."""

    generator: Generator
    classes: Sequence[ClassSpec]
    batch: int  # samples in a batch, always as many: a batch must not depend on when it is asked for
    given: Callable[[int], tuple[str, ...]]  # class -> its given texts
    vectors: GivenVectors | None = None
    embed: EmbedAhead | None = None
    log: BatchLog | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._streams = [_Stream() for _ in self.classes]
        self._rivals: Sequence[int | None] = [None] * len(self.classes)

    def resume(self, class_index: int, number: int, texts: Sequence[str]) -> None:
        """Go on where an earlier process was.

        Args:
            class_index: the class.
            number: of the next batch to take.
            texts: of all batches that were taken.
        """
        stream = self._streams[class_index]
        stream.number, stream.texts = number, list(texts)

    def avoid(self, rivals: Sequence[int | None]) -> None:
        """Ask from now on for samples that are not mistaken for those of another class, class by class."""
        self._rivals = rivals

    def take(self, class_index: int) -> FetchedBatch:
        """The next batch of a class; waits for it."""
        return run_sync(self._take(class_index))

    def ahead(self, classes: Sequence[int], limit: int, *, wanted: int | None = None) -> None:
        """Fetch for the classes that will likely be chosen next.

        Args:
            classes: those classes, the likeliest first; one may come several times.
            limit: how many batches may be waiting or on their way, besides the one for `wanted`.
            wanted: the class that `take` will be called for next, whose batch is begun first.
        """
        run_sync(self._ahead(classes, limit, wanted))

    def is_awaited(self, class_index: int) -> bool:
        """Whether the next batch of a class is on its way."""
        stream = self._streams[class_index]
        return not stream.waiting and stream.fetching is not None

    def end(self) -> None:
        """Nothing more will be taken: let the calls that are on their way end, and begin no other."""
        self._ended.set()
        if self.generator.api is not None:
            self.generator.api.stop = self._ended

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for what is on its way, since it is paid for; after a KeyboardInterrupt give it up."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            run_sync(self._abandon())
        run_sync(self._drain())

    @property
    def unused(self) -> int:
        """Batches that arrived or are on their way and were not taken."""
        return sum(len(stream) for stream in self._streams)

    async def _take(self, class_index: int) -> FetchedBatch:
        stream = self._streams[class_index]
        if not stream.waiting and stream.fetching is not None:
            await stream.fetching
        failure, stream.failure = stream.failure, None
        final = not stream.failed_ahead and not isinstance(failure, BudgetError)
        if not stream.waiting and failure is not None and final:
            raise failure
        if not stream.waiting:  # it was not fetched, or what failed then may work now
            try:
                await self._fetch(class_index)
            except BudgetError:
                if not self._under_way():
                    raise
                await self._drain()  # calls ahead hold reservations for more than they will cost
                await self._fetch(class_index)
        return stream.waiting.popleft()

    async def _ahead(self, classes: Sequence[int], limit: int, wanted: int | None) -> None:
        needed: Counter[int] = Counter()
        if wanted is not None:
            needed[wanted] = 1
            if not self._streams[wanted].waiting:
                self._start(wanted, ahead=False)
            limit += len(self._streams[wanted]) > 0
        for class_index in classes:
            if self.unused >= limit:
                return
            needed[class_index] += 1
            if len(self._streams[class_index]) < needed[class_index]:
                self._start(class_index, ahead=True)

    def _start(self, class_index: int, *, ahead: bool) -> None:
        """Fetch, unless a batch of the class is on its way or failed; they come one after the other."""
        stream = self._streams[class_index]
        if stream.fetching is None and stream.failure is None:
            stream.fetching = asyncio.create_task(self._fetch_early(class_index, ahead))

    async def _fetch_early(self, class_index: int, ahead: bool) -> None:
        AHEAD.set(ahead)  # in this task only
        stream = self._streams[class_index]
        try:
            await self._fetch(class_index)
        except Exception as failure:
            stream.failure, stream.failed_ahead = failure, ahead
        finally:
            stream.fetching = None

    async def _fetch(self, class_index: int) -> None:
        stream, name = self._streams[class_index], self.classes[class_index].name
        batch = None if self.log is None else self.log.batch(name, stream.number)
        if batch is None:
            batch = await self.generator.generate(self._request(class_index))
            if self.log is not None:
                self.log.put_batch(name, stream.number, batch)
        embedded = None
        if self.embed is not None and batch.texts and not self._ended.is_set():
            embedded = await self.embed(batch.texts)
        stream.number += 1
        stream.texts += batch.texts
        stream.waiting.append(FetchedBatch(batch, embedded))

    def _request(self, class_index: int) -> Request:
        stream, rival = self._streams[class_index], self._rivals[class_index]
        return Request(
            spec=self.classes[class_index],
            class_index=class_index,
            count=self.batch,
            given=self.given(class_index),
            existing=tuple(stream.texts),
            vectors=self.vectors,
            number=stream.number,
            apart_from=None if rival is None else self.classes[rival],
        )

    async def _drain(self) -> None:
        tasks = self._under_way()
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:  # the wait was cancelled: no call may outlive its run's journal
            await self._abandon()
            raise

    async def _abandon(self) -> None:
        tasks = self._under_way()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _under_way(self) -> list[asyncio.Task[None]]:
        return [stream.fetching for stream in self._streams if stream.fetching is not None]
