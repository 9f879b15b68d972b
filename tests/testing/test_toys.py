"""The toy embedder of images, and what the conformance suite finds in embedders of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from adamab.errors import EmbedderError, ImageError
from adamab.providers.embedders.base import Embedded, Item, Modality
from adamab.task.images import Image, digest_of
from adamab.testing import PixelEmbedder, check_embedder

pillow = pytest.importorskip("PIL.Image", reason="the extra 'images' is not installed")


def saved(path: Path, pixels: object) -> Image:
    pillow.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return Image(digest_of(path.read_bytes()), path)


@pytest.fixture
def images(tmp_path: Path) -> list[Image]:
    """Two reddish ones, a blue one, a black and a grey one."""
    random = np.random.default_rng(0)
    colours = [(200, 30, 30), (220, 50, 20), (20, 20, 210), (0, 0, 0), (127, 128, 128)]
    made = []
    for number, colour in enumerate(colours):
        noise = random.integers(0, 20, (30 + number, 50, 3)) if number < 3 else 0
        pixels = np.broadcast_to(np.array(colour), (30 + number, 50, 3)) + noise
        made.append(saved(tmp_path / f"{number}.png", pixels))
    return made


async def test_like_images_are_alike(images: list[Image]) -> None:
    pooled = (await PixelEmbedder().embed(images)).views["pooled"]
    assert pooled.shape == (5, 8 * 8 * 3 + 3 * 8)
    np.testing.assert_allclose(np.linalg.norm(pooled, axis=1), 1, atol=1e-6)
    assert pooled[0] @ pooled[1] > 0.8 > 0 > pooled[0] @ pooled[2]


async def test_calls_are_counted_once_per_image(images: list[Image]) -> None:
    embedder = PixelEmbedder()
    await embedder.embed([*images, images[0]])
    assert embedder.calls == 5


def test_conformance(images: list[Image]) -> None:
    embedder = PixelEmbedder(side=4, bins=2)
    assert embedder.modalities == {"image"}
    assert embedder.fingerprint != PixelEmbedder().fingerprint
    check_embedder(embedder, images=images)


async def test_a_broken_image_is_named(tmp_path: Path, images: list[Image]) -> None:
    (tmp_path / "bad.png").write_bytes(images[0].path.read_bytes()[:60])
    with pytest.raises(ImageError, match=r"bad\.png"):
        await PixelEmbedder().embed([images[0], Image("0" * 64, tmp_path / "bad.png")])


async def test_texts_are_refused() -> None:
    with pytest.raises(EmbedderError, match="embeds no texts"):
        await PixelEmbedder().embed(["a cat"])


class Sociable(PixelEmbedder):
    async def _embed(self, items: Sequence[Item], **options: object) -> Embedded:
        answer = await super()._embed(items, **options)  # type: ignore[arg-type]
        return Embedded({v: x + len(items) for v, x in answer.views.items()}, answer.overlong)


class Greedy(PixelEmbedder):
    """Says that it takes images only, but takes texts as well."""

    def _check_request(
        self, items: Sequence[Item], kind: str, views: Sequence[str] | None
    ) -> tuple[str, ...]:
        return super()._check_request([], kind, views)

    async def _embed(self, items: Sequence[Item], **options: object) -> Embedded:
        return Embedded({"pooled": np.ones((len(items), 2), np.float32)}, np.zeros(len(items), np.bool_))


class TwoTowers(PixelEmbedder):
    """Its texts all have one vector; beside images they have another."""

    modalities: frozenset[Modality] = frozenset({"text", "image"})
    muddled = False

    async def _embed(self, items: Sequence[Item], **options: object) -> Embedded:
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
        (Sociable(), "the vector of one image depends on its neighbours"),
        (Greedy(), "takes no texts must refuse them"),
        (Muddled(), "texts beside images in one call"),
    ],
)
def test_broken_embedders_are_found(embedder: PixelEmbedder, message: str, images: list[Image]) -> None:
    with pytest.raises(AssertionError, match=message):
        check_embedder(embedder, images=images)


def test_two_towers_conform(images: list[Image]) -> None:
    check_embedder(TwoTowers(), images=images)


def test_images_must_be_given() -> None:
    with pytest.raises(AssertionError, match="give three or more distinct images"):
        check_embedder(PixelEmbedder())
