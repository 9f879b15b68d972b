"""Views of a frozen transformer: summaries of its tokens in every hidden layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

VIEWS = ("layers", "first", "max")
MAX_LAYERS = 7
FIRST_TOKENS = 3
_HALF_MAX = float(np.finfo(np.float16).max)


def layer_indices(count: int) -> list[int]:
    """At most seven of `count` hidden states, evenly spaced, the first and the last among them.

    Example:
        >>> layer_indices(13)
        [0, 2, 4, 6, 8, 10, 12]
    """
    return [round(index) for index in np.linspace(0, count - 1, min(count, MAX_LAYERS))]


def token_views(
    hidden: Sequence[Any],  # tensors (batch, tokens, width), one a layer
    mask: Any,  # (batch, tokens) 1 where there is a token
    special: Any,  # (batch, tokens) 1 where the tokenizer added the token, such as CLS
    *,
    prompt_tokens: int,
    views: Sequence[str],
) -> dict[str, NDArray[np.float32]]:
    """Mean, maximum and the first three content tokens of every chosen layer, concatenated.

    The tokens of the model's prompt are the same for all texts and are left out.
    """
    present = mask.bool()
    present = present & (present.cumsum(1) > prompt_tokens)  # also right where padding is on the left
    chosen = [hidden[index] for index in layer_indices(len(hidden))]
    summaries: dict[str, Any] = {
        "layers": lambda: _mean(chosen, present),
        "first": lambda: _first(chosen, present & ~special.bool()),
        "max": lambda: _max(chosen, present),
    }
    return {view: as_half(summaries[view]().flatten(1).cpu().numpy()) for view in views}


def as_half(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to float16 and back, so that a cache of half the size gives the very same numbers."""
    # Some large models have single huge activations, which would become infinite.
    return np.clip(values, -_HALF_MAX, _HALF_MAX).astype(np.float16).astype(np.float32)


def _mean(layers: Sequence[Any], present: Any) -> Any:
    import torch

    weight = present / present.sum(1, keepdim=True).clamp(min=1)
    # Padding may hold NaN (a row of attention with nothing to attend to), and 0 * NaN is NaN.
    sums = [
        torch.einsum("btd,bt->bd", _kept(layer, present, 0.0), weight.to(layer.dtype)) for layer in layers
    ]
    return torch.stack(sums, 1)  # (batch, layers, width)


def _first(layers: Sequence[Any], content: Any) -> Any:
    import torch

    rank = content.cumsum(1)
    picks = torch.stack([content & (rank == place + 1) for place in range(FIRST_TOKENS)], 1)
    firsts = [
        torch.einsum("btd,bjt->bjd", _kept(layer, content, 0.0), picks.to(layer.dtype)) for layer in layers
    ]
    return torch.stack(firsts, 2)  # (batch, token, layers, width)


def _max(layers: Sequence[Any], present: Any) -> Any:
    import torch

    tops = [_kept(layer, present, -torch.inf).amax(1) for layer in layers]
    return torch.stack(tops, 1).nan_to_num(neginf=0.0)  # no token at all: zeros


def _kept(layer: Any, keep: Any, fill: float) -> Any:
    return layer.masked_fill(~keep[:, :, None], fill)
