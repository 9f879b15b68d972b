import sys

import pytest

from adamab.run.fit import fit_task
from adamab.study import uneven
from adamab.study.datasets.demo_set import DemoSet
from adamab.study.uneven import accuracies
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

QUICK = Recipe(checkpoints=(0,), folds=2, words=False)


@pytest.fixture
def counts(monkeypatch):
    found = []

    def noted(task, *args, **options):
        found.append(sorted(len(task.samples_of(known.name)) for known in task.classes))
        return fit_task(task, *args, **options)

    monkeypatch.setattr("adamab.study.uneven.fit_task", noted)
    return found


def test_some_classes_keep_all_samples_and_the_others_one(counts):
    draw = DemoSet().draw(0, given=5, part="development")
    found = list(accuracies(draw, HashEmbedder(), QUICK))
    assert [(fit.rich, fit.among) for fit in found] == [(0, 12), (1, 12), (4, 12), (7, 12), (12, 12)]
    assert counts == [[1] * 12, [1] * 11 + [5], [1] * 8 + [5] * 4, [1] * 5 + [5] * 7, [5] * 12]
    assert all(0 < fit.accuracy < 1 for fit in found)
    assert found[0].stated == found[0].accuracy  # both are as many of each class


def test_a_few_of_the_classes_with_other_counts(counts):
    draw = DemoSet().draw(0, given=6, part="development")
    found = list(accuracies(draw, HashEmbedder(), QUICK, least=2, n_classes=3))
    assert [fit.rich for fit in found] == [0, 1, 2, 3]
    assert counts == [[2, 2, 2], [2, 2, 6], [2, 6, 6], [6, 6, 6]]


def test_the_command_shows_a_line_for_each_number_of_classes(monkeypatch, capsys):
    monkeypatch.setattr(uneven, "open_embedder", lambda spec: HashEmbedder())
    monkeypatch.setattr(sys, "argv", ["uneven", "demo", "--seeds", "2", "--classes", "2", "--folds", "0"])
    uneven._main()
    lines = capsys.readouterr().out.splitlines()
    assert [line[: line.index(",")] for line in lines] == [
        f"5 samples of   {n} of 2 classes" for n in (0, 1, 2)
    ]
    assert all(line.count(" ± ") == 2 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "told"), [(["demo", "--seeds", "0"], "--seeds"), (["nothing", "--data", "."], "nothing")]
)
def test_what_it_cannot_do_is_one_line(monkeypatch, capsys, arguments, told):
    monkeypatch.setattr(sys, "argv", ["uneven", *arguments])
    with pytest.raises(SystemExit):
        uneven._main()
    assert told in capsys.readouterr().err.splitlines()[-1]
