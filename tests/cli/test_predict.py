import csv
import json
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adamab.cli.console import Bar
from adamab.predict import CHUNK
from adamab.providers.cache import free_vectors


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_done_and_rows_in_all_are_told(adamab, folder, model, monkeypatch, ending):
    """A line break within quotes begins no row, a blank line is none."""
    steps = []

    class Seen(Bar):
        visible = True

        def step(self, count=1):
            steps[-1][0] += count

        def phase(self, description, total=None):
            steps.append([0, total])

    monkeypatch.setattr("adamab.cli.predict.progress", lambda description: nullcontext(Seen()))
    (folder / "in.csv").write_text(
        'text,note\nmoney please,"a\n\nb, ""c"""\n\ncannot sign in,\nmoney please,d\n'
    )
    pq.write_table(
        pa.table({"text": ["money please", "cannot sign in", "money please"]}), folder / "in.parquet"
    )
    for more in (["-o", "out.csv"], ["-o", "parts"], []):
        result = adamab("predict", model, f"in.{ending}", *more)
        assert (result.exit_code, steps[-1]) == (0, [3, 3]), result.output
    adamab("predict", model, "-", stdin="money please\n")
    assert steps[-1] == [1, None]


def test_predicting_with_a_free_embedder_fills_no_cache(adamab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert adamab("init", "t").exit_code == 0
    assert adamab("fit", "t/task.yaml", "--run", "run", "-q").exit_code == 0
    stored = [(entry.view, entry.rows) for entry in free_vectors().entries()]
    (tmp_path / "in.txt").write_text("".join(f"a new text {n}\n" for n in range(50)))
    for more in ([], ["-o", "out.csv"]):
        assert adamab("predict", "run", "in.txt", *more).exit_code == 0
    assert stored
    assert [(entry.view, entry.rows) for entry in free_vectors().entries()] == stored


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_formats_and_fields(adamab, folder, model, ending):
    (folder / "in.csv").write_text('text,note\nmoney please,"a, ""b"""\ncannot sign in,\n')
    result = adamab("predict", model, "in.csv", "-o", f"out.{ending}")
    assert (result.exit_code, result.output) == (0, "")
    if ending == "jsonl":
        rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    else:
        rows = rows_of(folder / f"out.{ending}")
    assert list(rows[0]) == ["text", "note", "class", "probability", "error"]
    assert [row["class"] for row in rows] == ["refund", "login"]
    assert rows[0]["note"] == 'a, "b"'
    assert 0 < float(rows[0]["probability"]) <= 1
    assert not list(folder.glob(".out*"))


def test_stdout_stdin_and_top_k(adamab, folder, model):
    text = "money please\n\n  cannot sign in \n"
    plain = adamab("predict", model, "-", stdin=text)
    assert plain.stdout.splitlines()[0] == "text,class,probability,error"
    assert len(plain.stdout.splitlines()) == 3
    result = adamab("predict", model, "-", "--json", "--top-k", "2", stdin=text)
    first = json.loads(result.stdout.splitlines()[0])
    assert first["classes"][0] == first["class"] == "refund"
    assert len(first["classes"]) == len(first["probabilities"]) == 2


def test_fields_called_like_ours_are_kept(adamab, folder, model):
    (folder / "in.jsonl").write_text(
        '{"text": "money please", "class": "x", "more": [1, null], "no": null}\n'
    )
    result = adamab("predict", model, "in.jsonl", "-o", "out.csv")
    assert result.exit_code == 0, result.output
    (row,) = rows_of(folder / "out.csv")
    assert (row["input_class"], row["class"], row["more"], row["no"]) == ("x", "refund", "[1, null]", "")


def test_a_field_of_a_later_row_stops_no_table(adamab, folder, model):
    lines = ['{"text": "money please"}', '{"text": "cannot sign in", "x": 1}']
    lines += ['{"text": "money please"}'] * (CHUNK - 2) + ['{"text": "money", "y": [2], "other_fields": 3}']
    (folder / "in.jsonl").write_text("\n".join(lines))
    assert adamab("predict", model, "in.jsonl", "-o", "out.csv").exit_code == 0
    rows = rows_of(folder / "out.csv")
    assert list(rows[0]) == ["text", "x", "other_fields", "class", "probability", "error"]
    assert (rows[1]["x"], rows[1]["other_fields"]) == ("1", "")
    assert json.loads(rows[-1]["other_fields"]) == {"y": [2], "input_other_fields": 3}
    assert adamab("predict", model, "in.jsonl").stdout == (folder / "out.csv").read_bytes().decode()


def test_vectors(adamab, refused, folder, model, vector_model, write_npz, new_texts):
    texts = new_texts
    write_npz(folder / "in.npz", texts)
    result = adamab("predict", vector_model, "in.npz")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "id,class,probability"
    assert len(result.stdout.splitlines()) == 10
    assert "add an array 'texts'" in refused("predict", model, "in.npz")
    write_npz(folder / "in.npz", texts, texts=np.array(texts))
    with_texts = adamab("predict", model, "in.npz", "--json")
    by_text = adamab("predict", model, "new.jsonl", "--json")
    answers = [[json.loads(line)["class"] for line in r.stdout.splitlines()] for r in (with_texts, by_text)]
    assert answers[0] == answers[1]
    write_npz(folder / "in.npz", texts, texts=np.array(texts[:-1]))
    assert "9 strings are needed" in refused("predict", model, "in.npz")


def test_vectors_of_another_embedder(adamab, refused, folder, vector_model, write_npz):
    write_npz(folder / "in.npz", ["a b"], model=np.array("another"))
    assert "fitted with embedder" in refused("predict", vector_model, "in.npz")
    write_npz(folder / "in.npz", ["a b"], model=np.array("npz:toy"))  # the fingerprint itself
    assert adamab("predict", vector_model, "in.npz").exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.csv", b"", "no rows"),
        ("in.csv", b"words\nhello\n", "no column 'text'"),
        ("in.xls", b"PK", ".npz, .parquet, .tsv, .txt, .xlsx, or say --format"),
        ("data/a.csv", b'text\n""\n', "data/a.csv: none of 1 rows has an answer; the first: a.csv:2: "),
        ("none.odd", None, "none.odd: no such file"),
        ("in.txt", b"never seen before\n", "no vector of this row"),
    ],
)
def test_bad_input(refused, folder, model, name, content, message):
    (folder / "data").mkdir()
    if content is not None:
        (folder / name).write_bytes(content)
    (folder / "out.csv").write_text("before")
    assert message in refused("predict", model, name, "-o", "out.csv")
    assert (folder / "out.csv").read_text() == "before"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "new.jsonl"), "is the input as well"),
        (("-o", "out.xml"), "unknown ending"),
        (("-o", "."), "holds other files; name a new or an empty folder"),
        (("-o", "none/out.csv"), "cannot be written (No such file"),
        (("-o", "out.csv", "--json"), "--json does not go"),
        (("-o", "/dev/full"), "/dev/full: cannot be written (No space"),
        (("-o", "out", "--address", "10.0.0.1:6379"), "--address is that of a Ray cluster; add --engine ray"),
        (("-o", "out", "--workers", "7"), "--workers are those of Ray; add --engine ray"),
        (("-o", "out.csv", "--part-rows", "7"), "--part-rows is for a folder or a Parquet file"),
        (("-o", "out", "--engine", "spark"), "--engine 'spark' is unknown; choose local or ray"),
        (("-o", "out.parquet", "--engine", "ray"), "name one with -o FOLDER"),
    ],
)
def test_bad_output(refused, folder, model, options, message):
    assert message in refused("predict", model, "new.jsonl", *options)
    assert (folder / "new.jsonl").read_text()
    assert not list(folder.glob("out*"))


