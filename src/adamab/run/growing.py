"""Arrays that grow row by row, as the samples of a run do."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Dtype = TypeVar("Dtype", bound=np.generic)
_SPARE = 8  # an eighth more room than needed: each row is copied about nine times, however many there are


class GrowingRows(Generic[Dtype]):
    """Rows to which others are added at the end, mostly without copying those that are there.

    Example:
        >>> growing = GrowingRows(np.array([1, 2]))
        >>> growing.add(np.array([3]))
        >>> growing.rows
        array([1, 2, 3])
    """

    def __init__(self, rows: NDArray[Dtype]) -> None:
        self._room, self._filled = rows, len(rows)

    @property
    def rows(self) -> NDArray[Dtype]:
        """All of them; what was handed out before stays as it was."""
        return self._room[: self._filled]

    def add(self, rows: NDArray[Any]) -> None:
        """Add these; an array without rows takes over their shape and kind."""
        if not self._filled:
            self._room, self._filled = rows, len(rows)
            return
        needed = self._filled + len(rows)
        if needed > len(self._room):
            room = np.empty((needed + needed // _SPARE, *self._room.shape[1:]), self._room.dtype)
            room[: self._filled] = self.rows
            self._room = room
        self._room[self._filled : needed] = rows
        self._filled = needed
