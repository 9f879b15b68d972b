"""A few texts that stand for many: what a prompt shows of the samples that exist."""

from __future__ import annotations

from collections.abc import Sequence

from adamab.task.words import terms

_POOL = 200  # texts looked at; more would cost time without showing more
_CLIPPED = 1000  # characters


def diverse(texts: Sequence[str], count: int, *, latest: int = 0) -> list[str]:
    """At most `count` of `texts`, in their order: the `latest` ones, then each time the least alike.

    Texts are alike by the words that they share (Jaccard); the choice is deterministic.

    Example:
        >>> diverse(["a red car", "a red cart", "money back", "hello"], 2, latest=1)
        ['a red car', 'hello']
    """
    if len(texts) <= count:
        return list(texts)
    latest = min(latest, count)
    chosen = list(range(len(texts) - latest, len(texts)))
    pool = _spread(len(texts) - latest, max(_POOL, count))
    words = {place: frozenset(terms(texts[place])) for place in (*pool, *chosen)}
    likeness = {place: max((_alike(words[place], words[c]) for c in chosen), default=0.0) for place in pool}
    while len(chosen) < count:
        new = min(likeness, key=lambda place: (likeness[place], place))
        del likeness[new]
        chosen.append(new)
        for place in likeness:
            likeness[place] = max(likeness[place], _alike(words[place], words[new]))
    return [texts[place] for place in sorted(chosen)]


def clipped(text: str) -> str:
    """`text`, or its beginning where it is long."""
    return text if len(text) <= _CLIPPED else text[: _CLIPPED - 1] + "…"


def _spread(size: int, most: int) -> list[int]:
    """At most `most` places, evenly over `size`; never fewer than there are to choose from."""
    if size <= most:
        return list(range(size))
    return [number * size // most for number in range(most)]


def _alike(a: frozenset[str], b: frozenset[str]) -> float:
    common = len(a & b)
    return common / (len(a) + len(b) - common) if common else 0.0