def test_the_address_of_ray_in_the_environment_is_for_those_who_ask_for_ray(
    adamab, refused, folder, model, monkeypatch
):
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    assert adamab("predict", model, "new.jsonl", "-o", "out").exit_code == 0
    message = refused("predict", model, "new.jsonl", "-o", "ray", "--engine", "ray")
    assert "'nowhere' is no address of a Ray cluster" in message


def test_numbers_that_json_has_no_word_for_are_null(adamab, folder, model):
    odd = [float("nan"), float("inf"), 0.5]
    rows = {"text": ["money please"] * 3, "x": odd, "more": [[{"y": x}] for x in odd]}
    pq.write_table(pa.table(rows), folder / "in.parquet")
    assert adamab("predict", model, "in.parquet", "-o", "out.jsonl").exit_code == 0
    lines = (folder / "out.jsonl").read_text().splitlines()
    read = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [row["x"] for row in read] == [None, None, 0.5]
    assert [row["more"][0]["y"] for row in read] == [None, None, 0.5]
    assert adamab("predict", model, "in.parquet", "-o", "out.csv").exit_code == 0
    read = rows_of(folder / "out.csv")
    assert [row["x"] for row in read] == ["NaN", "Infinity", "0.5"]
    assert read[0]["more"] == '[{"y": null}]'


