"""`adamab predict -o FOLDER`: parts that are whole, in order, made once, with an error beside a bad row."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from adamab.cli import predict as predict_command
from adamab.testing import Fault, ProviderServer


def table_of(folder):
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("part-*.parquet")))


def told_by(table):
    return list(
        zip(
            table["text"].to_pylist(),
            table["class"].to_pylist(),
            table["probability"].to_pylist(),
            strict=True,
        )
    )


def plain(adamab, model, source, *more):
    result = adamab("predict", model, source, "--json", *more)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["text"], row["class"], row["probability"]) for row in rows]


def test_parts_say_the_same_as_one_file(adamab, folder, model):
    result = adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4", "--top-k", "2")
    assert result.exit_code == 0, result.output
    assert result.stderr == "out: 9 rows in 3 parts\n"
    table = table_of(folder / "out")
    assert table.column_names == [
        "text", "label", "other_fields", "row", "class", "probability", "classes", "probabilities", "error",
    ]  # fmt: skip
    assert told_by(table) == plain(adamab, model, "new.jsonl")
    assert table["row"].to_pylist() == list(range(9))
    assert table["error"].null_count == 9
    assert ds.dataset(folder / "out").count_rows() == 9  # the manifest is in nobody's way
    manifest = json.loads((folder / "out" / "_manifest.json").read_text())
    assert (manifest["rows"], manifest["errors"], manifest["parts"], manifest["complete"]) == (9, 0, 3, True)


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_every_kind_of_file_and_folders_of_them(adamab, folder, model, new_texts, ending):
    (folder / "data").mkdir()
    for name, texts in (("b", new_texts[:4]), ("a", new_texts[4:])):
        path = folder / "data" / f"{name}.{ending}"
        if ending == "parquet":
            pq.write_table(pa.table({"text": texts, "row": pa.array(range(len(texts)), pa.int8())}), path)
        else:
            path.write_text(("text\n" if ending == "csv" else "") + "".join(f"{text}\n" for text in texts))
    assert adamab("predict", model, "data", "-o", "out", "--part-rows", "2").exit_code == 0
    table = table_of(folder / "out")
    assert told_by(table) == plain(adamab, model, "data")
    assert table["text"].to_pylist() == new_texts[4:] + new_texts[:4]
    assert table["source"].to_pylist() == [f"a.{ending}"] * 5 + [f"b.{ending}"] * 4
    assert table["row"].to_pylist() == [*range(5), *range(4)]
    if ending == "parquet":
        assert table.schema.field("input_row").type == pa.int8()
    assert adamab("predict", model, "data", "-o", "one.parquet", "--part-rows", "2").exit_code == 0
    assert pq.read_table(folder / "one.parquet").equals(table)
    assert not list(folder.glob(".one*"))


def test_bad_rows_have_an_error_and_the_others_an_answer(adamab, refused, folder, model, new_texts):
    lines = [json.dumps({"text": text}) for text in new_texts]
    bad = ['{"text": ', '{"text": ""}', '{"txt": "a"}', '{"text": "no vector of it"}', '{"text": 3}']
    (folder / "in.jsonl").write_text("\n".join([*lines[:4], *bad, *lines[4:]]) + "\n")
    result = adamab("predict", model, "in.jsonl", "-o", "out", "--part-rows", "3")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[-1] == "5 rows could not be classified; see the column error"
    rows = table_of(folder / "out").to_pylist()
    assert [row["row"] for row in rows if row["error"]] == [4, 5, 6, 7, 8]
    assert all((row["class"] is None) == (row["error"] is not None) for row in rows)
    for row, told in zip(rows[4:9], ("JSON", "empty", "no 'text'", "no vector", "not a text"), strict=True):
        assert told in row["error"]
    (folder / "bad.jsonl").write_text("\n".join(bad))
    assert "none of 5 rows has an answer; the first: " in refused("predict", model, "bad.jsonl", "-o", "none")


def test_a_second_start_makes_what_is_missing(adamab, refused, folder, model):
    assert adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4").exit_code == 0
    whole = table_of(folder / "out")
    kept = folder / "out" / "part-00000-000000.parquet"
    before = kept.stat().st_mtime_ns
    (folder / "out" / "part-00000-000001.parquet").unlink()
    manifest = json.loads((folder / "out" / "_manifest.json").read_text())
    unfinished = {name: manifest[name] for name in ("format", "input", "model", "question", "part_rows")}
    (folder / "out" / "_manifest.json").write_text(json.dumps(unfinished))
    result = adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4")
    assert result.stderr == "out: 9 rows in 3 parts, 2 of them finished before\n"
    assert table_of(folder / "out").equals(whole)
    assert kept.stat().st_mtime_ns == before
    again = adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4")
    assert "3 of them finished before" in again.stderr
    told = json.loads(adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4", "--json").stdout)
    assert told == {"output": "out", "rows": 9, "errors": 0, "parts": 3, "found": 3, "overlong": 0}
    for more, told in (
        (("--part-rows", "5"), "4 rows a part"),
        (("--part-rows", "4", "--top-k", "2"), "question"),
    ):
        assert told in refused("predict", model, "new.jsonl", "-o", "out", *more)
    os.utime(folder / "new.jsonl", (1, 1))
    assert "another input" in refused("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4")


def test_what_has_no_parts_is_refused(refused, folder, model, write_npz):
    assert "-o FOLDER" in refused("predict", model, "new.jsonl", "-o", "out.csv", "--engine", "ray")
    assert "-o FOLDER" in refused("predict", model, "new.jsonl", "--engine", "ray")
    assert "-o FOLDER" in refused("predict", model, "new.jsonl", "-o", "o.parquet", "--engine", "ray")
    assert "choose local or ray" in refused("predict", model, "new.jsonl", "-o", "out", "--engine", "spark")
    assert "save it as a file" in refused("predict", model, "-", "-o", "out", stdin="a\n")
    assert "into one file" in refused("predict", model, "vectors.npz", "-o", "out")
    assert "makes no samples" in refused("predict", model, "new.jsonl", "--budget", "3 samples")
    assert not (folder / "out").exists()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_one_file_goes_on_where_it_was_stopped(adamab, folder, model, monkeypatch, ending):
    monkeypatch.setattr(predict_command, "CHUNK", 2)
    whole = folder / f"whole.{ending}"
    assert adamab("predict", model, "new.jsonl", "-o", whole).exit_code == 0
    asked = []
    answers = predict_command._answers

    def stopped(inference, rows, *more):
        asked.append(rows[0].text)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return answers(inference, rows, *more)

    monkeypatch.setattr(predict_command, "_answers", stopped)
    target = folder / f"out.{ending}"
    assert adamab("predict", model, "new.jsonl", "-o", target).exit_code != 0
    assert not target.exists()
    with open(folder / f".out.{ending}.partial", "ab") as stream:
        stream.write(b"torn")  # a process that dies while it writes leaves half a row
    result = adamab("predict", model, "new.jsonl", "-o", target)
    assert result.exit_code == 0, result.output
    assert "going on after 4 rows" in result.stderr
    assert target.read_bytes() == whole.read_bytes()
    assert len(asked) == 3 + 3  # five chunks: two before, one that was stopped, three now
    assert not list(folder.glob(".out*"))


def test_an_unfinished_file_of_another_question_is_begun_anew(adamab, folder, model, monkeypatch):
    monkeypatch.setattr(predict_command, "CHUNK", 2)
    (folder / ".out.jsonl.partial").write_text("old\n")
    (folder / ".out.jsonl.partial.json").write_text(
        json.dumps({"identity": {}, "done": 2, "bytes": 4, "columns": []})
    )
    result = adamab("predict", model, "new.jsonl", "-o", "out.jsonl")
    assert "begun anew" in result.stderr
    assert len((folder / "out.jsonl").read_text().splitlines()) == 9
    assert not list(folder.glob(".out*"))


@pytest.fixture
def paid(adamab, folder):
    """A server and a run whose embedder it is."""
    with ProviderServer() as server:
        spec = f"openai:m?base_url={server.url}/v1&first_wait=0.01&batch=4"
        fitted = adamab("fit", "task.yaml", "--run", "paid", "--embedder", spec, "--set", "folds=0",
                        "--set", "checkpoints=0,6", "--no-cache")  # fmt: skip
        assert fitted.exit_code == 0, fitted.output
        yield server


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_caps_hold_over_all_starts_and_nothing_is_paid_twice(adamab, refused, folder, paid, engine):
    (folder / "many.txt").write_text("".join(f"text number {n}\n" for n in range(24)))
    paid.add_fault(Fault("status", status=500, times=1))
    paid.add_fault(Fault("status", status=429, times=1))
    command = ("predict", "paid", "many.txt", "-o", "out", "--part-rows", "8", "--engine", engine)
    before = paid.billed("/embeddings")
    result = adamab(*command, "--budget", "4 calls")
    assert result.exit_code == 2
    assert "budget" in result.stderr
    first = paid.billed("/embeddings") - before
    assert first <= 4
    assert paid.count("/embeddings") - before <= 4
    parts = len(list((folder / "out").glob("part-*")))
    result = adamab(*command, "--budget", "9 calls")
    assert result.exit_code == 0, result.output
    assert ("without Ray" in result.stderr) == (engine == "ray")
    assert "spent: " in result.stderr
    assert f"{parts} of them finished before" in result.stderr or parts == 0
    assert paid.count("/embeddings") - before <= 9
    assert paid.repeated("/embeddings") == 0
    table = table_of(folder / "out")
    assert table["text"].to_pylist() == [f"text number {n}" for n in range(24)]
    assert table["error"].null_count == 24


def test_a_dead_provider_is_no_fault_of_the_rows(refused, folder, paid):
    (folder / "many.txt").write_text("one\ntwo\n")
    paid.add_fault(Fault("status", status=401, times=None))
    assert "wants a key (401" in refused("predict", "paid", "many.txt", "-o", "out")
    assert not list((folder / "out").glob("part-*"))


def test_a_text_that_the_provider_declines_is_an_error_of_its_row(adamab, folder, paid):
    (folder / "many.txt").write_text("".join(f"number {n}\n" for n in range(7)) + "forbidden\n")
    paid.add_fault(Fault("too_large", contains="forbidden", times=None))
    result = adamab("predict", "paid", "many.txt", "-o", "out")
    assert result.exit_code == 0, result.output
    errors = table_of(folder / "out")["error"].to_pylist()
    assert errors[:7] == [None] * 7
    assert errors[7] is not None
