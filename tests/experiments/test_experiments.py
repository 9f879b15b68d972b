"""Experiments on a set of four classes whose words give them away, with vectors from a file."""

import json
from dataclasses import replace
from importlib import metadata

import numpy as np
import pytest

from adamab.engines import Engine
from adamab.errors import BudgetError, StoppedError, TaskError
from adamab.providers.cache import MemoryReplies
from adamab.providers.metering import Budget, CallContext
from adamab.task import ClassSpec, Sample
from adamab.testing import Fault, HashEmbedder
from experiments import runner as running
from experiments.cells import FOLDS, Expansion
from experiments.datasets.base import DataSet, Material
from experiments.definition import (
    BY_FOLDS,
    Experiment,
    load_experiment,
    rounds_of,
)
from experiments.estimate import estimate
from experiments.report import write_report
from experiments.rows import Rows, read_parquet
from experiments.runner import Runner
from experiments.summary import holm, sample_names, summarise

WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "grape", "lemon"],
    "tool": ["hammer", "saw", "drill", "wrench", "pliers", "chisel"],
    "river": ["danube", "rhine", "nile", "volga", "seine", "thames"],
    "metal": ["iron", "copper", "zinc", "silver", "nickel", "cobalt"],
}
OPTIONS = {"words": False}


class Words(DataSet):
    """Eighteen texts per class to learn from and ten to test; half of them recorded too."""

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


@pytest.fixture(scope="module")
def vectors(tmp_path_factory, save_vectors):
    """Every text and wording of the set."""
    data = Words()
    texts = [f"{spec.name}: {spec.description}" for spec in data.specs]
    for generator in data.generators:
        parts = data.material(generator, "readme")
        texts += [s.text for s in parts.test]
        texts += [
            t for by_class in (parts.source, parts.recorded or {}) for ts in by_class.values() for t in ts
        ]
    return save_vectors(tmp_path_factory.mktemp("vectors") / "vectors.npz", texts, width=24)


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
                "options": OPTIONS,
            },
        ],
    }
    return Experiment.model_validate(base | changes)


def runner_of(plan, work):
    return Runner(plan, {"words": Words()}, work)


def run(plan, work, *, sets=None, **options):
    runner = Runner(plan, sets or {"words": Words()}, work)
    return runner, runner.run(engine=Engine(jobs=options.pop("jobs", 0)), **options)


@pytest.fixture(scope="module")
def done(vectors, tmp_path_factory):
    work = tmp_path_factory.mktemp("done")
    return *run(experiment(vectors), work), work


# What an experiment is


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("just words", "is no mapping"),
        ("title: x\nsets: [demo]\nmethods: [knnn]", "did you mean 'knn'"),
        ("title: x\nsets: [demo]\nmethods: [{method: calibrator}]", "needs policies"),
        ("title: x\nsets: [demo]\nmethods: [{method: knn, policies: [adamab]}]", "takes no policies"),
        ("title: x\nsets: [demo]\nmethods: [{method: calibrator, policies: [adamabb]}]", "'adamab'"),
        ("title: x\nsets: [demo]\nmethods: [knn]\namounts: [lots]", "no amount"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nvary: {alpha: [-1]}", "alpha"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nvary: {alpha: []}", "vary.alpha is empty"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nchosen: by-cross-validation", "no calibrator"),
        ("title: x\nsets: [demo]\nmethods: [knn]\nseed: 3", "seed"),
        ("title: x\nsets: [demo\n", ""),
    ],
)
def test_mistakes_in_a_file_are_one_line(tmp_path, text, words):
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(TaskError) as raised:
        load_experiment(str(tmp_path / "my.yaml"))
    message = str(raised.value)
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
    cells = Expansion(experiment(vectors, settings=["zero-shot", "few-shot"]), {"words": Words()}).cells
    settings = {m: {c.setting for c in cells if c.method == m} for m in ("linear-probe", "calibrator")}
    assert settings == {"linear-probe": {"both"}, "calibrator": {"zero-shot", "few-shot"}}


def test_an_amount_that_the_pool_cannot_serve_is_left_out_and_listed(vectors):
    expansion = Expansion(experiment(vectors, amounts=[5, 20]), {"words": Words()})
    assert {c.amount for c in expansion.cells} == {"0", "5"}
    assert [(x.amount, x.generator) for x in expansion.left_out] == [("20", "pool")]
    assert "20 samples of every class are needed and one class has 15" in expansion.left_out[0].why


