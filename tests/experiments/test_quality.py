"""The yardstick of quality: statistics and bars on made-up scores, its plan, and a run on the demo set."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from adamab.engines import HERE
from adamab.evaluation.statistics import paired_p
from experiments import quality
from experiments.check_rows import PUBLISHED
from experiments.datasets.base import load_data_set
from experiments.datasets.text_sets import DemoSet
from experiments.quality import Yardstick, by_place
from experiments.quality_plan import (
    FULL,
    IMAGE_SETS,
    METHODS,
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

N_TEST = 2000  # so many that half a point is no chance
ALL, NO_LOSS, TEXT, API, FEW, IMAGES, AHEAD, TIME, POLICY = range(9)  # places in the list of bars


def score(place, method, accuracy, *, seeds=4, seconds=1.0, noise=0):
    """Hits whose mean is `accuracy` in every seed; the same samples are hit first in all methods."""
    hits = np.zeros((seeds, N_TEST))
    hits[:, : round(accuracy * N_TEST)] = 1
    if noise:
        for row, swapped in zip(hits, np.random.default_rng(noise).permuted(hits, axis=1), strict=True):
            row[:] = swapped
    return Score(place, method, tuple(range(seeds)), hits, (seconds,) * seeds)


def a_cell(place, **accuracies):
    named = {name.replace("_", "-"): value for name, value in accuracies.items()}
    return [score(place, method, value) for method, value in named.items()]


def good_scores():
    """Passes every bar: 12 points over the probe on texts, 10 with the API's views, 2 on images."""
    scores = []
    for name in SETS:
        text = name in TEXT_SETS
        rivals = {"linear_probe": 0.50, "class_mean": 0.49} | ({"zero_shot": 0.48} if text else {})
        ours = {"default": 0.62, "default_api": 0.60} if text else {"default": 0.52}
        for given in (1, 5):
            scores += a_cell(Place(name, given, 0, "none"), **ours, **rivals)
        scores += a_cell(Place(name, 5, 10, "pool"), **ours, **rivals, default_round_robin=0.51)
        if text:
            scores.append(score(Place(name, 5, 0, "none"), SETFIT, 0.6, seeds=2, seconds=20.0))
    return scores


def changed(scores, wanted, **changes):
    """The scores with those of which `wanted` is true made again."""

    def again(s):
        return score(s.place, s.method, **{"accuracy": s.accuracy, "seeds": len(s.seeds)} | changes)

    return [again(s) if wanted(s) else s for s in scores]


def verdicts(scores):
    return [bar.passed for bar in bars(summarise(scores))]


def test_good_scores_pass_every_bar():
    checked = bars(summarise(good_scores()))
    assert [bar.passed for bar in checked] == [True] * 9
    assert in_words(checked) == "9 of 9 bars hold."


@pytest.mark.parametrize(
    ("wanted", "changes", "failing"),
    [
        pytest.param(
            lambda s: (s.place, s.method) == (Place("pets", 5, 10, "pool"), "class-mean"),
            {"accuracy": 0.525},
            {NO_LOSS},
            id="a small and certain loss",
        ),
        pytest.param(
            lambda s: s.method == "default" and s.place.set in TEXT_SETS and not s.place.synthetic,
            {"accuracy": 0.595, "seconds": 1.0},
            {TEXT, AHEAD},
            id="9.5 points over the probe",
        ),
        pytest.param(lambda s: s.method == "default-api", {"accuracy": 0.575}, {API}, id="7.5 by the API's"),
        pytest.param(
            lambda s: s.method == "zero-shot" and s.place == Place("demo", 1, 0, "none"),
            {"accuracy": 0.635},
            {ALL, NO_LOSS, FEW},
            id="zero-shot is better with one given",
        ),
        pytest.param(
            lambda s: s.method == "default" and s.place.set in IMAGE_SETS,
            {"accuracy": 0.505},
            {IMAGES, POLICY},
            id="half a point on images",
        ),
        pytest.param(
            lambda s: s.method == SETFIT, {"accuracy": 0.62, "seconds": 20.0}, {AHEAD}, id="level with SetFit"
        ),
        pytest.param(lambda s: s.method == SETFIT, {"seconds": 19.0}, {TIME}, id="1/19 of SetFit's time"),
        pytest.param(
            lambda s: s.method == "default-round-robin" and s.place.set == "trec",
            {"accuracy": 0.63},
            {POLICY},
            id="round-robin is better",
        ),
    ],
)
def test_each_bar_can_fail(wanted, changes, failing):
    passed = verdicts(changed(good_scores(), wanted, **changes))
    assert {number for number, verdict in enumerate(passed) if verdict is False} == failing


def test_bars_that_nothing_was_measured_for_are_neither_held_nor_failed():
    texts_only = [s for s in good_scores() if s.place.set == "demo" and s.method != SETFIT]
    checked = bars(summarise(texts_only))
    assert {i for i, bar in enumerate(checked) if bar.passed is None} == {IMAGES, AHEAD, TIME}
    assert "Not measured: image sets" in in_words(checked)
    some = [s for s in good_scores() if s.method != SETFIT or s.place.set == "trec"]
    assert [verdicts(some)[bar] for bar in (AHEAD, TIME)] == [None, None]  # four sets are lacking


def test_the_best_rival_is_that_of_the_cell_and_neither_setfit_nor_one_of_ours():
    place = Place("trec", 5, 0, "none")
    scores = Scores(a_cell(place, default=0.5, default_api=0.9, setfit=0.8, paper=0.3, class_mean=0.4))
    assert scores.best(place) == "class-mean"
    (duel,) = scores.duels(scores.best_pairs([place]))
    assert duel.lead.mean == pytest.approx(0.1)


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


