from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from adamab.classifier import Classifier, Head, load
from adamab.errors import MissingExtraError, RunError
from adamab.method.evidence import Estimate
from adamab.run import directory, torch_required
from adamab.run.fit import FitResult
from adamab.run.records import ClassScore, History, RoundRecord, Seconds
from adamab.task import Sample, Task
from adamab.task.recipe import Recipe

TASK = Task.from_mapping({"no": ["a"], "yes": ["b"]})


@pytest.fixture
def result() -> FitResult:
    head = Head(view="pooled", linear=np.eye(2, dtype=np.float32))
    record = RoundRecord(1, "no", 2, 2, None, 4, (ClassScore(1),) * 2, 0.5, 0.1, Seconds())
    return FitResult(
        Classifier(classes=("no", "yes"), heads=(head,), embedder_spec="npz:x"),
        History([record]),
        (Sample("é", "no", "synthetic"), Sample("d", "no", "synthetic")),
        Estimate(0.5, 0.1, 0.9, 2),
        {"no": "recording exhausted"},
        0,
    )


@pytest.fixture
def summary(result):
    return directory.summarise(
        TASK, result, Recipe(), policy="adamab", generator="replay:x", budget=2, seed=3, seconds=1.23456
    )


def test_what_a_run_holds(tmp_path, result, summary):
    path = tmp_path / "deep" / "run"
    directory.write_run(path, result, summary)
    assert sorted(os.listdir(path)) == sorted(directory.FILES)
    assert load(path).classes == ("no", "yes")
    found = directory.read_summary(path)
    assert found == summary
    assert (found["seed"], found["seconds"], found["synthetic"], found["given"]) == (3, 1.235, 2, 2)
    assert found["estimate"]["accuracy"] == 0.5
    assert found["recipe"]["name"] == "default"
    lines = (path / "synthetic.jsonl").read_text("utf-8").splitlines()
    assert json.loads(lines[0]) == {"label": "no", "text": "é"}
    assert os.listdir(tmp_path / "deep") == ["run"]


def test_digest_is_of_the_contents():
    again = Task.from_mapping({"no": ["a"], "yes": ["b"]})
    other = Task.from_mapping({"no": ["a"], "yes": ["c"]})
    assert directory.task_digest(TASK) == directory.task_digest(again) != directory.task_digest(other)


def test_overwriting_takes_a_word_and_a_run(tmp_path, result, summary):
    path = tmp_path / "run"
    path.mkdir()  # an empty directory is free
    directory.write_run(path, result, summary)
    with pytest.raises(RunError, match="--overwrite"):
        directory.write_run(path, result, summary)
    directory.write_run(path, result, {**summary, "seed": 4}, overwrite=True)
    assert directory.read_summary(path)["seed"] == 4
    (path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"'notes\.txt', which is no part of a run"):
        directory.write_run(path, result, summary, overwrite=True)
    assert (path / "notes.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("content", [b"{}", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_foreign_directories_are_left_alone(tmp_path, result, summary, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "fit.json").write_bytes(content)
    with pytest.raises(RunError, match="something else"):
        directory.write_run(tmp_path / "run", result, summary, overwrite=True)
    assert (tmp_path / "run" / "fit.json").read_bytes() == content
    with pytest.raises(RunError, match=r"fit\.json"):
        directory.read_summary(tmp_path / "run")


def test_places_that_cannot_be_used(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        directory.check_free(tmp_path / "file")
    with pytest.raises(RunError, match="not a directory to write in"):
        directory.check_free(tmp_path / "file" / "below")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunError, match="not a directory to write in"):
        directory.check_free(tmp_path / "run")


def test_unreadable_directories(tmp_path, monkeypatch):
    def fail(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(Path, "iterdir", fail)
    with pytest.raises(RunError, match="Permission denied"):
        directory.check_free(tmp_path / "run")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_writing_leaves_nothing(tmp_path, result, summary, monkeypatch, error):
    def fail(self: History, path: Path) -> None:
        raise error

    monkeypatch.setattr(History, "write", fail)
    with pytest.raises((RunError, KeyboardInterrupt)):
        directory.write_run(tmp_path / "run", result, summary)
    assert os.listdir(tmp_path) == []


def test_a_failed_replacement_brings_the_old_run_back(tmp_path, result, summary, monkeypatch):
    path = tmp_path / "run"
    directory.write_run(path, result, summary)
    real, calls = os.replace, []

    def fail_once(source: Path, target: Path) -> None:
        if str(target) == str(path):
            calls.append(target)
            if len(calls) == 1:
                raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(RunError, match="Input/output error"):
        directory.write_run(path, result, {**summary, "seed": 9}, overwrite=True)
    assert directory.read_summary(path)["seed"] == 3
    assert os.listdir(tmp_path) == ["run"]


def test_a_link_stays_a_link(tmp_path, result, summary):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    directory.write_run(tmp_path / "link", result, summary)
    assert (tmp_path / "link").is_symlink()
    assert directory.is_run(tmp_path / "real")


def test_missing_torch_names_its_pip_line():
    with pytest.raises(MissingExtraError, match=r"adamab\[train\]"), torch_required():
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    with pytest.raises(ModuleNotFoundError, match="foo"), torch_required():
        raise ModuleNotFoundError("No module named 'foo'", name="foo")


def test_repeats_do_not_change_the_digest():
    digest = "dfff8a680f661c0ba680acff914189ba5f093820a67620b5e4b37b6c692ba7e8"
    for examples in (["a"], ["a", "A "]):
        assert directory.task_digest(Task.from_mapping({"no": examples, "yes": ["b"]})) == digest