def test_a_key_changes_with_all_that_figures_depend_on(vectors, tmp_path):
    runner = runner_of(experiment(vectors), tmp_path)
    cell = next(c for c in runner.cells() if c.policy == "adamab")
    draw = runner.draws[cell.draw]
    task = replace(draw.task, classes=(ClassSpec("fruit", "another sentence"), *draw.task.classes[1:]))
    keys = [
        cell.key(draw, "a", 1),
        cell.key(draw, "b", 1),
        cell.key(draw, "a", 2),
        cell.key(replace(draw, digest="other"), "a", 1),
        cell.key(replace(draw, task=task), "a", 1),
        replace(cell, options=json.dumps(OPTIONS | {"alpha": 3})).key(draw, "a", 1),
        replace(cell, seed=1).key(draw, "a", 1),
        replace(cell, scored=FOLDS).key(draw, "a", 1),
    ]
    assert len(set(keys)) == len(keys)
    assert cell.key(draw, "a", 1) == keys[0]


def _keys(vectors, tmp_path, **changes):
    """The keys of an experiment's cells, worked out again."""
    runner = runner_of(experiment(vectors, seeds=1, **changes), tmp_path)
    return {(cell.method, cell.policy): runner.key(cell) for cell in runner.cells()}


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


def test_a_prompt_quotes_given_samples_only(vectors):
    chat = {"method": "chat:gpt-4o-mini", "samples": "both"}
    with pytest.raises(TaskError, match="chat:gpt-4o-mini quotes given samples at most"):
        Expansion(experiment(vectors, methods=[chat]), {"words": Words()})


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


def test_a_line_that_was_cut_off_is_measured_again_and_nothing_else(done, vectors, tmp_path):
    _, result, work = done
    content = (work / "toy.rows.jsonl").read_bytes()
    (tmp_path / "toy.rows.jsonl").write_bytes(b"no json\n" + content[:-100])
    counts = []
    _, again = run(experiment(vectors), tmp_path, on_cell=lambda done, *_: counts.append(done))
    assert counts == [len(result.rows) - 1, len(result.rows)]
    for old, new in zip(result.rows, again.rows, strict=True):
        assert np.array_equal(old.measured.correct, new.measured.correct)
    assert len(Rows(tmp_path, "toy").known) == len(result.rows)


def test_stopping_keeps_what_is_finished(vectors, tmp_path):
    def stop(done, total, what):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError, match=r"2 of 14 cells are done .* kept in .*toy\.rows\.jsonl"):
        run(experiment(vectors), tmp_path, on_cell=stop)
    assert len(Rows(tmp_path, "toy").known) == 2


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
    assert [cell.seed for cell in line.chosen] == [0, 1]


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


def test_holm_by_hand():
    assert holm([0.01, 0.02, 0.5]) == pytest.approx([0.03, 0.04, 0.5])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_comparisons_with_the_same_results_are_no_tests(done):
    result = _changed(_changed(done[1], _missing(3), policy="adamab"), _missing(3), policy="round-robin")
    summary = summarise(result)
    (same,) = (c for c in summary.comparisons if c.same_results)
    assert (same.rival_name, same.verdict) == ("round-robin", "the same as")
    # The linear probe is another method: it may hit and miss the same ones, and is tested all the same.
    assert {c.rival_name for c in summary.tests} == {"none", "random", "linear-probe"}
    assert [c.corrected for c in summary.tests] == holm([c.p for c in summary.tests])


def test_the_development_part_has_files_of_its_own(done, vectors, tmp_path, tmp_path_factory):
    write_report(summarise(done[1]), tmp_path, command="x")
    published = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    plan = experiment(vectors, part="development", seeds=1, figure="samples")
    _, result = run(plan, tmp_path_factory.mktemp("work"))
    written = write_report(summarise(result), tmp_path, command="x")
    names = [f"toy-development{ending}" for ending in (".md", ".json", ".rows.parquet", "-accuracy.svg")]
    assert [path.name for path in written] == names
    assert {name: (tmp_path / name).read_bytes() for name in published} == published


