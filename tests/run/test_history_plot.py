"""`History` in notebooks: a figure and a table."""

from __future__ import annotations

import sys

import pytest

from adamab.errors import MissingExtraError
from adamab.run.class_scores import ClassScore, ClassScores
from adamab.run.history_figure import MOST_CLASSES
from adamab.run.records import History, RoundRecord, Seconds


def history(count: int, classes: int, *, loss: float | None = 1.0, rejected: int = 0) -> History:
    return History(
        RoundRecord(
            round=number,
            chosen=f"<b>$class_{number % classes}$" if number % 3 else "often",
            asked=5,
            accepted=4,
            closed=None,
            n_samples=number,
            scores=ClassScores.of([ClassScore(1)]),
            loss=None if loss is None else loss / number,
            learning_rate=0.1,
            seconds=Seconds(),
            rejected={"repeat": rejected} if rejected else {},
        )
        for number in range(1, count + 1)
    )


def labels(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_a_figure_of_a_fit(runs):
    from adamab.run.fit import fit_task

    order = runs.order()
    result = fit_task(order.task, order.embedder, generator=order.generator, recipe=order.recipe, budget=8)
    figure = result.history.plot()
    loss, chosen, samples = figure.axes
    assert len(loss.lines[0].get_xdata()) == len(result.history)
    assert len(chosen.collections[0].get_offsets()) == len(result.history)
    assert set(labels(chosen)) == {record.chosen for record in result.history}
    assert sum(bar.get_width() for bar in samples.patches) == len(result.synthetic)


@pytest.mark.parametrize(("count", "classes"), [(1, 1), (3, 2), (400, 200)])
def test_a_picture_of_any_history(count, classes):
    figure = history(count, classes, rejected=2).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert len(labels(figure.axes[1])) <= MOST_CLASSES + 1
    assert ("other classes" in labels(figure.axes[1])[-1]) is (classes == 200)
    accepted = sum(bar.get_width() for bar in figure.axes[2].containers[0])
    assert accepted == 4 * count


def test_rounds_without_loss_or_choice():
    odd = RoundRecord(1, None, 0, 0, None, 2, (), 0.5, None, Seconds())
    for records in (history(3, 2, loss=None), History([odd])):
        assert records.plot()._repr_png_().startswith(b"\x89PNG")


def test_names_that_fonts_and_formulas_stumble_over():
    odd = RoundRecord(1, "a$\\frac{$ \n \ud83d \x00", 1, 1, None, 2, (), 0.5, None, Seconds())
    assert History([odd]).plot()._repr_png_().startswith(b"\x89PNG")


def test_no_rounds_are_told():
    figure = History().plot()
    assert "no rounds" in figure.texts[0].get_text()
    assert "rounds: 0" in History()._repr_html_()


def test_nothing_global_changes():
    import matplotlib
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams), matplotlib.get_backend()
    history(3, 2).plot()._repr_png_()
    assert (dict(matplotlib.rcParams), matplotlib.get_backend()) == before
    assert pyplot.get_fignums() == []


def test_a_missing_matplotlib_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"adamab\[plots\]"):
        history(3, 2).plot()


def test_the_table_shows_the_last_rounds():
    shown = history(25, 2)._repr_html_()
    assert '<td style="text-align:right">25</td>' in shown
    assert '<td style="text-align:right">5</td><td style="text-align:left"><bdi>&lt;b&gt;$class' not in shown
    assert "and 5 more rounds before these" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_a_history_is_a_tuple_still():
    assert history(0, 1) == ()
    assert history(2, 1)[0].round == 1
