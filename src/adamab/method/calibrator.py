"""The two bias-free residual towers that calibrate a frozen embedding, forward and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from adamab.method.numerics import Array
from adamab.task.recipe import Recipe

# Activations: each replaces its argument by its value and returns its derivative.


def _relu(z: Array) -> Array:
    np.maximum(z, 0, out=z)
    return (z > 0).astype(z.dtype)


def _gelu(z: Array) -> Array:
    from scipy.special import erf  # costs more to import than all of NumPy

    below: Array = (1 + erf(z * z.dtype.type(math.sqrt(0.5)))) / 2
    slope: Array = below + z * np.exp(-(z**2) / 2) / z.dtype.type(math.sqrt(2 * math.pi))
    z *= below
    return slope


def _silu(z: Array) -> Array:
    gate = (1 + np.tanh(z / 2)) / 2  # the sigmoid; exp(-z) overflows
    slope: Array = gate * (1 + z * (1 - gate))
    z *= gate
    return slope


def _tanh(z: Array) -> Array:
    np.tanh(z, out=z)
    return 1 - z**2


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": _relu,
    "gelu": _gelu,
    "silu": _silu,
    "tanh": _tanh,
}


def dropout_mask(
    shape: tuple[int, ...], share: float, rng: np.random.Generator, dtype: DTypeLike = np.float32
) -> Array:
    """Zeros for `share` of the places, to the nearest 256th, and what keeps the mean for the others.

    Eight places from each random number of 64 bits.

    Args:
        shape: of the mask.
        share: of the places that are zero.
        rng: draws them.
        dtype: of the mask.
    """
    dropped, size = round(256 * share), math.prod(shape)
    draws = np.asarray(rng.bit_generator.random_raw((size + 7) // 8)).view(np.uint8)[:size].reshape(shape)
    kept = (draws >= dropped).astype(dtype) if dropped < 256 else np.zeros(shape, dtype)
    kept *= 256 / max(256 - dropped, 1)
    return kept


@dataclass(frozen=True)
class Tower:
    """x + f(x), where f is a stack of linear layers without biases; the recipe says of which shape.

    The paper's parameter counts (2.654 M at width 1536, 1.180 M at 1024, 0.664 M at 768) follow from three
    layers and a hidden width of a quarter.
    """

    weights: Sequence[Array]  # (*members, out, in) each
    activation: str
    dropout: float

    def run(self, x: Array, rng: np.random.Generator | None = None) -> TowerPass:
        """Calibrate rows (*members, n, width); with random numbers as a step of training does."""
        return TowerPass(self, x, rng)


class TowerPass:
    """Rows that went through a tower, and all that the way back needs.

    Attributes:
        inputs: rows of each layer, the tower's own first.
        slopes: φ' before each layer but the first; where a unit was dropped it is zero.
        output: (*members, n, width) calibrated rows.
    """

    def __init__(self, tower: Tower, x: Array, rng: np.random.Generator | None) -> None:
        self.weights = tower.weights
        self.inputs, self.slopes = [x], []
        for weight in self.weights[:-1]:
            hidden = self.inputs[-1] @ weight.mT
            slope = ACTIVATIONS[tower.activation](hidden)
            if rng is not None and tower.dropout:
                mask = dropout_mask(hidden.shape, tower.dropout, rng, hidden.dtype)
                hidden *= mask
                slope *= mask
            self.inputs.append(hidden)
            self.slopes.append(slope)
        self.output = self.inputs[-1] @ self.weights[-1].mT
        self.output += x

    def upstream(self, of_output: Array) -> list[Array]:
        """Gradient at the output of each layer, first layer first."""
        result = [of_output]
        for weight, slope in zip(reversed(self.weights[1:]), reversed(self.slopes), strict=True):
            before = result[-1] @ weight
            before *= slope
            result.append(before)
        return result[::-1]

    def tangent(self, directions: Sequence[Array]) -> Array:
        """Change of the output when each layer's weight moves along its direction (a JVP)."""
        moved: Array = self.inputs[0] @ directions[0].mT
        for i, slope in enumerate(self.slopes, 1):
            moved = (moved * slope) @ self.weights[i].mT + self.inputs[i] @ directions[i].mT
        return moved