def test_a_rival_with_fewer_seeds_is_compared_on_those():
    place = Place("demo", 5, 0, "none")
    ours = score(place, "default", 0.5)
    ours.hits[2:] = 0  # the seeds that SetFit lacks
    scores = Scores([ours, score(place, SETFIT, 0.4, seeds=2)])
    assert scores.lead((place, "default", SETFIT)) == pytest.approx(0.1)


def test_the_whole_has_every_cell_and_the_subset_is_a_part_of_it():
    whole, subset = plan(FULL), plan(QUICK)
    assert (whole.part, subset.part) == ("test", "development")
    assert tuple(whole.grid) == SETS == tuple(subset.grid)
    assert all(grid == dict.fromkeys((1, 2, 5, 10), (0, 5, 10, 20)) for grid in whole.grid.values())
    for name, grid in subset.grid.items():
        assert all(set(amounts) <= set(whole.grid[name][given]) for given, amounts in grid.items())
    assert [p.seeds_of(name) for p in (whole, subset) for name in ("trec", "pets")] == [10, 5, 3, 3]
    assert subset.results_name != plan(QUICK, part="test").results_name != whole.results_name == "quality"


@pytest.mark.parametrize("options", [{"sets": ["demo"]}, {"seeds": 1}])
def test_a_part_of_the_whole_does_not_take_the_published_place(options):
    assert plan(FULL, **options).results_name == "quality-part"
    assert plan(FULL, part="development", **options).results_name == "quality-development-part"
    assert plan(FULL, sets=SETS).results_name == "quality"
    assert plan(FULL, **options).rows_name == "quality"  # what was scored stays scored


@pytest.fixture(scope="module")
def embedder(tmp_path_factory, save_vectors):
    """Vectors of everything that the demo set holds."""
    draws = [DemoSet().draw(0, generator=generator) for generator in DemoSet.generators]
    return save_vectors(tmp_path_factory.mktemp("vectors") / "vectors.npz", draws=draws)


def a_yardstick(embedder, work, name=FULL, part=None, amounts=(0, 2), given=2):
    small = replace(plan(name, part=part, seeds=1, embedder=embedder), grid={"demo": {given: amounts}})
    return Yardstick(small, {"demo": load_data_set("demo", work)}, work)


def test_a_run_from_data_to_page(embedder, tmp_path):
    (tmp_path / "quality-story.md").write_text("A caveat.\n\n## What was tried\n\nThis and that.\n")
    cells = []
    yardstick = a_yardstick(embedder, tmp_path)
    scores = yardstick.run(engine=HERE, on_cell=lambda *cell: cells.append(cell))
    report = write_report(yardstick, scores, tmp_path, command="python -m experiments quality-full")
    assert [path.name for path in report.files] == [
        f"quality-part.{ending}" for ending in ("md", "json", "rows.parquet", "svg")
    ]
    written = json.loads((tmp_path / "quality-part.json").read_text())
    rows = list(read_parquet(tmp_path / "quality-part.rows.parquet"))
    given_only = {"default", "default-api", *RIVALS}
    with_added = set(METHODS) - {SETFIT}
    assert set(by_place(rows)) == {(Place("demo", 2, 0, "none"), method) for method in given_only} | {
        (Place("demo", 2, 2, "recorded"), method) for method in with_added
    }
    assert {len(row.measured.correct) for row in rows} == {300, 480}  # the pool's and the recording's
    assert written["commits"] == [quality.commit()]
    assert len(written["bars"]) == 9
    page = (tmp_path / "quality-part.md").read_text()
    assert "of 9 bars hold." in page.splitlines()[2]
    assert page.splitlines()[2].endswith(" A caveat.")
    for part in ("\n\n## What was tried\n\nThis and that.\n", quality.commit(), "| demo 2 + 2 recorded |"):
        assert part in page
    assert cells[-1][:2] == (18, 18)  # with zero-shot once per draw

    again = a_yardstick(embedder, tmp_path)
    assert again.to_do() == {}
    assert len(again.run(engine=HERE)) == len(scores)


def test_rows_of_setfit_from_another_installation_count(embedder, tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "find_spec", lambda name: None)
    yardstick = a_yardstick(embedder, tmp_path, amounts=(0,), given=5)
    assert any("SetFit is not installed" in note for note in yardstick.notes)
    scores = yardstick.run(engine=HERE)
    assert SETFIT not in {s.method for s in scores}
    (runner,) = [r for r in yardstick.runners if not r.can_run()]
    row = next(row for row in yardstick.runners[0].rows.known.values() if row.cell.method == "linear-probe")
    (cell,) = runner.cells()
    Rows(tmp_path, "quality").add(Row("of another version", "quality", cell, row.measured))
    again = a_yardstick(embedder, tmp_path, amounts=(0,), given=5).run(engine=HERE)
    assert [s.by_seed.tolist() for s in again if s.method == SETFIT] == [[row.accuracy]]


def test_published_rows_are_known_by_their_keys(tmp_path):
    """Or a page could be made again only by measuring everything again; a prompt's wording is enough."""
    demo = plan("quality-full", sets=["demo"])
    shutil.copy(PUBLISHED, tmp_path / f"{demo.rows_name}.rows.parquet")
    yardstick = Yardstick(demo, {"demo": load_data_set("demo", tmp_path)}, tmp_path)
    assert yardstick.cells > 500
    assert yardstick.to_do() == {}
