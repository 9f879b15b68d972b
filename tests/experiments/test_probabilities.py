import json

import pytest

from adamab.errors import TaskError
from adamab.task import ClassSpec, Sample
from adamab.testing import HashEmbedder
from experiments.datasets.base import DataSet, Material
from experiments.datasets.text_sets import DemoSet
from experiments.probabilities import CHOSEN, SCORES, measure, write_results


class Counting(DataSet):
    """Texts that are like nothing at the support desk."""

    name, title = "counting", "Counting"
    specs = (ClassSpec("odd", "odd numbers"), ClassSpec("even", "even numbers"))

    def material(self, generator, split):
        def texts(start, stop):
            return {
                "odd": [f"n{i} odd" for i in range(start, stop)],
                "even": [f"n{i} even" for i in range(start, stop)],
            }

        test = [Sample(text, name) for name, members in texts(50, 60).items() for text in members]
        return Material(
            source={name: tuple(members) for name, members in texts(0, 40).items()}, test=tuple(test)
        )


@pytest.fixture(scope="module")
def rows():
    sets = {"demo": DemoSet(), "counting": Counting()}
    return list(measure(sets, HashEmbedder(), given=4, seeds=1))


def test_every_set_is_judged_with_the_others_as_texts_of_no_class(rows):
    assert [(row.set, row.classes, row.held_out) for row in rows] == [("demo", 12, 48), ("counting", 2, 8)]
    for row in rows:
        assert list(row.unknown) == [{"demo": "counting", "counting": "demo"}[row.set]]
        assert [score.score for score in row.scores] == list(SCORES)
        assert row.scores[0].score == CHOSEN
        (judged,) = row.unknown.values()
        first = row.scores[0]  # the study's threshold is the classifier's
        assert (first.auroc, first.kept, first.caught) == pytest.approx(
            (judged.auroc, judged.kept, judged.caught)
        )
        assert 1 <= row.sets.mean_size <= row.classes


def test_results_are_written(rows, tmp_path):
    paths = write_results(rows, tmp_path / "new", command="make it")
    assert [path.name for path in paths] == ["probabilities.json", "probabilities.md"]
    data = json.loads(paths[0].read_text())
    assert (data["command"], len(data["rows"])) == ("make it", 2)


def test_one_example_a_class_cannot_be_judged():
    with pytest.raises(TaskError, match="counting: nothing was held out"):
        list(measure({"counting": Counting()}, HashEmbedder(), given=1, seeds=1))
