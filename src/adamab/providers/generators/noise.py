"""`noise`: new vectors around each class's mean, for people without any generator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adamab.errors import GeneratorError
from adamab.providers.generators.base import Batch, Generator, Request

Matrix = NDArray[np.float64]

_SHRINKAGE = 0.1  # share of the variance that is spread evenly over all directions
_BETWEEN_TO_WITHIN = 0.5  # assumed spread within classes where one sample each shows none
_SMALLEST_SPREAD = 0.05  # of a vector's length, where even the classes do not differ


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


def from_spec(rest: str, *, seed: int = 0) -> NoiseGenerator:
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
