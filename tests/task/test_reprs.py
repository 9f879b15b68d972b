"""What terminals and notebooks show of tasks, histories and classifiers."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from adamab.model import Classifier, Head
from adamab.task import ClassSpec, Sample, Task
from adamab.task.spec import MOST_ROWS


class Balanced(HTMLParser):
    """Fails where a tag is not of ours or is left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.shown = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in {"p", "strong", "br", "bdi", "table", "thead", "tbody", "tr", "th", "td"}, tag
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.shown += data + "\n"


def classifier(names: tuple[str, ...], **metadata: object) -> Classifier:
    head = Head(view="pooled", linear=np.zeros((len(names), len(names)), np.float32))
    return Classifier(classes=names, heads=(head,), embedder_spec="<local>", metadata=metadata)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [2, 20, 21, 200])
def test_many_classes_are_cut(count: int) -> None:
    names = tuple(f"kind{i}" for i in range(count))
    task = Task(tuple(ClassSpec(name, "about it") for name in names))
    for shown in (task._repr_html_(), classifier(names)._repr_html_()):
        text = Balanced(shown).shown
        assert text.count("\nkind") == min(count, MOST_ROWS)
        assert (f"and {count - 20} more classes" in text) is (count > 20)


def test_whatever_a_class_is_called_it_is_text() -> None:
    odd = "<script>alert(1)</script>", "</td></table>", "\ud83d\x00", "x" * 1000, "مديح\u202e"
    task = Task(tuple(ClassSpec(name, name) for name in odd), (Sample("a text", odd[0]),), name="<b>bold")
    whole = tuple(name for name in odd if "\ud83d" not in name)  # what a classifier takes
    for shown in (task._repr_html_(), classifier(whole)._repr_html_()):
        shown.encode()
        text = Balanced(shown).shown
        assert "<script>alert(1)</script>" in text
        assert "x" * 120 not in text
    assert "��" in task._repr_html_()
    assert "<b>bold" in Balanced(task._repr_html_()).shown


def test_a_classifier_tells_what_can_be_expected() -> None:
    estimate = {"accuracy": 0.45, "low": 0.331, "high": 0.575, "n": 60}
    text = Balanced(classifier(("a", "b"), out_of_fold=estimate)._repr_html_()).shown
    assert "45.0 % (95 % interval 33.1 % to 57.5 %, out of fold, on 60 given samples)" in text
    for unknown in (None, "much", {}):
        Balanced(classifier(("a", "b"), out_of_fold=unknown)._repr_html_())


def test_a_classifier_is_one_line():
    def head(view):
        return Head(view=view, linear=np.ones((12, 3), np.float32))

    model = Classifier(
        classes=tuple(f"c{n}" for n in range(12)), heads=(head("pooled"), head("a\nb"), head("pooled"))
    )
    assert repr(model) == "Classifier(12 classes, views: pooled, a\\nb)"
