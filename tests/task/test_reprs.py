"""What terminals and notebooks show of tasks and classifiers."""

import numpy as np
import pytest

from adamab.model import Classifier, Head
from adamab.task import ClassSpec, Sample, Task


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
