"""Inputs as parts: what is broken costs its own row, and every row is in one part, in order."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adamab.errors import ImageError, TaskError
from adamab.model.classifier import Answers, PredictOptions
from adamab.model.predictor import Inference
from adamab.predict import CHUNK
from adamab.predict.predictor import Predictor, Question
from adamab.predict.readers import Source, find_sources, parquet_schema, parts_of, rows_of
from adamab.predict.writers import OTHER, Columns
from adamab.providers.embedders.base import TextError
from adamab.task import table_files
from adamab.task.tables import Row, scan_rows


def fields_and_errors(path, kind):
    rows = list(rows_of(Source(str(path), path.name, kind, "text")))
    return [row.fields for row in rows], [row.error for row in rows], [row.line for row in rows]


def test_broken_lines_of_jsonl_cost_their_own_row(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "LONGEST_LINE", 40)
    path = tmp_path / "in.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "a"}\n\n{"text": \n{"text": "\xff"}\n["no object"]\n'
        + b'{"text": "%s"}\n' % (b"x" * 100)
        + b'{"text": "z"}'
    )
    fields, errors, lines = fields_and_errors(path, "jsonl")
    nothing = {"text": ""}
    kept = [{"text": line} for line in ('{"text":', '{"text": "\ufffd"}', '["no object"]')]
    assert fields == [{"text": "a"}, *kept, nothing, {"text": "z"}]
    assert lines == [1, 3, 4, 5, 6, 7]
    assert errors[0] is errors[-1] is None
    for error, message in zip(
        errors[1:-1], ("not valid JSON", "not UTF-8", "not an object", "16 MB"), strict=True
    ):
        assert message in error
        assert f"{path}:" in error


def test_broken_rows_of_csv_cost_their_own_row(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b'text,n\n"a\nb",1\nx,2,3\n\xff,4\n"bad"quote,5\nlast,6\n')
    fields, errors, lines = fields_and_errors(path, "csv")
    rows = [("a\nb", "1"), ("x", "2,3"), ("\ufffd", "4"), ('"bad"quote', "5"), ("last", "6")]
    assert [tuple(row.values()) for row in fields] == rows
    assert lines == [2, 4, 5, 6, 7]
    for error, message in zip(errors[1:-1], ("3 fields where", "UTF-8", "not valid CSV"), strict=True):
        assert message in error


def test_a_quotation_mark_that_is_not_closed_costs_its_own_row(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('id;text\n1;"a b;c\n2;foo\n3\n"4";"x""\ny"\n5;"open\n6;last\n')
    fields, errors, lines = fields_and_errors(path, "csv")
    assert [(row["id"], row["text"]) for row in fields] == [
        ("1", '"a b;c'), ("2", "foo"), ("3", None), ("4", 'x"\ny'), ("5", '"open'), ("6", "last"),
    ]  # fmt: skip
    assert lines == [2, 3, 4, 5, 7, 8]
    assert [number for number, error in zip(lines, errors, strict=True) if error] == [2, 4, 7]
    assert "in.csv:2: not valid CSV (quotation mark that is not closed); check the quotes" in errors[0]


def test_many_quotation_marks_that_are_not_closed_cost_little(tmp_path):
    path, began = tmp_path / "in.csv", time.monotonic()
    path.write_text("id,text\n" + '1,"a\n' * 100_000)
    with open(path, "rb") as handle:
        assert sum(row.error is not None for row in scan_rows(path, handle, "csv")) == 100_000
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_line_of_a_table_that_is_too_long_costs_its_own_row(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(table_files, "LONGEST_LINE", 40)
    path = tmp_path / "in.csv"
    path.write_text("text\na\n" + "x" * 100 + '\nb\n"c\n' + "y" * 100 + "\nd\n")
    fields, errors, lines = fields_and_errors(path, kind)
    nothing = {"text": None}
    quote = {"text": '"c'}
    assert fields == [{"text": "a"}, nothing, {"text": "b"}, quote, nothing, {"text": "d"}]
    assert lines == [2, 3, 4, 5, 6, 7]
    for number in (1, 4):
        assert (
            errors[number] == f"{path}:{lines[number]}: the line is longer than 16 MB; is this a text file?"
        )
    path.write_text("x" * 100)
    with pytest.raises(TaskError, match=":1: the line is longer"):
        fields_and_errors(path, kind)


@pytest.mark.parametrize("part_rows", [1, 3, 7, 100])
def test_parts_hold_every_row_once(tmp_path, part_rows):
    table = pa.table({"text": [str(n) for n in range(20)], "n": pa.array(range(20), pa.int16())})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=6)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(20)))
    for name in ("in.parquet", "in.jsonl"):
        (source,) = find_sources(str(tmp_path / name), None, "text")
        parts = list(parts_of(3, source, part_rows, finished={(3, 1)}))
        sizes = [part_rows] * (20 // part_rows) + [20 % part_rows] * bool(20 % part_rows)
        assert [part.first for part in parts] == list(range(0, 20, part_rows))
        assert [part.source for part in parts] == [3] * len(sizes)
        lengths = [None if part.content is None else len(part.content) for part in parts]
        assert lengths == [None if number == 1 else size for number, size in enumerate(sizes)]
        if name == "in.parquet":
            kept = pa.concat_tables(part.content for part in parts_of(0, source, part_rows))
            assert kept.combine_chunks().equals(table.combine_chunks())


def test_a_folder_is_its_files_of_one_kind(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "_hidden.jsonl", ".x.jsonl", "notes.md"):
        (tmp_path / name).write_text('{"text": "a"}\n')
    assert [source.name for source in find_sources(str(tmp_path), None, "text")] == ["a.jsonl", "b.jsonl"]
    (tmp_path / "c.csv").write_text("text\na\n")
    with pytest.raises(TaskError, match="several kinds"):
        find_sources(str(tmp_path), None, "text")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="no data file"):
        find_sources(str(tmp_path / "empty"), None, "text")
    with pytest.raises(TaskError, match="no such file"):
        find_sources(str(tmp_path / "none.csv"), None, "text")


def test_damaged_parquet_is_one_line(tmp_path):
    (tmp_path / "in.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(TaskError, match="is no Parquet file"):
        parquet_schema(Source(str(tmp_path / "in.parquet"), "in", "parquet", "text"))
    pq.write_table(pa.table({"colour": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(TaskError, match="no column 'text'"):
        parquet_schema(Source(str(tmp_path / "other.parquet"), "in", "parquet", "text"))
    pq.write_table(pa.Table.from_arrays([pa.array(["x"])] * 2, ["text", "text"]), tmp_path / "twice.parquet")
    (twice,) = find_sources(str(tmp_path / "twice.parquet"), None, "text")
    for read in (parquet_schema, lambda source: list(rows_of(source))):
        with pytest.raises(TaskError, match="column 'text' stands there twice"):
            read(twice)


def test_types_are_decided_once_and_nothing_is_lost():
    first = [{"text": "a", "n": 1, "x": 1, "ok": True, "deep": [1]}, {"text": "b", "n": 2, "x": 0.5}]
    columns = Columns.of_objects(first)
    assert columns.types == {"text": "string", "n": "int", "x": "float", "ok": "bool", "deep": "json"}
    later = [
        {"text": "c", "n": "two", "new": {"k": None}},
        {"text": "d", "n": 2**70, "x": 2**60, "deep": "plain"},
        {"text": "half \ud800", "n": True, "ok": None},
        None,
    ]
    made = {name: array.to_pylist() for name, array in columns.arrays(later).items()}
    assert made["text"] == ["c", "d", None, None]
    assert made["n"] == made["x"] == made["ok"] == [None] * 4
    assert made["deep"] == [None, "plain", None, None]
    others = [None if text is None else json.loads(text) for text in made[OTHER]]
    assert others == [
        {"n": "two", "new": {"k": None}},
        {"n": 2**70, "x": 2**60},
        {"text": "half \ud800", "n": True},
        None,
    ]
    assert {name: str(array.type) for name, array in columns.arrays(later).items()} == {
        name: str(array.type) for name, array in columns.arrays(first).items()
    }


def test_a_name_that_parquet_cannot_hold_stands_among_the_other_fields():
    rows = [{"text": "a", "\ud800": 1}]
    made = Columns.of_objects(rows).arrays(rows)
    assert list(made) == ["text", OTHER]
    assert json.loads(made[OTHER][0].as_py()) == {"\ud800": 1}
    names = Columns.of_texts(["image"]).arrays([{"image": "\udcff.png"}])
    assert names["image"].to_pylist() == ["\\udcff.png"]


class Picky(Inference):
    """Takes texts that begin with "good", and tells of another one: the first, the last, or one unnamed."""

    classifier = SimpleNamespace(classes=["a", "b"])

    def __init__(self, which):
        self.which, self.taken, self.embedder = which, [], None

    def answers(self, rows, options):
        broken = [number for number, row in enumerate(rows) if not row.text.startswith("good")]
        if broken and self.which is None:
            raise ImageError("one of them is no image")
        if broken:
            raise TextError("toy", broken[self.which], "is too large")
        self.taken += [row.text for row in rows]
        shape = (len(rows), 1)
        return Answers(np.zeros(shape, np.int64), np.ones(shape, np.float32), None, None)


@pytest.mark.parametrize("which", [0, -1, None])
def test_any_number_of_broken_rows_is_told_each_beside_its_own(which):
    texts = [f"good {n}" if n % 50 == 7 else f"bad {n}" for n in range(CHUNK)]
    inference = Picky(which)
    source = Source("in.txt", "in.txt", "txt", "text")
    answers = Predictor(Question("run", "in.txt", None, PredictOptions()), inference).answers(
        source, [Row(source.place, 1, {"text": text}) for text in texts]
    )
    assert [text for text, answer in zip(texts, answers, strict=True) if answer["error"] is None] == [
        text for text in texts if text.startswith("good")
    ]
    assert inference.taken == [text for text in texts if text.startswith("good")]
