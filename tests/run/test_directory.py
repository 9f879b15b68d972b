import os
from pathlib import Path

import numpy as np
import pytest

from adamab.errors import RunError
from adamab.model import Classifier, Head
from adamab.model.new_class import NewClassModel, Stacked
from adamab.run import directory
from adamab.run.directory import SampleVectors
from adamab.run.fit import FitResult
from adamab.run.records import ClassScores, History, RoundRecord, Seconds
from adamab.run.run_log import Journal
from adamab.task import Sample, Task

TASK = Task.from_mapping({"no": ["a"], "yes": ["b"]})


@pytest.fixture
def result():
    head = Head(view="pooled", linear=np.eye(2, dtype=np.float32))
    record = RoundRecord(1, "no", 2, 2, None, 4, ClassScores([1, 1]), 0.5, 0.1, Seconds())
    return FitResult(
        Classifier(classes=("no", "yes"), heads=(head,), embedder_spec="npz:x"),
        History([record]),
        (Sample("é", "no", "synthetic"),),
        vectors=SampleVectors(*[np.zeros((0, 2), np.float16)] * 3),
        new_class=NewClassModel(heads=(Stacked(),)),
    )


SUMMARY = {"format": directory.FORMAT, "seed": 3}


def test_a_run_is_resumed_unless_there_is_no_journal(tmp_path, result):
    path = tmp_path / "run"
    path.mkdir()  # an empty directory is free
    directory.check_place(path)
    directory.write_results(path, TASK, result, SUMMARY)
    with pytest.raises(RunError, match="--overwrite"):
        directory.check_place(path)
    directory.check_place(path, overwrite=True)
    (path / "journal.sqlite").touch()  # as a full disk leaves it: what was bought is not known any more
    with pytest.raises(RunError, match="--overwrite"):
        directory.check_place(path)
    (path / "journal.sqlite").unlink()
    Journal(path, writing=True).close()
    directory.check_place(path)
    (path / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(RunError, match=r"'notes\.txt', which is no part of a run"):
            directory.check_place(path, overwrite=overwrite)
    assert (path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("content", [b"{}", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_foreign_directories_are_left_alone(tmp_path, result, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "fit.json").write_bytes(content)
    with pytest.raises(RunError, match="something else"):
        directory.check_place(tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / "fit.json").read_bytes() == content
    with pytest.raises(RunError, match=r"fit\.json"):
        directory.read_summary(tmp_path / "run")


def test_places_that_cannot_be_used(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        directory.check_place(tmp_path / "file")
    with pytest.raises(RunError, match="not a directory to write in"):
        directory.check_place(tmp_path / "file" / "below")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunError, match="not a directory to write in"):
        directory.check_place(tmp_path / "run")


def test_unreadable_directories(tmp_path, monkeypatch):
    def fail(path):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(Path, "iterdir", fail)
    with pytest.raises(RunError, match="Permission denied"):
        directory.check_place(tmp_path / "run")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_while_writing_leaves_the_results_that_were_there(tmp_path, result, monkeypatch, error):
    def fail(self):
        raise error

    directory.write_results(tmp_path, TASK, result, SUMMARY)
    monkeypatch.setattr(RoundRecord, "to_json", fail)
    with pytest.raises((RunError, KeyboardInterrupt)):
        directory.write_results(tmp_path, TASK, result, {**SUMMARY, "seed": 9})
    assert directory.read_summary(tmp_path)["seed"] == 3
    assert sorted(os.listdir(tmp_path)) == sorted(directory.RESULTS)
