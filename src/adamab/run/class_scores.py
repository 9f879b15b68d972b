"""What a policy knew of every class when it chose, kept small: a run has as many of these as rounds.

As objects or as JSON, ten thousand rounds of a thousand classes take gigabytes. Packed, a round takes
some bytes a class at most: the counts, and the scores of those classes that have one, deflated.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from adamab.method.policies import Choice

MOST = 16  # scores that are kept of a round, unless all are wanted; the page and the report show five
_HEAD = struct.Struct("<II")  # classes, and how many of them have a score
_EFFORT = 6  # of zlib
_DAMAGED = "the scores of a round are damaged"


@dataclass(frozen=True)
class ClassScore:
    """What a policy knew of one class when it chose.

    `bonus` and `score` are None where the policy computes none or the class has no sample yet, and for all
    but the best classes unless a fit was asked for all scores; `exact` False marks a score that is an upper
    bound, where lazy evaluation stopped.
    """

    count: int
    bonus: float | None = None
    score: float | None = None
    exact: bool | None = None


@dataclass(frozen=True)
class ScoreArrays:
    """The same as arrays, in single precision; the last four are of the m classes that have a score.

    δ² and not the bonus is kept: their difference would lose it where the bonus is large.
    """

    count: NDArray[np.uint32]  # (K,)
    place: NDArray[np.uint32]  # (m,) of the class, rising
    score: NDArray[np.float32]  # (m,)
    shift: NDArray[np.float32]  # (m,) δ² = bonus - score
    exact: NDArray[np.bool_]  # (m,)


class ClassScores(Sequence[ClassScore]):
    """A `ClassScore` a class, packed; read only.

    Example:
        >>> scores = ClassScores.of([ClassScore(3, 2.0, 1.5, True), ClassScore(0)])
        >>> scores[0], len(scores)
        (ClassScore(count=3, bonus=2.0, score=1.5, exact=True), 2)
    """

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    @classmethod
    def of(cls, scores: Iterable[ClassScore]) -> ClassScores:
        """Those, all of them."""
        if isinstance(scores, ClassScores):
            return cls(scores._packed)
        rows = list(scores)
        known = [(place, row) for place, row in enumerate(rows) if row.score is not None]
        score = np.array([row.score for _, row in known], dtype=np.float64)
        bonus = np.array([row.bonus for _, row in known], dtype=np.float64)
        return cls._pack(
            np.array([row.count for row in rows], dtype=np.int64),
            np.array([place for place, _ in known], dtype=np.int64),
            score,
            bonus - score,
            np.array([row.exact for _, row in known], dtype=np.bool_),
        )

    @classmethod
    def of_choice(cls, counts: NDArray[np.int64], choice: Choice | None, *, all_scores: bool) -> ClassScores:
        """What the policy's arrays (K,) say; without `all_scores` the best classes and the chosen one."""
        if choice is None or choice.score is None or choice.bonus is None or choice.exact is None:
            return cls.of(ClassScore(int(n)) for n in counts)
        place = np.flatnonzero(counts > 0)  # a class without samples has NaN for a score
        if not all_scores and len(place) > MOST:
            best = place[np.argsort(-choice.score[place], kind="stable")[:MOST]]
            place = np.union1d(best, [choice.arm])
        shift = choice.bonus[place] - choice.score[place]
        return cls._pack(counts, place, choice.score[place], shift, choice.exact[place])

    @classmethod
    def _pack(
        cls,
        counts: NDArray[np.int64],
        place: NDArray[np.integer[Any]],
        score: NDArray[np.float64],
        shift: NDArray[np.float64],
        exact: NDArray[np.bool_],
    ) -> ClassScores:
        numbers = (counts.astype("<u4"), place.astype("<u4"), score.astype("<f4"), shift.astype("<f4"))
        body = b"".join(map(_planes, numbers)) + exact.tobytes()
        return cls(_HEAD.pack(len(counts), len(place)) + zlib.compress(body, _EFFORT))

    @classmethod
    def from_json(cls, data: str | Sequence[Mapping[str, Any]]) -> ClassScores:
        """Take back what `to_json` gave, or an object a class as journals of format 1 have them."""
        if not isinstance(data, str):
            return cls.of(ClassScore(**score) for score in data)
        try:
            scores = cls(base64.b64decode(data, validate=True))
            scores.arrays()
        except (binascii.Error, struct.error, zlib.error):
            raise ValueError(_DAMAGED) from None
        return scores

    def to_json(self) -> str:
        """Plain data."""
        return base64.b64encode(self._packed).decode("ascii")

    def arrays(self) -> ScoreArrays:
        """All of it at once."""
        n, m = _HEAD.unpack_from(self._packed)
        size = 4 * n + 13 * m
        body = zlib.decompressobj().decompress(self._packed[_HEAD.size :], size + 1)
        if len(body) != size:
            raise ValueError(_DAMAGED)
        starts = 4 * (n + m * np.arange(4))  # of places, scores, shifts and marks
        places, scores, shifts, marks = (body[start : start + 4 * m] for start in starts)
        return ScoreArrays(
            count=_numbers(body[: 4 * n], "<u4"),
            place=_numbers(places, "<u4"),
            score=_numbers(scores, "<f4"),
            shift=_numbers(shifts, "<f4"),
            exact=np.frombuffer(marks, np.bool_),
        )

    def __len__(self) -> int:
        return int(_HEAD.unpack_from(self._packed)[0])

    def __iter__(self) -> Iterator[ClassScore]:
        """Unpacks once, where places one by one would unpack as often."""
        found = self.arrays()
        scores = [ClassScore(n) for n in found.count.tolist()]
        # δ² and score are added in double precision, so that their difference is δ² again.
        bonus = found.shift.astype(np.float64) + found.score
        columns = (found.place, bonus, found.score, found.exact)
        for place, *known in zip(*(column.tolist() for column in columns), strict=True):
            scores[place] = ClassScore(scores[place].count, *known)
        return iter(scores)

    @overload
    def __getitem__(self, place: int) -> ClassScore: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[ClassScore]: ...

    def __getitem__(self, place: int | slice) -> ClassScore | Sequence[ClassScore]:
        return tuple(self)[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassScores) and self._packed == other._packed

    def __hash__(self) -> int:
        return hash(self._packed)

    def __repr__(self) -> str:
        return f"ClassScores.of({list(self)!r})"


def _planes(numbers: NDArray[Any]) -> bytes:
    """All first bytes, then all second ones and so on: equal ones lie side by side, and deflate well."""
    return numbers.view(np.uint8).reshape(-1, 4).T.tobytes()


def _numbers(planes: bytes, kind: str) -> NDArray[Any]:
    """Take back what `_planes` gave."""
    return np.ascontiguousarray(np.frombuffer(planes, np.uint8).reshape(4, -1).T).view(kind).reshape(-1)
