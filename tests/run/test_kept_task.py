"""The task that a run keeps, and going on without the task file."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from adamab.errors import RunError, TaskError
from adamab.providers.prices import Price
from adamab.run.kept_task import FILE_NAME, read_task, write_task
from adamab.run.started import started, task_to_go_on
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


def test_only_its_owner_may_read_it(tmp_path):
    write_task(tmp_path, TASK)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


def test_pictures_are_found_after_a_move_of_everything(tmp_path):
    place = tmp_path / "first"
    (place / "run").mkdir(parents=True)
    (place / "a.png").write_bytes(b"not decoded here")
    image = Image(digest_of(b"not decoded here"), place / "a.png")
    task = Task((ClassSpec("a"), ClassSpec("b", "other")), (Sample.of_image(image, "a"),), modality="image")
    write_task(place / "run", task)
    assert str(tmp_path) not in (place / "run" / FILE_NAME).read_text()
    shutil.move(place, tmp_path / "second")
    found = task_to_go_on(tmp_path / "second" / "run").samples[0].image
    assert found is not None
    assert found.path.read_bytes() == b"not decoded here"
    found.path.write_bytes(b"another one")
    with pytest.raises(TaskError, match="has changed since the run began"):
        task_to_go_on(tmp_path / "second" / "run")
    found.path.unlink()
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


def test_a_run_tells_how_it_was_started(both):
    order = both.order(policy="random", seed=3, generator_spec="openai:m", all_scores=True)
    both.fit(order)
    told = started(both.path)
    assert (told.embedder, told.generator, told.policy, told.seed) == ("hash", "openai:m", "random", 3)
    assert told.recipe == order.recipe
    assert told.all_scores
    assert told.holdout is None
    assert task_to_go_on(both.path) == order.task


def test_a_run_of_an_earlier_version_does_not_tell(tmp_path):
    from adamab.run.journal import SEGMENT, Journal

    with Journal(tmp_path, writing=True) as journal:
        journal.note(SEGMENT, {"inputs": {}})
    with pytest.raises(RunError, match="does not tell how it was started; name TASK"):
        started(tmp_path)


def test_pictures_are_found_through_a_link_to_the_run(tmp_path):
    (tmp_path / "deep" / "er" / "run").mkdir(parents=True)
    (tmp_path / "a.png").write_bytes(b"not decoded here")
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er" / "run")
    image = Image(digest_of(b"not decoded here"), tmp_path / "a.png")
    task = Task((ClassSpec("a"), ClassSpec("b", "other")), (Sample.of_image(image, "a"),), modality="image")
    write_task(tmp_path / "link", task)
    assert task_to_go_on(tmp_path / "link") == task


def test_a_run_tells_from_anywhere_how_it_was_started(runs, tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    (here / "out.jsonl").write_text("")
    (here / "vectors.npz").write_text("")
    monkeypatch.chdir(here)
    order = runs.order(
        embedder_spec="npz:vectors.npz?x=1",
        generator_spec="replay:gone.jsonl",
        holdout_path="out.jsonl",
        prices=dict([Price.parse("m=0.15/0.60"), Price.parse("p=0.04/image")]),
    )
    runs.fit(order)
    monkeypatch.chdir(elsewhere)
    told = started(runs.path)
    assert told.embedder == "npz:../here/vectors.npz?x=1"
    assert told.generator == "replay:gone.jsonl"
    assert told.holdout == "../here/out.jsonl"
    assert dict(Price.parse(f"{m}={p}") for m, p in told.prices.items()) == dict(order.prices)


def test_how_a_run_was_started_is_noted_when_it_changes(runs):
    runs.fit()
    runs.fit()
    assert len(runs.events("started")) == 1
    assert runs.fit(runs.order(generator_spec="openai:other?rpm=5"))["complete"]
    assert started(runs.path).generator == "openai:other?rpm=5"
