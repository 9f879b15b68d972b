"""Variants of given images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from adamab.errors import GeneratorError
from adamab.providers.generators.base import Batch, Request, Settings
from adamab.providers.generators.transform import TransformGenerator, from_spec
from adamab.providers.image_store import ImageStore
from adamab.task.image_folders import image_at
from adamab.task.images import decoded
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.testing import check_generator

ROSE = ClassSpec("rose")


def settings(store: ImageStore | None, seed: int = 0) -> Settings:
    return Settings(Prompts(), seed, Recipe(), store)


def sample_image(file: Path, size: tuple[int, int] = (80, 60), seed: int = 0) -> str:
    """A smooth image whose left and right, top and bottom differ; its reference."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    PIL.Image.fromarray(coarse).resize(size, PIL.Image.Resampling.BICUBIC).save(file)
    return image_at(file).reference


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    store = ImageStore(tmp_path / "images")
    for seed in range(3):
        sample_image(tmp_path / f"{seed}.png", seed=seed)
        store.know([image_at(tmp_path / f"{seed}.png")])
    return store


@pytest.fixture
def given(store: ImageStore, tmp_path: Path) -> tuple[str, ...]:
    return tuple(image_at(tmp_path / f"{seed}.png").reference for seed in range(3))


@pytest.fixture
def ask(store: ImageStore) -> Callable[..., Batch]:
    def ask(request: Request, *, run_seed: int = 0, **options: object) -> Batch:
        generator = TransformGenerator(**options)  # type: ignore[arg-type]
        generator.configure(settings(store, run_seed))
        return asyncio.run(generator.generate(request))

    return ask


def pixels(store: ImageStore, reference: str) -> np.ndarray:
    return np.asarray(decoded(store.find(reference)), dtype=float)


def test_a_batch_is_distinct_new_and_stored(
    ask: Callable[..., Batch], store: ImageStore, given: tuple[str, ...]
) -> None:
    batch = ask(Request(ROSE, 0, 9, given, ()))
    assert (len(set(batch.texts)), batch.closed, batch.rejected) == (9, None, {})
    assert not set(batch.texts) & set(given)
    for reference in batch.texts:
        image = store.find(reference)
        assert image.path.parent == store.directory
        assert image.path.suffix == ".jpg"
        assert image_at(image.path).reference == reference
    assert len(list(store.directory.glob("*.jpg"))) == 9


def test_images_belong_to_seed_class_number_and_position(
    ask: Callable[..., Batch], given: tuple[str, ...]
) -> None:
    first = Request(ROSE, 0, 4, given, ())
    same = ask(first).texts
    assert ask(first).texts == same
    assert ask(replace(first, class_index=5)).texts == same  # the name counts, not the place in the task
    assert ask(replace(first, count=2)).texts == same[:2]
    others = [
        ask(replace(first, number=1)),
        ask(replace(first, spec=ClassSpec("tulip"))),
        ask(first, run_seed=1),
        ask(first, strength=0.6),
    ]
    assert not any(set(batch.texts) & set(same) for batch in others)
    assert ask(first, run_seed=1, seed=0).texts == same  # its own seed counts


def test_the_given_images_take_turns(
    ask: Callable[..., Batch], store: ImageStore, given: tuple[str, ...]
) -> None:
    def nearest(reference: str) -> int:
        mean = pixels(store, reference).mean(axis=(0, 1))
        return int(np.argmin([np.abs(pixels(store, g).mean(axis=(0, 1)) - mean).sum() for g in given]))

    texts = [
        text
        for number in range(3)
        for text in ask(Request(ROSE, 0, 2, given, (), number=number), strength=0.05).texts
    ]
    assert [nearest(text) for text in texts] == [0, 1, 2, 0, 1, 2]


