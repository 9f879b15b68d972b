"""Experiments on a set of four classes whose words give them away, with vectors from a file."""

import csv
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest

from adamab.errors import BudgetError, StoppedError, TaskError
from adamab.providers.budget import Budget
from adamab.providers.prices import Price
from adamab.providers.replies import MemoryReplies
from adamab.providers.sync import run_sync
from adamab.run.outside import Outside
from adamab.study.baselines.linear_probe import LinearProbe
from adamab.study.baselines.remote import Wording
from adamab.study.datasets.base import DataSet, Material
from adamab.study.engines import Engine
from adamab.study.experiments import findings
from adamab.study.experiments import runner as running
from adamab.study.experiments.cells import FOLDS, Expansion
from adamab.study.experiments.definition import (
    BY_FOLDS,
    BY_TEST,
    Experiment,
    built_in,
    load_experiment,
    rounds_of,
)
from adamab.study.experiments.estimate import estimate
from adamab.study.experiments.findings import chosen_options, headline, in_short, notes
from adamab.study.experiments.materials import KnownVectors, Materials, gather
from adamab.study.experiments.measure import _training_data
from adamab.study.experiments.published import published_table
from adamab.study.experiments.report import write_report
from adamab.study.experiments.rows import Rows
from adamab.study.experiments.runner import Runner
from adamab.study.experiments.summary import sample_names, summarise
from adamab.study.experiments.tables import tables
from adamab.study.statistics import holm
from adamab.task import ClassSpec, Sample
from adamab.task.prompts import Prompts
from adamab.testing import Fault, HashEmbedder, ProviderServer

WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "grape", "lemon"],
    "tool": ["hammer", "saw", "drill", "wrench", "pliers", "chisel"],
    "river": ["danube", "rhine", "nile", "volga", "seine", "thames"],
    "metal": ["iron", "copper", "zinc", "silver", "nickel", "cobalt"],
}
FAST = {"checkpoints": [0, 6], "folds": 2, "words": False}


class Words(DataSet):
    """Eighteen texts a class to learn from and ten to test; half of them recorded too."""

    name, title, generators = "words", "Words", ("recorded", "pool")

    def __init__(self, pool=18):
        self.specs = tuple(ClassSpec(name, f"about a {name}") for name in WORDS)
        self._pool = pool

    def _texts(self, name, start, count):
        words, rng = WORDS[name], np.random.default_rng(start)
        return tuple(f"{' '.join(rng.choice(words, 3))} number {start + i}" for i in range(count))

    def material(self, generator, split):
        texts = {name: self._texts(name, 0, self._pool) for name in WORDS}
        test = [Sample(t, name) for name in WORDS for t in self._texts(name, 100, 10)]
        if generator == "pool":
            return Material(source=texts, test=tuple(test), given_from_test=split == "paper")
        recorded = {name: self._texts(name, 200, 8) for name in WORDS}
        return Material(
            source=texts, test=tuple(test), seen={n: t[:3] for n, t in texts.items()}, recorded=recorded
        )


