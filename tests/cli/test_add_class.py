"""`adamab add-class`: what it prints and refuses, and the commands that follow it."""

import json
import shutil

import numpy as np
import pytest

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
    result = adamab("add-class", run, "question", "--embedder", "npz:vectors.npz", *options)
    assert result.exit_code == 0, result.output
    return result


def test_added_predicted_evaluated_and_fitted(adamab, refused, run, folder):
    result = added(adamab, run, "--description", "asks how", "--examples", "questions.txt")
    assert result.stdout == (
        "added class 'question' with 2 examples; the classifier knows 4 classes now\n"
        f"it has not been trained on the new one: adamab fit --run {run} does that, and buys nothing again\n"
    )
    (folder / "test.csv").write_text("text,label\nhow it works,question\nmoney money back,refund\n")
    result = adamab("predict", run, "test.csv", "--embedder", "npz:vectors.npz", "--json")
    assert [json.loads(line)["class"] for line in result.stdout.splitlines()] == ["question", "refund"]
    result = adamab("evaluate", run, "test.csv", "--embedder", "npz:vectors.npz", "--json")
    assert json.loads(result.stdout)["accuracy"]["value"] == 1.0
    line = refused("fit", "task.yaml", "--run", run, "--embedder", "npz:vectors.npz")
    assert "added to this run with adamab add-class" in line


def test_a_task_that_forgets_the_examples_of_an_added_class_is_refused(adamab, refused, run, folder):
    added(adamab, run, "--description", "asks how", "--examples", "questions.txt")
    task = json.loads((folder / "task.yaml").read_text())
    task["classes"].append({"name": "question", "description": "asks how"})
    (folder / "task.yaml").write_text(json.dumps(task))
    options = ("--embedder", "npz:vectors.npz", "--no-cache")
    line = refused("fit", "task.yaml", "--run", run, *options)
    assert "has examples that are not in the task" in line
    task["classes"][-1]["examples"] = QUESTIONS[:2]
    (folder / "task.yaml").write_text(json.dumps(task))
    assert adamab("fit", "task.yaml", "--run", run, *options).exit_code == 0


def test_json(adamab, run):
    result = added(adamab, run, "--description", "asks how", "--json")
    assert json.loads(result.stdout) == {
        "run": str(run),
        "class": "question",
        "classes": 4,
        "examples": 0,
        "repeats": 0,
        "overlong": 0,
        "next": f"adamab fit --run {run}",
    }


def test_fit_without_a_task_trains_it_in(adamab, folder, write_npz):
    texts = [*_known(folder), *QUESTIONS, "question: asks how"]
    write_npz(folder / "vectors.npz", texts)
    begin = ("fit", "task.yaml", "--run", "run", "--embedder", "npz:vectors.npz")
    assert adamab(*begin, "--quiet").exit_code == 0
    (folder / "questions.jsonl").write_text("".join(json.dumps({"text": q}) + "\n" for q in QUESTIONS))
    added(adamab, "run", "--description", "asks how", "--examples", "questions.jsonl")
    result = adamab("fit", "--run", "run", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["classes"], summary["given"]) == (4, 12)
    assert summary["changes"] == ["class 'question' added"]
    assert "added" not in json.loads((folder / "run" / "fit.json").read_text())


def test_what_is_refused(refused, run, folder):
    known = ("--embedder", "npz:vectors.npz")
    assert "neither a description nor an example" in refused("add-class", run, "question", *known)
    assert "is there already" in refused("add-class", run, "refund", "--description", "x", *known)
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
