"""`pool:DIR`: real pictures held out for the purpose, as a perfect generator."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from adamab.errors import GeneratorError, ImageError, TaskError
from adamab.providers.embedders.base import Modality
from adamab.providers.generators.base import Batch, Generator, Request, Settings
from adamab.providers.generators.pictures import store_of, stored
from adamab.providers.generators.recorded import refuse_unknown_classes, shuffled
from adamab.providers.image_store import ImageStore
from adamab.task.image_decoding import decoded
from adamab.task.image_folders import image_at
from adamab.task.image_samples import labelled_files

_UNREADABLE = "unreadable"  # why a picture was left out


class ImagePoolGenerator(Generator):
    """The pictures of a folder with a folder a class, of a file with paths, or of a known data set.

    They come in the order in which they are found there, each at most once; with `seed` every class is
    shuffled on its own. Files are listed at the start and read when it is their turn, so a pool may be
    large. A picture that the class has already is passed over, whatever its file is called, so a run that
    starts again goes on where it was; a broken one is left out and counted. What is handed out is copied
    into the run.
    """

    modality: Modality = "image"

    def __init__(self, source: str | Path, *, seed: int | None = None) -> None:
        self.source, self.seed = str(source), seed
        self._queues, self._places = _listed(self.source)
        if seed is not None:
            self._queues = {name: shuffled(name, files, seed) for name, files in self._queues.items()}
        self._cursors = dict.fromkeys(self._queues, 0)
        self._handed: dict[str, set[str]] = {name: set() for name in self._queues}
        self._images: ImageStore | None = None

    def __str__(self) -> str:
        return f"pool:{self.source}"

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """Of names and sizes: to read all files only to tell two pools apart would take too long."""
        folders = {os.path.abspath(file.parent) for queue in self._queues.values() for file in queue}
        root = os.path.commonpath(folders)
        total = hashlib.sha256()
        for name, queue in sorted(self._queues.items()):
            for file in map(os.path.abspath, queue):  # in their order, which decides what comes first
                inner = file.removeprefix(root).replace(os.sep, "/")
                total.update(f"{name}\0{inner}\0{_size(file)}\n".encode("utf-8", "surrogatepass"))
        return f"pool:files:{total.hexdigest()}" + ("" if self.seed is None else f":seed={self.seed}")

    def check(self, class_names: Sequence[str]) -> None:
        """Refuse a pool of other classes only, and one with a misspelt class, as a recording would be."""
        refuse_unknown_classes(self._places, class_names)

    def configure(self, settings: Settings) -> None:
        """Learn where the pictures go."""
        self._images = store_of(settings, str(self))

    async def generate(self, request: Request) -> Batch:
        """The next pictures of the class; the batch with the last of them closes it."""
        if request.spec.name not in self._queues:
            return Batch(closed="pool has no pictures of this class")
        return await asyncio.to_thread(self._next, request, stored(self._images, str(self)))

    def _next(self, request: Request, store: ImageStore) -> Batch:
        name, count = request.spec.name, max(request.count, 0)
        scan = _Scan(store, frozenset(request.existing), {*request.given, *self._handed[name]})
        queue = self._queues[name]
        exhausted = True
        for index in range(self._cursors[name], len(queue)):
            if len(scan.taken) < count:
                if scan.take(queue[index]):
                    self._cursors[name] = index + 1
            elif scan.is_more(queue[index]):
                exhausted = False
                break
        self._handed[name].update(scan.taken)
        broken = scan.broken + (scan.pending if exhausted else 0)
        return Batch(
            tuple(scan.taken),
            closed="pool exhausted" if exhausted else None,
            rejected={_UNREADABLE: broken} if broken else {},
        )


@dataclass
class _Scan:
    """One walk along the files of a class, for one batch."""

    store: ImageStore
    existing: frozenset[str]
    known: set[str]  # given, or handed out by this generator
    taken: list[str] = field(default_factory=list)
    broken: int = 0  # before the last that was taken
    pending: int = 0  # since then: they count for the batch after, if there is one

    def take(self, file: Path) -> bool:
        """Store a picture; False if it is broken or was there already."""
        try:
            if not self._is_new(file):
                return False
            reference = self.store.put(file.read_bytes()).reference
        except (ImageError, OSError):
            self.pending += 1
            return False
        self.taken.append(reference)
        self.known.add(reference)
        self.broken, self.pending = self.broken + self.pending, 0
        return True

    def is_more(self, file: Path) -> bool:
        """Whether this one could be taken; it is not stored."""
        try:
            if not self._is_new(file):
                return False
            decoded(file, least_side=1)
        except ImageError:
            self.pending += 1
            return False
        return True

    def _is_new(self, file: Path) -> bool:
        reference = image_at(file).reference
        if reference in self.known:
            return False
        if reference in self.existing:
            self.pending = 0  # handed out by an earlier process, which has counted those before it
            self.known.add(reference)
            return False
        return True


def _listed(source: str) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """The files of each class, and the place of the first of each."""
    queues: dict[str, list[Path]] = {}
    places: dict[str, str] = {}
    try:
        for where, file, name, _ in labelled_files(os.path.expanduser(source)):
            queues.setdefault(name, []).append(file)
            places.setdefault(name, where)
    except TaskError as error:
        raise GeneratorError(str(error)) from None
    return queues, places


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return -1