class Others(Words):
    """The same under another name, with fewer test samples beside the pool."""

    name, title = "others", "Others"

    def material(self, generator, split):
        found = super().material(generator, split)
        return replace(found, test=found.test[:-4]) if generator == "pool" else found


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Every text and wording of the set."""
    data, path = Words(), tmp_path_factory.mktemp("vectors") / "vectors.npz"
    texts = [f"{spec.name}: {spec.description}" for spec in data.specs]
    for generator in data.generators:
        parts = data.material(generator, "readme")
        texts += [s.text for s in parts.test]
        texts += [
            t for by_class in (parts.source, parts.recorded or {}) for ts in by_class.values() for t in ts
        ]
    texts = list(dict.fromkeys(texts))
    pooled = run_sync(HashEmbedder(width=24).embed(texts)).views["pooled"]
    np.savez(path, **{"ids": np.array(texts), "view/pooled": pooled, "model": np.array("toy")})
    return f"npz:{path}"


def experiment(vectors, **changes):
    base = {
        "name": "toy",
        "title": "A toy",
        "sets": ["words"],
        "given": 3,
        "generators": ["pool"],
        "amounts": [5],
        "embedder": vectors,
        "seeds": 2,
        "methods": [
            "zero-shot",
            {"method": "linear-probe", "samples": "both"},
            {
                "method": "calibrator",
                "policies": ["none", "random", "round-robin", "adamab"],
                "options": FAST,
            },
        ],
    }
    return Experiment.model_validate(base | changes)


def run(found, work, *, sets=None, **options):
    runner = Runner(found, sets or {"words": Words()}, work)
    return runner, runner.run(engine=Engine(jobs=options.pop("jobs", 0)), **options)


@pytest.fixture(scope="module")
def done(vectors, tmp_path_factory):
    work = tmp_path_factory.mktemp("done")
    return *run(experiment(vectors), work), work


# What an experiment is


def test_the_papers_experiments_are_there():
    found = {e.name: e for e in built_in()}
    tables = {"text-table", "text-table-api", "images", "image-table-api"}
    searches = {"ablation", "ablation-added", "one-picture", "policies", "policies-images"}
    assert set(found) == tables | {"samples", "alpha", "grid"} | searches
    assert {name for name, e in found.items() if e.part == "development"} == searches
    table = found["text-table"]
    assert table.settings == ("zero-shot", "few-shot")
    assert {m.recipe for m in table.methods if m.method == "calibrator"} == {"paper", "default"}
    assert found["alpha"].vary["alpha"] == (0, 1, 3, 10, 30, 100, 3000)
    assert {name: found["alpha"].amounts_of(name)[0] for name in found["alpha"].sets} == {
        "multiwd": "uneven", "forbidden": 8, "trec": "uneven",
    }  # fmt: skip
    assert found["grid"].vary["batch_size"] == (16, 32, 64, 128, 256, 512)
    assert found["grid"].chosen == BY_FOLDS
    assert all(e.seeds >= 5 for e in found.values())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("just words", "is no mapping"),
        ("title: x\nsets: [demo]\nmethods: [knnn]", "did you mean 'knn'"),
        ("title: x\nsets: [demo]\nmethods: [{method: calibrator}]", "needs policies"),
        ("title: x\nsets: [demo]\nmethods: [{method: knn, policies: [adamab]}]", "takes no policies"),
        ("title: x\nsets: [demo]\nmethods: [{method: calibrator, policies: [adamabb]}]", "'adamab'"),
        ("title: x\nsets: [demo]\nmethods: [knn]\namounts: [-1]", "no amount"),
        ("title: x\nsets: [demo]\nmethods: [knn]\namounts: [lots]", "no amount"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nseeds: 0", "seeds"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nvary: {alpha: [-1]}", "alpha"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nvary: {alpha: []}", "vary.alpha is empty"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nchosen: best", "chosen"),
        (
            "title: x\nsets: [demo]\nmethods: [knn, {method: calibrator, policies: [none]}]\n"
            "chosen: by-cross-validation",
            "only calibrators have options to choose; leave the other methods out",
        ),
        ("title: x\nsets: [demo]\nmethods: [knn]\nseed: 3", "seed"),
        ("title: x\nsets: [demo\n", ""),
    ],
)
def test_mistakes_in_a_file_are_told_in_one_line(tmp_path, text, words):
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(TaskError) as told:
        load_experiment(str(tmp_path / "my.yaml"))
    message = str(told.value)
    assert "\n" not in message
    assert "my.yaml" in message
    assert words in message


def test_amounts_in_rounds():
    assert rounds_of("paper", "trec", 30, 5) == 60
    assert rounds_of("uneven", "trec", 30, 5) == 45
    assert rounds_of(2, "demo", 12, 5) == 5
    assert rounds_of("3 passes", "demo", 12, 5) == 36
    assert rounds_of("0.5 passes", "demo", 13, 5) == 7
    assert rounds_of("paper", "demo", 12, 5) == 24  # a set that the paper does not have


# Cells


def test_methods_that_read_no_wording_run_once_for_both_settings(vectors):
    found = Expansion(experiment(vectors, settings=["zero-shot", "few-shot"]), {"words": Words()}).cells
    settings = {m: {c.setting for c in found if c.method == m} for m in ("linear-probe", "calibrator")}
    assert settings == {"linear-probe": {"both"}, "calibrator": {"zero-shot", "few-shot"}}


def test_alpha_varies_for_the_bandit_alone(vectors):
    found = Expansion(experiment(vectors, vary={"alpha": [0, 10]}), {"words": Words()}).cells
    counts = {p: sum(c.policy == p and c.method == "calibrator" for c in found) for p in ("adamab", "random")}
    assert counts == {"adamab": 4, "random": 2}  # two seeds


def test_an_amount_that_the_pool_cannot_serve_is_left_out_and_listed(vectors):
    expansion = Expansion(experiment(vectors, amounts=[5, 20]), {"words": Words()})
    assert {c.amount for c in expansion.cells} == {"0", "5"}
    assert [(x.amount, x.generator) for x in expansion.left_out] == [("20", "pool")]
    assert "20 samples of every class are needed and one class has 15" in expansion.left_out[0].why


def test_a_key_changes_with_all_that_figures_depend_on(vectors, tmp_path):
    runner = Runner(experiment(vectors), {"words": Words()}, tmp_path)
    cell = next(c for c in runner.cells() if c.policy == "adamab")
    draw = runner.draws[cell.draw]
    task = replace(draw.task, classes=(ClassSpec("fruit", "another sentence"), *draw.task.classes[1:]))
    keys = [
        cell.key(draw, "a", 1),
        cell.key(draw, "b", 1),
        cell.key(draw, "a", 2),
        cell.key(replace(draw, digest="other"), "a", 1),
        cell.key(replace(draw, task=task), "a", 1),
        replace(cell, options=json.dumps(FAST | {"alpha": 3})).key(draw, "a", 1),
        replace(cell, seed=1).key(draw, "a", 1),
        replace(cell, scored=FOLDS).key(draw, "a", 1),
    ]
    assert len(set(keys)) == len(keys)
    assert cell.key(draw, "a", 1) == keys[0]


def test_an_option_that_came_later_changes_a_key_only_where_it_is_used(vectors, tmp_path):
    runner = Runner(experiment(vectors), {"words": Words()}, tmp_path)
    cell = next(c for c in runner.cells() if c.policy == "adamab")
    draw = runner.draws[cell.draw]
    named = replace(cell, options=json.dumps(FAST | {"contrast": True}))
    assert named.key(draw, "a", 1) != cell.key(draw, "a", 1)
    assert "contrast" not in cell._recipe_said()
    assert named._recipe_said().keys() - cell._recipe_said().keys() == {"contrast"}


def test_few_shot_cells_know_the_wordings_without_examples_too(vectors, tmp_path):
    found = experiment(vectors, settings=["zero-shot", "few-shot"], methods=["cache-adapter"], seeds=1)
    runner = Runner(found, {"words": Words()}, tmp_path)
    materials = Materials(runner.draws, {"words": KnownVectors(HashEmbedder(width=24), "hash")})
    plain, quoting = (_training_data(cell, materials, None) for cell in runner.cells())
    assert not plain.plain_class_views
    assert np.array_equal(quoting.plain_class_views["pooled"], plain.class_views["pooled"])
    assert not np.array_equal(quoting.class_views["pooled"], plain.class_views["pooled"])


def _keys(vectors, tmp_path, **changes):
    """The keys of an experiment's cells, worked out anew."""
    runner = Runner(experiment(vectors, seeds=1, **changes), {"words": Words()}, tmp_path)
    return {(cell.method, cell.policy): runner.key(cell) for cell in runner.cells()}


def test_a_key_changes_with_the_version_of_a_baseline_and_no_other_does(vectors, tmp_path, monkeypatch):
    before = _keys(vectors, tmp_path)
    monkeypatch.setattr(LinearProbe, "version", LinearProbe.version + 1)
    after = _keys(vectors, tmp_path)
    assert {name for name, key in before.items() if after[name] != key} == {
        ("linear-probe", "none"),
        ("linear-probe", "round-robin"),
    }


