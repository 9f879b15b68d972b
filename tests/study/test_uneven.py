from adamab.run.fit import fit_task
from adamab.study.datasets.demo_set import DemoSet
from adamab.study.uneven import SHARES, accuracies
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder


def test_some_classes_keep_all_samples_and_the_others_one(monkeypatch):
    counts = []

    def noted(task, *args, **options):
        counts.append(sorted(len(task.samples_of(known.name)) for known in task.classes))
        return fit_task(task, *args, **options)

    monkeypatch.setattr("adamab.study.uneven.fit_task", noted)
    draw = DemoSet().draw(0, given=5, part="development")
    found = dict(accuracies(draw, HashEmbedder(), Recipe(checkpoints=(0,), folds=2, words=False)))
    assert tuple(found) == SHARES
    assert counts == [[1] * 12, [1] * 8 + [5] * 4, [1] * 5 + [5] * 7, [5] * 12]
    assert all(0 < accuracy < 1 for accuracy in found.values())
