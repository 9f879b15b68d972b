import numpy as np
import pytest

from adamab.run.fit import fit_task
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder
from experiments import class_studies
from experiments.__main__ import main
from experiments.class_studies import added_accuracies, uneven_accuracies
from experiments.datasets.text_sets import DemoSet

QUICK = Recipe(checkpoints=(0,), folds=2, words=False)


@pytest.fixture
def counts(monkeypatch):
    fitted = []

    def noted(task, *args, **options):
        fitted.append(sorted(len(task.samples_of(spec.name)) for spec in task.classes))
        return fit_task(task, *args, **options)

    monkeypatch.setattr(class_studies, "fit_task", noted)
    return fitted


def test_some_classes_keep_all_samples_and_the_others_few(counts):
    draw = DemoSet().draw(0, given=6, part="development")
    fits = list(uneven_accuracies(draw, HashEmbedder(), QUICK, least=2, n_classes=3))
    assert counts == [[2, 2, 2], [2, 2, 6], [2, 6, 6], [6, 6, 6]]
    assert all(0 < accuracy <= 1 for _, accuracy, _ in fits)
    assert fits[0][1] == fits[0][2]  # as many of each class: the shares say nothing new


def test_a_class_is_left_out_and_added():
    draw = DemoSet().draw(0, given=3, part="development")
    fits = list(added_accuracies(draw, HashEmbedder(), QUICK, 1))
    assert len({way for way, *_ in fits}) == 7
    for _, own, others, everything in fits:
        assert np.isclose(everything, (own + 11 * others) / 12)  # as many samples of each of twelve classes


@pytest.mark.parametrize("study", [("uneven", "--classes=2", "--folds=0"), ("added-classes", "--left-out=1")])
def test_the_commands_show_means_with_errors(monkeypatch, capsys, study):
    monkeypatch.setattr(class_studies, "open_embedder", lambda spec: HashEmbedder())
    name, *options = study
    with pytest.raises(SystemExit) as end:
        main([name, "demo", "--seeds", "2", *options])
    assert not end.value.code
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) in (3, 7)
    assert all(" ± " in line for line in lines)