def test_a_key_changes_with_the_model_that_a_name_stands_for(vectors, tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    encoder, fitted = f"cross-encoder:{model}", f"setfit?model={model}"
    methods = ["chat:mistral-small", "rerank:cohere-rerank-v3.5", encoder, fitted]
    monkeypatch.setattr(metadata, "version", lambda name: "1.0")

    def changed(before):
        after = _keys(vectors, tmp_path, methods=methods)
        return {method for method, policy in after if before.get((method, policy)) != after[method, policy]}

    first = _keys(vectors, tmp_path, methods=methods)
    assert changed(first) == set()
    (model / "config.json").write_text('{"layers": 2}')
    assert changed(first) == {encoder, fitted}
    first = _keys(vectors, tmp_path, methods=methods)
    monkeypatch.setattr(metadata, "version", lambda name: "1.1")
    assert changed(first) == {fitted}
    first = _keys(vectors, tmp_path, methods=methods)
    monkeypatch.setattr("adamab.study.baselines.chat.expand", lambda name, kind: "chat:mistral-larger")
    monkeypatch.setattr("adamab.study.baselines.rerank.expand", lambda name, kind: "rerank:cohere:rerank-v4")
    assert changed(first) == set(methods[:2])


def test_a_key_changes_with_what_a_generator_stands_for(vectors, tmp_path):
    recording = tmp_path / "recording.jsonl"
    recording.write_text('{"label": "fruit", "text": "plum"}\n')
    generators = [f"replay:{recording}"]
    before = _keys(vectors, tmp_path, generators=generators)
    recording.write_text('{"label": "fruit", "text": "another plum"}\n')
    after = _keys(vectors, tmp_path, generators=generators)
    assert {policy for (_, policy), key in before.items() if key not in after.values()} == {
        "random",
        "round-robin",
        "adamab",
    }


def test_a_prompt_quotes_given_samples_only(vectors, tmp_path):
    chat = {"method": "chat:gpt-4o-mini", "samples": "both"}
    with pytest.raises(TaskError, match="chat:gpt-4o-mini quotes given samples at most"):
        Expansion(experiment(vectors, methods=[chat]), {"words": Words()})
    runner = Runner(experiment(vectors), {"words": Words()}, tmp_path)
    cell = next(c for c in runner.cells() if (c.method, c.policy) == ("linear-probe", "round-robin"))
    materials = gather(runner.draws, runner.sets, vectors, ["zero-shot"])
    data = replace(_training_data(cell, materials, None), prompts=Prompts(with_examples=True))
    given = {sample.text for sample in runner.draws[cell.draw].task.samples}
    assert len(data.items) == 12 + 20
    assert {text for texts in Wording.of(data).examples.values() for text in texts} == given


# Running


def test_every_cell_has_a_row_of_the_schema(done):
    runner, result, work = done
    rows = [json.loads(line) for line in (work / "toy.rows.jsonl").read_text().splitlines()]
    assert len(rows) == len(result.rows) == len(runner.cells()) == 2 * (1 + 2 + 4)
    wanted = {"experiment", "set", "setting", "given", "synthetic", "generator", "policy", "seed", "method"}
    wanted |= {"recipe", "accuracy", "n_test", "fit_seconds", "n_parameters", "correct"}
    assert all(wanted <= set(row) for row in rows)
    assert {row["n_test"] for row in rows} == {40}
    for row in rows:
        assert row["synthetic"] == (0 if row["policy"] == "none" else 20)
        assert row["n_parameters"] == 0 if row["method"] == "zero-shot" else row["n_parameters"] > 0


def test_learning_helps_on_words_that_give_their_class_away(done):
    summary = summarise(done[1])
    probe = summary.line(method="linear-probe", policy="none")
    assert probe.accuracy.mean > 0.6
    assert probe.accuracy.low <= probe.accuracy.mean <= probe.accuracy.high


def test_baselines_get_the_samples_that_round_robin_adds(done):
    counts = {
        (row.cell.method, row.cell.seed): row.measured.counts
        for row in done[1].rows
        if row.cell.policy == "round-robin"
    }
    assert counts["linear-probe", 0] == counts["calibrator", 0]
    assert counts["linear-probe", 0] == (8, 8, 8, 8)


def test_what_is_finished_is_not_run_again(done, vectors, monkeypatch):
    _, result, work = done
    monkeypatch.setattr(running, "measure", lambda *_: pytest.fail("measured again"))
    before = (work / "toy.rows.jsonl").read_bytes()
    _, again = run(experiment(vectors), work)
    assert (work / "toy.rows.jsonl").read_bytes() == before
    assert [r.accuracy for r in again.rows] == [r.accuracy for r in result.rows]


def test_a_line_that_was_cut_off_is_measured_again_and_nothing_else(done, vectors, tmp_path):
    _, result, work = done
    content = (work / "toy.rows.jsonl").read_bytes()
    (tmp_path / "toy.rows.jsonl").write_bytes(b"no json\n" + content[:-100])
    told = []
    _, again = run(experiment(vectors), tmp_path, on_cell=lambda done, *_: told.append(done))
    assert told == [len(result.rows) - 1, len(result.rows)]
    for old, new in zip(result.rows, again.rows, strict=True):
        assert np.array_equal(old.measured.correct, new.measured.correct)
    assert len(Rows(tmp_path / "toy.rows.jsonl").known) == len(result.rows)


@pytest.mark.slow
def test_processes_find_the_same(done, vectors, tmp_path):
    _, result, _ = done
    _, other = run(experiment(vectors), tmp_path, jobs=2)
    for old, new in zip(result.rows, other.rows, strict=True):
        assert np.array_equal(old.measured.correct, new.measured.correct)


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_ray_finds_the_same(vectors, tmp_path, ray_address):
    found = experiment(vectors, seeds=1, generators=["pool"])
    _, here = run(found, tmp_path)
    (tmp_path / "ray").mkdir()
    runner = Runner(found, {"words": Words()}, tmp_path / "ray")
    there = runner.run(engine=Engine("ray", address=ray_address))
    for old, new in zip(here.rows, there.rows, strict=True):
        assert {**new.to_json(), "fit_seconds": 0} == {**old.to_json(), "fit_seconds": 0}


@pytest.mark.parametrize("jobs", [0, 1])
def test_stopping_keeps_what_is_finished(vectors, tmp_path, jobs):
    def stop(done, total, what):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError, match=r"2 of 14 cells are done .* kept in .*toy\.rows\.jsonl"):
        run(experiment(vectors), tmp_path, jobs=jobs, on_cell=stop)
    assert len(Rows(tmp_path / "toy.rows.jsonl").known) == 2


