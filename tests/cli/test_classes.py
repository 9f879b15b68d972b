"""`adamab classes` and `adamab add-class`: what they print and refuse, and the commands that follow."""

import json
import shutil

import numpy as np
import pytest

from adamab.model import load
from adamab.run.run_log import Journal
from tests.cli.conftest import CLASSES

QUESTIONS = ["how does it work", "how do I change it", "how is it done"]


@pytest.fixture
def run(folder, model, write_npz):
    """A copy of the fitted run, in a folder whose vectors know the new class as well."""
    shutil.copytree(model, folder / "run")
    more = [*QUESTIONS, "how it works", "question: asks how", "question"]
    write_npz(folder / "vectors.npz", [*_known(folder), *more])
    (folder / "questions.txt").write_text("\n".join(QUESTIONS[:2]) + "\n")
    return folder / "run"


def _known(folder):
    with np.load(folder / "vectors.npz") as file:
        return file["ids"].tolist()


def added(adamab, run, *options):
    """Without a fit."""
    result = adamab("add-class", run, "question", "--embedder", "npz:vectors.npz", "--no-fit", *options)
    assert result.exit_code == 0, result.output
    return result


def test_added_predicted_evaluated_and_fitted(adamab, refused, run, folder):
    result = added(adamab, run, "--description", "asks how", "--examples", "questions.txt")
    assert "with 2 examples; the classifier knows 4 classes now\n" in result.stdout
    (folder / "test.csv").write_text("text,label\nhow it works,question\nmoney money back,refund\n")
    result = adamab("predict", run, "test.csv", "--embedder", "npz:vectors.npz", "--json")
    assert [json.loads(line)["class"] for line in result.stdout.splitlines()] == ["question", "refund"]
    result = adamab("evaluate", run, "test.csv", "--embedder", "npz:vectors.npz", "--json")
    assert json.loads(result.stdout)["accuracy"]["value"] == 1.0
    line = refused("fit", "task.yaml", "--run", run, "--embedder", "npz:vectors.npz")
    assert "class 'question' was added to this run's own task" in line


@pytest.fixture
def begun(adamab, folder, write_npz):
    """A run that says how it was started, whose embedder knows what the tests name."""
    wordings = ["question: asks how", "money: money back", "any: cannot sign in", "any: money back"]
    write_npz(folder / "vectors.npz", [*_known(folder), *QUESTIONS, *wordings])
    begin = ("fit", "task.yaml", "--run", "run", "--embedder", "npz:vectors.npz", "--quiet")
    assert adamab(*begin).exit_code == 0
    (folder / "questions.jsonl").write_text("".join(json.dumps({"text": q}) + "\n" for q in QUESTIONS))
    return folder / "run"


def ok(result):
    assert result.exit_code == 0, result.output
    return result


QUESTION = ("question", "--description", "asks how", "--examples", "questions.jsonl", "--json")


@pytest.mark.parametrize("command", [("add-class", "run"), ("classes", "run", "add")])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_added_class_is_fitted(adamab, begun, command, at_once):
    result = ok(adamab(*command, *QUESTION, *(() if at_once else ("--no-fit",))))
    if not at_once:
        assert json.loads(result.stdout)["next"] == "adamab fit --run run"
        result = ok(adamab("fit", "--run", "run", "--json"))
    summary = json.loads(result.stdout)
    assert (summary["classes"], summary["given"]) == (4, 12)
    assert summary["changes"] == ["class 'question' added"]
    assert "added" not in json.loads((begun / "fit.json").read_text())
    assert load(begun).classes == ("refund", "login", "praise", "question")


