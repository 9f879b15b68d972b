"""One view's share of the logits, in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from adamab.errors import short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped,unused-ignore]

    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
    Array: TypeAlias = NDArray[np.float32]
    Rows: TypeAlias = Array | csr_matrix

_SMALLEST_NORM = 1e-12
_ROUNDING = 1e-12
_DENSE_CELLS = 2**22  # a sparse block is made dense in pieces of 16 MB
# What a classifier may consist of; every refusal is a one-line `ValueError`.
#
# The same checks guard a classifier that training has just built and one that comes from a file.


def check_text(value: object, what: str, *, empty: bool = False) -> None:
    """Refuse what is not a text, is empty, or could not be written as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is of type {type(value).__name__}, not a text")
    if not value and not empty:
        raise ValueError(f"{what} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} {short(value)} holds half a character") from None


def check_array(array: object, what: str, dimensions: int) -> None:
    """A float32 array without an empty dimension, all values finite."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        raise ValueError(f"{what} is not an array of float32")
    if array.ndim != dimensions or 0 in array.shape:
        raise ValueError(f"{what} has shape {array.shape}; {dimensions} dimension(s), none empty, are needed")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} holds a value that is not finite")


def check_width(what: str, width: int, needed: int) -> None:
    """Two arrays that are multiplied must fit."""
    if width != needed:
        raise ValueError(f"{what} is {width} wide where {needed} is needed")


class ArrayParts:
    """What a dataclass with arrays and layers can say of them."""

    DIMENSIONS: ClassVar[dict[str, int]]  # of each array that may be there, in the order of files
    tower: tuple[Array, ...] = ()

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays that are there, by name; layer i of the tower is `tower.i`."""
        single = {name: getattr(self, name) for name in self.DIMENSIONS}
        layers = {f"tower.{number}": layer for number, layer in enumerate(self.tower)}
        return {name: array for name, array in single.items() if array is not None} | layers

    def check_arrays(self, where: str = "") -> None:
        """Refuse an array that no calculation could use."""
        for name, array in self.arrays.items():
            check_array(array, f"{where}{name}", self.DIMENSIONS.get(name, 2))


def _gelu(a: Array) -> None:
    from scipy.special import erf  # costs more to import than all of NumPy

    gate = erf(a * np.float32(math.sqrt(0.5)))
    gate += 1
    a *= gate
    a *= 0.5


def _silu(a: Array) -> None:
    # a * sigmoid(a); by tanh, because exp(-a) overflows.
    gate = np.tanh(a * np.float32(0.5))
    gate += 1
    a *= gate
    a *= 0.5


