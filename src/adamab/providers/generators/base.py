"""The contract of a generator: a class, how many, what exists already."""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adamab.errors import GeneratorError, one_line
from adamab.task.images import Image, digest_of
from adamab.task.lexical import terms
from adamab.task.spec import ClassSpec, Modality

if TYPE_CHECKING:
    import PIL.Image

    from adamab.providers.cache import Replies
    from adamab.providers.http import ApiClient
    from adamab.providers.image_store import ImageStore
    from adamab.providers.metering import Usage
    from adamab.task.prompts import Prompts
    from adamab.task.recipe import Recipe

_POOL = 200  # texts that `diverse` looks at; more would cost time without showing more
_CLIPPED = 1000  # characters


@dataclass(frozen=True)
class GivenVectors:
    """The pooled vectors of the given samples, for generators that work in embedding space."""

    vectors: NDArray[np.float32]  # (n, d)
    class_index: NDArray[np.int64]  # (n,)


@dataclass(frozen=True)
class Request:
    """What the loop asks for: batch `number` of a class.

    It depends on the class, its given samples and its own earlier batches only, never on the round or on
    what other classes have got, so that a batch may be fetched before the policy asks for it.
    """

    spec: ClassSpec
    class_index: int
    count: int
    given: tuple[str, ...]  # given texts of the class
    existing: tuple[str, ...]  # texts of the class's earlier batches, as they came
    vectors: GivenVectors | None = None
    number: int = 0  # of the batch, counted from 0 for each class
    apart_from: ClassSpec | None = None  # the class that it is mistaken for, where the recipe says `contrast`


@dataclass(frozen=True)
class Batch:
    """What a generator answers: texts, or vectors of the pooled view.

    `closed` gives the reason why this class can give no more; the loop then never asks again.
    `refused` says that the generator declined to write (some of) it: the loop does not press, and
    closes a class that is refused again and again.
    """

    texts: tuple[str, ...] = ()
    vectors: NDArray[np.float32] | None = None
    closed: str | None = None
    refused: bool = False
    rejected: Mapping[str, int] = field(default_factory=dict)  # reason -> texts that it wrote in vain

    def __len__(self) -> int:
        return len(self.texts) if self.vectors is None else len(self.vectors)


class NewSamples:
    """The new samples of a batch so far; `key` tells which texts are the same."""

    def __init__(self, request: Request, key: Callable[[str], str] = str) -> None:
        self._key = key
        self._known = {key(text) for text in (*request.given, *request.existing)}
        self._count = request.count
        self.texts: list[str] = []
        self.rejected: Counter[str] = Counter()

    @property
    def missing(self) -> int:
        """How many are still wanted."""
        return self._count - len(self.texts)

    def add(self, texts: Sequence[str]) -> int:
        """Take what is new, and no more than is missing; how many that were."""
        before = len(self.texts)
        for text in texts:
            key = self._key(text)
            if key in self._known:
                self.rejected["repeat"] += 1
            elif self.missing > 0:
                self._known.add(key)
                self.texts.append(text)
        return len(self.texts) - before

    def batch(self, *, closed: str | None = None, refused: bool = False) -> Batch:
        """What the generator answers.

        Args:
            closed: why the class can give no more; None if it can.
            refused: whether the generator declined to write some of it.
        """
        return Batch(tuple(self.texts), closed=closed, refused=refused, rejected=dict(self.rejected))


@dataclass(frozen=True)
class Settings:
    """What a run tells its generator."""

    prompts: Prompts  # words the request
    seed: int
    recipe: Recipe
    images: ImageStore | None = None  # where images are found and put; None in a task of texts


