"""The conformance suites find what they are there to find."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from adamab.providers.embedders.base import Embedded
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.task.spec import ClassSpec
from adamab.testing import HashEmbedder, check_embedder, check_generator

REQUEST = Request(ClassSpec("refund"), 0, 2, given=("given text",), existing=())


class Drifting(HashEmbedder):
    async def _embed(self, texts: Sequence[str], **options: object) -> Embedded:
        answer = await super()._embed(texts, **options)  # type: ignore[arg-type]
        return Embedded({v: x + self.calls for v, x in answer.views.items()}, answer.overlong)


class Sociable(HashEmbedder):
    async def _embed(self, texts: Sequence[str], **options: object) -> Embedded:
        answer = await super()._embed(texts, **options)  # type: ignore[arg-type]
        return Embedded({v: x + len(texts) for v, x in answer.views.items()}, answer.overlong)


class Lenient(HashEmbedder):
    """Takes any name for a view."""

    def _check_request(self, *_: object) -> tuple[str, ...]:
        return self.views


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        (Drifting(), "other vectors|asked for alone"),
        (Sociable(), "neighbours"),
        (Lenient(), "unknown view"),
    ],
)
def test_broken_embedders_are_found(embedder: HashEmbedder, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_embedder(embedder)


class Scripted(Generator):
    fingerprint = "scripted"

    def __init__(self, *batches: Batch) -> None:
        self.batches = list(batches)

    async def generate(self, request: Request) -> Batch:
        return self.batches.pop(0)


NOISE = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch(), "must close"),
        (Batch(("a", "b", "c")), "asked for 2"),
        (Batch(("a", " ")), "empty"),
        (Batch(("GIVEN  text",)), "there already"),
        (Batch(("a", "A")), "there already"),
        (Batch(("a",), closed=" "), "reason"),
        (Batch((1,)), "strings"),  # type: ignore[arg-type]
        (Batch(("a",), vectors=NOISE), "not both"),
        (Batch(vectors=NOISE.astype(float)), "float32"),  # type: ignore[arg-type]
        (Batch(vectors=NOISE[0]), "matrix"),
        (Batch(vectors=NOISE + np.float32(np.nan)), "finite"),
    ],
)
def test_broken_batches_are_found(batch: Batch, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_generator(lambda: Scripted(batch), REQUEST)


def test_generators_that_differ_are_found() -> None:
    makes = iter([Scripted(Batch(("a",), closed="end")), Scripted(Batch(("b",), closed="end"))])
    with pytest.raises(AssertionError, match="other texts"):
        check_generator(lambda: next(makes), REQUEST)


def test_a_random_generator_may_say_so() -> None:
    check_generator(
        lambda: Scripted(Batch(("a",)), Batch(("b",), closed="end")), REQUEST, deterministic=False
    )
