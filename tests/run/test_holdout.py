import pytest

from adamab.errors import TaskError
from adamab.run.gate import CONTAINED_FROM, Holdout

LONG = "My parcel was left in the rain behind the shed again"


@pytest.mark.parametrize(
    "text",
    [
        "Where is my parcel?",
        "where is my parcel",
        " WHERE  is\u00a0my parcel !",
        "“Where” is — my par-cel…",
    ],
)
def test_case_space_and_punctuation_hide_nothing(text):
    assert text in Holdout(["Where is my parcel?"])


def test_other_texts_are_free():
    holdout = Holdout(["Where is my parcel?", LONG])
    for text in ("Where is my invoice?", "where", "", LONG[:-6], "My parcel was left in the sun"):
        assert text not in holdout


def test_a_long_held_out_text_is_found_inside_a_sample():
    holdout = Holdout([LONG, LONG + " and again", "is the office open"])
    assert f"Hello, {LONG.upper()}. Thanks!" in holdout
    assert f"Well: {LONG} and again!" in holdout
    assert LONG.replace("rain", "sun") not in holdout
    # A short one may be part of another by chance.
    assert "is the office open" in holdout
    assert "is the office open on the day before the holidays" not in holdout


def test_containment_starts_at_its_limit():
    just, below = "a" * CONTAINED_FROM, "b" * (CONTAINED_FROM - 1)
    holdout = Holdout([just, below])
    assert f"c{just}c" in holdout
    assert f"c{below}c" not in holdout


def test_scripts_and_signs_keep_their_differences():
    assert "कि" not in Holdout(["का"])  # they differ in a vowel, which is a mark
    assert "退款吗" in Holdout(["退款吗？"])
    assert "?!" in Holdout(["?!"])
    assert "..." not in Holdout(["?!"])
    assert "👍" not in Holdout(["👎"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "First one\n\nSecond, one\n"),
        ("a.csv", 'id,text\n1,First one\n2,"Second, one"\n'),
        ("a.tsv", "text\tlabel\nFirst one\tx\nSecond, one\ty\n"),
        ("a.jsonl", '{"text": "First one", "label": "x"}\n{"text": "Second, one"}\n'),
    ],
)
def test_formats_are_those_of_predict_and_give_one_digest(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    holdout = Holdout.read(tmp_path / name)
    assert len(holdout) == 2
    assert "second one" in holdout
    assert holdout.digest == Holdout(["SECOND ONE", "first one.", "First one"]).digest
    assert holdout.digest != Holdout(["first one"]).digest


@pytest.mark.parametrize(("name", "content"), [("a.txt", "\n"), ("a.xlsx", "x"), ("a.jsonl", '{"txt": "x"}')])
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(TaskError) as caught:
        Holdout.read(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