class Calibrator:
    """Logits of queries against classes: scale * (q + Q(q)) . (p + P(p) [+ free vector]).

    `members` (possibly empty) are leading dimensions of independent copies that train as one
    batch: with members (M,) the weights are (M, out, in) and inputs (M, n, width).

    Args:
        width: of the embedding.
        n_classes: K.
        recipe: shape and start of the towers.
        members: leading dimensions of independent copies.
        rng: draws the start, uniformly within 1 / sqrt(inputs) of a layer.
        dtype: of the parameters.

    Attributes:
        parameters: all of them in one row; `query_tower`, `class_tower` and `free` are views of it.

    Example:
        >>> model = Calibrator(8, 3, Recipe(), rng=np.random.default_rng(0))
        >>> model(np.ones((5, 8)), np.ones((3, 8))).shape
        (5, 3)
    """

    def __init__(
        self,
        width: int,
        n_classes: int,
        recipe: Recipe,
        *,
        members: tuple[int, ...] = (),
        rng: np.random.Generator,
        dtype: DTypeLike = np.float32,
    ) -> None:
        hidden = max(1, width // recipe.bottleneck)
        sizes = [width] + [hidden] * (recipe.layers - 1) + [width]
        tower = [(*members, fan_out, fan_in) for fan_in, fan_out in itertools.pairwise(sizes)]
        free = [(*members, n_classes, width)] if recipe.free_vectors else []
        shapes = [*tower, *tower, *free]
        ends = [0, *itertools.accumulate(map(math.prod, shapes))]
        self._places = [(slice(*ends[i : i + 2]), shape) for i, shape in enumerate(shapes)]
        self.scale = recipe.logit_scale
        self.parameters: Array = np.zeros(ends[-1], dtype)
        parts = self.parts(self.parameters)
        towers = parts[: len(tower)], parts[len(tower) : 2 * len(tower)]
        for weights in towers:
            for weight in weights[:-1] if recipe.zero_last else weights:
                weight[:] = rng.random(weight.shape, np.float32)
                weight *= 2
                weight -= 1
                weight /= math.sqrt(weight.shape[-1])
        self.query_tower, self.class_tower = (
            Tower(weights, recipe.activation, recipe.dropout) for weights in towers
        )
        self.free: Array | None = parts[-1] if free else None

    def parts(self, row: Array) -> list[Array]:
        """Views of a row of numbers like `parameters`: query tower, class tower, free vectors if any."""
        return [row[place].reshape(shape) for place, shape in self._places]

    def run(
        self,
        queries: Array,  # (*members, n, width)
        classes: Array,  # (*members, K, width)
        chosen: NDArray[np.intp] | None = None,
        *,
        weight: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> CalibratorPass:
        """Both towers, up to the product of the two.

        Args:
            queries: (*members, n, width).
            classes: (*members, K, width) inputs of the class tower.
            chosen: (g,) numbers of some classes; None for all.
            weight: of the logits.
            rng: draws dropout, in training; None is without.
        """
        return CalibratorPass(self, queries, classes, chosen, weight, rng)

    def class_vectors(self, classes: Array) -> Array:
        """(*members, K, width) calibrated class inputs with their free vectors, times the logit scale."""
        return self.run(classes[..., :0, :], classes).vectors

    def __call__(self, queries: Array, classes: Array, chosen: NDArray[np.intp] | None = None) -> Array:
        """Logits (*members, n, K), or (*members, n, g) for some classes; arguments as of `run`."""
        return self.run(queries, classes, chosen).logits()


class CalibratorPass:
    """Queries and classes that went through their towers.

    Attributes:
        factor: logit scale times weight.
        has_free: whether the class vectors have a trained part of their own.
        query, class_: the passes of the towers.
        vectors: (*members, g, width) calibrated classes, free vectors included, times the factor.
    """

    def __init__(
        self,
        calibrator: Calibrator,
        queries: Array,
        classes: Array,
        chosen: NDArray[np.intp] | None,
        weight: float,
        rng: np.random.Generator | None,
    ) -> None:
        dtype = calibrator.parameters.dtype
        self._calibrator, self._chosen = calibrator, chosen
        self.factor, self.has_free = weight * calibrator.scale, calibrator.free is not None
        classes = classes if chosen is None else classes[..., chosen, :]
        self.query = calibrator.query_tower.run(queries.astype(dtype, copy=False), rng)
        self.class_ = calibrator.class_tower.run(classes.astype(dtype, copy=False), rng)
        self.vectors = self.class_.output.copy()
        if calibrator.free is not None:
            self.vectors += calibrator.free if chosen is None else calibrator.free[..., chosen, :]
        self.vectors *= self.factor

    def logits(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """(*members, n, g) weighted logits; of some of the queries where there are no members."""
        logits: Array = self.query.output[rows] @ self.vectors.mT
        return logits

    def backward(self, of_logits: Array, gradient: Array, *, add: bool = False) -> None:
        """Write the gradient of the parameters, or add it to what is there.

        Args:
            of_logits: (*members, n, g) derivatives of the loss by the weighted logits.
            gradient: a row like the calibrator's `parameters`.
            add: whether to add.
        """
        of_vectors = of_logits.mT @ self.query.output
        of_vectors *= self.factor
        targets = self._calibrator.parts(gradient)
        if self._calibrator.free is not None:
            if not add:
                targets[-1][:] = 0
            targets[-1][..., slice(None) if self._chosen is None else self._chosen, :] += of_vectors
        towers = ((self.query, of_logits @ self.vectors), (self.class_, of_vectors))
        pairs = [
            pair
            for tower, of_output in towers
            for pair in zip(tower.upstream(of_output), tower.inputs, strict=True)
        ]
        for (b, a), target in zip(pairs, targets, strict=False):
            if add:
                target += b.mT @ a
            else:
                np.matmul(b.mT, a, out=target)
