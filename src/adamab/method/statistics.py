"""Intervals for the figures that users see."""

from __future__ import annotations

import math

from scipy.special import ndtri


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a share; (0, 1) when nothing was counted.

    Example:
        >>> low, high = wilson(45, 60)
        >>> round(low, 3), round(high, 3)
        (0.628, 0.842)
    """
    if n == 0:
        return 0.0, 1.0
    z = float(ndtri((1 + confidence) / 2))
    share = successes / n
    middle = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
