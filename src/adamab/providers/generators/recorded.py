"""`replay:FILE`, `pool:FILE` and `pool:DIR`: samples written down or images held out, a class at a time."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np

from adamab.errors import GeneratorError, ImageError, TaskError, short, suggestion
from adamab.providers.generators.base import Batch, Generator, ImageGenerator, Request
from adamab.providers.image_store import ImageStore
from adamab.task.image_folders import image_at, labelled_files
from adamab.task.images import decoded, is_reference
from adamab.task.tables import placed_samples, read_rows
from adamab.task.words import normalised_text

T = TypeVar("T")

_SHORTEST_WORD = 4  # below, one letter is a difference: 'sms' and 'sim'


class _ByClass(Generator, Generic[T]):
    """Samples kept by class; they follow classes that a run renames, merges or removes."""

    _recorded: Mapping[str, Sequence[T]]
    _places: Mapping[str, str]  # class -> where its first sample is
    _classes: Mapping[str, str] = MappingProxyType({})

    def follow(self, classes: Mapping[str, str]) -> None:
        """Hand out the samples of a class for the one that it is now."""
        self._classes = classes
        self._queues: dict[str, list[T]] = {}
        for name, samples in self._recorded.items():
            self._queues.setdefault(classes.get(name, name), []).extend(samples)
        self._cursors = dict.fromkeys(self._queues, 0)

    def check(self, class_names: Sequence[str]) -> None:
        """Refuse samples of other classes only, and a misspelt class; say which the run has no more.

        Other classes beside those of the task are fine: a recording may serve several tasks.
        """
        had = self._classes
        gone = [name for name in self._places if name in had and had[name] not in class_names]
        places = {had.get(name, name): place for name, place in self._places.items() if name not in gone}
        if gone:
            named = ", ".join(map(short, gone[:3])) + (", …" if len(gone) > 3 else "")
            warnings.warn(
                f"{self}: samples of {named} are left out, since this run has no such class any more",
                stacklevel=2,
            )
        refuse_unknown_classes(places, class_names)


class ReplayGenerator(_ByClass[str]):
    """Recorded samples (JSONL with `label` and `text`) in file order, each at most once.

    With `seed` every class is shuffled on its own. Texts that the request gives or that exist
    already are passed over, so a run that starts again goes on where it was.
    """

    prefix = "replay"
    source = "recording"

    def __init__(self, path: str | Path, *, seed: int | None = None) -> None:
        self.path = Path(path).expanduser()
        self._recorded, self._places = _read(self.path)
        self._keys: dict[str, str] = {}
        if seed is not None:
            self._recorded = {name: shuffled(name, texts, seed) for name, texts in self._recorded.items()}
        self.follow({})
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self.fingerprint = f"{self.prefix}:sha256:{digest}" + ("" if seed is None else f":seed={seed}")

    def __str__(self) -> str:
        return f"{self.prefix}:{self.path}"

    async def generate(self, request: Request) -> Batch:
        """The next samples of the class; the batch with the last of them closes it."""
        name = request.spec.name
        queue = self._queues.get(name)
        if queue is None:
            return Batch(closed=f"{self.source} has no samples of this class")
        known = {self._key(text) for text in (*request.given, *request.existing)}
        rest = range(self._cursors[name], len(queue))
        left = (place for place in rest if self._key(queue[place]) not in known)
        taken = list(itertools.islice(left, max(request.count, 0)))
        if taken:
            self._cursors[name] = taken[-1] + 1
        closed = f"{self.source} exhausted" if next(left, None) is None else None
        return Batch(tuple(queue[place] for place in taken), closed=closed)

    def _key(self, text: str) -> str:
        """The folded text. Every batch asks for those of all earlier ones, so each is worked out once."""
        if text not in self._keys:
            self._keys[text] = normalised_text(text)
        return self._keys[text]


class PoolGenerator(ReplayGenerator):
    """Real held-out samples, as a perfect generator: what a generator could give at best."""

    prefix = "pool"
    source = "pool"


def pool_from_spec(rest: str, *, seed: int | None = None) -> Generator:
    """What the registry calls for `pool`: a pool of images, or of texts where the file has them.

    Args:
        rest: path of the file or of the folder of images.
        seed: shuffles every class on its own; None keeps the order of the file.
    """
    if not os.path.exists(os.path.expanduser(rest)):
        raise GeneratorError(f"pool:{rest}: no such file or folder; check the path")
    if os.path.isdir(os.path.expanduser(rest)) or _names_images(rest):
        return ImagePoolGenerator(rest, seed=seed)
    return PoolGenerator(rest, seed=seed)


def _names_images(file: str) -> bool:
    """Whether the first row has the path of an image; what is wrong with a file is told later."""
    try:
        return "image" in next(read_rows(Path(file).expanduser(), columns=("image", "text"))).fields
    except TaskError:
        return False


def _read(path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The distinct texts of each class, in file order, and `file:line` of the first of each."""
    try:
        placed = list(placed_samples(path, None))
    except TaskError as error:
        raise GeneratorError(str(error)) from None
    queues: dict[str, dict[str, str]] = {}
    places: dict[str, str] = {}
    for where, sample in placed:
        if is_reference(sample.text):
            raise GeneratorError(f"{where}: is an image, not a text; use pool:{path} in a task of images")
        places.setdefault(sample.class_name, where)
        queues.setdefault(sample.class_name, {}).setdefault(normalised_text(sample.text), sample.text)
    return {name: list(texts.values()) for name, texts in queues.items()}, places