def test_a_recorded_generator_gives_every_seed_the_examples_that_it_saw(vectors, tmp_path):
    runner, result = run(experiment(vectors, generators=["recorded", "pool"], methods=["knn"]), tmp_path)
    given = {key: sorted(s.text for s in draw.task.samples) for key, draw in runner.draws.items()}
    by_generator = {g: [v for k, v in given.items() if k.generator == g] for g in ("recorded", "pool")}
    assert by_generator["recorded"][0] == by_generator["recorded"][1]
    assert by_generator["pool"][0] != by_generator["pool"][1]
    assert len(result.rows) == 4


def test_the_papers_split_scores_other_samples_for_each_seed(vectors, tmp_path):
    # Given samples from the test split have no vectors in another draw's file; all texts are in this one.
    _, result = run(experiment(vectors, split="paper", methods=["zero-shot", "class-mean"]), tmp_path)
    assert {len(row.measured.correct) for row in result.rows} == {40 - 12}
    raw = [row for row in result.rows if row.cell.method == "zero-shot"]
    first, second = (
        dict(zip(sample_names(result.tests[row.cell.draw]), row.measured.correct, strict=True)) for row in raw
    )
    assert 0 < len(set(first) & set(second)) < 28
    assert all(first[name] == second[name] for name in set(first) & set(second))
    summary = summarise(result)
    assert summary.lines[0].n_test == 28
    assert summary.lines[0].n_distinct == len(set(first) | set(second))
    assert any("official test split" in note for note in notes(summary))
    (page, *_) = write_report(summary, tmp_path, command="x")
    assert f"Words 28 a seed, {summary.lines[0].n_distinct} different ones" in page.read_text()


def test_no_seed_loses_samples_because_another_has_fewer(done):
    result = done[1]
    rows = [row for row in result.rows if row.cell.method == "zero-shot"]
    shorter = replace(rows[1], measured=replace(rows[1].measured, correct=rows[1].measured.correct[:-3]))
    tests = result.tests | {shorter.cell.draw: result.tests[shorter.cell.draw][:-3]}
    (line,) = summarise(replace(result, rows=(rows[0], shorter), tests=tests)).lines
    assert line.by_seed == (rows[0].accuracy, shorter.accuracy)
    assert line.accuracy.mean == pytest.approx((rows[0].accuracy + shorter.accuracy) / 2)
    assert (line.n_test, line.n_distinct) == (40, 40)


def test_equal_samples_are_told_apart_by_their_number():
    same = [Sample("plum", "fruit"), Sample("nile", "river"), Sample("plum", "fruit")]
    assert sample_names(same) == [("plum", "fruit", 0), ("nile", "river", 0), ("plum", "fruit", 1)]


# Choosing options


GRID = {
    "methods": [
        {"method": "calibrator", "recipe": "paper", "policies": ["adamab"], "options": {"rounds": 60}}
    ],
    "amounts": [0, "1 passes"],
    "vary": {"learning_rate": [1e-6, 0.05], "alpha": [0, 100]},
}


@pytest.mark.slow
def test_the_grid_is_chosen_by_cross_validation_and_only_the_chosen_meets_the_test(vectors, tmp_path):
    _, result = run(experiment(vectors, chosen=BY_FOLDS, **GRID), tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "toy.rows.jsonl").read_text().splitlines()]
    folds = [row for row in rows if row["scored"] == "folds"]
    tests = [row for row in rows if row["scored"] == "test"]
    assert len(folds) == 2 * (2 + 4)  # two seeds; nothing added has no α
    assert {row["n_test"] for row in folds} == {12}
    assert len(tests) == len(result.rows) == 2
    for seed, test in enumerate(sorted(tests, key=lambda row: row["seed"])):
        of_seed = [row for row in folds if row["seed"] == seed]
        chosen = next(r for r in of_seed if (r["options"], r["amount"]) == (test["options"], test["amount"]))
        assert chosen["accuracy"] == max(row["accuracy"] for row in of_seed)
    summary = summarise(result)
    (line,) = summary.lines
    assert line.label == "calibrator (paper), options and samples chosen by cross-validation"
    assert [cell.seed for cell in line.chosen] == [0, 1]
    assert any("cross-validation" in note for note in notes(summary))
    assert len(list(chosen_options(summary))) == 2


def _with_choices(result, *policies, generator="pool"):
    """As if cross-validation had chosen these, seed by seed."""
    rows = [
        replace(
            row,
            cell=replace(
                row.cell, policy=policy, generator=generator, amount="0" if policy == "none" else "5"
            ),
        )
        for row, policy in zip(result.rows[:2], policies, strict=True)
    ]
    validated = [replace(row, cell=replace(row.cell, scored=FOLDS)) for row in rows]
    tests = {row.cell.draw: next(iter(result.tests.values())) for row in rows}
    calibrators = [m for m in result.experiment.methods if m.method == "calibrator"]
    chosen = result.experiment.with_changes(chosen=BY_FOLDS, methods=calibrators)
    return replace(result, experiment=chosen, rows=tuple(rows), chosen=tuple(validated), tests=tests)


def test_a_choice_of_no_samples_is_not_called_adamab(done, tmp_path):
    result = replace(done[1], rows=tuple(r for r in done[1].rows if r.cell.method == "calibrator"))
    summary = summarise(_with_choices(result, "none", "adamab"))
    assert len(summary.lines) == 1
    assert not summary.comparisons
    first, second = chosen_options(summary)
    assert "seed 0: " in first
    assert "nothing added; " in first
    assert "ADAMAB, amount 5; " in second
    page = write_report(summary, tmp_path, command="x")[0].read_text()
    assert "calibrator (default), options and samples chosen by cross-validation |" in page
    assert "ADAMAB |" not in page
    assert not any("had seen all the given samples" in note for note in notes(summary))
    recorded = summarise(_with_choices(result, "none", "adamab", generator="recorded"))
    assert any("had seen all the given samples" in note for note in notes(recorded))


