"""The summaries of hidden layers, on small tensors."""

import numpy as np
import pytest

from adamab.errors import EmbedderError
from adamab.providers.embedders.local_models import VIEWS, split
from adamab.providers.embedders.sentence_transformers import token_views

torch = pytest.importorskip("torch")


def summaries(mask, special, prompt_tokens=0):
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


def test_special_tokens_count_in_the_mean_but_not_as_first():
    views = summaries([1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 1, 1])
    assert views["layers"] == pytest.approx([6.2, -6.2], rel=1e-3)
    assert views["max"] == [16.0, -1.0]
    assert views["first"] == [2.0, -2.0, 4.0, -4.0, 8.0, -8.0]


def test_prompt_and_left_padding_are_left_out():
    views = summaries([0, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1], prompt_tokens=2)
    assert views["first"] == [8.0, -8.0, 16.0, -16.0, 0, 0]
    assert views["max"] == [32.0, -8.0]


def test_rounding_to_half_stays_finite():
    hidden, one = torch.tensor([[[1e9, -1e9, 1 / 3]]]), torch.ones((1, 1))
    (rounded,) = token_views([hidden], one, 0 * one, prompt_tokens=0, views=["layers"])["layers"]
    assert rounded.tolist() == [65504, -65504, np.float16(1 / 3)]


def pieces(text, room, row=0):
    """Of tokens that are the characters other than spaces."""
    return split(text, row, [(n, n + 1) for n, c in enumerate(text) if c != " "], room, "st:x")


def test_texts_are_cut_between_words_where_possible():
    assert [p.text for p in pieces("abc de fgh", 6)] == ["abc de", "fgh"]
    assert [p.text for p in pieces("abcdefgh", 3)] == ["abc", "def", "gh"]
    assert [(p.row, p.tokens) for p in pieces("abcd", 3, row=5)] == [(5, 3), (5, 1)]


def test_what_cannot_be_split():
    with pytest.raises(EmbedderError, match="leaves no room"):
        pieces("abc", 0)
