"""What the page and the report say about a run, worked out from its journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adamab.providers.budget import Budget
from adamab.providers.ledger import Ledger
from adamab.providers.registry import resolve_generator
from adamab.run.class_scores import ClassScore, ClassScores
from adamab.run.fit_run import Order, fit_run
from adamab.run.journal import FINISHED, ROUND, SEGMENT, Journal, outcome_to_json
from adamab.run.past import RoundOutcome
from adamab.run.reading import RunReader
from adamab.run.records import RoundRecord, Seconds
from adamab.run.reviews import Reviews
from adamab.run.sample_files import HeldOutAnswer
from adamab.serving.run_figures import (
    POINTS,
    RunFigures,
    class_errors,
    confusion_matrix,
    estimate,
    sources_by_class,
    spend_rows,
)
from adamab.serving.run_view import RunView
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.testing import HashEmbedder, ProviderServer

GIVEN = {
    "refund": ["give me my money back", "i want a refund of the fee"],
    "praise": ["what a lovely product", "i love your lovely team"],
    "outage": ["the site is down again", "nothing loads, site down"],
}
Fit = Callable[..., dict[str, Any]]


@pytest.fixture
def fit(tmp_path: Path) -> Any:
    """Fits the same small task into tmp_path/run, with a provider on this machine."""
    with ProviderServer() as server:
        spec = f"openai:m?base_url={server.url}/v1"

        def go(given: dict[str, list[str]] = GIVEN, **options: Any) -> dict[str, Any]:
            recipe = Recipe().with_options(folds=2, checkpoints=(0, 5), batch=2, passes=2)
            values: dict[str, Any] = {
                "task": Task.from_mapping(given),
                "embedder": HashEmbedder(),
                "embedder_spec": "hash",
                "generator": resolve_generator(spec, seed=0),
                "recipe": recipe,
                "all_scores": True,
            }
            return fit_run(Order(**(values | options)), tmp_path / "run")

        yield go


def test_a_round_tells_why_its_class_was_chosen(fit: Fit, tmp_path: Path) -> None:
    fit()
    with RunReader(tmp_path / "run") as reader:
        rounds, records = RunFigures(reader).follow().rounds, [r.record for r in reader.rounds()]
    assert [r.round for r in rounds] == [record.round for record in records]
    for found, record in zip(rounds, records, strict=True):
        by_class = dict(zip(GIVEN, record.scores, strict=True))
        assert found.why is not None
        assert found.why.class_name == found.chosen == record.chosen
        assert found.why.score == by_class[record.chosen].score
        assert found.why.shift == pytest.approx(found.why.bonus - found.why.score, abs=1e-4)
        assert found.why.shift >= 0
        assert found.why.score == max(score.score for score in record.scores if score.score is not None)
        others = [score.score for score in found.runners_up]
        assert others == sorted(others, reverse=True)
        assert {s.class_name for s in found.runners_up} == set(GIVEN) - {record.chosen}


def test_counts_grow_by_what_entered(fit: Fit, tmp_path: Path) -> None:
    summary = fit()
    with RunReader(tmp_path / "run") as reader:
        figures = RunFigures(reader).follow()
        growth, sources = figures.growth(), sources_by_class(reader.samples(), list(GIVEN))
    assert len(growth.rounds) == summary["rounds"]
    for name in GIVEN:
        assert growth.counts[name][-1] == 2 + summary["synthetic_by_class"][name]
        assert list(growth.counts[name]) == sorted(growth.counts[name])
        assert (sources[name].given, sources[name].synthetic) == (2, summary["synthetic_by_class"][name])
    assert sum(figures.chosen().values()) == summary["rounds"]
    assert figures.gate_reasons() == summary["rejected"]
    assert figures.losses()[-1][0] == summary["rounds"]


def test_new_rounds_classes_and_rejections_are_followed(fit: Fit, tmp_path: Path) -> None:
    fit()
    with RunReader(tmp_path / "run") as reader:
        figures = RunFigures(reader).follow()
        before = len(figures.rounds)
        first = next(sample for sample in reader.samples() if sample.source == "synthetic")
        Reviews(tmp_path / "run").add(first.text, first.class_name, "reject")
        fit({**GIVEN, "bye": ["so long", "good bye then"]})
        assert figures.follow().rounds[:before] == figures.rounds[:before]
        assert len(figures.rounds) > before
        assert {r.segment for r in figures.rounds} == {1, 2}
        growth = figures.growth()
        assert growth.counts["bye"][0] == 0
        assert growth.counts["bye"][-1] >= 2
        assert sources_by_class(reader.samples())[first.class_name].rejected == 1


def test_a_run_that_begins_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    write_journal(tmp_path, rounds=3, classes=2)
    with RunReader(tmp_path) as reader:
        figures = RunFigures(reader).follow()
        assert len(figures.rounds) == 3
        for file in tmp_path.iterdir():
            file.unlink()
        time.sleep(0.01)
        write_journal(tmp_path, rounds=2, classes=2)
        assert [r.round for r in figures.follow().rounds] == [1, 2]


def test_a_score_that_is_a_bound_is_told_as_one_and_nothing_is_made_up(tmp_path: Path) -> None:
    scores = ClassScores.of((ClassScore(3, 2.0, 1.5, True), ClassScore(3, 2.0, 1.0, False), ClassScore(0)))
    write_journal(tmp_path, rounds=1, classes=3, scores=scores)
    with RunReader(tmp_path) as reader:
        (found,) = RunFigures(reader).follow().rounds
    assert found.why is not None
    assert (found.why.shift, found.why.exact) == (0.5, True)
    assert [(s.class_name, s.shift, s.exact) for s in found.runners_up] == [("class 1", 1.0, False)]


def test_long_runs_are_drawn_with_few_points(tmp_path: Path) -> None:
    write_journal(tmp_path, rounds=1000, classes=30)
    with RunReader(tmp_path) as reader:
        figures = RunFigures(reader).follow()
    growth = figures.growth()
    assert len(figures.losses()) == len(growth.rounds) == POINTS
    assert (growth.rounds[0], growth.rounds[-1]) == (1, 1000)
    assert sum(counts[-1] for counts in growth.counts.values()) == 1000 + 30 * 2
    assert len(figures.rounds[0].runners_up) == 4


def write_journal(directory: Path, *, rounds: int, classes: int, scores: ClassScores | None = None) -> None:
    """A run as a fit would have left it, without fitting."""
    names = [f"class {i}" for i in range(classes)]
    counts = [2] * classes
    with Journal(directory, writing=True) as journal:
        segment = {"inputs": {"classes": dict.fromkeys(names, "")}, "changes": [], "rejected": []}
        journal.note(SEGMENT, segment)
        for number in range(1, rounds + 1):
            chosen = (number - 1) % classes
            shown = scores or ClassScores.of(
                ClassScore(n, 5.0, 5.0 - i / 10, True) for i, n in enumerate(counts)
            )
            counts[chosen] += 1
            record = RoundRecord(
                number, names[chosen], 1, 1, None, sum(counts), shown, 1 / number, 0.1, Seconds()
            )
            journal.note(ROUND, outcome_to_json(RoundOutcome(record, (f"text {number}",))))
        journal.note(FINISHED, {})


ANSWERS = [
    HeldOutAnswer("a", "one", "a", 0.9),
    HeldOutAnswer("a", "two", "b", 0.6),
    HeldOutAnswer("a", "three", "b", 0.8),
    HeldOutAnswer("b", "four", "b", 0.7),
    HeldOutAnswer("c", "five", "a", 0.5),
]


def test_confusion_has_a_row_a_true_class() -> None:
    assert confusion_matrix(ANSWERS, ["a", "b", "c"]) == [[1, 2, 0], [0, 1, 0], [1, 0, 0]]
    assert confusion_matrix(ANSWERS, ["b"]) == [[1]]


def test_the_hardest_class_comes_first_with_its_surest_mistakes() -> None:
    errors = class_errors(ANSWERS)
    assert [(e.class_name, e.right, e.n) for e in errors] == [("c", 0, 1), ("a", 1, 3), ("b", 1, 1)]
    assert errors[1].confused_with == (("b", 2),)
    assert [answer.text for answer in errors[1].examples] == ["three", "two"]


def test_spending_is_told_by_the_dearest_first(fit: Fit, tmp_path: Path) -> None:
    summary = fit()
    with RunReader(tmp_path / "run") as reader:
        spending = reader.spending()
    rows = spend_rows(spending, "class")
    assert {row["name"] for row in rows} == set(summary["spent"]["by_class"])
    assert sum(row["calls"] for row in spend_rows(spending, "purpose")) == summary["spent"]["calls"]
    assert [row["usd"] for row in rows] == sorted((row["usd"] for row in rows), reverse=True)


def test_an_interval_holds_its_estimate() -> None:
    told = {"accuracy": 1.0, "low": 0.998, "high": 0.9999999, "n": 2000}
    assert estimate({"estimate": told}) == {**told, "high": 1.0}
    assert estimate({}) is None


def test_calls_on_their_way_are_told_apart(tmp_path: Path) -> None:
    write_journal(tmp_path, rounds=1, classes=2)
    with Ledger(Budget(), tmp_path / "journal.sqlite") as ledger:
        done = ledger.reserve("generate", 5_000_000_000)
        ledger.settle(done, 1_000_000_000, None)
        ledger.reserve("generate", 2_000_000_000)
    view = RunView(tmp_path)
    spent = view.spending()
    view.close()
    assert (spent["usd"], spent["held"], spent["unsettled"], spent["calls"]) == (3.0, 2.0, 1, 2)
