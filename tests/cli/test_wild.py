"""A new user with files as people have them, from an empty folder to the right answers."""

import csv
import io
import json
import shlex
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from adamab.task import load_task

WILD = Path(__file__).parents[1] / "data" / "wild"
ANSWERS = ["billing", "login", "praise"]
# The built-in embedder reads English, and these texts share words enough.
pytestmark = pytest.mark.filterwarnings("ignore:most texts seem to be in")


@pytest.fixture
def place(tmp_path, monkeypatch):
    for file in WILD.iterdir():
        if file.suffix != ".py":
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(result):
    assert result.exit_code == 0, result.output
    return [row["class"] for row in csv.DictReader(io.StringIO(result.stdout))]


def test_another_file_of_the_same_name_does_not_replace_a_run(adamab, refused, place):
    rows = ["text,label", *(f"{name} {n},{name}" for name in ("yes", "no") for n in range(3))]
    for folder, lines in (("p1", rows), ("p2", [row.replace(" ", " or ") for row in rows])):
        (place / folder).mkdir()
        (place / folder / "train.csv").write_text("\n".join(lines))
    assert adamab("fit", "p1/train.csv", "-q").exit_code == 0
    model = (place / "runs/train/model.safetensors").read_bytes()
    line = refused("fit", "p2/train.csv")
    assert "runs/train: is the run of another task" in line
    assert "--run" in line
    assert (place / "runs/train/model.safetensors").read_bytes() == model
    with open(place / "p1/train.csv", "a") as stream:
        stream.write("\nmaybe,no")
    assert adamab("fit", "p1/train.csv", "-q").exit_code == 0
    assert adamab("fit", "p2/train.csv", "-q", "--run", "runs/train").exit_code == 0
    assert adamab("fit", "p1/train.csv", "-q", "--overwrite").exit_code == 0


def test_from_files_as_people_have_them_to_the_right_answers(adamab, refused, place):
    pytest.importorskip("openpyxl")
    first = adamab("fit", "german.csv")
    assert "taking column 'Nachricht' for the texts; --text-column" in first.stderr
    assert "taking column 'Abteilung' for the classes; --label-column" in first.stderr
    assert "adamab init --from german.csv writes a task file" in first.stderr
    assert "the run is in runs/german" in first.stdout
    assert "nothing has changed" in adamab("fit", "german.csv").stderr

    without = adamab("predict", "runs/german", "german-new.csv")
    assert "a guess is cp1252: try --encoding cp1252" in without.stdout
    assert "2 rows could not be classified" in without.stderr
    assert answers(adamab("predict", "runs/german", "german-new.csv", "--encoding", "cp1252")) == ANSWERS
    assert "a guess is utf-16: try --encoding utf-16" in refused("predict", "runs/german", "german-new.tsv")
    assert answers(adamab("predict", "runs/german", "german-new.tsv", "--encoding", "utf-16")) == ANSWERS

    assert adamab("fit", "chinese.jsonl", "-q").stderr == ""
    assert answers(adamab("predict", "runs/chinese", "chinese-new.jsonl")) == ANSWERS

    for data in ("tickets.csv", "reviews.parquet", "tickets.xlsx"):
        assert adamab("fit", data, "--run", "english", "--overwrite").exit_code == 0
        assert answers(adamab("predict", "english", "new.xlsx")) == ANSWERS
    evaluated = json.loads(adamab("evaluate", "english", "tickets.csv", "--json").stdout)
    assert evaluated["accuracy"]["value"] == 1

    for out in ("out.csv", "out.jsonl", "out.parquet", "-"):
        more = [] if out == "-" else ["-o", out]
        result = adamab("predict", "english", "broken.csv", "--strict", *more)
        assert (result.exit_code, "2 rows could not be classified" in result.stderr) == (1, True)
    rows = list(csv.DictReader(io.StringIO((place / "out.csv").read_bytes().decode())))
    assert list(csv.DictReader(io.StringIO(result.stdout))) == rows
    assert [row["class"] for row in rows] == ["billing", "", "login", "", "praise", "billing"]
    assert [row["key"] for row in rows] == ["'=1+1", "a2", "-3.50", "too", "'+a", "a6"]
    assert [row["error"].partition(";")[0] for row in rows if row["error"]] == [
        "broken.csv:3: 'text' is empty",
        "broken.csv:5: 4 fields where the header has 2",
    ]
    lines = [json.loads(line) for line in (place / "out.jsonl").read_text("utf-8").splitlines()]
    table = pq.read_table(place / "out.parquet").to_pylist()
    for row, line, cells in zip(rows, lines, table, strict=True):
        assert (line["error"] or "", line["class"] or "") == (row["error"], row["class"])
        assert {name: cells[name] for name in line} == line
    assert lines[0]["key"] == "=1+1"


