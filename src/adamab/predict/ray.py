"""Ray, started for this process alone or joined at its address, and predictions by its actors.

Imported only where somebody asks for it. Ray reads most of its settings from the environment when it is
imported itself, so they are put there before.
"""

from __future__ import annotations

import io
import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from adamab.errors import AdamabError, MissingExtraError, ProviderError, one_line, short
from adamab.predict.parts import Engine, Job, PartsFolder, Status, Worker, job_parts
from adamab.predict.readers import Part

# Ray takes a third of the machine's memory for shared objects; what is passed between processes is small.
STORE_BYTES = 512 * 2**20
CPUS = 0.5  # that an actor takes
AHEAD = 2  # parts per actor: one in work, one that waits for it
PATIENCE = 10.0  # seconds without an actor before we say that we wait
RETRIES = 3  # of a part whose worker died: one that kills every worker must not go round for ever
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PROBE_SECONDS = 10.0


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
        at_end.enter_context(_sigterm_unwinds())
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
        if threading.current_thread() is threading.main_thread():
            # Ray takes SIGTERM for itself when it starts, and would leave with an exit code of its own.
            signal.signal(signal.SIGTERM, _interrupt)
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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        raise MissingExtraError("Ray", "ray") from None
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
def _sigterm_unwinds() -> Iterator[None]:
    """The handler of SIGTERM afterwards is what it was before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: Any) -> None:
    """SIGTERM unwinds the stack, so that a cluster of our own ends with us."""
    raise KeyboardInterrupt


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


def ray_engine(address: str | None, workers: int, say: Callable[[str], None]) -> Engine:
    """Parts are read here and predicted by `workers` actors, each with its own model and embedder."""

    def run(job: Job) -> Iterator[Status]:
        # News of workers that died and were replaced go to stdout, which is for results.
        with redirect_stdout(io.StringIO()), ray_cluster(address) as ray, _own_errors(ray):
            yield from _statuses(ray, job, workers, say)

    return run


def _statuses(ray: Any, job: Job, workers: int, say: Callable[[str], None]) -> Iterator[Status]:
    """Parts go to actors that have started: others may wait for their share of a processor to the end."""
    total = ray.cluster_resources().get("CPU", 1)
    is_full = ray.available_resources().get("CPU", 0) < CPUS
    actor_class = ray.remote(num_cpus=CPUS, max_restarts=-1, max_task_retries=RETRIES)(_Actor)
    # No more than the whole cluster has room for.
    actors = [actor_class.remote(job) for _ in range(max(1, min(workers, int(total / CPUS))))]
    starting = {actor.open.remote(): actor for actor in actors}
    in_work: dict[Any, Any] = {}
    idle: list[Any] = []

    def wait() -> Iterator[Status]:
        """Until an actor has started, or a part is done."""
        nonlocal is_full
        ended, _ = ray.wait([*starting, *in_work], timeout=PATIENCE if is_full else None)
        if not ended:
            is_full = False
            say(f"waiting: other jobs hold all {total:g} CPUs of Ray; it goes on when one is free")
        for reference in ended:
            result = ray.get(reference)
            if reference in starting:
                is_full = False
                idle.extend([starting.pop(reference)] * AHEAD)
            else:
                idle.append(in_work.pop(reference))
                yield result

    try:
        for part in job_parts(job):
            if part.content is None:
                yield PartsFolder(Path(job.output), job.kind).status(part.source, part.number)
                continue
            while not idle:
                yield from wait()
            actor = idle.pop(0)
            in_work[actor.predict.remote(part)] = actor
        while in_work:
            yield from wait()
    finally:
        for actor in actors:
            ray.kill(actor)


class _Actor:
    """A worker that lives in a process of its own; Ray puts another in its place when it dies."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._worker: Worker | None = None

    def open(self) -> None:
        """Load model and embedder; where that fails in the constructor, Ray does not tell why."""
        with suppress(OSError):  # an embedder may be named by a path from there
            os.chdir(self._job.question.folder)
        self._worker = Worker(self._job)

    def predict(self, part: Part) -> Status:
        """As `Worker` does it."""
        if self._worker is None:  # of an actor that died
            self.open()
        assert self._worker is not None
        return self._worker(part)


@contextmanager
def _own_errors(ray: Any) -> Iterator[None]:
    """An error of ours that happened in a worker is ours again; Ray's own are one line."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, AdamabError):
            raise error.cause from None
        raise
    except (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnavailableError):
        raise ProviderError(
            f"a worker died {RETRIES + 1} times over the same part, perhaps for lack of memory; finished "
            "parts are kept, so start again, with fewer --workers or --part-rows"
        ) from None
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = one_line(lines[-1] if lines else type(error).__name__)[:300]
        raise ProviderError(f"Ray gave up ({reason}); finished parts are kept, so start again") from None
