"""What notebooks show of tasks and classifiers; plain representations stay as they were."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from adamab.classifier import Classifier, Head
from adamab.task import ClassSpec, Sample, Task, html


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
        assert text.count("\nkind") == min(count, html.MOST_ROWS)
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


def test_samples_are_counted_by_class() -> None:
    task = Task.from_mapping({"a": ["x", "y", "X"], "b": ["z"]})
    shown = Balanced(task._repr_html_()).shown.split()
    assert shown[shown.index("a") :][:4] == ["a", "2", "b", "1"]
    assert "repeats left out: 1" in task._repr_html_()


def test_a_classifier_tells_what_can_be_expected() -> None:
    estimate = {"accuracy": 0.45, "low": 0.331, "high": 0.575, "n": 60}
    text = Balanced(classifier(("a", "b"), out_of_fold=estimate)._repr_html_()).shown
    assert "45.0 % (95 % interval 33.1 % to 57.5 %, out of fold, on 60 given samples)" in text
    for unknown in (None, "much", {}):
        Balanced(classifier(("a", "b"), out_of_fold=unknown)._repr_html_())


def test_cells() -> None:
    assert html.cell(1234567) == "1,234,567"
    assert html.cell(0.123456) == "0.1235"
    assert html.cell(None) == ""
    assert html.clean("\ud83d\ude42") == "🙂"  # both halves are there
