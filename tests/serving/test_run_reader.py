"""What the page and the report say about a run, worked out from its files."""

from types import SimpleNamespace

import pytest

from adamab.providers.metering import Budget, Ledger
from adamab.run.directory import HeldOutAnswer
from adamab.run.records import ClassScores, RoundRecord
from adamab.run.run_log import ROUND, Journal
from adamab.serving import _run_view
from adamab.serving.run_reader import RunReader
from adamab.task.spec import ClassSpec
from tests.serving.conftest import write_rounds

ANSWERS = [
    HeldOutAnswer("a", "one", "a", 0.9),
    HeldOutAnswer("a", "two", "b", 0.6),
    HeldOutAnswer("a", "three", "b", 0.8),
    HeldOutAnswer("b", "four", "b", 0.7),
    HeldOutAnswer("c", "five", "a", 0.5),
]


def test_a_round_tells_why_its_class_was_chosen(first_shown_run):
    with RunReader(first_shown_run) as reader, Journal(first_shown_run) as journal:
        rounds = reader.rounds()
        records = [RoundRecord.from_json(event.data["record"]) for event in journal.events(ROUND)]
        names = [spec.name for spec in reader.classes()]
    assert [r.round for r in rounds] == [record.round for record in records]
    for shown, record in zip(rounds, records, strict=True):
        scores = record.scores
        by_class = {names[at]: score for at, score in zip(scores.place, scores.score, strict=True)}
        assert shown.why is not None
        assert shown.why.class_name == shown.chosen == record.chosen
        assert shown.why.score == by_class[record.chosen]
        assert shown.why.score == max(scores.score)
        assert shown.why.shift == pytest.approx(shown.why.bonus - shown.why.score, abs=1e-3)
        assert shown.why.shift >= 0
        others = [score.score for score in shown.runners_up]
        assert others == sorted(others, reverse=True)
        assert {s.class_name for s in shown.runners_up} == set(names) - {record.chosen}


def test_a_score_that_is_a_bound_is_told_as_one_and_nothing_is_made_up(tmp_path):
    scores = ClassScores([3, 3, 0], [0, 1], [1.5, 1.0], [0.5, 1.0], [True, False])
    write_rounds(tmp_path, [f"class {i}" for i in range(3)], 1, scores)
    with RunReader(tmp_path) as reader:
        (shown,) = reader.rounds()
    assert shown.why is not None
    assert (shown.why.shift, shown.why.exact) == (0.5, True)
    assert [(s.class_name, s.shift, s.exact) for s in shown.runners_up] == [("class 1", 1.0, False)]


@pytest.mark.parametrize(("names", "matrix"), [("abc", [[1, 2, 0], [0, 1, 0], [1, 0, 0]]), ("b", [[1]])])
def test_confusion_has_a_row_a_true_class(names, matrix):
    reader = SimpleNamespace(held_out=lambda: ANSWERS, classes=lambda: [ClassSpec(n, n) for n in names])
    known = _run_view.confusion(reader)
    assert known["matrix"] == matrix
    assert known["pairs"][0] == {"class": "a", "predicted": "b", "count": 2, "of": 3}


def test_the_hardest_class_comes_first_with_its_surest_mistakes():
    errors = _run_view.class_errors(ANSWERS)
    assert [(e.class_name, e.right, e.n) for e in errors.values()] == [("c", 0, 1), ("a", 1, 3), ("b", 1, 1)]
    assert errors["a"].confused_with == (("b", 2),)
    assert [answer.text for answer in errors["a"].examples] == ["three", "two"]


def test_spending_is_told_by_the_dearest_first_and_calls_on_their_way_apart(tmp_path):
    write_rounds(tmp_path, ["a", "b"], 1)
    with Ledger(Budget(), tmp_path / "journal.sqlite") as ledger:
        for purpose, cost in (("embed", 500_000_000), ("generate", 1_000_000_000)):
            ledger.settle(ledger.reserve(purpose, 5_000_000_000), cost, None)
        ledger.reserve("generate", 2_000_000_000)
    with RunReader(tmp_path) as reader:
        spent = _run_view.spending(reader)
    assert (spent["usd"], spent["held"], spent["unsettled"], spent["calls"]) == (3.5, 2.0, 1, 3)
    assert [(row["name"], row["usd"]) for row in spent["by_purpose"]] == [("generate", 3.0), ("embed", 0.5)]
