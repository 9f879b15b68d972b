"""The contract of a generator: a class, how many, what exists already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adamab.task.spec import ClassSpec, Modality

if TYPE_CHECKING:
    from adamab.providers.http import ApiClient
    from adamab.providers.image_store import ImageStore
    from adamab.providers.replies import Replies
    from adamab.task.prompts import Prompts
    from adamab.task.recipe import Recipe


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


@dataclass(frozen=True)
class Settings:
    """What a run tells its generator."""

    prompts: Prompts  # words the request
    seed: int
    recipe: Recipe
    images: ImageStore | None = None  # where pictures are found and put; None in a task of texts


class Generator(ABC):
    """Writes new samples of a class. `fingerprint` names what wrote them.

    A generator behind an API has a client in `api`, through which a run meters its calls, and looks
    into `replies` before it asks anything; a run puts its journal there.
    """

    fingerprint: str
    modality: Modality = "text"  # what it makes; "image": the texts of a batch are references of pictures
    yields_vectors: bool = False  # True where batches hold vectors of the pooled view instead of texts
    copies: bool = False  # True where samples are near copies of given ones, such as a mirrored picture
    api: ApiClient | None = None
    replies: Replies | None = None

    def check(self, class_names: Sequence[str]) -> None:  # noqa: B027  # most have nothing to check
        """Refuse a task of these classes before anything is generated; raises `GeneratorError`."""

    def configure(self, settings: Settings) -> None:  # noqa: B027
        """Take a run's wording and settings, before the first request; most have no use for them."""

    @abstractmethod
    async def generate(self, request: Request) -> Batch:
        """At most `request.count` new samples of `request.spec`; fewer when the class runs out."""
