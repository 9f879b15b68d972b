"""`adamab predict -o FOLDER`: parts that are whole, in order, made once, with an error beside a bad row."""

import json
import os

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from adamab.predict.parts import PartsFolder
from adamab.testing import Fault


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


def test_parts_say_the_same_as_one_file(adamab, folder, model, table_of):
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
def test_every_kind_of_file_and_folders_of_them(adamab, folder, model, new_texts, ending, table_of):
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


def test_bad_rows_have_an_error_and_the_others_an_answer(adamab, refused, folder, model, new_texts, table_of):
    lines = [json.dumps({"text": text}) for text in new_texts]
    bad = ['{"text": ', '{"text": ""}', '{"txt": "a"}', '{"text": "no vector of it"}', '{"text": 3}']
    (folder / "in.jsonl").write_text("\n".join([*lines[:4], *bad, *lines[4:]]) + "\n")
    result = adamab("predict", model, "in.jsonl", "-o", "out", "--part-rows", "3")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[-1] == "5 rows could not be classified; see the column error"
    rows = table_of(folder / "out").to_pylist()
    assert [row["row"] for row in rows if row["error"]] == [4, 5, 6, 7, 8]
    assert all((row["class"] is None) == (row["error"] is not None) for row in rows)
    for row, message in zip(
        rows[4:9], ("JSON", "empty", "no 'text'", "no vector", "not a text"), strict=True
    ):
        assert message in row["error"]
        assert str(folder) not in row["error"]  # a part may be read on another machine
    assert rows[5]["error"].startswith("in.jsonl:6: ")
    (folder / "bad.jsonl").write_text("\n".join(bad))
    assert "none of 5 rows has an answer; the first: " in refused("predict", model, "bad.jsonl", "-o", "none")


def test_a_second_start_has_nothing_to_do_or_is_refused(adamab, refused, folder, model):
    assert adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4").exit_code == 0
    again = adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4")
    assert "3 of them finished before" in again.stderr
    read = json.loads(adamab("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4", "--json").stdout)
    assert read == {"output": "out", "rows": 9, "errors": 0, "parts": 3, "reused": 3, "overlong": 0}
    for more, message in (
        (("--part-rows", "5"), "another number of rows per part (--part-rows) ('4', now '5');"),
        (("--part-rows", "4", "--top-k", "2"), "another question: k ('1', now '2');"),
    ):
        assert message in refused("predict", model, "new.jsonl", "-o", "out", *more)
    os.utime(folder / "new.jsonl", (1, 1))
    assert "another input;" in refused("predict", model, "new.jsonl", "-o", "out", "--part-rows", "4")


def test_what_is_fixed_is_asked_again_where_no_row_had_an_answer(
    adamab, refused, folder, model, write_npz, table_of
):
    (folder / "in.txt").write_text("brand new\n")
    write_npz(folder / "own.npz", ["another"])
    command = ("predict", model, "in.txt", "-o", "out", "--embedder", "npz:own.npz")
    assert refused(*command).endswith("the first: the embedder has no vector of this row\n")
    assert not list((folder / "out").glob("part-*"))
    write_npz(folder / "own.npz", ["brand new"])
    assert adamab(*command).exit_code == 0
    assert table_of(folder / "out")["error"].to_pylist() == [None]


def test_two_jobs_do_not_write_one_folder(adamab, refused, folder, model):
    """The second would remove what the first is about to give its name."""
    parts = PartsFolder(folder / "out")
    command = ("predict", model, "new.jsonl", "-o", "out")
    with parts.held():
        (folder / "out" / ".part-of-the-first").touch()
        assert "another process is writing these parts" in refused(*command)
        assert (folder / "out" / ".part-of-the-first").exists()
    assert adamab(*command).exit_code == 0
    assert sorted(os.listdir(folder / "out")) == ["_manifest.json", "part-00000-000000.parquet"]


