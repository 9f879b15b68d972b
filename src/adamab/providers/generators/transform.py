"""`transform`: new images out of the given ones by crop, flip, rotation and colour; needs no model."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import numpy as np

from adamab.errors import GeneratorError, short
from adamab.providers.generators.base import Batch, ImageGenerator, NewSamples, Request, Settings, own_seed
from adamab.task.images import decoded

if TYPE_CHECKING:
    import PIL.Image

_DEFINITION = "transform-1"  # changes whenever the same seed would give other images
_LONGEST_SIDE = 512  # pixels: embedders look at less
_ATTEMPTS = 8  # at an image that is not there yet; a plain surface has few variants
_SWITCH = {"yes": True, "no": False}

# What full strength allows; the default is half of it.
_LEAST_AREA = 0.25  # of the image that a crop keeps
_STRETCH = 0.3  # logarithm of the change of the sides' ratio
_DEGREES = 30.0
_COLOUR = 0.6  # of brightness, contrast and saturation
_TINT = 0.15  # of a single colour channel
_BLUR = 1.5  # pixels


class TransformGenerator(ImageGenerator):
    """Variants of a class's given images, which take turns; each is made from the original.

    `strength` (above 0, at most 1) says how far a variant may be from its original. `flip` is for things
    whose left and right can be swapped: not for writing or logos. The same seed, class, number of the
    batch and position in it give the same image.
    """

    copies = True

    def __init__(self, *, seed: int | None = None, strength: float = 0.5, flip: bool = True) -> None:
        if seed is not None and seed < 0:
            raise GeneratorError(f"transform: seed is {seed}; use 0 or more")
        if not 0 < strength <= 1:
            raise GeneratorError(f"transform: strength is {strength}; use a number above 0 and at most 1")
        self.strength, self.flip = strength, flip
        self.seed = seed or 0
        self._own_seed = seed

    def __str__(self) -> str:
        return "transform"

    @property
    def fingerprint(self) -> str:  # type: ignore[override]  # it can be assigned as well
        """What decides the images, beside the given ones."""
        return f"{_DEFINITION}:seed={self.seed}:strength={self.strength}:flip={'yes' if self.flip else 'no'}"

    def configure(self, settings: Settings) -> None:
        """Learn where the images go, and the run's seed unless this object was given its own."""
        super().configure(settings)
        if self._own_seed is None:
            self.seed = settings.seed

    async def generate(self, request: Request) -> Batch:
        """Variants, or the end of a class that has no given image."""
        _ = self.store  # raises where there is none
        if not request.given:
            return Batch(closed="transform needs a given image of this class")
        return await asyncio.to_thread(self._variants, request)

    def _variants(self, request: Request) -> Batch:
        from PIL.Image import Resampling

        new = NewSamples(request)
        for position in range(max(request.count, 0)):
            # Over all batches the given images take turns.
            turn = (request.number * request.count + position) % len(request.given)
            original = decoded(self.store.find(request.given[turn]), least_side=_LONGEST_SIDE)
            # Small from the start, so that nothing after is sampled down, which would need smoothing.
            original.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), Resampling.LANCZOS)
            for attempt in range(_ATTEMPTS):
                own = own_seed(self.seed, request.spec.name, request.number, position, attempt)
                if self.add_image(new, self._variant(original, np.random.default_rng(own))):
                    break
        closed = None if new.texts else "transform finds no new variant of the given images"
        return Batch(tuple(new.texts), closed=closed)

    def _variant(self, image: PIL.Image.Image, rng: np.random.Generator) -> PIL.Image.Image:
        from PIL import ImageOps

        cut = _cut(image, self.strength, rng)
        if rng.random() < 0.5 and self.flip:
            cut = ImageOps.mirror(cut)
        return _focused(_coloured(cut, self.strength, rng), self.strength, rng)


def from_spec(
    rest: str, *, seed: int | None = None, strength: float = 0.5, flip: str = "yes"
) -> TransformGenerator:
    """What the registry calls for `transform`.

    Args:
        rest: what follows `transform:` in the spec; must be empty.
        seed: decides the variants; None takes the run's.
        strength: how far a variant may be from its original, above 0 and at most 1.
        flip: `yes` or `no`, whether left and right may be swapped.
    """
    if rest:
        raise GeneratorError(f"transform:{rest}: 'transform' takes no argument, only options after '?'")
    if flip not in _SWITCH:
        raise GeneratorError(f"transform: option flip={short(flip)}; write yes or no")
    return TransformGenerator(seed=seed, strength=strength, flip=_SWITCH[flip])


def _cut(image: PIL.Image.Image, strength: float, rng: np.random.Generator) -> PIL.Image.Image:
    """A slightly turned rectangle that lies inside the image, so that no corner has to be made up."""
    from PIL.Image import Resampling, Transform

    turn = math.radians(strength * _DEGREES * rng.uniform(-1, 1))
    stretch = math.exp(strength * _STRETCH * rng.uniform(-1, 1))
    area = rng.uniform(1 - strength * (1 - _LEAST_AREA), 1)
    sides = np.array([stretch**0.5, stretch**-0.5]) * math.sqrt(area) * image.size
    cos, sin = math.cos(turn), math.sin(turn)
    extent = np.abs([[cos, sin], [sin, cos]]) @ sides  # of the turned rectangle
    fit = min(1.0, *(np.array(image.size) / extent))
    sides, extent = sides * fit, extent * fit
    centre = extent / 2 + rng.uniform(size=2) * (np.array(image.size) - extent)
    corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]]) / 2 * sides @ [[cos, sin], [-sin, cos]] + centre
    width, height = (max(1, round(side)) for side in sides)
    return image.transform((width, height), Transform.QUAD, corners.ravel().tolist(), Resampling.BICUBIC)


def _coloured(image: PIL.Image.Image, strength: float, rng: np.random.Generator) -> PIL.Image.Image:
    import PIL.Image
    from PIL import ImageEnhance

    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = change(image).enhance(1 + strength * _COLOUR * rng.uniform(-1, 1))
    gains = 1 + strength * _TINT * rng.uniform(-1, 1, size=3)
    pixels = np.asarray(image, dtype=np.float64) * gains
    return PIL.Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))


def _focused(image: PIL.Image.Image, strength: float, rng: np.random.Generator) -> PIL.Image.Image:
    """A third is blurred a little, a third sharpened, a third left as it is."""
    from PIL import ImageEnhance, ImageFilter

    kind, amount = rng.integers(3), strength * rng.uniform()
    if kind == 0:
        return image.filter(ImageFilter.GaussianBlur(_BLUR * amount))
    return ImageEnhance.Sharpness(image).enhance(1 + 2 * amount) if kind == 1 else image
