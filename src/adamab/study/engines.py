"""Where the cells of a study are worked out: in this process, in processes of this machine, or on Ray.

A cell depends on itself and on what all cells share, and gets one thread; so it finds the same wherever it is
worked out, and only the order in which cells end differs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import active_children, get_context
from typing import Any, Literal, TypeAlias

from threadpoolctl import threadpool_limits

from adamab.errors import ProviderError, RunError
from adamab.providers.ray_cluster import ray_cluster
from adamab.study.processes import end_with_parent
from adamab.task.messages import short

EngineName = Literal["local", "ray"]
Work: TypeAlias = Callable[[Any, Any], Any]  # an item and what all share -> what is found
Crew: TypeAlias = Callable[[Sequence[Any]], Iterator[tuple[Any, Any]]]  # items -> each with what is found
_RETRIES = 3  # of a task whose worker has died; an error of the task itself would only come again
_AHEAD = 4  # tasks a processor that Ray knows of: enough for it to have the next ones ready


@dataclass(frozen=True)
class Engine:
    """`jobs` are processes of this machine, or the processors of a Ray cluster that is started for this."""

    name: EngineName = "local"
    jobs: int = 2
    address: str | None = None  # of a cluster that is there

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Around several crews, so that they share one connection to Ray; a missing Ray is told now."""
        if self.name == "local":
            yield
            return
        with ray_cluster(self.address, cpus=self.jobs):
            yield

    @contextmanager
    def crew(self, work: Work, shared: Any) -> Iterator[Crew]:
        """Whoever works; what all items share is handed over once. Items end in no particular order."""
        if self.name == "ray":
            with self.ready(), ray_cluster() as ray:
                yield partial(_as_tasks, ray, work, ray.put(shared))
        elif self.jobs == 0:
            yield partial(_one_by_one, work, shared)
        else:
            with _processes(self.jobs, work, shared) as pool:
                yield partial(_in_processes, pool)


HERE = Engine(jobs=0)


def _one_by_one(work: Work, shared: Any, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for item in items:
        with threadpool_limits(1):
            found = work(item, shared)
        yield item, found


@contextmanager
def _processes(jobs: int, work: Work, shared: Any) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start_process, (work, shared))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():  # a cell may take minutes, and nobody waits for it any more
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _in_processes(pool: ProcessPoolExecutor, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    with _interrupts_later():
        futures = {pool.submit(_run_in_process, item): item for item in items}
    for future in as_completed(futures):
        try:
            found = future.result()
        except BrokenProcessPool:
            raise RunError(
                "a process was killed, perhaps for lack of memory; what is finished is kept: run the same "
                "command again to go on, with fewer --jobs"
            ) from None
        yield futures[future], found


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back while processes start, so that none is half started.

    They inherit the mask: without it a process that has not come to `_start_process` dies with a traceback.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    # The mask is that of this thread; another may take the signal, and then the handler runs here.
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came and callable(handler):
        handler(signal.SIGINT, None)


_in_process: tuple[Work, Any] | None = None


def _start_process(work: Work, shared: Any) -> None:
    global _in_process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    end_with_parent()
    _one_thread()
    _in_process = work, shared


def _run_in_process(item: Any) -> Any:
    if _in_process is None:
        raise RuntimeError("the process was not started by _start_process")
    work, shared = _in_process
    return work(item, shared)


def _one_thread() -> None:
    """Small matrices gain nothing from more, and sums would differ with their number."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)


def _as_tasks(ray: Any, work: Work, shared: Any, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """A bounded number of tasks at a time, or waiting for one of thousands would take its time."""
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run_in_task)
    left, under_way = iter(items), dict[Any, Any]()
    try:
        while True:
            room = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            for item in islice(left, room - len(under_way)):
                under_way[task.remote(work, [shared], item)] = item
            if not under_way:
                return
            (ended,), _ = ray.wait(list(under_way))
            found = _found(ray, ended)
            yield under_way.pop(ended), found
    finally:
        for reference in under_way:
            ray.cancel(reference, force=True)  # a cell may take minutes, and nobody waits for it any more


def _found(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # the task's own error, without the words around it
    except ray.exceptions.RayError as error:
        reason = short(str(error).partition("\n")[0], 120)
        raise ProviderError(
            f"Ray gave a task up ({reason}); what is finished is kept: run the same command again to go on"
        ) from None


_in_task: tuple[str, Any] | None = None  # what the last tasks of this worker shared, by its reference


def _run_in_task(work: Work, boxed: Sequence[Any], item: Any) -> Any:
    """The reference comes in a box, or Ray would unpack what it stands for anew for each item."""
    global _in_task
    import ray

    name = boxed[0].hex()
    if _in_task is None or _in_task[0] != name:
        _one_thread()
        _in_task = name, ray.get(boxed[0])
    return work(item, _in_task[1])
