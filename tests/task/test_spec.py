"""A task is valid once constructed."""

import pytest

from adamab.errors import TaskError
from adamab.task.spec import ClassSpec, Sample, Task


def test_from_mapping_keeps_order_and_descriptions():
    task = Task.from_mapping({"b": ["one", "two"], "a": []}, descriptions={"a": "the other"}, name="small")
    assert task.class_names == ("b", "a")
    assert task.classes[1] == ClassSpec("a", "the other")
    assert [s.text for s in task.samples_of("b")] == ["one", "two"]
    assert task.samples_of("a") == ()
    assert task.name == "small"


@pytest.mark.parametrize(
    ("examples", "descriptions", "message"),
    [
        ({"a": ["x"]}, {}, "at least two classes, found 1"),
        ({}, {}, "found 0"),
        ({"a": ["x"], " ": ["y"]}, {}, "class 2 has no name"),
        ({"a": ["x"], 3: ["y"]}, {}, "class 2 has no name"),
        ({"a": ["x"], "unknown": ["y"]}, {}, "no class can be called 'unknown'"),
        ({"a": "x", "b": ["y"]}, {}, "class 'a' holds 'x'; write a list"),
        ({"a": 5, "b": ["y"]}, {}, "class 'a' holds '5'; write a list"),
        ({"a": ["x"], "b": ["y"]}, {"c": "z"}, "unknown class 'c'"),
        ({"a": ["x"], "b": ["y"]}, {"b": " "}, "description of class 'b' is empty"),
        ({"a": ["x"], "b": ["y"]}, {"b": 5}, "description of class 'b' is '5'"),
        ({"a": ["x"], "b": []}, {}, "class 'b' has neither"),
        ({"a": ["x"], "b": ["\u200b"]}, {}, "example of class 'b' is empty"),
        ({"a": ["x"], "b": [None]}, {}, "example of class 'b' is 'None'"),
        ({"a": ["Same  text"], "b": ["same text"]}, {}, "under both 'a' and 'b'"),
    ],
)
def test_a_bad_mapping_is_refused(examples, descriptions, message):
    with pytest.raises(TaskError, match=message) as caught:
        Task.from_mapping(examples, descriptions=descriptions)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_duplicate_classes_and_strangers_are_refused():
    pair = (ClassSpec("refund", "x"), ClassSpec("praise", "y"))
    with pytest.raises(TaskError, match="'refund' is listed twice"):
        Task((*pair, pair[0]))
    with pytest.raises(TaskError, match="unknown class 'refunds'; did you mean 'refund'"):
        Task(pair, (Sample("hi", "refunds"),))


def test_repeats_are_counted_and_change_nothing_else():
    once = Task.from_mapping({"a": ["x"], "b": ["y"]})
    more = Task.from_mapping({"a": ["x", " X", "x"], "b": ["y"]})
    assert (once.repeats, more.repeats) == (0, 2)
    assert once == more
