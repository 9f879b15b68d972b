"""What `Embedder.embed` promises whatever the implementation answers."""

from typing import Any

import numpy as np
import pytest

from adamab.errors import EmbedderError
from adamab.providers.embedders.base import Embedded, Embedder, TextError
from adamab.testing import HashEmbedder


class Fixed(Embedder):
    """Answers with whatever it was given."""

    fingerprint = "fixed"

    def __init__(self, views, overlong=None, offered=("pooled",)):
        self.answer, self.flags, self.views = views, overlong, tuple(offered)

    async def _embed(self, texts, *, kind, views):
        flags = np.zeros(len(texts), bool) if self.flags is None else self.flags
        return Embedded(self.answer, flags)  # type: ignore[arg-type]


async def test_equal_texts_are_embedded_once_and_order_is_kept():
    embedder = HashEmbedder(width=8, max_words=2)
    answer = await embedder.embed(["b", "a", "b", "c d e"])
    assert embedder.calls == 3
    np.testing.assert_array_equal(answer.views["pooled"][0], answer.views["pooled"][2])
    np.testing.assert_array_equal(answer.views["pooled"][1], (await embedder.embed(["a"])).views["pooled"][0])
    assert answer.overlong.tolist() == [False, False, False, True]


async def test_only_wanted_views_are_asked_for():
    embedder = HashEmbedder(views=("pooled", "wide"))
    assert list((await embedder.embed(["a"], views=["wide", "wide"])).views) == ["wide"]
    with pytest.raises(EmbedderError, match="HashEmbedder has no view 'x'; it has: pooled, wide"):
        await embedder.embed(["a"], views=["pooled", "x"])


@pytest.mark.parametrize(
    ("texts", "kind", "message"),
    [
        (["ok", 3], "query", "text 1 is of type int"),
        (["ok", None], "query", "text 1 is of type NoneType"),
        ("one text", "query", "where a list of texts belongs"),
        (["ok"], "label", "kind 'label' is unknown"),
    ],
)
async def test_bad_input_is_refused(texts, kind, message):
    with pytest.raises(EmbedderError, match=message):
        await HashEmbedder().embed(texts, kind=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("views", "overlong", "message"),
    [
        ({}, None, "did not answer with view 'pooled'"),
        ({"pooled": np.ones((3, 4))}, None, "has 3 vectors for 2 texts"),
        ({"pooled": np.ones(2)}, None, r"has shape \(2,\)"),
        ({"pooled": np.ones((2, 0))}, None, r"has shape \(2, 0\)"),
        ({"pooled": [[1.0], [1.0, 2.0]]}, None, "not numbers of one width"),
        ({"pooled": [["a"], ["b"]]}, None, "not numbers of one width"),
        ({"pooled": np.array([[1.0], [np.nan]])}, None, "vector 1 of view 'pooled' is not finite"),
        ({"pooled": np.array([[1e300], [1.0]])}, None, "vector 0 of view 'pooled' is not finite"),
        ({"pooled": np.ones((2, 4))}, np.zeros(3, bool), "flagged"),
    ],
)
async def test_bad_answers_are_refused_in_one_line(views, overlong, message):
    with pytest.raises(EmbedderError, match=message) as caught:
        await Fixed(views, overlong).embed(["a secret", "b"])
    assert str(caught.value).startswith("Fixed")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_the_name_of_the_lexical_view_is_taken():
    with pytest.raises(EmbedderError, match="rename it"):
        await HashEmbedder(views=("pooled", "words")).embed(["a"])


class Piecemeal(HashEmbedder):
    """Answers in pieces, the last texts first."""

    def __init__(self, pieces):
        super().__init__(width=8)
        self.pieces = pieces

    async def _parts(self, texts, *, kind, views, keep=None):
        for piece in self.pieces:
            yield piece, await self._embed([texts[row] for row in piece], kind=kind, views=views)


async def test_pieces_are_put_in_order():
    reference = await HashEmbedder(width=8).embed(["a", "b", "a", "c"])
    answer = await Piecemeal([[2], [1, 0]]).embed(["a", "b", "a", "c"])
    np.testing.assert_array_equal(answer.views["pooled"], reference.views["pooled"])


async def test_each_piece_is_kept_once_before_it_is_handed_over():
    embedder, events = Piecemeal([[2], [1, 0]]), list[Any]()

    def keep(rows, _):
        events.append([*rows])

    async for _ in embedder.parts(["a", "b", "c"], kind="query", views=["pooled"], keep=keep):
        events.append("handed over")
    assert events == [[2], "handed over", [1, 0], "handed over"]


@pytest.mark.parametrize("pieces", [[], [[0]], [[0, 1], [1, 2]], [[0, 1, 2], [0]]])
async def test_pieces_must_add_up(pieces):
    with pytest.raises(EmbedderError, match=r"answered for \d texts, not for each of 3 once"):
        await Piecemeal(pieces).embed(["a", "b", "c"])


async def test_pieces_of_different_width():
    class Uneven(Piecemeal):
        async def _embed(self, texts, *, kind, views):
            return Embedded({"pooled": np.ones((1, 1 + len(texts[0])), np.float32)}, np.zeros(1, bool))

    with pytest.raises(EmbedderError, match="differ in width"):
        await Uneven([[0], [1]]).embed(["a", "bc"])


async def test_a_text_is_named_by_its_place_in_the_callers_list():
    class Picky(HashEmbedder):
        async def _embed(self, texts, *, kind, views):
            raise TextError(str(self), texts.index("bad"), "is refused")

    with pytest.raises(TextError, match="text 3 is refused"):
        await Picky().embed(["a", "a", "b", "bad", "bad"])
