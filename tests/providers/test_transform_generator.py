"""Variants of given images."""

import asyncio
from dataclasses import replace

import numpy as np
import PIL.Image
import pytest

from adamab.errors import GeneratorError
from adamab.providers.generators.base import Request, Settings
from adamab.providers.generators.variations import TransformGenerator, transform_from_spec
from adamab.task.image_folders import image_at
from adamab.task.images import decoded
from adamab.task.prompts import Prompts
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec
from adamab.testing import check_generator

ROSE = ClassSpec("rose")


def put(store, image):
    """Give the store an image from outside; its reference."""
    file = store.directory.parent / f"{len(list(store.directory.parent.iterdir()))}.png"
    image.save(file)
    store.know([image_at(file)])
    return image_at(file).reference


def smooth(seed, size=(80, 60)):
    """An image whose left and right, top and bottom differ."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    return PIL.Image.fromarray(coarse).resize(size, PIL.Image.Resampling.BICUBIC)


@pytest.fixture
def given(store):
    return tuple(put(store, smooth(seed)) for seed in range(3))


@pytest.fixture
def ask(store):
    def ask(request, *, run_seed=0, **options):
        generator = TransformGenerator(**options)  # type: ignore[arg-type]
        generator.configure(Settings(Prompts(), run_seed, Recipe(), store))
        return asyncio.run(generator.generate(request))

    return ask


def pixels(store, reference):
    return np.asarray(decoded(store.find(reference)), dtype=float)


def test_a_batch_is_distinct_new_and_stored(ask, store, given):
    batch = ask(Request(ROSE, 0, 9, given, ()))
    assert (len(set(batch.texts)), batch.closed, batch.rejected) == (9, None, {})
    assert not set(batch.texts) & set(given)
    for reference in batch.texts:
        image = store.find(reference)
        assert image.path.parent == store.directory
        assert image.path.suffix == ".jpg"
        assert image_at(image.path).reference == reference
    assert len(list(store.directory.glob("*.jpg"))) == 9


def test_images_belong_to_seed_class_number_and_position(ask, given):
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


def test_the_given_images_take_turns(ask, store, given):
    def nearest(reference):
        mean = pixels(store, reference).mean(axis=(0, 1))
        return int(np.argmin([np.abs(pixels(store, g).mean(axis=(0, 1)) - mean).sum() for g in given]))

    texts = [
        text
        for number in range(3)
        for text in ask(Request(ROSE, 0, 2, given, (), number=number), strength=0.05).texts
    ]
    assert [nearest(text) for text in texts] == [0, 1, 2, 0, 1, 2]


def test_flip_can_be_switched_off(ask, store, given):
    def flipped(flip):
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


def test_no_corner_is_made_up(ask, store):
    # The rectangle lies inside the image: a white one has no dark edge after any rotation.
    white = put(store, PIL.Image.new("RGB", (300, 40), "white"))
    for reference in ask(Request(ROSE, 0, 8, (white,), ()), strength=1.0).texts:
        seen = pixels(store, reference)
        assert (seen.max(axis=(0, 1)) - seen.min(axis=(0, 1))).max() <= 2


@pytest.mark.parametrize("size", [(1600, 900), (1, 1), (1, 300)])
def test_large_and_tiny_images(ask, store, size):
    batch = ask(Request(ROSE, 0, 2, (put(store, smooth(0, size)),), ()))
    assert len(batch) == 2
    assert max(max(decoded(store.find(text)).size) for text in batch.texts) <= 512


def test_a_class_without_variants_is_closed(ask, store):
    assert ask(Request(ROSE, 0, 2, (), ())).closed == "transform needs a given image of this class"
    black = put(store, PIL.Image.new("RGB", (8, 8), "black"))  # black stays black
    seen = ()
    for number in range(20):
        batch = ask(Request(ROSE, 0, 40, (black,), seen, number=number), strength=0.01)
        seen += batch.texts
        if batch.closed:
            break
    assert batch.closed == "transform finds no new variant of the given images"
    assert len(set(seen)) == len(seen)


def test_it_conforms_and_tells_settings_apart(store, given):
    def make(**options):
        generator = transform_from_spec("", **options)
        generator.configure(Settings(Prompts(), 1, Recipe(), store))
        return generator

    check_generator(make, Request(ROSE, 0, 3, given, ()))
    assert make().fingerprint == make(seed=1).fingerprint
    options = [{}, {"seed": 3}, {"strength": 0.2}, {"flip": "no"}]
    assert len({make(**option).fingerprint for option in options}) == 4


@pytest.mark.parametrize(
    ("rest", "options", "message"),
    [
        ("x", {}, "transform:x: 'transform' takes no argument"),
        ("", {"flip": "perhaps"}, "flip='perhaps'; write yes or no"),
        ("", {"strength": 0}, "strength is 0"),
        ("", {"strength": float("nan")}, "strength is nan"),
        ("", {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_specs(rest, options, message):
    with pytest.raises(GeneratorError, match=message):
        transform_from_spec(rest, **options)
