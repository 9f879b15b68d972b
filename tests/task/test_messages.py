"""Pieces of one-line messages."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adamab.errors import TaskError
from adamab.task.messages import checked, one_line, place, short, suggestion


@given(st.text(st.characters()))
def test_messages_stay_on_one_line_and_printable(text: str) -> None:
    for shown in (one_line(text), short(text), place(text, 3), suggestion(text, [text + "x"])):
        assert shown.isprintable()


def test_short_cuts_and_place_names_the_line() -> None:
    assert short("x" * 100) == "'" + "x" * 39 + "…'"
    assert place(Path("a/b.csv"), 7) == "a/b.csv:7"
    assert place("a.csv") == "a.csv"


def test_suggestion_gives_the_nearest_or_the_first_few() -> None:
    assert suggestion("refnd", ["refund", "praise"]) == "did you mean 'refund'?"
    assert suggestion("zzz", ["refund", "praise"]) == "known: refund, praise"
    assert suggestion("zzz", [f"class{i}" for i in range(9)]).endswith("class7, …")


def test_checked_strips_and_refuses() -> None:
    assert checked(" é\n", "f:1", "text") == "é"
    for bad in ("a\0b", "\ud83d", "\udc00"):
        with pytest.raises(TaskError, match=r"^f:1: text .* holds a NUL or half a character"):
            checked(bad, "f:1", "text")
    for empty in ("", " \n", "\u200b", "\ufeff"):
        with pytest.raises(TaskError, match=r"^f:1: text is empty"):
            checked(empty, "f:1", "text")
