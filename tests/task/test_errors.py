"""Pieces of one-line messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adamab.errors import TaskError, one_line, place, short, suggestion
from adamab.task.words import checked


@given(st.text(st.characters()))
def test_messages_stay_on_one_line_and_printable(text):
    for shown in (one_line(text), short(text), place(text, 3), suggestion(text, [text + "x"])):
        assert shown.replace("\u200d", "").isprintable()


def test_what_joins_emoji_stays_and_other_joiners_are_seen():
    for emoji in (
        "\U0001f469\u200d\U0001f4bb",
        "\u2764\ufe0f\u200d\U0001f525",
        "\U0001f3f3\ufe0f\u200d\u26a7\ufe0f",
    ):
        assert one_line(f"a {emoji}\n") == f"a {emoji}\\n"
    assert one_line("re\u200dfund") == "re\\u200dfund"
    assert one_line("\U0001f469\u200d\u200d") == "\U0001f469\\u200d\\u200d"


def test_checked_strips_and_refuses():
    assert checked(" é\n", "f:1", "text") == "é"
    for bad in ("a\0b", "\ud83d", "\udc00"):
        with pytest.raises(TaskError, match=r"^f:1: text .* holds a NUL or half a character"):
            checked(bad, "f:1", "text")
    for empty in ("", " \n", "\u200b", "\ufeff"):
        with pytest.raises(TaskError, match=r"^f:1: text is empty"):
            checked(empty, "f:1", "text")