def test_classes_are_renamed_merged_and_removed(adamab, refused, begun):
    shown = ok(adamab("classes", "run")).stdout
    assert [line.split()[:2] for line in shown.splitlines() if "3" in line] == [[n, "3"] for n in CLASSES]
    result = ok(adamab("classes", "run", "rename", "refund", "money"))
    assert "changed since the last fit: class 'refund' renamed to 'money'" in result.stderr
    assert load(begun).classes == ("money", "login", "praise")
    result = ok(adamab("classes", "run", "merge", "money", "login", "--into", "any", "--no-fit"))
    assert result.stdout == (
        "the task has 2 classes ('any', 'praise') now, and the classifier after adamab fit --run run\n"
    )
    assert load(begun).classes == ("money", "login", "praise")
    summary = json.loads(ok(adamab("fit", "--run", "run", "--json")).stdout)
    assert summary["changes"] == ["class 'money' merged into 'any'", "class 'login' merged into 'any'"]
    assert load(begun).classes == ("any", "praise")
    again = json.loads(ok(adamab("classes", "run", *("add", *QUESTION))).stdout)
    assert again["classes"] == 3
    removed = json.loads(ok(adamab("classes", "run", "remove", "any", "--json")).stdout)
    assert (removed["classes"], removed["given"]) == (2, 6)
    assert "at least two classes" in refused("classes", "run", "remove", "praise")
    assert "leave TASK out" in refused("fit", "task.yaml", "--run", "run", "--embedder", "npz:vectors.npz")


@pytest.mark.filterwarnings("always:.*are left out, since this run")
def test_a_recording_follows_renamed_merged_and_removed_classes(adamab, begun, folder, write_npz):
    new = {name: [f"{name} {n}" for n in range(4)] for name in CLASSES}
    wordings = ["account: asks how", "sky: asks how"]
    write_npz(
        folder / "vectors.npz", [*_known(folder), *wordings, *(t for texts in new.values() for t in texts)]
    )
    rows = [{"label": name, "text": text} for name, texts in new.items() for text in texts]
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    begin = ("fit", "task.yaml", "--run", "run", "--embedder", "npz:vectors.npz")
    ok(adamab(*begin, "--generator", "replay:r.jsonl", "--budget", "3 samples", "--set", "batch=1"))
    for change in (
        ("merge", "refund", "login", "--into", "account"),
        ("add", "sky", "--description", "asks how"),
        ("remove", "praise"),
    ):
        ok(adamab("classes", "run", *change, "--no-fit"))
    again = ("fit", "--run", "run", "--budget", "9 samples", "--json")
    ok(adamab(*again, "--dry-run"))
    result = ok(adamab(*again))
    assert "samples of 'praise' are left out, since this run has no such class" in result.stderr
    summary = json.loads(result.stdout)
    assert summary["synthetic_by_class"]["account"] == 8, "all that the recording has of the two"


def test_a_run_that_cannot_be_fitted_from_here_is_left_alone(refused, begun):
    with Journal(begun, writing=True) as journal:
        journal.note("started", journal.last("started").data | {"embedder": None})
    kept = (begun / "task.json").read_bytes()
    for change in (("rename", "refund", "money"), ("add", "question", "--description", "asks how")):
        assert "add --no-fit" in refused("classes", "run", *change)
    assert (begun / "task.json").read_bytes() == kept


def test_what_is_refused(refused, run, folder):
    known = ("--embedder", "npz:vectors.npz", "--no-fit")
    assert "neither a description nor an example" in refused("add-class", run, "question", *known)
    assert "there is no run" in refused("classes", folder, "rename", "refund", "money")
    missing = refused("add-class", run, "spam", "--description", "sells things", *known)
    assert "has no vector of class 'spam'" in missing
    assert "is this a run" in refused("add-class", folder / "no-run", "question", "--description", "x")
    (folder / "mixed.csv").write_text("text,label\nhow it works,question\nlikes it,praise\n")
    line = refused("add-class", run, "question", "--examples", "mixed.csv", *known)
    assert "mixed.csv:3: is of class 'praise', not of 'question'" in line
    assert "nowhere.csv" in refused("add-class", run, "question", "--examples", "nowhere.csv", *known)
    (run / "classes.safetensors").write_bytes(b"no")
    line = refused("add-class", run, "question", "--description", "asks how", *known)
    assert "fit again to add classes" in line
