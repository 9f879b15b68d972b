"""In a terminal, what holds much says in one line what it is."""

from __future__ import annotations

import numpy as np

from adamab.classifier import Classifier, Head
from adamab.run.records import History, RoundRecord, Seconds
from adamab.task.spec import Task


def test_a_task_is_one_line():
    task = Task.from_mapping({f"c{n}": [f"text {n} {m}" for m in range(9)] for n in range(30)}, name="a\nb")
    assert repr(task) == "Task('a\\nb': 30 classes, 270 given texts)"


def test_a_history_is_one_line():
    record = RoundRecord(1, "a", 4, 3, None, 7, (), 0.5, 0.1, Seconds())
    assert repr(History([record, record])) == "History(2 rounds, 6 synthetic samples that entered)"
    assert repr(History()) == "History(0 rounds, 0 synthetic samples that entered)"


def test_a_classifier_is_one_line():
    def head(view):
        return Head(view=view, linear=np.ones((12, 3), np.float32))

    model = Classifier(
        classes=tuple(f"c{n}" for n in range(12)), heads=(head("pooled"), head("a\nb"), head("pooled"))
    )
    assert repr(model) == "Classifier(12 classes, views: pooled, a\\nb)"
