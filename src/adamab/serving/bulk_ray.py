"""Bulk prediction with Ray Data: files are read by tasks, parts are predicted and written by actors.

What goes through Ray is one row a part, with the part's rows as Arrow bytes.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from adamab.errors import AdamabError, ProviderError
from adamab.providers.ray_cluster import ray_cluster
from adamab.serving.bulk import Engine, Worker
from adamab.serving.bulk_job import Job
from adamab.serving.bulk_parts import PartsFolder, Status
from adamab.serving.bulk_sources import Part, parts_of, pyarrow
from adamab.task.messages import one_line

# Shares of a processor. Actors hold theirs to the end: were readers to need one too, actors that have taken
# the last would wait for parts that nobody may read. So reading takes none; its number is bounded.
READING, PREDICTING = 0, 0.5
READERS = 2
PATIENCE = 10.0  # seconds without a part before we say that we wait
RETRIES = 3  # of a part whose worker died: one that kills every worker must not go round for ever
_STARTING = 6  # times as long where there was room: a process that starts on a busy machine takes its time


def on_ray(address: str | None, workers: int, say: Callable[[str], None]) -> Engine:
    """The engine `ray`: `workers` actors, each with its own model and embedder."""

    def run(job: Job) -> Iterator[Status]:
        with (
            ray_cluster(address) as ray,
            _own_errors(ray),
            _told_when_waiting(ray, say) as progressed,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # Ray's advice to whoever wrote this
            for status in _statuses(ray, job, workers):
                progressed()
                yield status

    return run


def _statuses(ray: Any, job: Job, workers: int) -> Iterator[Status]:
    import ray.data as data  # type: ignore[import-not-found, unused-ignore]

    for name in ("ray", "ray.data"):  # its import has set them anew
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with _settings(data.DataContext.get_current()):
        for row in _done(ray, data, job, workers).iter_rows():
            yield Status(**{name: row[name] for name in Status.__dataclass_fields__})


@contextmanager
def _settings(context: Any) -> Iterator[None]:
    """Of Ray Data in this process, which may have other uses for it afterwards."""
    ours = {
        "enable_progress_bars": False,
        "print_on_execution_start": False,
        "target_max_block_size": 1,  # a block is one part: else a file's parts wait for each other
    }
    before = {name: getattr(context, name) for name in ours}
    try:
        for name, value in ours.items():
            setattr(context, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


def _done(ray: Any, data: Any, job: Job, workers: int) -> Any:
    """A data set of what became of each part."""
    files = data.from_items(
        [{"source": number} for number in range(len(job.sources))], override_num_blocks=len(job.sources)
    )
    parts = files.map_batches(_read, fn_args=(job,), batch_size=1, num_cpus=READING, concurrency=READERS)
    return parts.map_batches(
        _Actor,
        fn_constructor_args=(job,),
        batch_size=1,
        num_cpus=PREDICTING,
        compute=data.ActorPoolStrategy(size=_fitting(ray, workers)),
        max_restarts=-1,  # of an actor, over all its parts
        max_task_retries=RETRIES,
    )


def _fitting(ray: Any, workers: int) -> int:
    """No more actors than the whole cluster has room for: others would be waited for in vain."""
    return max(1, min(workers, int(ray.cluster_resources().get("CPU", 1) / PREDICTING)))


def _read(batch: Any, job: Job) -> Iterator[dict[str, Any]]:
    """Parts of files as rows: numbers and bytes."""
    import numpy as np

    finished = PartsFolder(Path(job.output)).finished()
    for number in (int(number) for number in batch["source"]):
        for part in parts_of(number, job.sources[number], job.part_rows, finished.get(number, ())):
            content = np.empty(1, object)
            content[0] = b"" if part.table is None else _to_bytes(part.table)
            yield {
                "source": np.array([part.source]),
                "number": np.array([part.number]),
                "first": np.array([part.first]),
                "content": content,
            }


class _Actor:
    """A worker that lives in a process of its own; Ray puts another in its place when it dies."""

    def __init__(self, job: Job) -> None:
        with suppress(OSError):  # an embedder may be named by a path from there
            os.chdir(job.folder)
        self._worker = Worker(job)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        import numpy as np

        found = []
        for source, number, first, content in zip(
            batch["source"], batch["number"], batch["first"], batch["content"], strict=True
        ):
            table = _from_bytes(content) if len(content) else None
            found.append(self._worker(Part(int(source), int(number), int(first), table)))
        names = Status.__dataclass_fields__
        return {name: np.array([getattr(status, name) for status in found]) for name in names}


def _to_bytes(table: Any) -> bytes:
    pa = pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(content: bytes) -> Any:
    return pyarrow().ipc.open_stream(content).read_all()


@contextmanager
def _own_errors(ray: Any) -> Iterator[None]:
    """An error of ours that happened in a worker is ours again; Ray's own are one line."""
    try:
        yield
    except Exception as error:
        ours = _ours_in(error, ray.exceptions.RayTaskError)
        if ours is not None:
            ours.args = (str(ours).partition("\n")[0],)  # Ray Data adds advice to whoever wrote this
            raise ours from None
        if isinstance(error, ray.exceptions.ActorDiedError | ray.exceptions.ActorUnavailableError):
            raise ProviderError(
                f"a worker died {RETRIES + 1} times over the same part, perhaps for lack of memory; finished "
                "parts are kept, so start again, with fewer --workers or --part-rows"
            ) from None
        if isinstance(error, ray.exceptions.RayError):
            lines = [line for line in str(error).splitlines() if line.strip()]
            told = one_line(lines[-1] if lines else type(error).__name__)[:300]
            raise ProviderError(f"Ray gave up ({told}); finished parts are kept, so start again") from None
        raise


def _ours_in(error: BaseException | None, wrapper: type[BaseException]) -> AdamabError | None:
    """Ray's wrapper of an error is an instance of its class as well, with a traceback as its message."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, AdamabError) and not isinstance(error, wrapper):
            return error
        seen.add(id(error))
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return None


def _has_workers(ray: Any) -> bool:
    """Whether an actor of this job has, or had, its share of a processor."""
    job = ray.get_runtime_context().get_job_id()
    actors = ray._private.state.actors().values()
    known = [actor["State"] for actor in actors if _predicts(actor) and actor["JobID"] == job]
    return any(state in ("ALIVE", "RESTARTING") for state in known)


def _predicts(actor: Mapping[str, Any]) -> bool:
    return _Actor.__name__ in str(actor["ActorClassName"])


@contextmanager
def _told_when_waiting(ray: Any, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Says once that all processors are taken, if nothing has happened for a while."""
    moved, ended = threading.Event(), threading.Event()

    full = ray.available_resources().get("CPU", 0) < PREDICTING

    def watch() -> None:
        if ended.wait(PATIENCE if full else _STARTING * PATIENCE) or moved.is_set() or _has_workers(ray):
            return
        if ray.available_resources().get("CPU", 0) >= PREDICTING:
            return  # it is something else that takes its time
        total = ray.cluster_resources().get("CPU", 0)
        say(f"waiting: other jobs hold all {total:g} CPUs of Ray; it goes on when one is free")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield moved.set
    finally:
        ended.set()
        thread.join()