def refuse_unknown_classes(places: Mapping[str, str], class_names: Sequence[str]) -> None:
    """Refuse samples of other classes only, and a misspelt class; raises `GeneratorError`.

    Args:
        places: Class -> where its first sample is.
        class_names: The classes of the task.
    """
    known = dict.fromkeys(class_names)
    unknown = [name for name in places if name not in known]
    for name in unknown:
        meant = [other for other in known if _is_near_miss(name, other)]
        if meant:
            remedy = f"did you mean {short(meant[0])}?"
            raise GeneratorError(f"{places[name]}: unknown class {short(name)}; {remedy}")
    if unknown and len(unknown) == len(places):
        first, remedy = unknown[0], suggestion(unknown[0], class_names)
        raise GeneratorError(f"{places[first]}: unknown class {short(first)}; {remedy}")


def _is_near_miss(name: str, other: str) -> bool:
    """Whether one was meant for the other: the same but for case and separators, or for one letter.

    The nearness of `suggestion` would be too much here, where 'card_arrival' and 'card_linking',
    'class_1' and 'class_2', 'type_a' and 'type_b' are classes of their own.
    """
    words, others = _words(name), _words(other)
    if "".join(words) == "".join(others):
        return True
    if len(words) != len(others):
        return False
    different = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
    return len(different) == 1 and _one_slip(*different[0])


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", name.casefold()) if word]


def _one_slip(a: str, b: str) -> bool:
    """One letter too many, too few or wrong, or two swapped."""
    if min(len(a), len(b)) < _SHORTEST_WORD:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    a, b = a[start:], b[start:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    swapped = len(a) == 2 and a == b[::-1]
    return (swapped or max(len(a), len(b)) == 1) and not any(c.isdigit() for c in a + b)


def shuffled(name: str, samples: list[T], seed: int) -> list[T]:
    """The samples of a class in another order.

    Args:
        name: The class; it decides the order, together with the seed.
        samples: In the order of their file.
        seed: Another seed gives another order.

    Returns:
        The same samples.
    """
    # Seeded by name: a class keeps its order whatever other classes the file has.
    own = int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "little")
    return [samples[place] for place in np.random.default_rng([seed, own]).permutation(len(samples))]


class ImagePoolGenerator(_ByClass[Path], ImageGenerator):
    """The images of a folder with one folder per class, or of a file with paths.

    They come in the order in which they are listed there, each at most once; with `seed` every class is
    shuffled on its own. Files are listed at the start and read when it is their turn, so a pool may be
    large. An image that the class has already is passed over, whatever its file is called, so a run that
    starts again goes on where it was; a broken one is left out and counted. What is handed out is copied
    into the run.
    """

    def __init__(self, source: str | Path, *, seed: int | None = None) -> None:
        self.source, self.seed = str(source), seed
        self._recorded, self._places = _listed(self.source)
        if seed is not None:
            self._recorded = {name: shuffled(name, files, seed) for name, files in self._recorded.items()}
        self.follow({})

    def __str__(self) -> str:
        return f"pool:{self.source}"

    def follow(self, classes: Mapping[str, str]) -> None:
        """Begin with the first image of each class, as it is called now."""
        super().follow(classes)
        self._handed: dict[str, set[str]] = defaultdict(set)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """Of names and sizes: to read all files only to tell two pools apart would take too long."""
        folders = {os.path.abspath(file.parent) for queue in self._recorded.values() for file in queue}
        root = os.path.commonpath(folders)
        total = hashlib.sha256()
        for name, queue in sorted(self._recorded.items()):
            for file in map(os.path.abspath, queue):  # in their order, which decides what comes first
                inner = file.removeprefix(root).replace(os.sep, "/")
                size = os.stat(file).st_size if os.path.exists(file) else -1
                total.update(f"{name}\0{inner}\0{size}\n".encode("utf-8", "surrogatepass"))
        return f"pool:files:{total.hexdigest()}" + ("" if self.seed is None else f":seed={self.seed}")

    async def generate(self, request: Request) -> Batch:
        """The next images of the class; the batch with the last of them closes it."""
        if request.spec.name not in self._queues:
            return Batch(closed="pool has no images of this class")
        return await asyncio.to_thread(self._next, request, self.store)

    def _next(self, request: Request, store: ImageStore) -> Batch:
        name, count = request.spec.name, max(request.count, 0)
        queue, existing = self._queues[name], set(request.existing)
        known = {*request.given, *self._handed[name]}
        taken: list[str] = []
        broken = counted = 0  # counted: those before the last image that was taken
        exhausted = True
        for index in range(self._cursors[name], len(queue)):
            try:
                reference = image_at(queue[index]).reference
                if reference in existing and reference not in known:
                    broken = counted  # handed out by an earlier process, which has counted those before it
                    known.add(reference)
                if reference in known:
                    continue
                if len(taken) == count:  # one more could be taken
                    decoded(queue[index], least_side=1)
                    exhausted = False
                    break
                store.put(queue[index].read_bytes())
            except (ImageError, OSError):
                broken += 1
                continue
            taken.append(reference)
            known.add(reference)
            self._cursors[name], counted = index + 1, broken
        self._handed[name].update(taken)
        unreadable = broken if exhausted else counted
        return Batch(
            tuple(taken),
            closed="pool exhausted" if exhausted else None,
            rejected={"unreadable": unreadable} if unreadable else {},
        )


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
