"""Images as a network takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adamab.providers.embedders import local_models as pixels
from adamab.providers.embedders.local_models import Preparation
from adamab.task.images import Image, digest_of

pillow = pytest.importorskip("PIL.Image", reason="the extra 'images' is not installed")


def sample_image(height: int, width: int) -> object:
    """Red grows downwards, green to the right."""
    rows, columns = np.mgrid[0:height, 0:width]
    colours = [rows * 255 / max(height - 1, 1), columns * 255 / max(width - 1, 1), rows * 0 + 77]
    return pillow.fromarray(np.stack(colours, axis=2).astype(np.uint8))


def saved(path: Path, what: object) -> Image:
    what.save(path)  # type: ignore[attr-defined]
    return Image(digest_of(path.read_bytes()), path)


def test_a_image_of_the_right_size_keeps_its_numbers(tmp_path: Path) -> None:
    image = saved(tmp_path / "a.png", sample_image(16, 16))
    batch = Preparation(16, 16, unit=False).batch([image])
    assert (batch.shape, batch.dtype) == ((1, 3, 16, 16), np.float32)
    np.testing.assert_array_equal(batch[0, 0, :, 0], np.linspace(0, 255, 16).astype(np.uint8))
    np.testing.assert_array_equal(batch[0, 1, 0], np.linspace(0, 255, 16).astype(np.uint8))
    normalised = Preparation(16, 16, mean=(0.1, 0.2, 0.3), std=(0.5, 2, 4)).batch([image])
    np.testing.assert_allclose(normalised[0, 2], (77 / 255 - 0.3) / 4, rtol=1e-5)
    np.testing.assert_allclose(normalised[0, 0, -1], (1 - 0.1) / 0.5, rtol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(50, 200), (200, 50), (64, 64), (7, 9)])
def test_the_middle_is_taken(height: int, width: int) -> None:
    cropped = np.asarray(Preparation(32, 32).cropped(sample_image(height, width)), np.float64)
    assert cropped.shape == (32, 32, 3)
    np.testing.assert_allclose(cropped.mean(axis=(0, 1))[:2], 127.5, atol=5)
    whole = np.asarray(Preparation(32, 32, margin=1.0).cropped(sample_image(height, width)), np.float64)
    nearer = np.asarray(Preparation(32, 32, margin=2.0).cropped(sample_image(height, width)), np.float64)
    assert np.ptp(nearer[:, :, 0]) < 0.7 * np.ptp(whole[:, :, 0])


def test_squashed_images_show_everything() -> None:
    cropped = np.asarray(Preparation(32, 32, squash=True).cropped(sample_image(50, 180)))
    assert cropped[:, :, 0].min() < 5
    assert cropped[:, :, 1].max() > 250
    assert cropped[:, :, 1].min() < 5


@pytest.mark.parametrize(("height", "width"), [(16, 32), (32, 16)])
def test_inputs_need_not_be_square(height: int, width: int) -> None:
    preparation = Preparation(height, width, margin=1.25)
    assert preparation.cover == (height * 5 // 4, width * 5 // 4)
    for source in (sample_image(40, 90), sample_image(90, 40), sample_image(3, 3)):
        assert preparation.cropped(source).size == (width, height)


@pytest.mark.parametrize(("height", "width"), [(1, 50_000), (50_000, 1)])
def test_a_line_of_pixels_needs_no_gigabytes(height: int, width: int) -> None:
    line = pillow.new("RGB", (width, height), (10, 20, 30))
    assert pixels.without_ends(line).size in {(4, 1), (1, 4)}
    assert Preparation(224, 224).cropped(line).getpixel((5, 5)) == (10, 20, 30)


def test_strips_lose_only_what_the_crop_does_not_see() -> None:
    strip = sample_image(20, 200)
    width, height = pixels.without_ends(strip).size
    assert (width, height) == (80, 20)
    np.testing.assert_array_equal(np.asarray(pixels.without_ends(strip)), np.asarray(strip)[:, 60:140])
    plain = sample_image(20, 80)
    assert pixels.without_ends(plain) is plain


def test_rows_of_length_one() -> None:
    rows = np.array([[3, 4], [0, 0]], np.float16)
    found = pixels.of_length_one(rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]], atol=1e-6)
    np.testing.assert_array_equal(rows, [[3, 4], [0, 0]])
