"""The yardstick of quality: statistics and bars on made-up scores, its plan, and a run on the demo set."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adamab.compare import NearestNeighbours
from adamab.engines import HERE
from adamab.errors import TaskError
from adamab.evaluation.statistics import paired_p
from experiments import quality
from experiments.datasets.base import load_data_set
from experiments.datasets.text_sets import DemoSet
from experiments.quality import Yardstick, by_place
from experiments.quality_plan import (
    DEV,
    FULL,
    ONCE,
    QUICK,
    RIVALS,
    SETFIT,
    SETS,
    TEXT_SETS,
    Place,
    plan,
)
from experiments.quality_report import write_report
from experiments.quality_summary import Score, Scores, bars, in_words, summarise
from experiments.rows import Row, Rows, read_parquet
from experiments.shapes import SHAPES, shaped

PUBLISHED = Path(__file__).parents[2] / "results" / "quality-part.rows.parquet"
N_TEST = 2000  # so many that half a point is no chance
# Places in the list of bars.
EVEN_OLD, UNEVEN_OLD, LOSS, SINGLE, API_BEST, BEHIND, API_BEHIND, AHEAD, TIME, POLICY = range(10)


def score(place, method, accuracy, *, seeds=4, seconds=1.0, noise=0, loss=1.0):
    """Hits whose mean is `accuracy` in every seed; the same samples are hit first in all methods."""
    hits = np.zeros((seeds, N_TEST))
    hits[:, : round(accuracy * N_TEST)] = 1
    if noise:
        for row, swapped in zip(hits, np.random.default_rng(noise).permuted(hits, axis=1), strict=True):
            row[:] = swapped
    return Score(place, method, tuple(range(seeds)), hits, (seconds,) * seeds, (loss,) * seeds)


def a_cell(place, **accuracies):
    named = {name.replace("_", "-"): value for name, value in accuracies.items()}
    old = {"default-0": 1.1}  # its log loss
    return [score(place, method, value, loss=old.get(method, 1.0)) for method, value in named.items()]


def good_scores():
    """Passes every bar: ahead of the old default, of all rivals, of SetFit and of round-robin."""
    scores = []
    for name in SETS:
        text = name in TEXT_SETS
        rivals = {"linear_probe": 0.50, "joint_probe": 0.60 if text else 0.51}
        rivals |= {"zero_shot": 0.48, "joint_probe_api": 0.58} if text else {}
        ours = {"default": 0.62, "default_api": 0.60} if text else {"default": 0.52}
        for given, shape in ((1, "even"), (5, "even"), (5, "uneven"), (15, "drawn")):
            old = ours["default"] - (0.0 if shape == "even" else 0.02)
            scores += a_cell(Place(name, given, 0, "none", shape), **ours, **rivals, default_0=old)
        scores += a_cell(Place(name, 5, 10, "pool"), **ours, **rivals, default_round_robin=0.51)
        if text:
            scores.append(score(Place(name, 5, 0, "none"), SETFIT, 0.6, seeds=2, seconds=20.0))
    return scores


def changed(scores, wanted, **changes):
    """The scores with those of which `wanted` is true made again."""

    def again(s):
        same = {"accuracy": s.accuracy, "seeds": len(s.seeds), "seconds": s.seconds[0], "loss": s.losses[0]}
        return score(s.place, s.method, **same | changes)

    return [again(s) if wanted(s) else s for s in scores]


def verdicts(scores):
    return [bar.passed for bar in bars(summarise(scores))]


def test_good_scores_pass_every_bar():
    checked = bars(summarise(good_scores()))
    assert [bar.passed for bar in checked] == [True] * 10
    assert in_words(checked) == "10 of 10 bars hold."


FAILING = {
    "behind the old default on equal counts": (
        "default-0", lambda p: p.shape == "even", {"accuracy": 0.63}, {EVEN_OLD}
    ),
    "no gain on uneven counts of texts": (
        "default-0", lambda p: p.shape != "even" and p.set in TEXT_SETS, {"accuracy": 0.62}, {UNEVEN_OLD}
    ),
    "log loss": ("default-0", lambda p: True, {"loss": 0.9}, {LOSS}),
    "a rival beats the API's views": ("zero-shot", lambda p: True, {"accuracy": 0.601}, {SINGLE, API_BEST}),
    "the best rivals of the cells beat them": (
        "zero-shot", lambda p: p.given == 5, {"accuracy": 0.617}, {API_BEST}
    ),
    "far behind in a fourth of the cells": (
        "joint-probe", lambda p: p.set in ("pets", "cub200"), {"accuracy": 0.545}, {BEHIND}
    ),
    "far behind with the API's views": (
        "joint-probe-api", lambda p: p.given == 1, {"accuracy": 0.625}, {API_BEHIND}
    ),
    "level with SetFit": (SETFIT, lambda p: True, {"accuracy": 0.62, "seconds": 20.0}, {AHEAD}),
    "1/19 of SetFit's time": (SETFIT, lambda p: True, {"seconds": 19.0}, {TIME}),
    "round-robin is better": (
        "default-round-robin", lambda p: p.set == "trec", {"accuracy": 0.63}, {POLICY}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("method", "where", "changes", "failing"), FAILING.values(), ids=FAILING)
def test_each_bar_can_fail(method, where, changes, failing):
    passed = verdicts(changed(good_scores(), lambda s: s.method == method and where(s.place), **changes))
    assert {number for number, verdict in enumerate(passed) if verdict is False} == failing


def test_bars_that_nothing_was_measured_for_are_neither_held_nor_failed():
    texts_only = [s for s in good_scores() if s.place.set == "demo" and s.method != SETFIT]
    checked = bars(summarise([s for s in texts_only if s.method != "default-0"]))
    assert {i for i, bar in enumerate(checked) if bar.passed is None} == {
        EVEN_OLD,
        UNEVEN_OLD,
        LOSS,
        AHEAD,
        TIME,
    }
    assert "Not measured: equal counts" in in_words(checked)
    some = [s for s in good_scores() if s.method != SETFIT or s.place.set == "trec"]
    assert [verdicts(some)[bar] for bar in (AHEAD, TIME)] == [None, None]  # four sets are lacking


def test_the_best_rival_sees_the_same_and_is_neither_setfit_nor_one_of_ours():
    place = Place("trec", 5, 0, "none")
    accuracies = {"default": 0.5, "default_api": 0.9, "setfit": 0.8, "paper": 0.3, "class_mean": 0.4}
    scores = Scores(a_cell(place, **accuracies, joint_probe=0.45, default_0=0.7))
    assert scores.best_pairs() == [(place, "default", "joint-probe")]
    assert scores.best_pairs("default-api") == [(place, "default-api", "class-mean")]
    (duel,) = scores.duels(scores.best_pairs())
    assert duel.lead.mean == pytest.approx(0.05)


def test_the_best_rival_is_found_on_the_seeds_that_both_have():
    place = Place("trec", 5, 0, "none")
    ours, slow = score(place, "default", 0.5), score(place, "soft-vote", 0.45, seeds=2)
    ours.hits[2:, :] = 1  # easy seeds, which the slow rival lacks
    quick = score(place, "linear-probe", 0.6)
    scores = Scores([ours, slow, quick])
    assert scores.lead((place, "default", "soft-vote")) == pytest.approx(0.05)
    assert scores.best(place) == "soft-vote"


def test_means_ranks_wins_and_losses():
    one, two, three = (Place("multiwd", given, 0, "none") for given in (1, 2, 5))
    scores = [
        *a_cell(one, default=0.6, linear_probe=0.5, class_mean=0.4),
        *a_cell(two, default=0.5, linear_probe=0.52, class_mean=0.4),
        *a_cell(three, default=0.5, linear_probe=0.5, class_mean=0.5),
    ]
    (tally,) = summarise(scores).tallies
    assert (tally.cells, tally.wins, tally.losses) == (3, 1, 1)  # and a draw
    assert tally.lead.mean == pytest.approx((0.1 - 0.02 + 0) / 3)
    assert (tally.accuracy, tally.rival_accuracy) == pytest.approx((1.6 / 3, 1.52 / 3))
    assert tally.ranks == pytest.approx(
        {"default": (1 + 2 + 2) / 3, "linear-probe": 5 / 3, "class-mean": 8 / 3}
    )


def test_p_values_are_those_of_the_paired_test_and_corrected_for_all_cells():
    places = [Place("trec", given, 0, "none") for given in (1, 2, 5)]
    rng = np.random.default_rng(1)
    scores = []
    for place in places:
        for method, rate in (("default", 0.6), ("linear-probe", 0.5)):
            hits = (rng.random((4, N_TEST)) < rate).astype(float)
            scores.append(Score(place, method, (0, 1, 2, 3), hits, (1.0,) * 4))
    duels = summarise(scores).duels
    by_hand = [paired_p(a.hits - b.hits) for a, b in zip(scores[::2], scores[1::2], strict=True)]
    assert [duel.p for duel in duels] == by_hand
    assert min(duel.corrected for duel in duels) == pytest.approx(min(1, 3 * min(by_hand)))


def test_the_interval_of_a_mean_over_cells_counts_a_sample_once():
    rng = np.random.default_rng(2)
    mine, theirs = (rng.random((4, N_TEST)) < 0.5).astype(float), np.zeros((4, N_TEST))
    scores = []
    for given in (1, 2, 5, 10):  # the same hits four times are no more evidence than once
        for method, hits in (("default", mine), ("linear-probe", theirs)):
            scores.append(Score(Place("demo", given, 0, "none"), method, (0, 1, 2, 3), hits, (1.0,) * 4))
    scores = Scores(scores)
    pairs = scores.pairs(scores.places(), "linear-probe")
    once, often = scores.mean_lead(pairs[:1]), scores.mean_lead(pairs)
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_parts_sets_and_seeds_of_the_plans():
    whole, dev, subset, once = (plan(name) for name in (FULL, DEV, QUICK, ONCE))
    assert [p.part for p in (whole, dev, subset, once)] == ["test", "development", "development", "test"]
    assert tuple(whole.shapes) == SETS == tuple(dev.shapes) == tuple(subset.shapes)
    assert whole.shapes == dev.shapes
    assert set(whole.shapes["trec"]) > set(whole.shapes["pets"]) > set(subset.shapes["pets"])
    assert {shape for shape, _ in whole.shapes["trec"]} == set(SHAPES)
    assert [p.results_name for p in (whole, dev, once)] == ["quality", "quality-development", "quality-once"]
    with pytest.raises(TaskError, match="about the development part"):
        plan(DEV, part="test")


def test_all_methods_have_the_same_seeds_but_the_first_look_and_setfit():
    whole, subset = (plan(name).experiments(DemoSet()) for name in (FULL, QUICK))
    assert {e.seeds for e in subset} == {3}
    assert {e.seeds for e in whole if e.methods[0].method != "setfit"} == {5}
    assert [e.seeds for e in whole if e.methods[0].method == "setfit"] == [2]


@pytest.mark.parametrize("options", [{"sets": ["demo"]}, {"seeds": 1}])
def test_a_part_of_the_whole_does_not_take_the_published_place(options):
    assert plan(FULL, **options).results_name == "quality-part"
    assert plan(DEV, **options).results_name == "quality-development-part"
    assert plan(FULL, sets=SETS).results_name == "quality"
    assert plan(FULL, **options).rows_name == "quality"  # what was scored stays scored


@pytest.fixture(scope="module")
def embedder(tmp_path_factory, save_vectors):
    """Vectors of everything that the demo set holds, and of its codes."""
    draws = [DemoSet().draw(0, generator=generator) for generator in DemoSet.generators]
    draws += [shaped(draws[1], "codes")]
    return save_vectors(tmp_path_factory.mktemp("vectors") / "vectors.npz", draws=draws)


def a_yardstick(embedder, work, name=FULL, shapes=(("even", 2),), synthetic=(2,), **options):
    small = plan(name, seeds=1, embedder=embedder, **options)
    small = replace(small, shapes={"demo": tuple(shapes)}, synthetic=synthetic)
    return Yardstick(small, {"demo": load_data_set("demo", work)}, work)


def test_a_run_from_data_to_page(embedder, tmp_path):
    (tmp_path / "quality-story.md").write_text("A caveat.\n\n## What was tried\n\nThis and that.\n")
    cells = []
    shapes = (("even", 2), ("unseen", 5), ("codes", 1))
    yardstick = a_yardstick(embedder, tmp_path, shapes=shapes)
    scores = yardstick.run(engine=HERE, on_cell=lambda *cell: cells.append(cell))
    report = write_report(yardstick, scores, tmp_path, command="python -m experiments quality-full")
    assert [path.name for path in report.files] == [
        f"quality-part.{ending}" for ending in ("md", "json", "rows.parquet", "svg")
    ]
    written = json.loads((tmp_path / "quality-part.json").read_text())
    rows = list(read_parquet(tmp_path / "quality-part.rows.parquet"))
    there = set(RIVALS)
    given_only = {"default", "default-api", *there}
    with_added = {*given_only, "default-round-robin", "default-random"}
    places = [Place("demo", given, 0, "none", shape) for shape, given in shapes]
    assert set(by_place(rows)) == {(place, method) for place in places for method in given_only} | {
        (Place("demo", 2, 2, "recorded"), method) for method in with_added
    }
    assert {len(row.measured.correct) for row in rows} == {300, 480}  # the pool's and the recording's
    assert all(row.measured.log_loss > 0 for row in rows)
    unseen = next(row for row in rows if row.cell.shape == "unseen")
    assert sorted(unseen.measured.counts) == [0] * 3 + [5] * 9
    assert written["commits"] == [quality.commit()]
    assert len(written["bars"]) == 10
    page = (tmp_path / "quality-part.md").read_text()
    assert "of 10 bars hold." in page.splitlines()[2]
    assert page.splitlines()[2].endswith(" A caveat.")
    assert "\n\n## What was tried\n\nThis and that.\n" in page

    again = a_yardstick(embedder, tmp_path, shapes=shapes)
    assert again.to_do() == {}
    assert len(again.run(engine=HERE)) == len(scores)


def test_what_is_scored_once_is_not_scored_again_by_other_code(embedder, tmp_path, monkeypatch):
    options = {"name": ONCE, "only": ["knn", "class-mean"], "synthetic": ()}
    a_yardstick(embedder, tmp_path, **options).run(engine=HERE)
    again = a_yardstick(embedder, tmp_path, **options)
    assert again.to_do() == {}
    monkeypatch.setattr(NearestNeighbours, "version", 2)
    with pytest.raises(TaskError, match="1 cells were scored before"):
        a_yardstick(embedder, tmp_path, **options)


def test_rows_of_setfit_from_another_installation_count(embedder, tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "find_spec", lambda name: None)
    shape = {"shapes": (("even", 5),), "synthetic": (), "only": [SETFIT, "linear-probe"]}
    yardstick = a_yardstick(embedder, tmp_path, **shape)
    assert any("SetFit is not installed" in note for note in yardstick.notes)
    scores = yardstick.run(engine=HERE)
    assert SETFIT not in {s.method for s in scores}
    (runner,) = [r for r in yardstick.runners if not r.can_run()]
    row = next(row for row in yardstick.runners[0].rows.known.values() if row.cell.method == "linear-probe")
    (cell,) = runner.cells()
    Rows(tmp_path, "quality").add(Row("of another version", "quality", cell, row.measured))
    again = a_yardstick(embedder, tmp_path, **shape).run(engine=HERE)
    assert [s.by_seed.tolist() for s in again if s.method == SETFIT] == [[row.accuracy]]


def test_published_rows_of_rivals_are_known_by_their_keys(tmp_path):
    """Or a page could be made again only by measuring everything again; a prompt's wording is enough."""
    rivals = ["linear-probe", "class-mean", "zero-shot"]
    demo = replace(plan(FULL, sets=["demo"], only=rivals), synthetic=())
    demo = replace(demo, shapes={"demo": tuple(x for x in demo.shapes["demo"] if x[0] == "even")})
    shutil.copy(PUBLISHED, tmp_path / f"{demo.rows_name}.rows.parquet")
    yardstick = Yardstick(demo, {"demo": load_data_set("demo", tmp_path)}, tmp_path)
    assert yardstick.cells == 3 * 4 * 5
    assert yardstick.to_do() == {}
