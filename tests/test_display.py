"""Bars in terminals and notebooks, and `History` as a figure and a table."""

import io
import sys
import types
from dataclasses import replace

import pytest

from adamab.display import MOST_CLASSES, progress
from adamab.errors import MissingExtraError
from adamab.estimator import ADAMABClassifier
from adamab.run.records import ClassScores, History, RoundRecord, Seconds
from adamab.testing import HashEmbedder

TEXTS = ["money back", "refund the money", "love it", "lovely work"]
LABELS = ["refund", "refund", "praise", "praise"]


@pytest.fixture
def notebook(monkeypatch):
    """What IPython offers in a notebook: a shell with a kernel, and outputs that can be updated."""
    shown = []

    class Html:
        def __init__(self, data):
            self.data = data

    class Handle:
        def update(self, html):
            shown.append(html.data)

    shell = types.SimpleNamespace(kernel=object())
    display = types.SimpleNamespace(HTML=Html, display=lambda html, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown, shell


def test_a_notebook_shows_a_bar_and_nothing_is_left_of_it(notebook):
    shown, shell = notebook
    with progress("reading <b>") as bar:
        bar.phase("rows", 100_000)
        for _ in range(100_000):
            bar.step()
    assert shown[0].startswith("reading &lt;b&gt; <progress></progress> 0 s")
    assert 'rows <progress value="100000" max="100000"></progress> 100000 of 100000' in shown[-2]
    assert shown[-1] == ""
    assert len(shown) < 1000
    shown.clear()
    with progress("working", quiet=True) as bar:
        bar.step()
    shell.kernel = None
    with progress("working") as bar:
        bar.step()
    assert shown == []


def test_the_estimator_shows_a_bar_in_terminals(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ADAMABClassifier(HashEmbedder(), random_state=0, verbose=True).fit(TEXTS, LABELS)
    assert "embedding the samples" in terminal.getvalue()


def history(count, classes, *, loss=1.0, rejected=0):
    return History(
        RoundRecord(
            round=number,
            chosen=f"<b>$class_{number % classes}$" if number % 3 else "often",
            asked=5,
            accepted=4,
            closed=None,
            n_samples=number,
            scores=ClassScores([1]),
            loss=None if loss is None else loss / number,
            learning_rate=0.1,
            seconds=Seconds(),
            rejected={"repeat": rejected} if rejected else {},
        )
        for number in range(1, count + 1)
    )


@pytest.mark.parametrize(("count", "classes"), [(3, 2), (400, 200)])
def test_a_figure_of_any_history(count, classes):
    figure = history(count, classes, rejected=2).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    labels = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert len(labels) <= MOST_CLASSES + 1
    assert ("other classes" in labels[-1]) is (classes == 200)
    accepted = sum(bar.get_width() for bar in figure.axes[2].containers[0])
    assert accepted == 4 * count


def test_a_missing_matplotlib_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"adamab\[plots\]"):
        history(3, 2).plot()


def test_the_table_shows_the_last_rounds():
    shown = history(25, 2)._repr_html_()
    assert "<td>25</td>" in shown
    assert "and 5 more rounds before these" in shown
    assert "<b>" not in shown


def test_odd_histories_are_drawn_too():
    odd = RoundRecord(1, "a$\\frac{$ \n \ud83d \x00", 1, 1, None, 2, (), 0.5, None, Seconds())
    for records in (history(3, 2, loss=None), History([odd, replace(odd, chosen=None)]), History()):
        assert records.plot()._repr_png_().startswith(b"\x89PNG")
    assert "rounds: 0" in History()._repr_html_()