def test_the_best_options_of_each_seed_win_and_of_equals_the_first(done):
    rows = [row for row in done[1].rows if row.cell.policy == "adamab"]
    hits = {"a": (5, 5), "b": (9, 2), "c": (9, 5)}  # of ten, by seed
    tried = [
        replace(
            row,
            cell=replace(row.cell, options=json.dumps({"name": name})),
            measured=replace(row.measured, correct=np.arange(10) < count[row.cell.seed]),
        )
        for name, count in hits.items()
        for row in rows
    ]
    best = {row.cell.seed: row.cell.settings["name"] for row in running.best_by_folds(tried)}
    assert best == {0: "b", 1: "a"}


def test_choosing_by_test_accuracy_has_a_name_that_says_so(vectors, tmp_path):
    _, result = run(experiment(vectors, chosen=BY_TEST, **GRID), tmp_path)
    assert len(result.rows) == 2 * (2 + 4)
    summary = summarise(result)
    assert [line.cell.amount for line in summary.lines] == [BY_TEST]
    means = {}
    for row in result.rows:
        means.setdefault(row.cell.group, []).append(row.accuracy)
    assert summary.lines[0].accuracy.mean == pytest.approx(max(np.mean(v) for v in means.values()))
    assert any("flatters" in note for note in notes(summary))
    assert summary.lines[0].label == "calibrator (paper), options and samples chosen by test accuracy"
    (told,) = chosen_options(summary)
    assert "% on test samples" in told


# Statistics, tables and files


def test_adamab_is_compared_with_every_policy_and_the_probe(done):
    summary = summarise(done[1])
    rivals = {(c.rival.method, c.rival.policy) for c in summary.comparisons}
    assert rivals == {
        ("calibrator", "none"),
        ("calibrator", "random"),
        ("calibrator", "round-robin"),
        ("linear-probe", "round-robin"),
    }
    for c in summary.comparisons:
        assert c.corrected >= c.p
        ours = summary.line(method="calibrator", policy="adamab").accuracy.mean
        theirs = summary.line(
            method=c.rival.method, policy=c.rival.policy, amount=c.rival.amount
        ).accuracy.mean
        assert c.lead.mean == pytest.approx(ours - theirs)
    assert in_short(summary)[2].startswith("With the recipe default, of 1 comparison with random ADAMAB")


def _changed(result, change, **wanted):
    """The rows of some cells with other figures."""
    rows = tuple(
        replace(row, measured=change(row))
        if all(getattr(row.cell, name) == value for name, value in wanted.items())
        else row
        for row in result.rows
    )
    return replace(result, rows=rows)


def _missing(wrong):
    """Measured with the first samples wrong and all others right."""
    return lambda row: replace(row.measured, correct=np.arange(len(row.measured.correct)) >= wrong)


def test_comparisons_with_the_same_results_are_no_tests(done, tmp_path):
    result = _changed(_changed(done[1], _missing(3), policy="adamab"), _missing(3), policy="round-robin")
    summary = summarise(result)
    (same,) = (c for c in summary.comparisons if c.same_results)
    assert (same.rival_name, same.verdict) == ("round-robin", "the same as")
    # The linear probe is another method: it may hit and miss the same ones, and is tested all the same.
    assert {c.rival_name for c in summary.tests} == {"none", "random", "linear-probe"}
    assert [c.corrected for c in summary.tests] == holm([c.p for c in summary.tests])
    assert headline(summary).startswith(
        "ADAMAB does not beat round-robin in 1 of 1 comparison (in 1 of them both had the same samples and "
        "gave the same results on every test sample) and the linear probe"
    )
    assert in_short(summary)[0].endswith(
        "the comparison with round-robin gave the same results on every test sample."
    )
    page = write_report(summary, tmp_path, command="x")[0].read_text()
    assert "corrected by Holm for 3 comparisons" in page
    assert "because they are no tests: 1 with the same results" in page
    assert "| same results = |" in page


def test_what_was_not_shown_is_called_not_told_apart(done):
    result = _changed(_changed(done[1], _missing(3), policy="adamab"), _missing(4), policy="round-robin")
    summary = summarise(result)
    assert {c.verdict for c in summary.comparisons if c.rival_name == "round-robin"} == {
        "not told apart from"
    }
    told = in_short(summary)
    assert (
        "of 1 comparison with round-robin ADAMAB is ahead in 0, not told apart in 1 and behind in 0"
        in told[0]
    )
    assert told[-1].startswith("Not told apart means that no difference was shown")
    assert "level" not in " ".join(told)


def test_parameters_are_a_range_over_the_seeds(done, tmp_path):
    sizes = {0: 1200, 1: 7}
    result = _changed(
        done[1], lambda row: replace(row.measured, n_parameters=sizes[row.cell.seed]), policy="adamab"
    )
    summary = summarise(result)
    assert summary.line(policy="adamab").n_parameters == (7, 1200)
    (table,) = tables(summary)
    assert [row[-2] for row in table.rows if "ADAMAB" in row[0]] == ["7–1.2k"]
    page, _, rows, _ = (path.read_text() for path in write_report(summary, tmp_path, command="x"))
    assert "a weight of zero are not in the classifier" in page
    ours = next(row for row in csv.DictReader(io.StringIO(rows)) if row["policy"] == "adamab")
    assert (ours["fewest_parameters"], ours["most_parameters"]) == ("7", "1200")


def test_a_recipe_on_fewer_views_has_a_name_of_its_own(done):
    options = json.dumps(FAST | {"views": ["pooled"]}, sort_keys=True)
    fewer = [
        replace(row, cell=replace(row.cell, options=options))
        for row in done[1].rows
        if row.cell.method == "calibrator"
    ]
    summary = summarise(replace(done[1], rows=(*done[1].rows, *fewer)))
    assert "calibrator (default, pooled only), ADAMAB" in {line.label for line in summary.lines}
    assert len({sentence.partition(", of")[0] for sentence in in_short(summary)}) > 2
    first = headline(summary)
    assert "The linear probe reads the pooled embedding only" in first
    assert "(default, pooled only) is ahead of the probe in " in first