def test_flip_can_be_switched_off(
    ask: Callable[..., Batch], store: ImageStore, given: tuple[str, ...]
) -> None:
    def flipped(flip: bool) -> int:
        request = Request(ROSE, 0, 12, given[:1], ())
        original = decoded(store.find(given[0]))
        mirror = np.asarray(original.transpose(PIL.Image.Transpose.FLIP_LEFT_RIGHT), float)
        plain = np.asarray(original, float)
        count = 0
        for reference in ask(request, strength=0.05, flip=flip).texts:
            seen = np.asarray(decoded(store.find(reference)).resize(original.size), float)
            count += bool(np.abs(seen - mirror).mean() < np.abs(seen - plain).mean())
        return count

    assert flipped(False) == 0
    assert 2 <= flipped(True) <= 10


def test_no_corner_is_made_up(ask: Callable[..., Batch], store: ImageStore, tmp_path: Path) -> None:
    # The rectangle lies inside the image: a white one has no dark edge after any rotation.
    PIL.Image.new("RGB", (300, 40), "white").save(tmp_path / "white.png")
    image = image_at(tmp_path / "white.png")
    store.know([image])
    for reference in ask(Request(ROSE, 0, 8, (image.reference,), ()), strength=1.0).texts:
        seen = pixels(store, reference)
        assert (seen.max(axis=(0, 1)) - seen.min(axis=(0, 1))).max() <= 2


def test_large_and_tiny_images(ask: Callable[..., Batch], store: ImageStore, tmp_path: Path) -> None:
    for size in ((1600, 900), (1, 1), (1, 300)):
        sample_image(tmp_path / "odd.png", size)
        image = image_at(tmp_path / "odd.png")
        store.know([image])
        batch = ask(Request(ROSE, 0, 2, (image.reference,), ()))
        assert len(batch) == 2
        assert max(max(decoded(store.find(text)).size) for text in batch.texts) <= 512


def test_a_class_without_images_is_closed(ask: Callable[..., Batch]) -> None:
    assert ask(Request(ROSE, 0, 2, (), ())).closed == "transform needs a given image of this class"


def test_a_class_without_variants_is_closed(
    ask: Callable[..., Batch], store: ImageStore, tmp_path: Path
) -> None:
    PIL.Image.new("RGB", (8, 8), "black").save(tmp_path / "black.png")  # black stays black
    image = image_at(tmp_path / "black.png")
    store.know([image])
    seen: tuple[str, ...] = ()
    for number in range(20):
        batch = ask(Request(ROSE, 0, 40, (image.reference,), seen, number=number), strength=0.01)
        seen += batch.texts
        if batch.closed:
            break
    assert batch.closed == "transform finds no new variant of the given images"
    assert len(set(seen)) == len(seen)


def test_it_conforms(store: ImageStore, given: tuple[str, ...]) -> None:
    def make() -> TransformGenerator:
        generator = TransformGenerator()
        generator.configure(settings(store))
        return generator

    check_generator(make, Request(ROSE, 0, 3, given, ()))


def test_fingerprints_tell_settings_apart(store: ImageStore) -> None:
    made = [
        TransformGenerator(seed=s, strength=t, flip=f)
        for s in (0, 1)
        for t in (0.5, 1)
        for f in (True, False)
    ]
    assert len({generator.fingerprint for generator in made}) == 8
    generator = TransformGenerator()
    generator.configure(settings(store, 1))
    assert generator.fingerprint == TransformGenerator(seed=1).fingerprint


def test_specs() -> None:
    generator = from_spec("", seed=3, strength=0.2, flip="no")
    assert (generator.seed, generator.strength, generator.flip, str(generator)) == (
        3,
        0.2,
        False,
        "transform",
    )
    assert generator.modality == "image"
    for make, message in (
        (lambda: from_spec("x"), "transform:x: 'transform' takes no argument"),
        (lambda: from_spec("", flip="perhaps"), "flip='perhaps'; write yes or no"),
        (lambda: from_spec("", strength=0), "strength is 0"),
        (lambda: from_spec("", strength=float("nan")), "strength is nan"),
        (lambda: from_spec("", seed=-1), "seed is -1"),
    ):
        with pytest.raises(GeneratorError, match=message):
            make()


async def test_tasks_of_texts_are_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(GeneratorError, match="transform makes images, but this task is of texts"):
        TransformGenerator().configure(settings(None))
    with pytest.raises(GeneratorError, match="not configured"):
        await TransformGenerator().generate(Request(ROSE, 0, 1, given, ()))
