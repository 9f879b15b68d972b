"""The model that a server answers with: opened once, replaced whole, asked in batches."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adamab.errors import AdamabError, ApiError, ModelFileError, one_line, place
from adamab.model import Answerer, load
from adamab.model.classifier import too_few
from adamab.model.predictor import Inference
from adamab.model.storage import DOCUMENT, read_file
from adamab.publish.model_card import without_place
from adamab.run.directory import has_journal, read_task
from adamab.serving._questions import Row, answer_json, other_kind
from adamab.serving.requests import Limits, Metrics, Refused, busy, client_gone, invalid
from adamab.task.images import Image, digest_of
from adamab.task.spec import split_spec

if TYPE_CHECKING:
    from adamab.model import PredictOptions
    from adamab.providers.embedders.base import Embedder
    from adamab.task.spec import Modality

_TRIES, _PAUSE = 10, 0.2  # a fit that ends at this moment replaces two files one after the other
MOST_LANES = 4  # batches on their way to an API at a time


@dataclass(eq=False)
class Job:
    """The rows of one request, which stay together, and where their answer is awaited."""

    rows: Sequence[Row]
    options: PredictOptions
    answer: asyncio.Future[bytes]
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """Requests that arrive together are computed together.

    While one batch is computed the next one collects, so under load nobody waits for the sake of a batch; the
    little that an idle server waits is bounded. Batches are computed in threads, so that the event loop goes
    on reading and writing: one at a time where the work is this machine's, more of them where it is waiting
    for somebody else's.

    Args:
        compute: Gives one answer or exception per job, in a worker thread.
        lanes: So many batches may be computed at once now, `MOST_LANES` at most.
        limits: Of a batch and of the queue.
        metrics: What is counted.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Job]], Sequence[bytes | Exception]],
        lanes: Callable[[], int],
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self._compute, self._lanes, self._limits, self._metrics = compute, lanes, limits, metrics
        self._queue: deque[Job] = deque()
        self._items = 0
        self._changed = asyncio.Event()
        self._threads = ThreadPoolExecutor(MOST_LANES, thread_name_prefix="adamab-batch")
        self._running: set[asyncio.Task[None]] = set()
        self._collector = asyncio.get_running_loop().create_task(self._collect())

    async def stop(self) -> None:
        """End, when the batches on their way are done."""
        self._collector.cancel()
        await asyncio.wait({self._collector, *self._running})
        self._threads.shutdown()

    def submit(self, rows: Sequence[Row], options: PredictOptions) -> Job:
        """Queue a request; raises `Refused` where the queue is full."""
        if self._items + len(rows) > self._limits.waiting_items:
            raise busy("too many items wait for an answer; try again")
        job = Job(rows, options, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._count(len(rows))
        self._changed.set()
        return job

    def withdraw(self, job: Job) -> None:
        """Forget a request that nobody waits for any more; what is being computed already goes on."""
        job.answer.cancel()
        if job in self._queue:
            self._queue.remove(job)
            self._count(-len(job.rows))

    def _count(self, change: int) -> None:
        self._items += change
        self._metrics.waiting.set(self._items)

    async def _collect(self) -> None:
        while True:
            while not self._queue or len(self._running) >= self._lanes():
                await self._next_change()
            await self._fill()
            if jobs := self._take():
                task = asyncio.get_running_loop().create_task(self._run(jobs))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
                task.add_done_callback(lambda _: self._changed.set())

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

    def _take(self) -> list[Job]:
        """As many whole jobs as fit, at least one."""
        jobs: list[Job] = []
        room = self._limits.batch_items
        while self._queue and (not jobs or len(self._queue[0].rows) <= room):
            jobs.append(self._queue.popleft())
            room -= len(jobs[-1].rows)
        self._count(-sum(len(job.rows) for job in jobs))
        return jobs

    async def _run(self, jobs: list[Job]) -> None:
        start = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            answers = await loop.run_in_executor(self._threads, self._compute, jobs)
        except Exception as error:  # of `compute` itself: each of its jobs gets it
            answers = [error] * len(jobs)
        self._metrics.batch(sum(len(job.rows) for job in jobs), time.monotonic() - start)
        for job, answer in zip(jobs, answers, strict=True):
            if job.answer.done():  # the client has gone
                continue
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                self._metrics.classified.inc(sum(row.problem is None for row in job.rows))
                job.answer.set_result(answer)


@dataclass(frozen=True)
class Model:
    """A classifier with its embedder, and what identifies it."""

    run: str
    digest: str
    inference: Inference

    @property
    def name(self) -> dict[str, str]:
        """What answers say about the model."""
        return {"run": self.run, "digest": self.digest}

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes' names."""
        return self.inference.classifier.classes


class Service:
    """Answers with the newest model that could be opened; a reload swaps it between two batches."""

    def __init__(
        self, run: Path, embedder: str | Embedder | None = None, *, log: Callable[[str], None]
    ) -> None:
        self.run, self._embedder, self._log = run, embedder, log
        self.started = time.monotonic()
        self.reloading = False
        self._lock = threading.Lock()
        self._model: Model | None = None
        try:
            self._model = self._opened(None)
        except ModelFileError:
            # A run that is being fitted for the first time: its page can be looked at already.
            if not has_journal(self.run) or (self.run / DOCUMENT).exists():
                raise

    @property
    def ready(self) -> bool:
        """Whether there is a model to answer with."""
        return self._model is not None

    @property
    def model(self) -> Model:
        """The one that answers; raises `Refused` while the run's first fit has not ended."""
        if self._model is None:
            raise Refused(
                503, "no_model", "the run's first fit has not ended; try again", {"Retry-After": "5"}
            )
        return self._model

    @property
    def modality(self) -> Modality:
        """What is classified."""
        return self._model.inference.modality if self._model is not None else read_task(self.run).modality

    @property
    def fit_options(self) -> tuple[str, ...]:
        """What `adamab fit` has to be told as the server was."""
        return ("--embedder", self._embedder) if isinstance(self._embedder, str) else ()

    @property
    def embedder(self) -> str:
        """The embedder's name for strangers: without options, and of a path only its last part."""
        spec = str(self._embedder or self.model.inference.classifier.embedder_spec)
        return split_spec(without_place(spec))[0]

    def lanes(self) -> int:
        """How many batches are computed at once: an embedder behind an API is asked for several."""
        return MOST_LANES if self._model is not None and self._model.inference.remote else 1

    def digest_on_disk(self) -> str | None:
        """Of the model that the run holds now; None where there is none."""
        try:
            return _digest(self.run)
        except (ModelFileError, OSError):
            return None

    def reload(self) -> str:
        """Open what the run holds now: `changed`, `unchanged` or, where that failed, `failed`."""
        with self._lock:
            before = self._model
            self.reloading = True
            try:
                self._model = model = self._opened(before)
            except Exception as error:  # whatever it is, the next reload must be tried
                kind = "" if isinstance(error, AdamabError) else f"{type(error).__name__}, "
                what = "there is no model yet" if before is None else "the model from before stays"
                self._log(f"reload failed, {what}: {kind}{one_line(error)}")
                return "failed"
            finally:
                self.reloading = False
        if before is not None and model.digest == before.digest:
            self._log(f"reloaded {place(self.run)}: the model is the same as before")
            return "unchanged"
        self._log(f"reloaded {place(self.run)}: model {model.digest[:12]} ({len(model.classes)} classes)")
        return "changed"

    def _opened(self, before: Model | None) -> Model:
        for left in reversed(range(_TRIES)):
            try:
                digest = _digest(self.run)
                inference = self._inference(before)
                if _digest(self.run) == digest or not left:
                    break
            except ModelFileError:
                # While the server starts, whoever started it waits for the word that there is no model.
                if not left or before is None:
                    raise
            time.sleep(_PAUSE)
        _warm_up(inference)
        return Model(self.run.resolve().name, digest, inference)

    def _inference(self, before: Model | None) -> Inference:
        """With the embedder from before where it is the same: a second copy would need its memory."""
        if before is not None and (embedder := before.inference.embedder) is not None and embedder.cacheable:
            classifier, old = load(self.run), before.inference.classifier
            if (classifier.embedder_spec, classifier.fingerprint) == (old.embedder_spec, old.fingerprint):
                return Inference(classifier, embedder)
        return Inference.open(self.run, self._embedder, cache=False)

    def compute(self, jobs: Sequence[Job]) -> list[bytes | Exception]:
        """One answer or refusal a job; all are embedded together, by one model."""
        model = self.model
        answers: list[bytes | Exception] = [client_gone() for _ in jobs]
        admitted: list[tuple[int, Job, Answerer]] = []
        for number, job in enumerate(jobs):
            try:
                if not job.answer.cancelled():
                    admitted.append((number, job, _answerer(model, job)))
            except AdamabError as error:
                answers[number] = invalid(str(error))
            except Refused as refusal:
                answers[number] = refusal
        for number, answer in self._answers(model, admitted):
            answers[number] = answer
        return answers

    def _answers(
        self, model: Model, admitted: list[tuple[int, Job, Answerer]]
    ) -> Iterator[tuple[int, bytes | Exception]]:
        if not admitted:
            return
        rows = [row for _, job, _ in admitted for row in job.rows if row.problem is None]
        try:
            each = iter(model.inference.each(rows, lambda some: list(model.inference.logits(some))))
        except Exception as error:
            # One row may be at fault, and the other requests do better alone; not where a service is down.
            if len(admitted) > 1 and (not isinstance(error, ApiError) or error.refused or error.too_large):
                for one in admitted:
                    yield from self._answers(model, [one])
            else:
                yield from ((number, self.failure(model, error)) for number, _, _ in admitted)
            return
        for number, job, answerer in admitted:
            results = [row.problem or next(each) for row in job.rows]
            logits = [one for one in results if isinstance(one, np.ndarray)]
            problems = [None if isinstance(one, np.ndarray) else _problem(model, one) for one in results]
            if not logits:
                yield number, next(one for one in problems if one is not None)
                continue
            answers = answerer(np.stack(logits))
            few = too_few(model.inference.classifier.confidence, job.options)
            notes = [f"too few samples were held out to vouch for {share:g}, so {so}" for share, so in few]
            yield number, answer_json(model.name, model.classes, answers, problems, notes)

    def failure(self, model: Model, error: Exception) -> Exception:
        """What the client gets where the embedder fails: paths, hosts and keys are for the log.

        Args:
            model: The one that was asked.
            error: What it raised.

        Returns:
            The exception to answer with.
        """
        if not isinstance(error, AdamabError):
            return error
        if not _has_own_vectors(model) or (isinstance(error, ApiError) and error.refused):
            return _problem(model, error)
        self._log(f"an embedding failed: {one_line(error)}")
        return Refused(502, "embedder_failed", "the embedder failed; the server's log says why")


def _has_own_vectors(model: Model) -> bool:
    """Whether the model's embedder can make a vector of anything."""
    return model.inference.embedder is None or model.inference.embedder.cacheable


def _problem(model: Model, error: Refused | AdamabError) -> Refused:
    """Of an item without an answer; the embedder's words may name paths and hosts."""
    if isinstance(error, Refused):
        return error
    if _has_own_vectors(model):
        return invalid("the embedder refuses this item")
    return invalid("the model's vectors were computed elsewhere, and there is none for this item")


def _digest(run: Path) -> str:
    """Of the document, which holds the weights' digest."""
    return hashlib.sha256(read_file(run / DOCUMENT)).hexdigest()


def _answerer(model: Model, job: Job) -> Answerer:
    """Refuses what this model cannot answer, before anything is embedded and paid for."""
    wanted, classifier = model.inference.modality, model.inference.classifier
    if wanted != ("image" if any(row.image is not None for row in job.rows) else "text"):
        raise other_kind(wanted)
    if job.options.k > len(classifier.classes):
        raise invalid(f"top_k: is {job.options.k}, and the model has {len(classifier.classes)} classes")
    return Answerer(classifier.classes, classifier.confidence, job.options)


def _warm_up(inference: Inference) -> None:
    """Load what is loaded at the first item, so that no client waits for it; costs nothing elsewhere."""
    embedder = inference.embedder
    if embedder is None or inference.remote or not embedder.cacheable:
        return
    if inference.modality == "text":
        inference.logits([Row("warm-up")])
        return
    import PIL.Image

    with tempfile.TemporaryDirectory(prefix="adamab-serve-") as folder:
        path = Path(folder) / "grey.png"
        PIL.Image.new("RGB", (64, 64), "grey").save(path)
        image = Image(digest_of(path.read_bytes()), path)
        inference.logits([Row(image.reference, image)])
