"""Bars in terminals and notebooks."""

from __future__ import annotations

import io
import sys
import types

import pytest
from sklearn.base import clone

from adamab.estimator import ADAMABClassifier
from adamab.run.progress import progress, round_counter
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

TEXTS = ["money back", "refund the money", "love it", "lovely work"]
LABELS = ["refund", "refund", "praise", "praise"]


@pytest.fixture
def notebook(monkeypatch):
    """What IPython offers in a notebook: a shell with a kernel, and outputs that can be updated."""
    shown: list[str] = []

    class Html:
        def __init__(self, data: str) -> None:
            self.data = data

    class Handle:
        def update(self, html: Html) -> None:
            shown.append(html.data)

    shell = types.SimpleNamespace(kernel=object())
    display = types.SimpleNamespace(HTML=Html, display=lambda html, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown, shell


def test_a_notebook_shows_a_bar_and_nothing_is_left_of_it(notebook):
    shown, _ = notebook
    with progress("reading <b>") as bar:
        bar.phase("rounds", 3)
        bar.step()
        bar.step(2)
    assert shown[0].startswith("reading &lt;b&gt; <progress></progress> 0 s")
    assert 'rounds <progress value="3" max="3"></progress> 3 of 3' in shown[-2]
    assert shown[-1] == ""


def test_a_bar_goes_when_the_work_fails(notebook):
    shown, _ = notebook
    with pytest.raises(ValueError, match="broken"), progress("working"):
        raise ValueError("broken")
    assert shown[-1] == ""


def test_quiet_and_shells_without_a_kernel_show_none(notebook):
    shown, shell = notebook
    with progress("working", quiet=True) as bar:
        bar.step()
    shell.kernel = None
    with progress("working") as bar:
        bar.step()
    assert shown == []


def test_many_steps_are_few_messages(notebook):
    shown, _ = notebook
    with progress("working") as bar:
        bar.phase("rows", 100_000)
        for _ in range(100_000):
            bar.step()
    assert len(shown) < 1000
    assert "100000 of 100000" in shown[-2]


def test_rounds_are_counted_from_where_a_run_is_taken_up():
    phases: list[object] = []

    class Bar:
        def step(self, count: int = 1) -> None:
            phases.append(count)

        def phase(self, description: str, total: int | None = None) -> None:
            phases.append((description, total))

    on_round = round_counter(Bar(), 5)
    for number in (4, 5):
        on_round(types.SimpleNamespace(round=number))
    assert phases == [("rounds", 2), 1, 1, ("training the classifier", None)]


@pytest.mark.parametrize("verbose", [False, True])
def test_the_estimator_shows_it_if_asked(notebook, verbose):
    shown, _ = notebook
    recipe = Recipe(folds=2, checkpoints=(0, 2), rounds=2)
    model = ADAMABClassifier(HashEmbedder(), recipe=recipe, random_state=0, verbose=verbose)
    assert clone(model).verbose is verbose
    model.fit(TEXTS, LABELS)
    assert any("embedding the samples" in text for text in shown) is verbose


def test_the_estimator_shows_a_bar_in_terminals(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ADAMABClassifier(HashEmbedder(), recipe=Recipe(folds=2), random_state=0, verbose=True).fit(TEXTS, LABELS)
    assert "embedding the samples" in terminal.getvalue()