def test_the_page_explains_its_words(done, tmp_path):
    experiment = done[1].experiment.with_changes(settings=["zero-shot", "few-shot"])
    page, latex, *_ = write_report(summarise(replace(done[1], experiment=experiment)), tmp_path, command="x")
    for words in (
        "default: all views of the embedder",
        "these methods read the pooled embedding only: zero shot, linear probe.",
        "Methods that read no wording repeat one number under all settings: linear probe.",
        "Amounts: a number: synthetic samples a class, in whole rounds.",
        "Test samples: Words 40.",
    ):
        assert words in page.read_text()
    assert "in brackets the range that holds 95" in latex.read_text().split("\n")[1]


def test_numbers_of_sets_and_generators_say_whose_they_are(vectors, tmp_path):
    found = experiment(vectors, generators=["recorded", "pool"], methods=["knn"], sets=["words", "others"])
    fewer = found.with_changes(
        methods=[{"method": "knn", "samples": "both"}], amounts={"words": [5], "others": [2]}
    )
    _, result = run(fewer, tmp_path, sets={"words": Words(), "others": Others()})
    summary = summarise(result)
    assert "Others 40 (recorded) or 36 (pool)" in write_report(summary, tmp_path, command="x")[0].read_text()
    assert [row[1] for row in tables(summary)[1].rows] == ["0", "20 / 10"]
    partly = tuple(r for r in result.rows if r.cell.set == "words" or r.cell.policy == "none")
    assert [row[1] for row in tables(summarise(replace(result, rows=partly)))[1].rows] == ["0", "20 / –"]


def test_the_page_says_how_far_its_seconds_can_be_trusted(done, tmp_path):
    page = write_report(summarise(done[1]), tmp_path, command="x")[0].read_text()
    assert page.count("good for orders of magnitude only") == 1


def test_options_that_are_no_numbers_can_vary(vectors, tmp_path):
    options = {"class_input": ["mean", "both"], "batch_size": [None, 32]}
    methods = [{"method": "calibrator", "policies": ["none", "adamab"], "options": FAST}]
    _, result = run(experiment(vectors, vary=options, methods=methods, seeds=1), tmp_path)
    summary = summarise(result)
    (table,) = tables(summary)
    assert "calibrator (default), ADAMAB, batch_size none, class_input mean" in {row[0] for row in table.rows}
    page = write_report(summary, tmp_path, command="x")[0].read_text()
    assert "amount 5, batch_size 32, class_input both" in page


def test_a_row_tells_the_options_that_the_others_do_not_have(vectors, tmp_path):
    plain = {"method": "calibrator", "policies": ["round-robin", "adamab"], "options": FAST}
    other = {**plain, "policies": ["adamab"], "options": {**FAST, "difficulty": False, "alpha": 30.0}}
    _, result = run(experiment(vectors, methods=[plain, other], seeds=1), tmp_path)
    summary = summarise(result)
    (table,) = tables(summary)
    names = [row[0] for row in table.rows]
    assert names[:2] == ["calibrator (default), round-robin", "calibrator (default), ADAMAB"]
    assert names[2] == "calibrator (default), ADAMAB, α 30, difficulty false"
    assert len({c.cell.options for c in summary.comparisons}) == 2  # both against round-robin


def test_the_development_part_has_files_of_its_own(done, vectors, tmp_path, tmp_path_factory):
    write_report(summarise(done[1]), tmp_path, command="x")
    published = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = experiment(vectors, part="development", seeds=1, figure="samples")
    _, result = run(found, tmp_path_factory.mktemp("work"))
    written = write_report(summarise(result), tmp_path, command="x")
    names = [f"toy-development.{ending}" for ending in ("md", "tex", "csv", "json")]
    figures = [f"toy-development-accuracy.{ending}" for ending in ("svg", "png")]
    assert sorted(path.name for path in written) == sorted([*names, *figures])
    assert {name: (tmp_path / name).read_bytes() for name in published} == published
    page = (tmp_path / "toy-development.md").read_text()
    assert "in `toy-development.json`" in page
    assert "(toy-development-accuracy.svg)" in page
    assert json.loads((tmp_path / "toy-development.json").read_text())["experiment"]["name"] == "toy"


class StoredPictures(Words):
    """Vectors of pictures under the name of a set that has no others: one view, and none of a wording."""

    name, title, generators = "pets", "Pets", ("pool",)

    def embedder(self):
        return SamplesOnly(width=24)


class SamplesOnly(HashEmbedder):
    def has(self, items):
        return np.array([": about" not in item for item in items])


def test_views_that_are_not_there_are_not_said_to_help(vectors, tmp_path):
    methods = [
        {"method": "linear-probe", "samples": "both"},
        {"method": "calibrator", "policies": ["adamab"], "options": FAST},
    ]
    found = experiment(vectors, sets=["pets"], methods=methods, seeds=1)
    _, result = run(found, tmp_path, sets={"pets": StoredPictures()})
    first = headline(summarise(result))
    assert first.startswith("ADAMAB does not beat the linear probe")
    assert "these views" not in first


def test_views_of_an_embedder_of_pictures_are_counted(done, monkeypatch):
    cell = next(c.cell for c in summarise(done[1]).comparisons if c.rival_name == "linear-probe")
    pictures = replace(cell, set="pets-pictures")
    for views, modalities, more in (
        (("pooled",), ("image",), False),
        (("pooled",), ("text", "image"), True),
        (("pooled", "tokens"), ("image",), True),
    ):
        embedder = SimpleNamespace(views=views, modalities=modalities)
        monkeypatch.setattr(findings, "resolve_embedder", lambda spec, found=embedder: found)
        assert findings._reads_more(pictures, summarise(done[1])) == more


def test_files_of_an_experiment(done, tmp_path):
    result = replace(done[1], experiment=done[1].experiment.with_changes(published=["tab:main_res_text"]))
    written = write_report(summarise(result), tmp_path, command="adamab reproduce toy.yaml")
    assert [path.name for path in written] == ["toy.md", "toy.tex", "toy.csv", "toy.json"]
    page = written[0].read_text()
    first = page.split("\n\n")[1]
    assert first.startswith("ADAMAB does not beat round-robin in ")
    for words in ("`adamab reproduce toy.yaml`", "zero shot", "calibrator (default), ADAMAB", "not directly"):
        assert words in page
    assert r"\begin{tabular}{lrrrr}" in written[1].read_text()
    rows = list(csv.DictReader(io.StringIO(written[2].read_text())))
    assert len(rows) == 1 + 2 + 4
    data = json.loads(written[3].read_text())
    assert len(data["rows"]) == 14
    assert "correct" not in data["rows"][0]
    assert data["published"][0]["table"] == "tab:main_res_text"


