"""Where many fits are worked out: in this process, in processes of this machine (joblib's), or on Ray.

An item depends on itself and on what all items share, and gets one thread; so its result is the same wherever
it is worked out, and only the order in which items end differs.

Ray is started for this process alone or joined at its address, and imported where somebody asks for it: it
reads most of its settings from the environment then, so they are put there before.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeAlias

from joblib.externals.loky import ProcessPoolExecutor
from threadpoolctl import threadpool_limits

from adamab.errors import ProviderError, RunError, imported, one_line, short

EngineName = Literal["local", "ray"]
Work: TypeAlias = Callable[[Any, Any], Any]  # an item and what all share -> the result
WorkerMap: TypeAlias = Callable[[Iterable[Any]], Iterator[tuple[Any, Any]]]  # items -> each with the result
# Small matrices gain nothing from more, and sums would differ with their number.
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
_RETRIES = 3  # of a task whose worker has died; an error of the task itself would only come again
_AHEAD = 4  # tasks per processor that Ray knows of: enough for it to have the next ones ready
# Ray takes a third of the machine's memory for shared objects; what is passed between processes is small.
STORE_BYTES = 512 * 2**20
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PROBE_SECONDS = 10.0
PATIENCE = 10.0  # seconds on a cluster without a free processor before a warning says that we wait


@dataclass(frozen=True)
class Engine:
    """Where items run.

    Args:
        name: "local" or "ray".
        jobs: processes of this machine, or the processors of a Ray cluster that is started for this.
        address: HOST:PORT of a Ray cluster that is there.
        task_cpus: the share of a processor that a task of Ray takes.
        most_tasks: tasks of Ray at a time; None keeps all its processors busy.
    """

    name: EngineName = "local"
    jobs: int = 2
    address: str | None = None
    task_cpus: float = 1
    most_tasks: int | None = None

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Let several calls of `workers` share one connection to Ray; a missing Ray is reported now."""
        if self.name == "local":
            yield
            return
        with ray_cluster(self.address, cpus=self.jobs):
            yield

    @contextmanager
    def workers(self, work: Work, shared: Any) -> Iterator[WorkerMap]:
        """A function that works through items and yields each with its result, in no particular order.

        Args:
            work: called with an item and what all items share.
            shared: handed over to each worker once.
        """
        if self.name == "ray":
            with self.ready(), ray_cluster() as ray:
                task = ray.remote(num_cpus=self.task_cpus, max_retries=_RETRIES)(_run_in_task)
                start = partial(task.remote, work, [ray.put(shared)])
                is_full = ray.available_resources().get("CPU", 0) < self.task_cpus
                yield partial(_as_tasks, ray, start, self.most_tasks, PATIENCE if is_full else None)
        elif self.jobs == 0:
            yield partial(_one_by_one, work, shared)
        else:
            with _processes(self.jobs, work, shared) as pool:
                yield partial(_in_processes, pool, 2 * self.jobs)


HERE = Engine(jobs=0)