@pytest.mark.parametrize("after", [0, 2, 4])
def test_one_file_is_whole_whenever_the_process_is_killed(adamab, folder, model, monkeypatch, after):
    """Three parts and their manifest are removed when the file has its name."""
    command = ("predict", model, "new.jsonl", "-o", "one.parquet", "--part-rows", "4")
    assert adamab(*command).exit_code == 0
    whole = pq.read_table(folder / "one.parquet")
    unlink, removed = os.unlink, []

    def killed(path, **more):
        if os.path.basename(path).startswith(("part-", "_manifest")):
            if len(removed) == after:
                raise KeyboardInterrupt
            removed.append(path)
        return unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", killed)
        adamab(*command)
    assert len(removed) == after
    for left in folder.glob(".one.parquet.parts"):
        (left / ".lock").touch()
    again = adamab(*command)
    assert again.exit_code == 0, again.output
    assert pq.read_table(folder / "one.parquet").equals(whole)
    assert not list(folder.glob(".one*"))


def test_damaged_parts_never_become_a_file(adamab, refused, folder, model, monkeypatch):
    command = ("predict", model, "new.jsonl", "-o", "one.parquet", "--part-rows", "4")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PartsFolder, "join", killed)
        adamab(*command)
    part = folder / ".one.parquet.parts" / "part-00000-000001.parquet"
    pq.write_table(pq.read_table(part).slice(0, 1), part)
    assert "holds 6 rows where 9 were predicted" in refused(*command)
    part.write_bytes(b"PAR1 nothing of the kind PAR1")
    assert "000001.parquet: is damaged" in refused(*command)
    assert not (folder / "one.parquet").exists()
    part.unlink()
    assert adamab(*command).exit_code == 0
    assert len(pq.read_table(folder / "one.parquet")) == 9


@pytest.mark.parametrize(
    ("files", "columns"),
    [
        ({"a.txt": "", "b.txt": "money please\n"}, ["text"]),
        ({"a.csv": "text,n\nx,1,2\nmoney please,3\n"}, ["text", "n"]),
        ({"a.csv": "", "b.csv": "n,text\n1,money please\n"}, ["n", "text", "other_fields"]),
        ({"a.jsonl": '{"text": \n{"text": "money please", "n": 1}\n'}, ["text", "n", "other_fields"]),
        ({"a.jsonl": "\n", "b.jsonl": '{"text": "money please"}\n'}, ["text", "other_fields"]),
    ],
)
def test_the_fields_of_the_input_stay_whatever_comes_first(adamab, folder, model, table_of, files, columns):
    (folder / "data").mkdir()
    for name, content in files.items():
        (folder / "data" / name).write_text(content)
    result = adamab("predict", model, "data", "-o", "out", "--part-rows", "1")
    assert result.exit_code == 0, result.output
    table = table_of(folder / "out")
    ours = ["source"] * (len(files) > 1) + ["row", "class", "probability", "error"]
    assert table.column_names == columns + ours
    assert table["text"].to_pylist()[-1] == "money please"


@pytest.fixture
def paid(paid_run):
    """A server and a run whose embedder it is."""
    with paid_run(batch=4) as server:
        yield server


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_caps_hold_over_all_starts_and_nothing_is_paid_twice(adamab, refused, folder, paid, engine, table_of):
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


def test_vectors_that_are_others_by_now_are_not_mixed_with_the_old_answers(
    adamab, refused, folder, model, new_texts, write_npz
):
    write_npz(folder / "mine.npz", new_texts)
    command = ("predict", model, "new.jsonl", "--embedder", f"npz:{folder / 'mine.npz'}", "-o")
    assert adamab(*command, "out").exit_code == 0
    assert adamab(*command, "out").stderr == "out: 9 rows in 1 part, 1 of them finished before\n"
    write_npz(folder / "mine.npz", [*new_texts, "one more"])
    assert "out: holds parts of another file of vectors, by size and time (" in refused(*command, "out")
