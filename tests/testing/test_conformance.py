"""The conformance suites find what they are there to find, and the toy embedders conform."""

from __future__ import annotations

import numpy as np
import pytest

from adamab.errors import ImageError
from adamab.providers.embedders.base import Embedded, Modality
from adamab.providers.generators.base import Batch, Generator, Request
from adamab.task.images import Image, digest_of
from adamab.task.spec import ClassSpec
from adamab.testing import HashEmbedder, PixelEmbedder, check_embedder, check_generator

pillow = pytest.importorskip("PIL.Image", reason="the extra 'images' is not installed")
REQUEST = Request(ClassSpec("refund"), 0, 2, given=("given text",), existing=())


@pytest.fixture
def images(tmp_path):
    """Two reddish ones, a blue one, a black and a grey one."""
    random = np.random.default_rng(0)
    made = []
    for colour in [(200, 30, 30), (220, 50, 20), (20, 20, 210), (0, 0, 0), (127, 128, 128)]:
        path = tmp_path / f"{len(made)}.png"
        noise = random.integers(0, 20, (30, 50, 3)) if len(made) < 3 else np.zeros((30, 50, 3))
        pillow.fromarray((np.array(colour) + noise).astype(np.uint8)).save(path)
        made.append(Image(digest_of(path.read_bytes()), path))
    return made


async def test_like_images_are_alike_and_each_is_embedded_once(tmp_path, images):
    embedder = PixelEmbedder()
    pooled = (await embedder.embed([*images, images[0]])).views["pooled"]
    assert embedder.calls == 5
    np.testing.assert_allclose(np.linalg.norm(pooled, axis=1), 1, atol=1e-6)
    assert pooled[0] @ pooled[1] > 0.8 > 0 > pooled[0] @ pooled[2]
    (tmp_path / "bad.png").write_bytes(images[0].path.read_bytes()[:60])
    with pytest.raises(ImageError, match=r"bad\.png"):
        await embedder.embed([Image("0" * 64, tmp_path / "bad.png")])


class Drifting(HashEmbedder):
    async def _embed(self, texts, **options):
        answer = await super()._embed(texts, **options)  # type: ignore[arg-type]
        return Embedded({v: x + self.calls for v, x in answer.views.items()}, answer.overlong)


class Sociable(PixelEmbedder):
    async def _embed(self, items, **options):
        answer = await super()._embed(items, **options)  # type: ignore[arg-type]
        return Embedded({v: x + len(items) for v, x in answer.views.items()}, answer.overlong)


class Lenient(HashEmbedder):
    """Takes any name for a view."""

    def _check_request(self, *_):
        return self.views


class Greedy(PixelEmbedder):
    """Says that it takes images only, but takes texts as well."""

    def _check_request(self, items, kind, views):
        return super()._check_request([], kind, views)

    async def _embed(self, items, **options):
        return Embedded({"pooled": np.ones((len(items), 2), np.float32)}, np.zeros(len(items), np.bool_))


class TwoTowers(PixelEmbedder):
    """Its texts all have one vector; beside images they have another where it is muddled."""

    modalities: frozenset[Modality] = frozenset({"text", "image"})
    muddled = False

    async def _embed(self, items, **options):
        rows = []
        for item in items:
            vector = self._vector(item) if isinstance(item, Image) else np.ones(216, np.float32) * len(item)
            rows.append(vector * (-1 if self.muddled and len({type(i) for i in items}) > 1 else 1))
        return Embedded({"pooled": np.stack(rows)}, np.zeros(len(items), np.bool_))


class Muddled(TwoTowers):
    muddled = True


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        (Drifting(), "other vectors|requested alone"),
        (Lenient(), "unknown view"),
        (Sociable(), "the vector of one image depends on its neighbours"),
        (Greedy(), "takes no texts must refuse them"),
        (Muddled(), "texts beside images in one call"),
    ],
)
def test_broken_embedders_are_found(embedder, message, images):
    given = images if "image" in embedder.modalities else ()
    with pytest.raises(AssertionError, match=message):
        check_embedder(embedder, images=given)


def test_embedders_that_conform(images):
    check_embedder(HashEmbedder(), images=images)
    check_embedder(PixelEmbedder(), images=images)
    check_embedder(TwoTowers(), images=images)
    with pytest.raises(AssertionError, match="give three or more distinct images"):
        check_embedder(PixelEmbedder())


class Scripted(Generator):
    fingerprint = "scripted"

    def __init__(self, *batches):
        self.batches = list(batches)

    async def generate(self, request):
        return self.batches.pop(0)


NOISE = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch(), "must close"),
        (Batch(("a", "b", "c")), "requested 2"),
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
def test_broken_batches_are_found(batch, message):
    with pytest.raises(AssertionError, match=message):
        check_generator(lambda: Scripted(batch), REQUEST)


def test_generators_that_differ_are_found_unless_they_may():
    makes = iter([Scripted(Batch(("a",), closed="end")), Scripted(Batch(("b",), closed="end"))])
    with pytest.raises(AssertionError, match="other texts"):
        check_generator(lambda: next(makes), REQUEST)
    batches = Batch(("a",)), Batch(("b",), closed="end")
    check_generator(lambda: Scripted(*batches), REQUEST, deterministic=False)
