"""The contract of a generator: a class, how many, what exists already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adamab.task.spec import ClassSpec


@dataclass(frozen=True)
class GivenVectors:
    """The pooled vectors of the given samples, for generators that work in embedding space."""

    vectors: NDArray[np.float32]  # (n, d)
    class_index: NDArray[np.int64]  # (n,)


@dataclass(frozen=True)
class Request:
    """What the loop asks for."""

    spec: ClassSpec
    class_index: int
    count: int
    given: tuple[str, ...]  # given texts of the class
    existing: tuple[str, ...]  # synthetic texts of the class accepted so far
    vectors: GivenVectors | None = None


@dataclass(frozen=True)
class Batch:
    """What a generator answers: texts, or vectors of the pooled view.

    `closed` gives the reason why this class can give no more; the loop then never asks again.
    """

    texts: tuple[str, ...] = ()
    vectors: NDArray[np.float32] | None = None
    closed: str | None = None

    def __len__(self) -> int:
        return len(self.texts) if self.vectors is None else len(self.vectors)


class Generator(ABC):
    """Writes new samples of a class. `fingerprint` names what wrote them."""

    fingerprint: str
    yields_vectors: bool = False  # True where batches hold vectors of the pooled view instead of texts

    def check(self, class_names: Sequence[str]) -> None:  # noqa: B027  # most have nothing to check
        """Refuse a task of these classes before anything is generated; raises `GeneratorError`."""

    @abstractmethod
    async def generate(self, request: Request) -> Batch:
        """At most `request.count` new samples of `request.spec`; fewer when the class runs out."""
