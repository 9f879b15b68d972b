"""Sweeps on a task whose words give its classes away, with vectors that hardly do."""

import json
from dataclasses import replace

import numpy as np
import pytest

from adamab.errors import RecipeError, RunError, StoppedError, TaskError
from adamab.study.engines import HERE, Engine
from adamab.study.experiments.materials import KnownVectors
from adamab.study.sweep import Search, Sweep
from adamab.study.sweep_cells import SweepMaterials, embed_all
from adamab.study.sweep_report import SweepReport
from adamab.study.sweep_space import Choices, Range, default_space, in_words, parse_space
from adamab.study.sweep_trials import BATCH, Trials
from adamab.task import ClassSpec, Sample, Task
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

WORDS = {"fruit": "apple pear plum", "tool": "hammer saw drill", "river": "danube rhine nile"}
BLIND = Recipe(words=False, similarity=False, folds=2, checkpoints=(0, 6), shrinkages=(20, 100))
SPACE = parse_space(BLIND, ["words=true,false", "pull=0.3:30:log"])


def a_task(examples=6):
    rng = np.random.default_rng(0)
    noise = [f"w{i}" for i in range(40)]
    samples = [
        Sample(" ".join([*rng.choice(words.split(), 2), *rng.choice(noise, 6)]), name)
        for name, words in WORDS.items()
        for _ in range(examples)
    ]
    return Task(tuple(ClassSpec(name, f"about a {name}") for name in WORDS), tuple(samples))


def materials_of(task, recipe=BLIND, *, width=4, n_folds=3):
    embedder = HashEmbedder(width=width)
    found = SweepMaterials(task, KnownVectors(embedder, None), recipe, n_folds)
    embed_all(found, embedder)
    return found


@pytest.fixture(scope="module")
def materials():
    return materials_of(a_task())


def swept(materials, folder, *, trials=6, engine=HERE, on_cell=lambda *_: None, **search):
    folder.mkdir(exist_ok=True)
    sweep = Sweep(materials, Search(**{"space": SPACE, "trials": trials, **search}), folder)
    report = SweepReport(sweep, sweep.run(engine=engine, on_cell=on_cell), ["adamab", "fit", "task.yaml"])
    report.write()
    return report


def rows(folder):
    """The lines without seconds, in no particular order."""
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return sorted(json.dumps({**line, "fit_seconds": None}) for line in lines)


@pytest.fixture(scope="module")
def done(materials, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return swept(materials, folder), folder


def test_a_gain_that_stands_is_recommended(done):
    report, folder = done
    outcome = report.outcome
    assert outcome.trials[0].options == {}
    assert len(outcome.trials) == 6
    assert outcome.best.options["words"] is True
    assert outcome.recommended
    assert outcome.examined.loss.low > 0
    assert "words=true" in report.command
    assert report.lines()[-1] == "The gain stands: use it."
    assert "words: true" in (folder / "best.yaml").read_text()
    assert report.table()[-1][-1] == "the recipe as it is"


def test_scores_are_means_over_all_held_out_samples(done, materials):
    report, folder = done
    first = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    of_default = [row for row in first if row["options"] == {} and row["seed"] == 0]
    losses = [loss for row in of_default for loss in row["losses"]]
    assert len(losses) == report.outcome.n_held_out == len(materials.task.samples)
    assert report.outcome.trials[0].loss == pytest.approx(np.mean(losses), abs=1e-6)


def test_the_examination_uses_folds_that_the_search_did_not(done):
    _, folder = done
    by_seed = {}
    for line in rows(folder):
        row = json.loads(line)
        by_seed.setdefault(row["seed"], set()).add(json.dumps(row["options"]))
    assert sorted(by_seed) == [0, 1, 2, 3, 4, 5]
    assert all(len(by_seed[seed]) == 2 for seed in range(1, 6))  # the winner and trial 0


def test_no_difference_is_not_recommended(materials, tmp_path):
    # Dropout does nothing where no step is taken, so every trial is the same.
    space = parse_space(BLIND, ["dropout=0.1:0.9"])
    recipe = BLIND.with_options(checkpoints=(0,))
    report = swept(replace(materials, recipe=recipe), tmp_path, space=space, trials=3)
    assert not report.outcome.recommended
    assert report.outcome.best.number == 0
    assert report.lines() == ["No trial has a lower loss than trial 0: keep the recipe as it is."]
    assert report.command == "adamab fit task.yaml"


@pytest.mark.parametrize("stop_at", [5, 20])
def test_a_stopped_sweep_ends_as_one_never_stopped(done, materials, tmp_path, stop_at):
    _, folder = done
    told = []

    def stop(finished, total, what):
        told.append(what)
        if len(told) == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError, match=r"fits are done and kept in .*rows\.jsonl"):
        swept(materials, tmp_path, on_cell=stop)
    for name in ("rows.jsonl", "optuna.jsonl"):  # as a process that is killed while it writes
        if (tmp_path / name).exists():
            with (tmp_path / name).open("a") as file:
                file.write('{"cut')
    swept(materials, tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == (folder / "sweep.json").read_bytes()
    assert rows(tmp_path) == rows(folder)


def test_more_trials_later_are_those_of_a_longer_sweep(done, materials, tmp_path):
    _, folder = done
    swept(materials, tmp_path, trials=3)
    swept(materials, tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == (folder / "sweep.json").read_bytes()


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_ray_finds_the_same_rows(done, materials, tmp_path, ray_address):
    _, folder = done
    swept(materials, tmp_path, engine=Engine("ray", address=ray_address))
    assert (tmp_path / "sweep.json").read_bytes() == (folder / "sweep.json").read_bytes()
    assert rows(tmp_path) == rows(folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, "with another --seed"),
        ({"sampler": "random"}, "with another --sampler"),
        ({"space": parse_space(BLIND, ["words=true,false"])}, "with another --search"),
    ],
)
def test_another_search_in_the_same_directory_is_refused(done, materials, changes, told):
    _, folder = done
    with pytest.raises(RunError, match=f"holds a sweep {told}; .* another --output"):
        swept(materials, folder, **changes)


