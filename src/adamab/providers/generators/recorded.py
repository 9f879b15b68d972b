"""`replay:FILE` and `pool:FILE`: samples written down before, handed out a class at a time."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from adamab.errors import GeneratorError, TaskError
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.task.files import read_rows
from adamab.task.images import is_reference
from adamab.task.messages import short, suggestion
from adamab.task.samples import placed_samples
from adamab.task.specs import join_spec
from adamab.task.words import folded

T = TypeVar("T")

_SHORTEST_WORD = 4  # below, one letter is a difference: 'sms' and 'sim'


class ReplayGenerator(Generator):
    """Recorded samples (JSONL with `label` and `text`) in file order, each at most once.

    With `seed` every class is shuffled on its own. Texts that the request gives or that exist
    already are passed over, so a run that starts again goes on where it was.
    """

    prefix = "replay"
    source = "recording"

    def __init__(self, path: str | Path, *, seed: int | None = None) -> None:
        self.path = Path(path).expanduser()
        self._queues, self._places = _read(self.path)
        self._cursors = dict.fromkeys(self._queues, 0)
        self._keys: dict[str, str] = {}
        if seed is not None:
            self._queues = {name: shuffled(name, texts, seed) for name, texts in self._queues.items()}
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self.fingerprint = f"{self.prefix}:sha256:{digest}" + ("" if seed is None else f":seed={seed}")

    def __str__(self) -> str:
        return f"{self.prefix}:{self.path}"

    def check(self, class_names: Sequence[str]) -> None:
        """Refuse a recording of other classes only, and one with a misspelt class.

        Other classes beside those of the task are fine: a recording may serve several tasks.
        """
        refuse_unknown_classes(self._places, class_names)

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
        exhausted = next(left, None) is None
        return Batch(tuple(queue[place] for place in taken), closed=self._exhausted if exhausted else None)

    def _key(self, text: str) -> str:
        """The folded text. Every batch asks for those of all earlier ones, so each is worked out once."""
        if text not in self._keys:
            self._keys[text] = folded(text)
        return self._keys[text]

    @property
    def _exhausted(self) -> str:
        return f"{self.source} exhausted"


class PoolGenerator(ReplayGenerator):
    """Real held-out samples, as a perfect generator: what a generator could give at best."""

    prefix = "pool"
    source = "pool"


def pool_from_spec(rest: str, *, seed: int | None = None, split: str | None = None) -> Generator:
    """What the registry calls for `pool`: a pool of pictures, or of texts where the file has them.

    `split` is for a known data set of pictures.
    """
    from adamab.task.image_sets import is_image_set

    is_set = is_image_set(rest)
    if split is not None and not is_set:
        raise GeneratorError(f"pool:{rest}: option split is for known data sets; leave it out")
    if not is_set and not os.path.exists(os.path.expanduser(rest)):
        raise GeneratorError(f"pool:{rest}: no such file or folder; check the path")
    if is_set or os.path.isdir(os.path.expanduser(rest)) or _names_pictures(rest):
        # With it comes what opens pictures, for which texts have no use.
        from adamab.providers.generators.image_pool import ImagePoolGenerator

        return ImagePoolGenerator(join_spec(rest, {"split": split} if split else {}), seed=seed)
    return PoolGenerator(rest, seed=seed)


def _names_pictures(file: str) -> bool:
    """Whether the first row has the path of a picture; what is wrong with a file is told later."""
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
            raise GeneratorError(f"{where}: is a picture, not a text; use pool:{path} in a task of pictures")
        places.setdefault(sample.class_name, where)
        queues.setdefault(sample.class_name, {}).setdefault(folded(sample.text), sample.text)
    return {name: list(texts.values()) for name, texts in queues.items()}, places


def refuse_unknown_classes(places: Mapping[str, str], class_names: Sequence[str]) -> None:
    """Refuse samples (class -> where its first one is) of other classes only, and a misspelt class."""
    known = dict.fromkeys(class_names)
    unknown = [name for name in places if name not in known]
    for name in unknown:
        meant = [other for other in known if _is_near_miss(name, other)]
        if meant:
            raise _unknown_class(places[name], name, f"did you mean {short(meant[0])}?")
    if len(unknown) == len(places):
        raise _unknown_class(places[unknown[0]], unknown[0], suggestion(unknown[0], class_names))


def _unknown_class(where: str, name: str, remedy: str) -> GeneratorError:
    return GeneratorError(f"{where}: unknown class {short(name)}; {remedy}")


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
    """The samples of a class in another order, which belongs to the class and the seed."""
    # Seeded by name: a class keeps its order whatever other classes the file has.
    own = int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "little")
    return [samples[place] for place in np.random.default_rng([seed, own]).permutation(len(samples))]