def test_files_of_an_experiment(done, tmp_path):
    result = replace(done[1], experiment=done[1].experiment.with_changes(published=["tab:main_res_text"]))
    written = write_report(summarise(result), tmp_path, command="python -m experiments toy.yaml")
    assert [path.name for path in written] == ["toy.md", "toy.json", "toy.rows.parquet"]
    page = written[0].read_text()
    assert "`python -m experiments toy.yaml`" in page
    assert "calibrator (default), ADAMAB" in page
    data = json.loads(written[1].read_text())
    assert len(data["lines"]) == 1 + 2 + 4
    assert [row.to_json() for row in read_parquet(written[2])] == [row.to_json() for row in result.rows]
    assert runner_of(result.experiment, tmp_path).to_do(done[0].cells()) == []
    assert data["published"][0]["table"] == "tab:main_res_text"


# What costs money


def _paid(server):
    spec = f"openai:m?base_url={server.url}/v1&first_wait=0.01"
    methods = [
        {"method": "calibrator", "policies": ["round-robin", "adamab"], "options": OPTIONS},
        f"chat:m?base_url={server.url}/v1&first_wait=0.01",
    ]
    return experiment(spec, generators=[spec], seeds=1, methods=methods)


def _amounts(estimated):
    """Calls by what they are for: expected, and at most."""
    return {
        party.purpose.partition("?")[0]: (party.expected.calls, party.at_most.calls)
        for party in estimated.parties
    }


def test_a_run_asks_no_more_than_the_most(server, tmp_path):
    plan = _paid(server).with_changes(vary={"alpha": [0, 100]}, settings=["zero-shot", "few-shot"])
    before = estimate(runner_of(plan, tmp_path))
    run(plan, tmp_path, call_context=CallContext(replies=MemoryReplies()))
    chats = _amounts(before)["chat:m"][0]
    assert chats == 40 + 40
    written = server.count("/chat/completions") - chats
    assert 0 < written <= _amounts(before)["generate in fits"][1]
    assert server.count() <= before.at_most.calls
    assert estimate(runner_of(plan, tmp_path)).expected.calls == 0


def test_a_question_of_two_cells_is_bought_once(server, tmp_path):
    method = f"chat:m?base_url={server.url}/v1"
    plan = _paid(server).with_changes(methods=[method], seeds=2, settings=["zero-shot", "few-shot"])
    (party,) = (p for p in estimate(runner_of(plan, tmp_path)).parties if "chat" in p.purpose)
    # Without examples both seeds ask the same; with them each has its own.
    assert party.expected.calls == 40 + 2 * 40
    assert party.expected.usage.output_tokens == 2 * party.expected.calls  # a number


def test_a_budget_that_ends_leaves_what_is_finished(server, tmp_path):
    call_context = CallContext(Budget.parse("3 calls"))
    with pytest.raises(BudgetError) as raised:
        run(_paid(server), tmp_path, call_context=call_context)
    assert "\n" not in str(raised.value)
    _, result = run(_paid(server), tmp_path, call_context=CallContext(Budget.parse("500 calls")))
    assert len(result.rows) == 3


def test_answers_that_name_no_class_are_kept_and_reported(server, vectors, tmp_path):
    server.add_fault(Fault("answer", how="garbage", times=2))
    chat = f"chat:m?base_url={server.url}/v1"
    _, result = run(experiment(vectors, seeds=1, methods=[chat, "knn"]), tmp_path)
    counts = {"none": 0, "unparsed": 2, "refused": 0, "cut": 0}
    kept = {row.cell.method: row.measured.answers for row in Rows(tmp_path, "toy").known.values()}
    assert kept == {chat: counts, "knn": {}}
    summary = summarise(result)
    data = write_report(summary, tmp_path, command="x")[1].read_text()
    assert json.loads(data)["lines"][0]["answers"] == counts


# Test samples stay out


def test_a_generator_that_knows_test_texts_by_heart_teaches_nothing(vectors, tmp_path):
    rows = [{"label": s.class_name, "text": s.text} for s in Words().material("pool", "readme").test]
    (tmp_path / "heart.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = experiment(vectors, generators=[f"replay:{tmp_path / 'heart.jsonl'}"], seeds=1)
    _, result = run(plan, tmp_path)
    added = {(row.cell.method, row.cell.policy): row.measured.synthetic for row in result.rows}
    assert added["calibrator", "adamab"] == added["linear-probe", "round-robin"] == 0


class OnlyVectors(Words):
    """The same as a set of which there are vectors only."""

    def embedder(self):
        return HashEmbedder(width=24)


def test_methods_that_read_samples_are_refused_where_there_are_only_vectors(vectors, tmp_path):
    with pytest.raises(TaskError, match="setfit reads samples, and words has only their vectors"):
        run(experiment(vectors, methods=["setfit"]), tmp_path, sets={"words": OnlyVectors()})
