"""δ² of a classifier that is linear in its prepared samples: every term in closed form.

The logits of sample i are A φ_i + fixed terms, where φ_i holds the sample in all views side by side, each
with a one for its bias, times the weight of its head. The gradient of its loss by A is r_i φ_iᵀ, with
r_i = softmax - onehot, so that (see `adamab.method.gradient_shift` for the letters)

    ‖g_C‖² = n_C⁻² Σ_{i,j in C} (r_i·r_j)(φ_i·φ_j),   h = Σ_i h_i r_i φ_iᵀ,   ⟨g_C, h⟩ = mean of r_iᵀ h φ_i
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from adamab.method.gradient_shift import MOST_RESIDUALS, ClassGroups
from adamab.method.numerics import Array, cross_entropy, overflow_allowed


class LinearShift:
    """δ² of every class, exact.

    Args:
        features: (n, R) φ of each sample.
        logits: gives the classifier's logits (m, K) of samples by their numbers.
        class_index: (n,) class of each sample.
        n_classes: K.
        batch: Δn, the weight of the batch to come.
        sample_weight: (n,) of each sample.

    Attributes:
        lower: (K,) δ²; 0 for classes without samples.
        present: (K,) whether the class has samples.
        scale: u² times the mean squared class gradient (`Recipe.relative_shift` divides δ² by it).

    Example:
        >>> features, y = np.eye(4), np.array([0, 0, 0, 1])
        >>> shift = LinearShift(features, lambda rows: np.zeros((len(rows), 2)), y, n_classes=2, batch=2.0,
        ...                     sample_weight=np.ones(4))
        >>> bool(shift.lower[1] < shift.lower[0])
        True
    """

    @overflow_allowed()
    def __init__(
        self,
        features: Array,
        logits: Callable[[NDArray[np.intp]], Array],
        class_index: NDArray[np.intp],
        *,
        n_classes: int,
        batch: float,
        sample_weight: Array,
    ) -> None:
        groups = ClassGroups(class_index, sample_weight, n_classes)
        total = float(sample_weight.sum())
        u = batch / (total + batch)
        h_weight = groups.weight * (1 / (total + batch) - 1 / (groups.n_present * groups.of_own_class))
        phi = features[groups.order]
        direction = np.zeros((n_classes, phi.shape[1]))  # h
        norms, inner = np.zeros(n_classes), np.zeros(len(class_index))
        held: dict[
            int, Array
        ] = {}  # by the first row of a block, where all residuals together are few enough
        blocks = list(groups.spans(max(1, MOST_RESIDUALS // 4 // n_classes)))

        def residuals(rows: slice) -> Array:
            if rows.start in held:
                return held[rows.start]
            residual = logits(groups.order[rows])
            cross_entropy(residual, groups.class_index[rows])
            if len(class_index) * n_classes <= MOST_RESIDUALS:
                held[rows.start] = residual
            return residual

        for rows in blocks:
            residual = residuals(rows)
            norms += groups.outer_norms([(residual, phi[rows])], rows)
            direction += (residual * h_weight[rows, None].astype(residual.dtype)).T @ phi[rows]
        for rows in blocks:
            along = residuals(rows) @ direction.astype(phi.dtype)
            inner[rows] = (along * phi[rows]).sum(axis=1)
        delta2 = u**2 * norms + 2 * u * groups.mean(inner) + float((direction**2).sum())
        self.present = groups.present
        self.lower = np.where(groups.present, delta2, 0.0)
        self.scale = u**2 * float(norms.sum()) / max(groups.n_present, 1)

    def refine(
        self, classes: NDArray[np.intp], cutoffs: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """δ² of some classes, which is exact already.

        Args:
            classes: (c,) numbers of classes.
            cutoffs: (c,) of no use here.
        """
        return self.lower[classes], np.ones(len(classes), dtype=np.bool_)
