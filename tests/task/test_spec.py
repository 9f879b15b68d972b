"""A task is valid once constructed."""

import numpy as np
import pytest

from adamab.errors import TaskError
from adamab.model import Classifier, Head
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


def classifier(names, **metadata):
    head = Head(view="a\nb", linear=np.zeros((len(names), len(names)), np.float32))
    return Classifier(classes=names, heads=(head,), embedder_spec="<local>", metadata=metadata)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [2, 20, 21])
def test_many_classes_are_cut(count):
    names = tuple(f"kind{i}" for i in range(count))
    task = Task(tuple(ClassSpec(name, "about it") for name in names))
    for shown in (task._repr_html_(), classifier(names)._repr_html_()):
        assert shown.count("<bdi>kind") == min(count, 20)
        assert (f"and {count - 20} more classes" in shown) is (count > 20)


def test_whatever_a_class_is_called_it_is_text():
    odd = "<script>alert(1)</script>", "</td></table>", "\ud83d\x00", "x" * 1000, "مديح\u202e"
    task = Task(tuple(ClassSpec(name, name) for name in odd), (Sample("a text", odd[0]),), name="<b>bold")
    whole = tuple(name for name in odd if "\ud83d" not in name)  # what a classifier takes
    for shown in (task._repr_html_(), classifier(whole)._repr_html_()):
        shown.encode()
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
        assert "<script" not in shown
        assert shown.count("</table>") == 1
        assert "x" * 120 not in shown
    assert "��" in task._repr_html_()
    assert "<b>" not in task._repr_html_()


def test_a_classifier_shows_what_can_be_expected_and_is_one_line():
    estimate = {"accuracy": 0.45, "low": 0.331, "high": 0.575, "n": 60}
    shown = classifier(("a", "b"), out_of_fold=estimate)._repr_html_()
    assert "45.0 % (95 % interval 33.1 % to 57.5 %, out of fold, on 60 given samples)" in shown
    for unknown in (None, "much", {}):
        assert classifier(("a", "b"), out_of_fold=unknown)._repr_html_()
    assert repr(classifier(("a", "b"))) == "Classifier(2 classes, views: a\\nb)"
