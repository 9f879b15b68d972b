"""The task that a run keeps, and going on without the task file."""

import json
import os
import shutil

import pytest

from adamab.errors import ProviderError, RunError, TaskError
from adamab.run.directory import TASK as FILE_NAME
from adamab.run.directory import read_task, write_task
from adamab.run.run_log import SEGMENT, Journal, task_to_go_on
from adamab.run.settings import FitSettings, store_settings, stored_settings
from adamab.task.images import Image, digest_of
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec, Sample, Task

TASK = Task(
    (ClassSpec("refund", "money back"), ClassSpec("half \ud83d a name")),
    (Sample("geld zurück", "refund", id="7"), Sample("line\nbreak", "half \ud83d a name")),
    Prompts(query="Q: {text}", with_examples=True),
    name="triage",
)


def test_a_task_comes_back_as_it_was(tmp_path):
    write_task(tmp_path, TASK)
    assert read_task(tmp_path) == TASK
    assert os.listdir(tmp_path) == [FILE_NAME]
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0  # its owner alone may read it


def test_images_are_found_after_a_move_of_everything(tmp_path):
    place = tmp_path / "first"
    (place / "run").mkdir(parents=True)
    (place / "a.png").write_bytes(b"not decoded here")
    image = Image(digest_of(b"not decoded here"), place / "a.png")
    task = Task((ClassSpec("a"), ClassSpec("b", "other")), (Sample.of_image(image, "a"),), modality="image")
    write_task(place / "run", task)
    assert str(tmp_path) not in (place / "run" / FILE_NAME).read_text()
    shutil.move(place, tmp_path / "second")
    image = task_to_go_on(tmp_path / "second" / "run").samples[0].image
    assert image is not None
    assert image.path.read_bytes() == b"not decoded here"
    image.path.write_bytes(b"another one")
    with pytest.raises(TaskError, match="has changed since the run began"):
        task_to_go_on(tmp_path / "second" / "run")
    image.path.unlink()
    with pytest.raises(TaskError, match=r"no such file.*name the task"):
        task_to_go_on(tmp_path / "second" / "run")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"format": "adamab-task", "version": 1}', "is damaged"),
        (b'{"format": "adamab-task", "version": 9}', "another version"),
        (None, "keeps no task"),
    ],
)
def test_a_file_that_is_no_good(tmp_path, content, message):
    if content is not None:
        (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(RunError, match=message):
        read_task(tmp_path)


def test_a_file_with_parts_of_the_wrong_kind(tmp_path):
    write_task(tmp_path, TASK)
    document = json.loads((tmp_path / FILE_NAME).read_bytes().decode("utf-8", "surrogatepass"))
    (tmp_path / FILE_NAME).write_text(json.dumps({**document, "samples": [{"label": "refund"}]}))
    with pytest.raises(RunError, match="is damaged"):
        read_task(tmp_path)


def test_a_place_where_nothing_can_be_written(tmp_path):
    with pytest.raises(RunError, match="cannot be written"):
        write_task(tmp_path / "not-there", TASK)


def test_a_run_that_was_stopped_at_once_does_not_say(tmp_path):
    with Journal(tmp_path, writing=True) as journal:
        journal.note(SEGMENT, {"inputs": {}})
    with pytest.raises(RunError, match="does not say how it was started; name TASK"):
        stored_settings(tmp_path)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("openai:m?base_url=https://evil.example/v1", "a server of its own, 'evil.example'"),
        ("openai:m?key_env=AWS_SECRET_ACCESS_KEY", "an environment variable of its own"),
    ],
)
@pytest.mark.parametrize("what", ["embedder", "generator"])
def test_a_run_does_not_choose_who_gets_texts_and_keys(tmp_path, what, spec, problem):
    with Journal(tmp_path, writing=True) as journal:
        store_settings(journal, tmp_path, FitSettings(**{"embedder": "local", what: spec}))
    with pytest.raises(ProviderError, match=f"names {problem}.*trust it, pass --{what} .* to adamab fit"):
        stored_settings(tmp_path)
    assert getattr(stored_settings(tmp_path, **{what: spec}), what) == spec


def test_a_run_tells_from_anywhere_how_it_was_started(tmp_path, monkeypatch):
    here, elsewhere, run = tmp_path / "here", tmp_path / "elsewhere", tmp_path / "run"
    for directory in (here, elsewhere, run):
        directory.mkdir()
    (here / "out.jsonl").write_text("")
    (here / "vectors.npz").write_text("")
    monkeypatch.chdir(here)
    settings = FitSettings(
        embedder="npz:vectors.npz?x=1",
        generator="replay:gone.jsonl",
        holdout="out.jsonl",
        prices={"m": "0.15/0.60", "p": "0.04/image"},
    )
    with Journal(run, writing=True) as journal:
        store_settings(journal, run, settings)
        store_settings(journal, run, settings)
        assert len(list(journal.events("started"))) == 1  # it is noted when it changes
    monkeypatch.chdir(elsewhere)
    stored = stored_settings(run)
    assert stored.embedder == "npz:../here/vectors.npz?x=1"
    assert stored.generator == "replay:gone.jsonl"
    assert stored.holdout == "../here/out.jsonl"
    assert stored.prices == settings.prices
