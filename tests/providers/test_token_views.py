"""The summaries of hidden layers, on small tensors."""

from __future__ import annotations

import numpy as np
import pytest

from adamab.errors import EmbedderError
from adamab.providers.embedders.sentence_transformers import (
    VIEWS,
    split,
    token_views,
)

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("count", "chosen"), [(3, [0, 1, 2]), (13, [0, 2, 4, 6, 8, 10, 12]), (29, [0, 5, 9, 14, 19, 23, 28])]
)
def test_layers_are_evenly_spaced(count: int, chosen: list[int]) -> None:
    layers = [torch.full((1, 1, 1), float(index)) for index in range(count)]
    one = torch.ones((1, 1))
    answer = token_views(layers, one, 0 * one, prompt_tokens=0, views=["layers"])
    assert answer["layers"].tolist() == [chosen]


def summaries(mask: list[int], special: list[int], prompt_tokens: int = 0) -> dict[str, list[float]]:
    tokens = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]])[:, : len(mask), None]
    tokens = torch.where(torch.tensor([mask])[..., None].bool(), tokens, torch.nan)
    answer = token_views(
        [tokens, -tokens],
        torch.tensor([mask]),
        torch.tensor([special]),
        prompt_tokens=prompt_tokens,
        views=VIEWS,
    )
    return {view: x[0].tolist() for view, x in answer.items()}


def test_special_tokens_count_in_the_mean_but_not_as_first() -> None:
    views = summaries([1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 1, 1])
    assert views["layers"] == pytest.approx([6.2, -6.2], rel=1e-3)
    assert views["max"] == [16.0, -1.0]
    assert views["first"] == [2.0, -2.0, 4.0, -4.0, 8.0, -8.0]


def test_prompt_and_left_padding_are_left_out() -> None:
    views = summaries([0, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1], prompt_tokens=2)
    assert views["first"] == [8.0, -8.0, 16.0, -16.0, 0, 0]
    assert views["max"] == [32.0, -8.0]


def test_rounding_to_half_stays_finite() -> None:
    hidden, one = torch.tensor([[[1e9, -1e9, 1 / 3]]]), torch.ones((1, 1))
    (rounded,) = token_views([hidden], one, 0 * one, prompt_tokens=0, views=["layers"])["layers"]
    assert rounded.tolist() == [65504, -65504, np.float16(1 / 3)]


class Characters:
    """A tokenizer whose tokens are the characters other than spaces."""

    is_fast = True

    def __call__(self, text: str, **options: object) -> dict[str, object]:
        return {"offset_mapping": [(n, n + 1) for n, c in enumerate(text) if c != " "]}


def test_texts_are_cut_between_words_where_possible() -> None:
    assert [p.text for p in split("abc de fgh", 0, Characters(), 6, "x")] == ["abc de", "fgh"]
    assert [p.text for p in split("abcdefgh", 0, Characters(), 3, "x")] == ["abc", "def", "gh"]
    assert [(p.row, p.tokens) for p in split("abcd", 5, Characters(), 3, "x")] == [(5, 3), (5, 1)]


def test_what_cannot_be_split() -> None:
    with pytest.raises(EmbedderError, match="leaves no room"):
        split("abc", 0, Characters(), 0, "st:x")
    with pytest.raises(EmbedderError, match="use long_texts='cut'"):
        split("abc", 0, object(), 5, "st:x")
