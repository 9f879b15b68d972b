"""The rows of a class in a classifier's heads, from its wording and its examples, without training.

Write q for a prepared sample of a view (centred, of length one, in the head's coordinates; see `Head`), m for
the mean of the class's examples prepared in that way, zero without examples, and t for its wording's vector:
centred on the mean of the wordings of the fit, of length one, in the same coordinates. The classes of the fit
got their rows from the same formulas.

A head that matches samples with classes (`Matching`) has the logit

    w s (q + W a) . (p + P(p) + f)  +  u q . t         a: last hidden units of q

with the class input p = t, m / ‖m‖ or the unit sum of both, the trained class tower P, the last layer W of
the query tower, and f the mean of the vectors that training gave to single classes. The row is
`linear` = v + u t and `hidden` = Wᵀ v with v = w s (p + P(p) + f).

A discriminant (`Scatter`) of the shrunken scatter S within classes, with n examples and r columns:

    linear = c S⁻¹ m,    bias = c (r / n - mᵀ S⁻¹ m) / 2

or, where all directions count alike, c m / ‖m‖ without a bias. Where the classes of the fit have differing
numbers of samples, means of n have on average the squared length E = l + e (1 / n - k), l being that of the
class with most and k its 1 / n, and the bias goes by l in place of E, the vectors half of the way:

    linear = c (l / E)^¼ S⁻¹ m,    bias = -c (l / E) mᵀ S⁻¹ m / 2

A class without examples has the mean row of the others: nothing is said of it.

What cannot be had without training: centre, span, vocabulary, scatter and towers have not seen the class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from adamab.classifier.checks import check_array, check_width
from adamab.classifier.heads import through
from adamab.task.messages import short

if TYPE_CHECKING:
    from adamab.classifier.heads import Array, Head, Rows

ClassInput: TypeAlias = Literal["description", "mean", "both"]
CLASS_INPUTS: tuple[ClassInput, ...] = ("description", "mean", "both")
_SMALLEST_NORM = 1e-12
_SHORTENED = 0.25  # as in the fit (`method.discriminant`)


@dataclass(frozen=True)
class Row:
    """A class's share of one head."""

    linear: Array  # (r,)
    hidden: Array | None = None  # (h,)
    bias: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Matching:
    """How a head that matches samples with classes makes a class's row."""

    class_input: ClassInput
    described: bool  # whether wordings have vectors in this view
    similarity: float = 0.0  # u: weight of the untrained similarity, its scale included
    scale: float = 0.0  # w s: weight of the calibrator times the scale of its logits
    described_centre: Array | None = None  # (d,)
    tower: tuple[Array, ...] = ()  # of the classes, (out, in) each; none without a calibrator
    free: Array | None = None  # (R,) with R >= r: a trained tower may be wider than the view
    last: Array | None = None  # (R, h) the query tower's last layer

    def __post_init__(self) -> None:
        if self.class_input not in CLASS_INPUTS:
            raise ValueError(f"class input {short(self.class_input)} is none of {', '.join(CLASS_INPUTS)}")
        for name, array in self.arrays.items():
            check_array(array, name, 1 if name in ("free", "described_centre") else 2)
        if bool(self.tower) != (self.last is not None):
            raise ValueError("a class tower and the query tower's last layer go together")

    @property
    def arrays(self) -> dict[str, Array]:
        """Those that are there, by name; layer i of the tower is `tower.i`."""
        single = {"described_centre": self.described_centre, "free": self.free, "last": self.last}
        layers = {f"tower.{number}": layer for number, layer in enumerate(self.tower)}
        return {name: array for name, array in single.items() if array is not None} | layers

    def check(self, head: Head) -> None:
        """Refuse a head that this was not made for."""
        if self.described_centre is not None:
            check_width("the centre of the wordings", len(self.described_centre), head.width)
        if self.last is None:
            return
        width = head.linear.shape[1]
        for number, layer in enumerate(self.tower):
            check_width(f"class tower, layer {number}", layer.shape[1], width)
            width = len(layer)
        check_width("the class tower", width, len(self.last))
        if self.free is not None:
            check_width("the free vector", len(self.free), width)
        if head.hidden is not None:
            check_width("the query tower's last layer", self.last.shape[1], head.hidden.shape[1])

    def row(self, head: Head, described: Rows | None, examples: Array) -> Row:
        """The row of a class with that wording (1, d) and those prepared examples (n, r)."""
        width = examples.shape[1]
        wording = None if described is None else self._wording(head, described)
        linear: Array = np.zeros(width, np.float32)
        if wording is not None:
            linear = np.float32(self.similarity) * wording
        if self.last is None:
            return Row(linear)
        vector: Array = self._calibrated(self._input(wording, _mean(examples)), head.activation)
        vector *= np.float32(self.scale)
        pulled: Array = vector @ self.last
        linear = linear + vector[:width]
        return Row(linear + pulled[:width]) if head.hidden is None else Row(linear, pulled)

    def _wording(self, head: Head, described: Rows) -> Array:  # (r,)
        dense: Array = np.asarray(described if isinstance(described, np.ndarray) else described.toarray())
        vector = dense[0] if self.described_centre is None else dense[0] - self.described_centre
        vector = _unit(vector) if head.normalise else vector
        return vector if head.basis is None else vector @ head.basis

    def _input(self, wording: Array | None, mean: Array) -> Array:  # (r,)
        if wording is None or self.class_input == "mean":
            return _unit(mean)
        return wording if self.class_input == "description" else _unit(_unit(mean) + _unit(wording))

    def _calibrated(self, x: Array, activation: str) -> Array:  # (r,) -> (R,)
        found: Array = through(self.tower[:-1], x[None], activation)[0] @ self.tower[-1].T
        found[: len(x)] += x
        return found if self.free is None else found + self.free


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter:
    """How a discriminant makes a class's row."""

    scale: float  # c: weight of the head times what brings all its rows to one length
    inverse: Array | None = None  # (r, r) S⁻¹; None where all directions count alike
    lengths: tuple[float, ...] | None = None  # l, k and e; None where counts were alike

    def __post_init__(self) -> None:
        if self.lengths is not None and len(self.lengths) != 3:
            raise ValueError(f"{len(self.lengths)} figures of the lengths of means; there are three")
        for name, array in self.arrays.items():
            check_array(array, name, 2)

    @property
    def arrays(self) -> dict[str, Array]:
        """Those that are there, by name."""
        return {} if self.inverse is None else {"inverse": self.inverse}

    def check(self, head: Head) -> None:
        """Refuse a head that this was not made for."""
        for width in () if self.inverse is None else self.inverse.shape:
            check_width("the inverse scatter", width, head.linear.shape[1])

    def row(self, head: Head, described: Rows | None, examples: Array) -> Row:
        """The row of a class with those prepared examples (n, r); its wording has no part in it."""
        if not len(examples):
            others = 0.0 if head.bias is None else float(head.bias.mean())
            return Row(head.linear.mean(axis=0), bias=others)
        mean, n = _mean(examples), len(examples)
        if self.inverse is None:
            return Row(self.scale * _unit(mean))
        turned = self.inverse @ mean
        square, width = float(turned @ mean), len(mean)
        if self.lengths is None:
            return Row(self.scale * turned, bias=self.scale * 0.5 * (width / n - square))
        shortest, inverse, noise = self.lengths
        shrunk = shortest / (shortest + noise * max(1 / n - inverse, 0))
        bias = -self.scale * 0.5 * shrunk * square
        return Row(np.float32(self.scale * shrunk**_SHORTENED) * turned, bias=bias)


ClassHead: TypeAlias = Matching | Scatter


def _mean(examples: Array) -> Array:  # (n, r) -> (r,)
    found: Array = examples.mean(axis=0) if len(examples) else np.zeros(examples.shape[1], np.float32)
    return found


def _unit(x: Array) -> Array:
    found: Array = x / np.float32(max(float(np.linalg.norm(x)), _SMALLEST_NORM))
    return found