def test_the_note_on_descriptions_is_a_command_that_works(adamab, place):
    recoded = (place / "german.csv").read_text("utf-8-sig").encode("cp1252")
    (place / "My data.csv").write_bytes(recoded)
    result = adamab("fit", "My data.csv", "--encoding", "cp1252", "--text-column", "Nachricht")
    (line,) = [line for line in result.stderr.splitlines() if "no class has a description" in line]
    command = line.partition("few: ")[2].removesuffix(" writes a task file to put them in")
    assert command == "adamab init --from 'My data.csv' --text-column Nachricht --encoding cp1252"
    assert adamab(*shlex.split(command)[1:]).exit_code == 0
    assert adamab("init", "a b").stdout.endswith("then: adamab fit 'a b/task.yaml' --run 'a b/run'\n")


def test_a_task_file_with_the_classes_of_a_data_file(adamab, refused, place):
    result = adamab("init", "desk", "--from", "german.csv")
    assert result.stdout == (
        "wrote desk/task.yaml; write a description beside each class, then: adamab fit desk/task.yaml\n"
    )
    path = place / "desk" / "task.yaml"
    assert load_task(path) == load_task(place / "german.csv")
    path.write_text(path.read_text("utf-8").replace("description:", "description: a", 1), "utf-8")
    assert [spec.description for spec in load_task(path).classes] == ["a", None, None]
    recoded = (place / "german.csv").read_text("utf-8-sig").replace(";", "~").encode("cp1252")
    (place / "odd.csv").write_bytes(recoded)
    options = ("--encoding", "cp1252", "--delimiter", "~", "--id-column", "Nr")
    options += ("--text-column", "Nachricht", "--label-column", "Abteilung")
    assert adamab("init", "--from", "odd.csv", *options).exit_code == 0
    task = load_task(place / "task.yaml")
    assert (task.name, len(task.samples), task.samples[0].id) == ("odd", 18, "1000")
    assert "stays as it is" in refused("init", "--from", "odd.csv", *options)
    assert "is no data file" in refused("init", "--from", "task.yaml")
    assert "unknown key of a file of examples 'encodin'" in refused(
        "fit", _edited(place, "encoding:", "encodin:")
    )


def _edited(place, old, new):
    path = place / "task.yaml"
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--text-column", "Nachrichten"), "german.csv:1: --text-column: no column 'Nachrichten'; did you"),
        (("--label-column", "Team"), "--label-column: no column 'Team'; known: Nr, Nachricht, Abteilung"),
        (("--delimiter", ";;"), "delimiter ';;' divides no cells; use one character"),
        (("--delimiter", ","), "no column 'text' in 'Nr;Nachricht;Abteilung;'"),
        (("--encoding", "rot13"), "encoding 'rot13' is unknown"),
        (("--encoding", "utf-16"), "german.csv:1: is not utf-16; name another with --encoding"),
        (("--run", "run", "--holdout", "none.txt"), "none.txt: no such file"),
    ],
)
def test_what_is_said_wrongly_about_a_file_is_one_line(refused, place, arguments, message):
    assert message in refused("fit", "german.csv", "-q", *arguments)


def test_without_a_task_and_a_run_there_is_nothing_to_do(refused, place):
    assert "name TASK, or --run DIR" in refused("fit")