def test_a_table_has_a_column_a_set_and_setting(done):
    (table,) = tables(summarise(done[1]))
    assert table.header == ("Method", "Added", "Words", "Parameters", "Seconds")
    assert [row[0] for row in table.rows[:3]] == [
        "zero shot",
        "linear probe",
        "calibrator (default), given only",
    ]
    assert [row[1] for row in table.rows] == ["0", "0", "0", "20", "20", "20", "20"]


def test_the_table_has_the_median_of_the_times_of_training(done):
    taken = {0: 3.0, 1: 8.5}
    rows = tuple(replace(r, measured=replace(r.measured, seconds=taken[r.cell.seed])) for r in done[1].rows)
    (table,) = tables(summarise(replace(done[1], rows=rows)))
    assert {row[-1] for row in table.rows} == {"5.8"}
    assert " & 5.8 " in table.latex()


def test_published_numbers_are_the_papers():
    text = published_table("tab:main_res_text")
    ours = next(row for row in text.rows if row.method == "QWen-3-emb-06b, ADAMAB")
    assert ours.accuracy["trec", "few-shot"] == 62.50
    assert ours.accuracy["multiwd", "zero-shot"] == 58.15
    image = published_table("tab:main_res_img")
    clip = next(row for row in image.rows if row.method == "CLIP-VIT-Large, ADAMAB")
    assert clip.accuracy["cub200", "zero-shot"] == 68.60
    assert clip.parameters == "+0.664M"
    with pytest.raises(TaskError, match="no table"):
        published_table("tab:none")


def test_figures_of_samples_and_alpha(vectors, tmp_path):
    found = experiment(vectors, amounts=[5, 8], seeds=1, figure="samples")
    _, result = run(found, tmp_path)
    assert {p.name for p in write_report(summarise(result), tmp_path, command="x")} >= {
        "toy-accuracy.png",
        "toy-accuracy.svg",
    }
    assert "linear probe" in (tmp_path / "toy-accuracy.svg").read_text()
    found = experiment(vectors, name="other", vary={"alpha": [0, 10]}, seeds=1, figure="alpha")
    _, result = run(found, tmp_path)
    assert {p.name for p in write_report(summarise(result), tmp_path, command="x")} >= {"other-accuracy.svg"}


# What costs money


@pytest.fixture
def server():
    with ProviderServer() as running_server:
        yield running_server


def _paid(server):
    spec = f"openai:m?base_url={server.url}/v1&first_wait=0.01"
    methods = [
        {"method": "calibrator", "policies": ["round-robin", "adamab"], "options": FAST},
        f"chat:m?base_url={server.url}/v1&first_wait=0.01",
    ]
    return experiment(spec, generators=[spec], seeds=1, methods=methods)


def test_an_estimate_of_calls_and_cost_sends_nothing(server, tmp_path):
    runner = Runner(_paid(server), {"words": Words()}, tmp_path)
    found = estimate(runner)
    assert (found.cells, found.done) == (3, 0)
    purposes = {party.purpose.partition("?")[0]: party for party in found.parties}
    assert set(purposes) == {"embed the texts", "embed in fits", "generate in fits", "chat:m"}
    assert purposes["chat:m"].expected.calls == 40
    assert purposes["generate in fits"].expected.calls == 2 * 4  # two policies of four rounds
    assert server.count() == 0
    assert list(tmp_path.iterdir()) == []


def test_totals_are_of_what_has_a_price_and_name_the_rest(server, tmp_path):
    runner = Runner(_paid(server), {"words": Words()}, tmp_path)
    nobody = estimate(runner)
    assert (nobody.expected.nano_usd, nobody.unpriced) == (None, ("openai:m",))
    other = f"rerank:jina:r?base_url={server.url}/v1"
    runner = Runner(_paid(server).with_changes(methods=[other, "chat:m"]), {"words": Words()}, tmp_path)
    some = estimate(runner, {"m": Price.parse("m=1/2")[1]})
    priced = [party.expected.nano_usd for party in some.parties if party.spec == "openai:m"]
    assert some.unpriced == ("jina:r",)
    assert some.expected.nano_usd == sum(priced) > 0
    told = some.to_json()
    assert told["expected"]["usd"] == sum(priced) / 10**9
    assert told["expected"]["calls"] == sum(party.expected.calls for party in some.parties)
    assert told["unpriced"] == ["jina:r"]


def _amounts(found):
    """Calls by what they are for: expected, and at most."""
    return {
        party.purpose.partition("?")[0]: (party.expected.calls, party.at_most.calls)
        for party in found.parties
    }