def _one_by_one(work: Work, shared: Any, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for item in items:
        with threadpool_limits(1):
            result = work(item, shared)
        yield item, result


@contextmanager
def _processes(jobs: int, work: Work, shared: Any) -> Iterator[Any]:
    start = (os.getpid(), work, shared)
    pool = ProcessPoolExecutor(jobs, env=_ONE_THREAD, initializer=_start_process, initargs=start)
    try:
        yield pool
    finally:
        pool.shutdown(kill_workers=True)  # a cell may take minutes, and nobody waits for it any more


def _in_processes(pool: Any, most: int, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """No more at a time than the pool's own queue takes: a pool that is shut down trips over the others."""
    remaining = iter(items)
    with _starting_processes():
        running = {pool.submit(_run_in_process, item): item for item in islice(remaining, most)}
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            try:
                result = future.result()
            except BrokenProcessPool:
                raise RunError(
                    "a process was killed, perhaps for lack of memory; what is finished is kept: run the "
                    "same command again to go on, with fewer --jobs"
                ) from None
            yield running.pop(future), result
            running |= {pool.submit(_run_in_process, item): item for item in islice(remaining, 1)}


@contextmanager
def _starting_processes() -> Iterator[None]:
    """Let processes inherit that Ctrl-C is ignored: one that is half started would die with a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


_in_process: tuple[Work, Any] | None = None


def _start_process(parent: int, work: Work, shared: Any) -> None:
    global _in_process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _in_process = work, shared


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: nobody would take what it works out."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run_in_process(item: Any) -> Any:
    if _in_process is None:
        raise RuntimeError("the process was not started by _start_process")
    work, shared = _in_process
    return work(item, shared)


def _as_tasks(
    ray: Any, start: Callable[[Any], Any], most: int | None, patience: float | None, items: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    """A bounded number of tasks at a time, or waiting for one of thousands would take its time."""
    left, under_way = iter(items), dict[Any, Any]()
    try:
        while True:
            room = most or _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            for item in islice(left, room - len(under_way)):
                under_way[start(item)] = item
            if not under_way:
                return
            ended, _ = ray.wait(list(under_way), timeout=patience)
            if not ended:
                warnings.warn("waiting: other jobs hold all processors of Ray", stacklevel=1)
            patience = None
            for reference in ended:
                result = _result(ray, reference)
                yield under_way.pop(reference), result
    finally:
        for reference in under_way:
            ray.cancel(reference, force=True)  # a cell may take minutes, and nobody waits for it any more


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # the task's own error, without Ray's traceback
    except ray.exceptions.RayError as error:
        reason = short(str(error).partition("\n")[0], 120)
        raise ProviderError(
            f"Ray gave up ({reason}); what is finished is kept: run the same command again to go on"
        ) from None


_in_task: tuple[str, Any] | None = None  # what the last tasks of this worker shared, by its reference


def _run_in_task(work: Work, boxed: Sequence[Any], item: Any) -> Any:
    """The reference comes in a list, or Ray would unpack what it stands for again for each item."""
    global _in_task
    import ray

    name = boxed[0].hex()
    if _in_task is None or _in_task[0] != name:
        threadpool_limits(1)
        _in_task = name, ray.get(boxed[0])
    return work(item, _in_task[1])


@contextmanager
def ray_cluster(
    address: str | None = None, *, cpus: int | None = None, store_bytes: int = STORE_BYTES
) -> Iterator[Any]:
    """The module `ray`, connected to a cluster.

    A process that is connected already stays so, and keeps its connection afterwards.

    Args:
        address: HOST:PORT of a cluster that is there; None starts one on this machine, which ends with the
            block and listens to this machine only.
        cpus: Processors of a new cluster, all of them if None.
        store_bytes: Shared memory of a new cluster.
    """
    if address is not None:
        _check_address(address)  # before the import, which takes a second
    ray = _ray(address)
    if ray.is_initialized():
        yield ray
        return
    own: dict[str, Any] = {
        "address": "local",
        "num_cpus": cpus,
        "object_store_memory": store_bytes,
        "include_dashboard": False,
    }
    with ExitStack() as at_end:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread:
            at_end.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        if address is None and "RAY_TMPDIR" not in os.environ:
            # Logs and sockets, whose paths may have 107 characters.
            short_path = "/tmp" if os.path.isdir("/tmp") else None
            folder = tempfile.TemporaryDirectory("", "adamab-ray-", short_path, ignore_cleanup_errors=True)
            os.environ["RAY_TMPDIR"] = at_end.enter_context(folder)
            at_end.callback(os.environ.pop, "RAY_TMPDIR", None)
        try:
            with _quiet_stderr():
                options = own if address is None else {"address": address}
                ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            if address is None:
                message = f"Ray cannot be started on this machine ({one_line(error)})"
            else:
                message = (
                    f"Ray at {short(address)} cannot be joined ({one_line(error)}); is it the same version "
                    "of Ray and Python, and if the cluster asks for a token, is RAY_AUTH_TOKEN set?"
                )
            raise ProviderError(message) from None
        at_end.callback(ray.shutdown)
        if in_main_thread:
            # Ray takes SIGTERM for itself when it starts, and would leave with an exit code of its own.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        yield ray


def _ray(address: str | None) -> Any:
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",  # else Ray reports about itself to its makers
        "RAY_BACKEND_LOG_LEVEL": "fatal",  # of what it writes to stderr by itself
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of a change to come
        "RAY_NUM_REDIS_GET_RETRIES": "2",  # to join; each takes up to 40 seconds where something else answers
    }
    if address is None or address.rpartition(":")[0] in _LOOPBACK:
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else it listens at the machine's outer address
    if address is None or "RAY_AUTH_TOKEN" in os.environ:
        # Whoever knows a cluster's port may run code in it, so one of ours asks for a token. It is in the
        # environment only; left to itself, Ray would write one into the home folder.
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = imported("ray", "Ray", "ray")
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    return ray


def _check_address(address: str) -> None:
    """Ray waits without an end for a cluster that is not there, so we knock first."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and "/" not in host):
        raise ProviderError(f"{short(address)} is no address of a Ray cluster; give HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ProviderError(
            f"no Ray cluster answers at {short(address)} ({one_line(error)}); give the HOST:PORT that "
            "`ray start --head` printed"
        ) from None


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Ray's C++ part writes to file descriptor 2 while it connects; what is wrong is an exception too."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
