"""Variations of the given samples, for people without any model: `noise` and `transform`.

`noise` draws new vectors around each class's mean; `transform` makes new images out of the given ones by
crop, flip, rotation and colour.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adamab.errors import GeneratorError, short
from adamab.providers.generators.base import (
    Batch,
    Generator,
    ImageGenerator,
    NewSamples,
    Request,
    Settings,
    own_seed,
)
from adamab.task.images import decoded

if TYPE_CHECKING:
    import PIL.Image

Matrix = NDArray[np.float64]

_SHRINKAGE = 0.1  # share of the variance that is spread evenly over all directions
_BETWEEN_TO_WITHIN = 0.5  # assumed spread within classes where one sample each shows none
_SMALLEST_SPREAD = 0.05  # of a vector's length, where even the classes do not differ

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


class NoiseGenerator(Generator):
    r"""Draws from N(mean of the class, \Sigma), \Sigma being the covariance within all classes, shrunk.

    With residuals R (n x d) of the given vectors from their class means and dof = n - classes,
    a draw is mean + sqrt(1-s) R^T g / sqrt(dof) + sqrt(s tr(R^T R) / (dof d)) h, where g and h
    are standard normal: no d x d matrix is ever formed. It is scaled to the given vectors'
    median length. The same seed, class and number of the batch give the same vectors.
    """

    yields_vectors = True
    copies = True

    def __init__(self, *, seed: int = 0) -> None:
        if seed < 0:
            raise GeneratorError(f"noise: seed is {seed}; use 0 or more")
        self.seed = seed
        self.fingerprint = f"noise:seed={seed}"

    async def generate(self, request: Request) -> Batch:
        """`request.count` vectors of the pooled view."""
        given = request.vectors
        if given is None:
            raise GeneratorError(
                "noise makes vectors, not texts; use it with a recipe whose only view is the pooled one"
            )
        own = given.class_index == request.class_index
        if not own.any():
            return Batch(closed="noise needs a given sample of this class")
        rng = np.random.default_rng([self.seed, request.class_index, request.number])
        vectors = given.vectors.astype(np.float64)
        length = float(np.median(np.linalg.norm(vectors, axis=1)))
        count = max(request.count, 0)
        draws = vectors[own].mean(axis=0) + _noise(vectors, given.class_index, length, count, rng)
        norms = np.linalg.norm(draws, axis=1, keepdims=True)
        draws *= length / np.where(norms > 0, norms, 1.0)
        return Batch(vectors=draws.astype(np.float32))


def noise_from_spec(rest: str, *, seed: int = 0) -> NoiseGenerator:
    """What the registry calls for `noise`.

    Args:
        rest: what follows `noise:` in the spec; must be empty.
        seed: decides the noise.
    """
    if rest:
        raise GeneratorError(f"noise:{rest}: 'noise' takes no argument")
    return NoiseGenerator(seed=seed)


def _noise(
    vectors: Matrix, class_index: NDArray[np.int64], length: float, count: int, rng: np.random.Generator
) -> Matrix:
    residuals = _residuals(vectors, class_index)  # rows scaled so that the covariance is R^T R
    width = vectors.shape[1]
    total = float((residuals**2).sum())
    if total <= 1e-12 * length**2:
        total = (_SMALLEST_SPREAD * length) ** 2 / _SHRINKAGE
    even = np.sqrt(_SHRINKAGE * total / width)
    shaped = rng.standard_normal((count, len(residuals))) @ residuals
    return np.asarray(np.sqrt(1 - _SHRINKAGE) * shaped + even * rng.standard_normal((count, width)))


def _residuals(vectors: Matrix, class_index: NDArray[np.int64]) -> Matrix:
    classes, place = np.unique(class_index, return_inverse=True)
    freedom = len(vectors) - len(classes)
    if freedom == 0:
        # One sample per class: the spread between classes, toned down, is all there is to go by.
        spread = vectors - vectors.mean(axis=0)
        return np.asarray(_BETWEEN_TO_WITHIN * spread / np.sqrt(max(len(vectors) - 1, 1)))
    sums = np.zeros((len(classes), vectors.shape[1]))
    np.add.at(sums, place, vectors)
    means = sums / np.bincount(place)[:, None]
    return np.asarray((vectors - means[place]) / np.sqrt(freedom))


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


def transform_from_spec(
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