def test_what_is_not_certain_to_be_shared_is_counted_for_every_combination(server, tmp_path):
    def asked(**vary):
        found = Runner(_paid(server).with_changes(vary=vary), {"words": Words()}, tmp_path)
        return _amounts(estimate(found))["generate in fits"]

    plain, rates, alphas = asked(), asked(batch_size=[16, 32]), asked(alpha=[0, 100])
    assert plain[0] == 4 + 4
    assert rates[0] == 4 + 2 * 4  # round-robin asks the same at any rate
    assert rates[1] == (2 + 2) * plain[1] // 2  # though a batch that is not filled may make a difference
    assert (alphas[0], alphas[1]) == (4 + 2 * 4, (1 + 2) * plain[1] // 2)
    # All fits get the same batches of a class: four rounds for each of four classes are all that there are.
    many = asked(alpha=[0, 1, 3, 10, 30, 100])
    assert (many[0], many[1]) == (4 * 4, 4 * plain[1] // 2)


def test_each_fold_asks_for_itself_and_so_does_what_is_chosen(server, tmp_path):
    methods = [{"method": "calibrator", "recipe": "paper", "policies": ["adamab"], "options": {"rounds": 5}}]
    found = _paid(server).with_changes(methods=methods, vary={"alpha": [0, 10]}, amounts=[5, "2 passes"])
    of_all = estimate(Runner(found, {"words": Words()}, tmp_path))
    of_folds = estimate(Runner(found.with_changes(chosen=BY_FOLDS), {"words": Words()}, tmp_path))
    whole, folds = _amounts(of_all)["generate in fits"], _amounts(of_folds)["generate in fits"]
    assert whole[0] == 2 * (4 + 8)
    assert folds[0] == 5 * whole[0] + 8  # and the longest of them for the one that is chosen
    assert folds[1] > 5 * whole[1]


def test_a_run_asks_no_more_than_the_most(server, tmp_path):
    found = _paid(server).with_changes(vary={"alpha": [0, 100]}, settings=["zero-shot", "few-shot"])
    told = estimate(Runner(found, {"words": Words()}, tmp_path))
    run(found, tmp_path, outside=Outside(replies=MemoryReplies()))
    chats = _amounts(told)["chat:m"][0]
    assert chats == 40 + 40
    written = server.count("/chat/completions") - chats
    assert 0 < written <= _amounts(told)["generate in fits"][1]
    assert server.count() <= told.at_most.calls
    assert estimate(Runner(found, {"words": Words()}, tmp_path)).expected.calls == 0


def test_a_question_of_two_cells_is_bought_once(server, tmp_path):
    method = f"chat:m?base_url={server.url}/v1"
    found = _paid(server).with_changes(methods=[method], seeds=2, settings=["zero-shot", "few-shot"])
    (party,) = (
        p for p in estimate(Runner(found, {"words": Words()}, tmp_path)).parties if "chat" in p.purpose
    )
    # Without examples both seeds ask the same; with them each has its own.
    assert party.expected.calls == 40 + 2 * 40
    assert party.expected.usage.output_tokens == 2 * party.expected.calls  # a number


def test_the_papers_models_can_be_estimated_without_keys(tmp_path, monkeypatch):
    for name in ("OPENAI_API_KEY", "COHERE_API_KEY", "JINA_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    found = load_experiment("text-table-api").with_changes(sets=["words"], amounts=[5], seeds=1, given=3)
    told = estimate(Runner(found, {"words": Words()}, tmp_path))
    models = {party.spec for party in told.parties}
    assert models == {
        "openai:text-embedding-3-small",
        "openai:gpt-4o-mini",
        "openai:gemini-2.0-flash-lite",
        "openai:mistral-small-2506",
        "openai:llama3.2-vision:90b",
        "cohere:rerank-v3.5",
        "jina:jina-reranker-m0",
    }
    for party in told.parties:
        assert 0 < party.expected.calls <= party.at_most.calls
        assert 0 < party.expected.usage.tokens <= party.at_most.usage.tokens
        if party.spec.endswith("gpt-4o-mini"):
            assert 0 < party.expected.nano_usd < party.at_most.nano_usd
            assert "OPENAI_API_KEY" in party.lacking


def test_a_budget_that_ends_leaves_what_is_finished(server, tmp_path):
    outside = Outside(Budget.parse("3 calls"))
    with pytest.raises(BudgetError) as told:
        run(_paid(server), tmp_path, outside=outside)
    assert "\n" not in str(told.value)
    _, result = run(_paid(server), tmp_path, outside=Outside(Budget.parse("500 calls")))
    assert len(result.rows) == 3


def test_answers_that_name_no_class_are_kept_and_told(server, vectors, tmp_path):
    server.add_fault(Fault("answer", how="garbage", times=2))
    chat = f"chat:m?base_url={server.url}/v1"
    _, result = run(experiment(vectors, seeds=1, methods=[chat, "knn"]), tmp_path)
    counts = {"none": 0, "unparsed": 2, "refused": 0, "cut": 0}
    kept = {row.cell.method: row.measured.answers for row in Rows(tmp_path / "toy.rows.jsonl").known.values()}
    assert kept == {chat: counts, "knn": {}}
    summary = summarise(result)
    page, _, table, data = (path.read_text() for path in write_report(summary, tmp_path, command="x"))
    assert "of 40 answers 0 said that no class suits, 2 could not be read, 0 were refusals" in page
    assert page.count("could not be read") == 1
    assert json.loads(data)["lines"][0]["answers"] == counts
    assert [row["unparsed"] for row in csv.DictReader(io.StringIO(table))] == ["2", ""]


def test_local_experiments_cost_nothing(vectors, tmp_path):
    found = estimate(Runner(experiment(vectors), {"words": Words()}, tmp_path))
    assert (found.cells, found.expected.calls, found.at_most.nano_usd) == (14, 0, 0)


# Test samples stay out


def test_a_generator_that_knows_test_texts_by_heart_teaches_nothing(vectors, tmp_path):
    rows = [{"label": s.class_name, "text": s.text} for s in Words().material("pool", "readme").test]
    (tmp_path / "heart.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = experiment(vectors, generators=[f"replay:{tmp_path / 'heart.jsonl'}"], seeds=1)
    _, result = run(found, tmp_path)
    added = {(row.cell.method, row.cell.policy): row.measured.synthetic for row in result.rows}
    assert added["calibrator", "adamab"] == added["linear-probe", "round-robin"] == 0


class OnlyVectors(Words):
    """The same as a set of which there are vectors only."""

    def embedder(self):
        return HashEmbedder(width=24)


def test_methods_that_read_samples_are_refused_where_there_are_only_vectors(vectors, tmp_path):
    found = experiment(vectors, methods=["zero-shot", "setfit"])
    with pytest.raises(TaskError, match="setfit reads samples, and words has only their vectors"):
        run(found, tmp_path, sets={"words": OnlyVectors()})


@pytest.mark.skipif(os.name == "nt", reason="kills a process by a signal")
def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path):
    script = tmp_path / "starts.py"
    script.write_text(
        "import multiprocessing as mp, time\n"
        "from adamab.study.processes import end_with_parent\n"
        "def work():\n    end_with_parent()\n    print('ready', flush=True)\n    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    child = mp.get_context('spawn').Process(target=work)\n    child.start()\n"
        "    print('started', flush=True)\n    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
    assert "ready" in lines
    parent.kill()
    # The pipe ends with the last process that holds it.
    assert parent.communicate(timeout=60)[0] == ""