def test_links_stay_links(adamab, folder, model):
    (folder / "link.csv").symlink_to("real.csv")
    assert adamab("predict", model, "new.jsonl", "-o", "link.csv").exit_code == 0
    assert (folder / "link.csv").is_symlink()
    assert len(rows_of(folder / "real.csv")) == 9


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", "text,note\nmoney please,x\n"),
        ("tsv", "note\ttext\nx\tmoney please\n"),
        ("jsonl", '{"text": "money please", "note": "x"}\n'),
    ],
)
def test_stdin_and_files_in_a_named_format(adamab, refused, folder, model, kind, content):
    message = refused("predict", model, "-", stdin=content)
    assert message.startswith("adamab: stdin:1: ")
    assert f"--format {kind}" in message
    (folder / "data.dat").write_text(content)
    for source, stdin in (("-", content), ("data.dat", None)):
        result = adamab("predict", model, source, "--format", kind, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        (row,) = map(json.loads, result.stdout.splitlines())
        assert (row["text"], row["note"], row["class"]) == ("money please", "x", "refund")


def predicted(adamab, model, *options):
    result = adamab("predict", model, "new.jsonl", "--json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_priors_move_the_answers(adamab, folder, model):
    plain, _ = predicted(adamab, model)
    moved, _ = predicted(adamab, model, "--prior", "login=0.98", "--prior", "praise=0.01")
    (folder / "priors.json").write_text('{"login": 0.98, "praise": 0.01}')
    assert predicted(adamab, model, "--prior", "priors.json")[0] == moved
    count = [[row["class"] for row in rows].count("login") for rows in (plain, moved)]
    assert count[1] > count[0]
    ruled_out, _ = predicted(adamab, model, "--prior", "login=0", "--top-k", "3")
    assert {row["probabilities"][2] for row in ruled_out} == {0.0}
    assert {row["classes"][2] for row in ruled_out} == {"login"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("login=x", "'x' is no number; write NAME=SHARE"),
        ("logn=0.5", "'logn', which is no class; did you mean 'login'?"),
        ("new.jsonl", "new.jsonl: is no JSON object of shares"),
        ("twice.json", "twice"),
        ("deep.json", "is no JSON object of shares"),
    ],
)
def test_bad_priors(refused, folder, model, value, message):
    (folder / "twice.json").write_text('{"login": 0.1, "login": 0.2}')
    (folder / "deep.json").write_text("[" * 100_000)
    for command in ("predict", "evaluate"):
        assert message in refused(command, model, "new.jsonl", "--prior", value)


def test_unknown_inputs(adamab, folder, model, write_npz):
    plain, _ = predicted(adamab, model)
    rows, notes = predicted(adamab, model, "--unknown", "0.1")
    assert notes == ""
    assert "unknown" in [row["class"] for row in rows]
    assert [row["probability"] for row in rows] == [row["probability"] for row in plain]
    for row, before in zip(rows, plain, strict=True):
        assert row["class"] in ("unknown", before["class"])
    rows, notes = predicted(adamab, model, "--unknown", "0.99")
    assert "unknown" not in [row["class"] for row in rows]
    assert (
        notes == "note: 9 held-out samples cannot vouch for 99.0 %, so no answer is unknown; add examples\n"
    )


def test_prediction_sets(adamab, folder, model, vector_model, write_npz, new_texts):
    rows, notes = predicted(adamab, model, "--coverage", "0.8")
    assert notes == ""
    assert all(row["set"][0] == row["class"] for row in rows)
    rows, notes = predicted(adamab, model, "--coverage", "0.95")
    assert all(len(row["set"]) == 3 for row in rows)
    assert "so every set holds all classes" in notes
    adamab("predict", model, "new.jsonl", "--coverage", "0.8", "-o", "out.csv")
    names = list(rows_of(folder / "out.csv")[0])
    assert names == ["text", "label", "other_fields", "class", "probability", "set", "error"]
    write_npz(folder / "in.npz", new_texts)
    result = adamab("predict", vector_model, "in.npz", "--coverage", "0.95", "--unknown", "0.5", "--json")
    assert "note: 9 held-out samples" in result.stderr
    assert len(json.loads(result.stdout.splitlines()[0])["set"]) == 3