class Generator(ABC):
    """Writes new samples of a class. `fingerprint` names what wrote them.

    A generator behind an API has a client in `api`, through which a run meters its calls, and looks
    into `replies` before it asks anything; a run puts its journal there.
    """

    fingerprint: str
    code: str = ""  # of a function: changes when that is edited, under the same name
    modality: Modality = "text"  # what it makes; "image": the texts of a batch are references of images
    yields_vectors: bool = False  # True where batches hold vectors of the pooled view instead of texts
    copies: bool = False  # True where samples are made of given ones alone, such as a mirrored image
    api: ApiClient | None = None
    replies: Replies | None = None

    def check(self, class_names: Sequence[str]) -> None:  # noqa: B027  # most have nothing to check
        """Refuse a task of these classes before anything is generated; raises `GeneratorError`."""

    def follow(self, classes: Mapping[str, str]) -> None:  # noqa: B027
        """Learn what the classes that a run has had are called now; only samples kept by class have to move.

        Args:
            classes: every class that it has had -> the one that has its samples now, even if that is gone.
        """

    def configure(self, settings: Settings) -> None:  # noqa: B027
        """Take a run's wording and settings, before the first request; most have no use for them."""

    def calls_for(self, request: Request, answer: Sequence[str]) -> list[tuple[Usage, Usage]]:
        """What to expect of each call of a batch that comes back as `answer`, and the most it may use."""
        raise self._no_dry_run()

    def most_calls(self, request: Request) -> list[Usage]:
        """The most that each call of a batch may use, however badly it is answered."""
        raise self._no_dry_run()

    def _no_dry_run(self) -> GeneratorError:
        return GeneratorError(
            f"{one_line(self.fingerprint)}: does not say what its calls take, so no dry run is possible; "
            "cap the calls with --budget instead"
        )

    @abstractmethod
    async def generate(self, request: Request) -> Batch:
        """At most `request.count` new samples of `request.spec`; fewer when the class runs out."""


def diverse(texts: Sequence[str], count: int, *, latest: int = 0) -> list[str]:
    """Texts that differ from each other: greedy farthest-point selection by the Jaccard index of their words.

    Args:
        texts: What to choose from.
        count: How many at most.
        latest: So many of the last ones are chosen first.

    Returns:
        The chosen texts, in their order.

    Example:
        >>> diverse(["a red car", "a red cart", "money back", "hello"], 2, latest=1)
        ['a red car', 'hello']
    """
    if len(texts) <= count:
        return list(texts)
    latest = min(latest, count)
    chosen = list(range(len(texts) - latest, len(texts)))
    size, most = len(texts) - latest, max(_POOL, count)
    pool = range(size) if size <= most else [number * size // most for number in range(most)]
    words = {place: frozenset(terms(texts[place])) for place in (*pool, *chosen)}
    likeness = {place: max((_jaccard(words[place], words[c]) for c in chosen), default=0.0) for place in pool}
    while len(chosen) < count:
        new = min(likeness, key=lambda place: (likeness[place], place))
        del likeness[new]
        chosen.append(new)
        for place in likeness:
            likeness[place] = max(likeness[place], _jaccard(words[place], words[new]))
    return [texts[place] for place in sorted(chosen)]


def clipped(text: str) -> str:
    """`text`, or its beginning where it is long."""
    return text if len(text) <= _CLIPPED else text[: _CLIPPED - 1] + "…"


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    common = len(a & b)
    return common / (len(a) + len(b) - common) if common else 0.0


_QUALITY = 92  # no artefacts that an embedder could see, and a quarter of a PNG


class ImageGenerator(Generator):
    """Makes images, which it puts into the run's store; a batch names them by their references."""

    modality = "image"
    images: ImageStore | None = None

    def configure(self, settings: Settings) -> None:
        """Learn where the images go."""
        if settings.images is None:
            raise GeneratorError(f"{self} makes images, but this task is of texts; use a generator of texts")
        self.images = settings.images

    @property
    def store(self) -> ImageStore:
        """The store that `configure` has given."""
        if self.images is None:
            raise GeneratorError(f"{self} was not configured: it does not know where to put its images")
        return self.images

    def add_image(self, new: NewSamples, image: PIL.Image.Image) -> bool:
        """Store an image as a JPEG and add its reference to a batch.

        Args:
            new: The batch, which knows the images that its class has.
            image: What to add.

        Returns:
            False, and nothing stored, if the class has the image already.
        """
        import PIL.Image

        # Nothing beside its pixels goes into the file.
        plain = PIL.Image.frombytes("RGB", image.size, image.convert("RGB").tobytes())
        stream = io.BytesIO()
        plain.save(stream, "JPEG", quality=_QUALITY)
        is_new = new.add([Image(digest_of(stream.getvalue()), Path()).reference]) == 1
        if is_new:
            self.store.put(stream.getvalue())
        return is_new


def own_seed(*parts: object) -> int:
    """A seed of 63 bits that belongs to these parts, on any machine and in any process.

    Example:
        >>> own_seed(0, "rose", 1) == own_seed(0, "rose", 1) != own_seed(0, "rose", 2)
        True
    """
    written = "\0".join(str(part) for part in parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(written).digest()[:8], "little") >> 1
