"""Requests that arrive together are computed together.

While one batch is computed the next one collects, so under load nobody waits for the sake of a batch; the
little that an idle server waits is bounded. One batch at a time is computed in a thread of its own, so that
the event loop goes on reading and writing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from adamab.serving.problems import busy

if TYPE_CHECKING:
    from adamab.classifier import Asked
    from adamab.run.resolve import HasText
    from adamab.serving.limits import Limits

T = TypeVar("T")


class Watcher(Protocol):
    """Who is told what the batcher does."""

    def waiting(self, items: int) -> None:
        """So many items wait."""

    def batch(self, items: int, seconds: float) -> None:
        """A batch was computed."""

    def answered(self, items: int) -> None:
        """A request with so many items got its answer."""


@dataclass(eq=False)
class Job(Generic[T]):
    """The rows of one request, which stay together, and where their answer is awaited."""

    rows: Sequence[HasText]
    asked: Asked
    answer: asyncio.Future[T]
    arrived: float = field(default_factory=time.monotonic)


class Batcher(Generic[T]):
    """Collects jobs into batches; `compute` gives one answer or exception a job, in a worker thread.

    One batch is computed at a time where the work is this machine's; `widen` lets more of them run at once,
    `most_lanes` at most, where it is waiting for somebody else's.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Job[T]]], Sequence[T | Exception]],
        limits: Limits,
        watcher: Watcher,
        *,
        most_lanes: int = 1,
    ) -> None:
        self._compute, self._limits, self._watcher = compute, limits, watcher
        self._queue: deque[Job[T]] = deque()
        self._items = 0
        self._changed = asyncio.Event()
        self._lanes, self._wide = asyncio.Semaphore(1), 1
        self._most_lanes = most_lanes
        self._threads = ThreadPoolExecutor(most_lanes, thread_name_prefix="adamab-batch")
        self._running: set[asyncio.Task[None]] = set()
        self._collector: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; to be called in the event loop."""
        self._collector = asyncio.get_running_loop().create_task(self._collect())

    def widen(self, lanes: int) -> None:
        """So many batches may be computed at once from now on."""
        while self._wide < min(lanes, self._most_lanes):
            self._wide += 1
            self._lanes.release()

    async def stop(self) -> None:
        """End, when the batches on their way are done."""
        if self._collector is not None:
            self._collector.cancel()
            await asyncio.wait({self._collector})
        if self._running:
            await asyncio.wait(self._running)
        self._threads.shutdown()

    def submit(self, rows: Sequence[HasText], asked: Asked) -> Job[T]:
        """Queue a request; raises `Refused` where the queue is full."""
        if self._items + len(rows) > self._limits.waiting_items:
            raise busy("too many items wait for an answer; try again")
        job: Job[T] = Job(rows, asked, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._count(len(rows))
        self._changed.set()
        return job

    def withdraw(self, job: Job[T]) -> None:
        """Forget a request that nobody waits for any more; what is being computed already goes on."""
        job.answer.cancel()
        if job in self._queue:
            self._queue.remove(job)
            self._count(-len(job.rows))

    def _count(self, change: int) -> None:
        self._items += change
        self._watcher.waiting(self._items)

    async def _collect(self) -> None:
        while True:
            await self._lanes.acquire()
            while not self._queue:
                await self._next_change()
            await self._fill()
            if jobs := self._take():
                task = asyncio.get_running_loop().create_task(self._run(jobs))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            else:
                self._lanes.release()

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _fill(self) -> None:
        """Wait for more while the batch has room and its first job has not waited long."""
        while self._queue and self._items < self._limits.batch_items:
            left = self._queue[0].arrived + self._limits.batch_wait - time.monotonic()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._next_change()
            except TimeoutError:
                return

    def _take(self) -> list[Job[T]]:
        """As many whole jobs as fit, at least one."""
        jobs: list[Job[T]] = []
        room = self._limits.batch_items
        while self._queue and (not jobs or len(self._queue[0].rows) <= room):
            jobs.append(self._queue.popleft())
            room -= len(jobs[-1].rows)
        self._count(-sum(len(job.rows) for job in jobs))
        return jobs

    async def _run(self, jobs: list[Job[T]]) -> None:
        start = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            answers: Sequence[T | Exception] = await loop.run_in_executor(self._threads, self._compute, jobs)
        except Exception as error:  # of `compute` itself: each of its jobs is told
            answers = [error] * len(jobs)
        finally:
            self._lanes.release()
        self._watcher.batch(sum(len(job.rows) for job in jobs), time.monotonic() - start)
        for job, answer in zip(jobs, answers, strict=True):
            if job.answer.done():  # the client has gone
                continue
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                self._watcher.answered(len(job.rows))
                job.answer.set_result(answer)
