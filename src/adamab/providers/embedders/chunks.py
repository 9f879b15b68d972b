"""Texts that are longer than a model takes: cut into pieces, and the pieces' vectors averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.errors import EmbedderError


@dataclass(frozen=True)
class Piece:
    """A part of text number `row`, and its weight."""

    text: str
    row: int
    tokens: int


def split(text: str, row: int, tokenizer: Any, room: int, name: str) -> list[Piece]:
    """Pieces of at most `room` tokens, cut between words where that is possible."""
    if not getattr(tokenizer, "is_fast", False):
        raise EmbedderError(f"{name}: its tokenizer does not tell where tokens begin; use long_texts='cut'")
    if room < 1:
        raise EmbedderError(f"{name}: its prompt leaves no room for text; use long_texts='cut'")
    encoded = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
    )
    spans: list[tuple[int, int]] = encoded["offset_mapping"]
    pieces: list[Piece] = []
    start = 0
    while start < len(spans):
        stop = _cut(text, spans, start, min(start + room, len(spans)))
        pieces.append(Piece(text[spans[start][0] : spans[stop - 1][1]], row, stop - start))
        start = stop
    return pieces


def _cut(text: str, spans: Sequence[tuple[int, int]], start: int, stop: int) -> int:
    """The last end of a word in the piece's second half; without one, right there."""
    if stop == len(spans):
        return stop
    for cut in range(stop, (start + stop) // 2, -1):
        begin = spans[cut][0]
        # Tokens of some vocabularies include the space before them.
        if text[begin : begin + 1].isspace() or text[begin - 1 : begin].isspace():
            return cut
    return stop


def averaged(
    matrices: Mapping[str, NDArray[np.float32]], pieces: Sequence[Piece], rows: int
) -> dict[str, NDArray[np.float32]]:
    """One vector a text: the mean of its pieces', weighted by tokens; `pooled` has length 1 again."""
    if len(pieces) == rows:
        return dict(matrices)
    owner = np.array([piece.row for piece in pieces])
    weight = np.array([float(piece.tokens) for piece in pieces])
    share = (weight / np.bincount(owner, weight, rows)[owner])[:, None]
    return {view: _average(view, matrix, owner, share, rows) for view, matrix in matrices.items()}


def _average(
    view: str, matrix: NDArray[np.float32], owner: NDArray[np.int64], share: NDArray[np.float64], rows: int
) -> NDArray[np.float32]:
    total = np.zeros((rows, matrix.shape[1]))
    np.add.at(total, owner, share * matrix)
    if view == "pooled":
        total /= np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)
        return total.astype(np.float32)
    return total.astype(np.float16).astype(np.float32)