def test_another_task_in_the_same_directory_is_refused(done):
    _, folder = done
    with pytest.raises(RunError, match="holds a sweep of another task"):
        swept(materials_of(a_task(examples=5)), folder)
    with pytest.raises(RunError, match="with another --recipe and --set"):
        swept(materials_of(a_task(), BLIND.with_options(pull=1)), folder)


def test_one_example_a_class_cannot_be_held_out(tmp_path):
    with pytest.raises(TaskError, match="no class has two examples"):
        swept(materials_of(a_task(examples=1)), tmp_path)


def test_the_only_example_of_a_class_is_never_held_out():
    task = a_task()
    alone = next(sample for sample in task.samples if sample.class_name == "tool")
    kept = tuple(s for s in task.samples if s.class_name != "tool" or s is alone)
    task = replace(task, samples=kept)
    folds = SweepMaterials(task, KnownVectors(HashEmbedder(), None), BLIND, 3).folds(0)
    assert [s for s, fold in zip(task.samples, folds, strict=True) if fold < 0] == [alone]


def test_proposals_depend_on_the_trials_before_their_batch_only(tmp_path):
    def trials(name):
        return Trials(tmp_path / name, SPACE, BLIND, sampler="tpe", seed=0)

    first = trials("a")
    first.add({}, 1.0)
    batch = first.batch(1, 1 + BATCH)
    assert len({json.dumps(options) for options in batch}) > 1
    first.add(batch[0], 0.5)
    assert trials("a").batch(1, 1 + BATCH) == batch  # read again, and with one of them told
    other = trials("b")
    other.add({}, 1.0)
    assert other.batch(1, 2) == batch[:1]


def test_the_journal_is_json(done):
    _, folder = done
    lines = (folder / "optuna.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 1 + 6


def test_a_journal_that_is_none_is_told(materials, done, tmp_path):
    (tmp_path / "inputs.json").write_bytes((done[1] / "inputs.json").read_bytes())
    (tmp_path / "optuna.jsonl").write_text("no journal\nat all\n")
    with pytest.raises(RunError, match="is no journal of Optuna or is damaged"):
        swept(materials, tmp_path)


def test_spaces_are_read_as_people_write_them():
    texts = ["pull=0.3:30:log", "layers=1:4", "views=none,pooled,pooled+first", "class_input=mean,both"]
    space = parse_space(Recipe(), texts)
    assert space["pull"] == Range(0.3, 30.0, log=True)
    assert space["layers"] == Range(1, 4, whole=True)
    assert space["views"] == Choices((None, ("pooled",), ("pooled", "first")))
    assert [f"{name}={in_words(part)}" for name, part in space.items()] == texts


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pull", "write FIELD="),
        ("pull=3", "one value is no choice"),
        ("pul=1,2", "did you mean 'pull'"),
        ("pull=3:1", "LOW must be below HIGH"),
        ("pull=0:1:log", "above zero with log"),
        ("words=0:1:log", "a range is for numbers"),
        ("dropout=0.1:2", "dropout"),
        ("alpha=1,2", "matters only while samples are generated"),
    ],
)
def test_spaces_that_cannot_be_are_refused(text, told):
    with pytest.raises(RecipeError, match=told):
        parse_space(Recipe(), [text])


def test_views_that_the_embedder_lacks_are_told_at_once(materials, tmp_path):
    space = parse_space(BLIND, ["views=pooled,layers"])
    with pytest.raises(RecipeError, match="the embedder has no 'layers'"):
        swept(materials, tmp_path, space=space)


def test_the_usual_space_goes_by_the_task():
    usual = default_space(Recipe(), modality="text", views=("pooled", "first"), described=True)
    assert {"views", "words", "similarity", "folds", "pull"} <= set(usual)
    pictures = default_space(Recipe(), modality="image", views=("pooled",), described=False)
    assert not {"views", "words", "similarity", "class_input"} & set(pictures)
    assert all(getattr(Recipe(), name) in part for name, part in usual.items())
    with pytest.raises(RecipeError, match="name others with --search"):
        default_space(Recipe.preset("paper"), modality="text", views=("pooled",), described=True)