_ACTIVATIONS: dict[str, Callable[[Array], object]] = {  # each works in place
    "relu": lambda a: np.maximum(a, 0, out=a),
    "gelu": _gelu,
    "silu": _silu,
    "tanh": lambda a: np.tanh(a, out=a),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Head(ArrayParts):
    """One view's share of the logits; whatever is constant is folded into `linear` and `hidden`.

    For a row x of the view, with W1 ... Wm the layers of `tower`:

        z = x - centre                      (without a centre: x)
        z = z / max(‖z‖, 1e-12)             (if `normalise`)
        q = basisᵀ z                        (without a basis: z)
        a = act(Wm ... act(W1 q))
        logits = linear q + hidden a + bias (without a tower or a bias: without those terms)

    `tower` lacks the query tower's last layer: that, the class vectors, the view's weight, the
    temperature and the untrained similarity are multiplied into `linear` and `hidden` already.

    Example:
        >>> head = Head(view="pooled", linear=np.eye(2, 3, dtype=np.float32), normalise=True)
        >>> head.logits(np.array([[3, 0, 4]], np.float32)).tolist()
        [[0.6..., 0.0]]
    """

    DIMENSIONS: ClassVar = {"linear": 2, "hidden": 2, "bias": 1, "centre": 1, "basis": 2}

    view: str
    linear: Array  # (K, r)
    hidden: Array | None = None  # (K, h)
    bias: Array | None = None  # (K,)
    tower: tuple[Array, ...] = ()  # (h1, r), (h2, h1), ...
    activation: str = "relu"
    centre: Array | None = None  # (d,)
    normalise: bool = False
    basis: Array | None = None  # (d, r)

    def __post_init__(self) -> None:
        check_text(self.view, "a head's view")
        where = f"head {short(self.view)}"
        if not isinstance(self.normalise, bool):
            raise ValueError(f"{where}: normalise is neither true nor false")
        if not isinstance(self.activation, str) or self.activation not in _ACTIVATIONS:
            raise ValueError(f"{where}: activation {short(self.activation)} is unknown")
        if bool(self.tower) != (self.hidden is not None):
            raise ValueError(f"{where}: a tower and hidden weights go together")
        self.check_arrays(f"{where}: ")
        n_classes, width = self.linear.shape
        if self.basis is not None:
            check_width(f"{where}: linear", width, self.basis.shape[1])
        if self.centre is not None:
            check_width(f"{where}: centre", len(self.centre), self.width)
        for number, layer in enumerate(self.tower):
            check_width(f"{where}: tower.{number}", layer.shape[1], width)
            width = len(layer)
        if self.hidden is not None:
            check_width(f"{where}: hidden", self.hidden.shape[1], width)
        for name, array in (("bias", self.bias), ("hidden", self.hidden)):
            if array is not None and len(array) != n_classes:
                raise ValueError(f"{where}: linear and {name} differ in their number of classes")

    @property
    def width(self) -> int:
        """How wide a row of the view is: d."""
        return len(self.basis) if self.basis is not None else self.linear.shape[1]

    def prepared(self, x: Rows) -> Array:
        """q of the rows `x` (n, d): (n, r)."""
        query, divisors = self._query(x)
        return query if divisors is None else query / divisors

    def logits(self, x: Rows) -> Array:
        """This head's logits (n, K) of the rows `x` (n, d), a float32 array or a sparse matrix."""
        out = np.zeros((x.shape[0], len(self.linear)), np.float32)
        self.add_logits(x, out)
        return out

    def add_logits(self, x: Rows, out: Array) -> None:
        """Add the logits of the rows `x` to `out` (n, K), in place.

        Args:
            x: (n, d) a float32 array or a sparse matrix.
            out: (n, K) to add to.
        """
        # Both parts begin with q times a matrix: one product for both, and z, which is the
        # widest, need not be divided by its norm; the product is.
        first, n_classes = np.concatenate([self.linear, *self.tower[:1]]), len(self.linear)
        whole = isinstance(x, np.ndarray) or self.basis is not None
        size = max(1, x.shape[0] if whole else _DENSE_CELLS // self.width)
        for start in range(0, x.shape[0], size):
            rows = slice(start, start + size)
            query, divisors = self._query(x[rows])
            products = query @ first.T
            if divisors is not None:
                products /= divisors
            out[rows] += products[:, :n_classes]
            if self.bias is not None:
                out[rows] += self.bias
            if self.hidden is not None:
                units = products[:, n_classes:]
                _ACTIVATIONS[self.activation](units)
                out[rows] += through(self.tower[1:], units, self.activation) @ self.hidden.T

    def _query(self, x: Rows) -> tuple[Array, Array | None]:
        """q before its division, (n, r), and what to divide by, (n, 1)."""
        if isinstance(x, np.ndarray) or self.basis is None:
            x = x if isinstance(x, np.ndarray) else x.toarray()
            z: Array = x if self.centre is None else x - self.centre
            query: Array = z if self.basis is None else z @ self.basis
            norms = np.sqrt(np.einsum("ij,ij->i", z, z)) if self.normalise else None
            if norms is not None:
                norms[np.isinf(norms)] = np.nan  # an overflow is to be seen in the logits, not to vanish
        else:
            # x - centre would be dense, and d wide; its projection and its norm can do without it.
            query = x @ self.basis
            if self.centre is not None:
                query -= self.centre @ self.basis
            norms = _sparse_norms(x, self.centre) if self.normalise else None
        if norms is None:
            return query, None
        return query, np.maximum(norms, _SMALLEST_NORM).astype(np.float32)[:, None]


def through(layers: Sequence[Array], a: Array, activation: str) -> Array:
    """Rows (n, r) through layers without biases, each followed by the activation.

    Args:
        layers: (out, in) each.
        a: (n, r) rows.
        activation: its name.
    """
    for layer in layers:
        a = a @ layer.T
        _ACTIVATIONS[activation](a)
    return a


def _sparse_norms(x: csr_matrix, centre: Array | None) -> NDArray[np.float64]:
    # ‖x - c‖² = ‖x‖² - 2 x·c + ‖c‖², in float64 because the terms cancel where x is near c.
    x = x.astype(np.float64)
    squares = np.asarray(x.multiply(x).sum(axis=1), np.float64).ravel()
    if centre is None:
        return np.sqrt(squares)
    c = centre.astype(np.float64)
    whole = squares + c @ c
    distances = whole - 2 * (x @ c)
    # Where nothing but rounding is left, x is the centre and z is 0, not noise of length 1.
    return np.sqrt(np.where(distances > _ROUNDING * whole, distances, np.inf))
