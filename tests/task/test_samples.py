"""Data files as samples and as texts to classify."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adamab.errors import TaskError
from adamab.task.samples import TextRow, read_samples, read_texts
from adamab.task.spec import Sample

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def jsonl(folder: Path, *rows: object) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_samples_of_every_format_are_the_same(tmp_path: Path) -> None:
    expected = [Sample("one, two", "a", id="7"), Sample("三", "b")]
    rows = jsonl(tmp_path, {"text": " one, two ", "label": "a", "id": 7}, {"class": " b", "text": "三"})
    (tmp_path / "a.csv").write_text('id,text,label\n7,"one, two",a\n,三,b\n', encoding="utf-8-sig")
    (tmp_path / "a.tsv").write_text("id\ttext\tclass\r\n7\tone, two\ta\r\n\t三\tb\r\n")
    assert read_samples(rows, ["a", "b"]) == expected
    assert read_samples(str(tmp_path / "a.csv")) == expected
    assert read_samples(tmp_path / "a.tsv", {"a", "b"}) == expected


def test_repeats_stay_for_evaluation(tmp_path: Path) -> None:
    row = {"text": "x", "label": "a"}
    assert len(read_samples(jsonl(tmp_path, row, row, row | {"label": "b"}))) == 3


def test_texts_keep_their_fields(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"id": "k", "text": " hi ", "more": [1]}, {"text": "yo"})
    rows = list(read_texts(path))
    assert rows[0] == TextRow("hi", {"id": "k", "text": " hi ", "more": [1]}, 1, "k")
    assert [row.id for row in rows] == ["k", None]


def test_texts_of_a_plain_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\n\r\nשבת\r\n".encode())
    assert [(r.line, r.text) for r in read_texts(tmp_path / "a.txt")] == [(1, "one"), (3, "שבת")]
    with pytest.raises(TaskError, match="unknown ending"):
        read_samples(tmp_path / "a.txt")


def test_texts_are_a_stream(tmp_path: Path) -> None:
    rows = read_texts(jsonl(tmp_path, {"text": "fine"}, {"text": 1}))
    assert next(rows).text == "fine"
    with pytest.raises(TaskError, match=r"a\.jsonl:2"):
        next(rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "a"}, r"no 'text' in the row \(known: label\); add it"),
        ({"label": "a", "Text": "x"}, r"no 'text' in the row \(did you mean 'Text'\?\); add it"),
        ({"text": "x"}, "no 'label' \\(or 'class'\\)"),
        ({"text": "x", "label": "a", "class": "a"}, "both 'label' and 'class'"),
        ({"text": "", "label": "a"}, "'text' is empty"),
        ({"text": "\u200b \n", "label": "a"}, "'text' is empty"),
        ({"text": 1.5, "label": "a"}, "'text' is '1.5', not a text; put it in double quotes"),
        ({"text": None, "label": "a"}, "'text' is empty; put a text there"),
        ({"text": "x", "label": 3}, "'label' is '3', not a text"),
        ({"text": "x", "label": " "}, "'label' is empty"),
        ({"text": "\ud800", "label": "a"}, "half a character"),
        ({"text": "a\0", "label": "a"}, "holds a NUL"),
        ({"text": "x", "label": "a", "id": [1]}, "'id' is"),
        ({"text": "x", "label": "a", "id": True}, "'id' is 'True'"),
        ({"text": "x", "label": "churn"}, "unknown class 'churn'; did you mean 'churns'"),
        ({"text": "x", "label": "zzz"}, "unknown class 'zzz'; known: a, churns"),
    ],
)
def test_malformed_rows_are_named_with_their_line(tmp_path: Path, row: object, message: str) -> None:
    path = jsonl(tmp_path, {"text": "fine", "label": "a"}, row)
    with pytest.raises(TaskError, match=f"a.jsonl:2: .*{message}") as caught:
        read_samples(path, ["a", "churns"])
    assert "\n" not in str(caught.value)


def test_an_empty_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"a.jsonl:1: no 'text' in the row \(the object is empty\)"):
        list(read_texts(jsonl(tmp_path, {})))


@FUZZ
@given(
    data=st.binary() | st.text().map(str.encode) | st.text('"{},:\\\n\r\t textlabel').map(str.encode),
    head=st.sampled_from([b"", b"text,label\n", b"text\tlabel\n", b'{"text": "x", "label": "y"}\n']),
    name=st.sampled_from(["a.jsonl", "a.csv", "a.tsv", "a.txt"]),
)
@pytest.mark.parametrize("reader", [read_samples, lambda path: list(read_texts(path))])
def test_no_bytes_escape_as_a_traceback(
    tmp_path: Path, reader: Callable[[Path], list[object]], data: bytes, head: bytes, name: str
) -> None:
    (tmp_path / name).write_bytes(head + data)
    message = name
    try:
        assert reader(tmp_path / name)
    except TaskError as exc:
        message = str(exc)
    assert message.isprintable()
    assert name in message
