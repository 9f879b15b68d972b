"""One view's share of the logits, in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from adamab.classifier.checks import check_array, check_text, check_width
from adamab.task.messages import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped,unused-ignore]

    Array: TypeAlias = NDArray[np.float32]
    Rows: TypeAlias = Array | csr_matrix

_SMALLEST_NORM = 1e-12
_ROUNDING = 1e-12
_DENSE_CELLS = 2**22  # a sparse block is made dense in pieces of 16 MB


def _relu(a: Array) -> None:
    np.maximum(a, 0, out=a)


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


def _tanh(a: Array) -> None:
    np.tanh(a, out=a)


_ACTIVATIONS: dict[str, Callable[[Array], None]] = {  # each works in place
    "relu": _relu,
    "gelu": _gelu,
    "silu": _silu,
    "tanh": _tanh,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Head:
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
        for name, array in self.arrays.items():
            check_array(array, f"{where}: {name}", 1 if name in ("centre", "bias") else 2)
        self._check_widths(where)

    def _check_widths(self, where: str) -> None:
        if self.basis is not None:
            check_width(f"{where}: linear", self.linear.shape[1], self.basis.shape[1])
        if self.centre is not None:
            check_width(f"{where}: centre", len(self.centre), self.width)
        if self.bias is not None and len(self.bias) != self.classes:
            raise ValueError(f"{where}: linear and bias differ in their number of classes")
        width = self.linear.shape[1]
        for number, layer in enumerate(self.tower):
            check_width(f"{where}: tower.{number}", layer.shape[1], width)
            width = len(layer)
        if self.hidden is not None:
            check_width(f"{where}: hidden", self.hidden.shape[1], width)
            if len(self.hidden) != self.classes:
                raise ValueError(f"{where}: linear and hidden differ in their number of classes")

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays that are there, by name; layer i of the tower is `tower.i`."""
        single = {
            "linear": self.linear,
            "hidden": self.hidden,
            "bias": self.bias,
            "centre": self.centre,
            "basis": self.basis,
        }
        layers = {f"tower.{number}": layer for number, layer in enumerate(self.tower)}
        return {name: array for name, array in single.items() if array is not None} | layers

    @property
    def classes(self) -> int:
        """K."""
        return len(self.linear)

    @property
    def width(self) -> int:
        """How wide a row of the view is: d."""
        return len(self.basis) if self.basis is not None else self.linear.shape[1]

    @property
    def feature_width(self) -> int:
        """r + h."""
        return int(self.linear.shape[1]) + (0 if self.hidden is None else int(self.hidden.shape[1]))

    def prepared(self, x: Rows) -> Array:
        """q of the rows `x` (n, d): (n, r)."""
        query, divisors = self._query(x)
        return query if divisors is None else query / divisors

    def of_prepared(self, queries: Array) -> Array:
        """Logits (n, K) of what `prepared` gave."""
        found: Array = queries @ self.linear.T
        if self.bias is not None:
            found += self.bias
        if self.hidden is not None:
            found += through(self.tower, queries, self.activation) @ self.hidden.T
        return found

    def logits(self, x: Rows) -> Array:
        """This head's logits (n, K) of the rows `x` (n, d), a float32 array or a sparse matrix."""
        out = np.zeros((x.shape[0], self.classes), np.float32)
        self.add_logits(x, out)
        return out

    def add_logits(self, x: Rows, out: Array) -> None:
        """Add the logits of the rows `x` to `out` (n, K), in place."""
        # Both parts begin with q times a matrix: one product for both, and z, which is the
        # widest, need not be divided by its norm; the product is.
        first = np.concatenate([self.linear, *self.tower[:1]])
        for rows in self._pieces(x):
            query, divisors = self._query(x[rows])
            products = query @ first.T
            if divisors is not None:
                products /= divisors
            out[rows] += products[:, : self.classes]
            if self.bias is not None:
                out[rows] += self.bias
            if self.hidden is not None:
                out[rows] += self._features(products[:, self.classes :]) @ self.hidden.T

    def features(self, x: Rows) -> Array:
        """(n, r + h) what `linear` and `hidden` are multiplied with: q, then the last hidden units."""
        q = self.prepared(x)
        if self.hidden is None:
            return q
        return np.concatenate([q, through(self.tower, q, self.activation)], axis=1)

    def _pieces(self, x: Rows) -> Iterator[slice]:
        whole = isinstance(x, np.ndarray) or self.basis is not None
        size = max(1, x.shape[0] if whole else _DENSE_CELLS // self.width)
        for start in range(0, x.shape[0], size):
            yield slice(start, start + size)

    def _query(self, x: Rows) -> tuple[Array, Array | None]:
        """q before its division, (n, r), and what to divide by, (n, 1)."""
        if isinstance(x, np.ndarray):
            return self._dense_query(x)
        if self.basis is None:
            return self._dense_query(x.toarray())
        return self._sparse_query(x, self.basis)

    def _dense_query(self, x: Array) -> tuple[Array, Array | None]:
        z: Array = x if self.centre is None else x - self.centre
        query: Array = z if self.basis is None else z @ self.basis
        if not self.normalise:
            return query, None
        norms = np.sqrt(np.einsum("ij,ij->i", z, z))
        norms[np.isinf(norms)] = np.nan  # an overflow is to be seen in the logits, not to vanish
        return query, _divisors(norms)

    def _sparse_query(self, x: csr_matrix, basis: Array) -> tuple[Array, Array | None]:
        # x - centre would be dense, and d wide; its projection and its norm can do without it.
        query: Array = x @ basis
        if self.centre is not None:
            query -= self.centre @ basis
        return query, _divisors(_sparse_norms(x, self.centre)) if self.normalise else None

    def _features(self, a: Array) -> Array:
        """From the first layer's products (n, h1), which are overwritten, to (n, h)."""
        _ACTIVATIONS[self.activation](a)
        return through(self.tower[1:], a, self.activation)


def through(layers: Sequence[Array], a: Array, activation: str) -> Array:
    """Rows (n, r) through layers without biases, each followed by the activation."""
    for layer in layers:
        a = a @ layer.T
        _ACTIVATIONS[activation](a)
    return a


def _divisors(norms: NDArray[np.floating]) -> Array:
    divisors: Array = np.maximum(norms, _SMALLEST_NORM).astype(np.float32)[:, None]
    return divisors


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
