"""Examples that are changed in the task that a run keeps."""

from dataclasses import replace

import pytest

from adamab.errors import RunError, TaskError
from adamab.providers.sqlite_file import WriterLock
from adamab.run.directory import read_task, write_task
from adamab.run.examples import label_examples
from adamab.task.spec import ClassSpec, Sample, Task

GIVEN = (Sample("a", "x", id="1"), Sample("b", "x", id="2"), Sample("c", "y", id="3"))


@pytest.fixture
def run(tmp_path):
    write_task(tmp_path, Task((ClassSpec("x"), ClassSpec("y", "described")), GIVEN))
    return tmp_path


def test_examples_are_added_moved_and_taken_out(run):
    assert label_examples(run, [Sample("A ", ""), Sample("d", "")], "y") == {"A ": "x", "d": None}
    assert read_task(run).samples == (replace(GIVEN[0], class_name="y"), *GIVEN[1:], Sample("d", "y"))
    assert label_examples(run, [Sample("c", "")], None) == {"c": "y"}
    assert [sample.text for sample in read_task(run).samples] == ["a", "b", "d"]


def test_a_change_that_cannot_be_leaves_the_task_as_it_is(run):
    before = (run / "task.json").read_bytes()
    with pytest.raises(TaskError, match="class 'x' has neither a description nor an example"):
        label_examples(run, GIVEN[:2], None)
    with pytest.raises(TaskError, match="unknown class 'z'"):
        label_examples(run, GIVEN[:1], "z")
    lock = WriterLock(run)
    with pytest.raises(RunError, match="another process is writing this run"):
        label_examples(run, GIVEN[:1], "y")
    lock.release()
    assert (run / "task.json").read_bytes() == before
