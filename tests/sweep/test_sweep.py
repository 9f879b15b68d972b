"""Sweeps on a task whose words give its classes away, with vectors that hardly do."""

import json
from dataclasses import replace

import numpy as np
import pytest

from adamab.engines import HERE, Engine
from adamab.errors import RecipeError, RunError, StoppedError, TaskError
from adamab.providers.embedders.stored import MemoryEmbedder
from adamab.sweep import Choices, Range, Search, Sweep, default_space, embed_all, in_words, parse_space
from adamab.task import ClassSpec, Sample, Task
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

WORDS = {"fruit": "apple pear plum", "tool": "hammer saw drill", "river": "danube rhine nile"}
BLIND = Recipe(words=False, similarity=False, folds=2, checkpoints=(0, 6), shrinkages=(20, 100))
SPACE = parse_space(BLIND, ["words=true,false", "weight_ridge=0.3:30:log"])
FIT = ["adamab", "fit", "task.yaml"]


def a_task(examples=6):
    rng = np.random.default_rng(0)
    noise = [f"w{i}" for i in range(40)]
    samples = [
        Sample(" ".join([*rng.choice(words.split(), 2), *rng.choice(noise, 6)]), name)
        for name, words in WORDS.items()
        for _ in range(examples)
    ]
    return Task(tuple(ClassSpec(name, f"about a {name}") for name in WORDS), tuple(samples))


def search_for(task, recipe=BLIND):
    embedder = HashEmbedder(width=4)
    search = Search(task, MemoryEmbedder(embedder), recipe, SPACE, n_folds=2, trials=6)
    embed_all(search, embedder)
    return search


@pytest.fixture(scope="module")
def search():
    return search_for(a_task())


def swept(search, folder, *, engine=HERE, on_fit=lambda *_: None, **changes):
    folder.mkdir(exist_ok=True)
    outcome = Sweep(replace(search, **changes), folder).run(engine=engine, on_fit=on_fit)
    outcome.write(folder, FIT)
    return outcome


def fits(folder):
    """(options, seed, fold) -> hits and losses, from the journal."""
    lines = [json.loads(line) for line in (folder / "optuna.jsonl").read_text().splitlines()]
    kept = [item for line in lines for item in line.get("user_attr", {}).items() if item[0] != "inputs"]
    assert len(dict(kept)) == len(kept)  # nothing is worked out twice
    return {tuple(json.loads(name)): scores for name, scores in kept}


@pytest.fixture(scope="module")
def done(search, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return swept(search, folder), folder


def test_a_gain_that_stands_is_recommended(done):
    outcome, folder = done
    assert outcome.trials[0].options == {}
    assert len(outcome.trials) == 6
    assert outcome.best.options["words"] is True
    assert outcome.recommended
    assert outcome.examined.loss.low > 0
    assert "words=true" in outcome.command(FIT)
    assert outcome.lines()[-1] == "The gain stands: use it."
    assert "words: true" in (folder / "best.yaml").read_text()
    assert outcome.table()[-1][-1] == "the recipe as it is"


def test_scores_are_means_over_all_held_out_samples(done, search):
    outcome, folder = done
    of_default = [
        scores for (options, seed, _), scores in fits(folder).items() if (options, seed) == ("{}", 0)
    ]
    losses = [loss for _, of_fold in of_default for loss in of_fold]
    assert len(losses) == outcome.n_held_out == len(search.task.samples)
    assert outcome.trials[0].loss == pytest.approx(np.mean(losses), abs=1e-6)


def test_the_examination_uses_folds_that_the_search_did_not(done):
    by_seed = {}
    for options, seed, _ in fits(done[1]):
        by_seed.setdefault(seed, set()).add(options)
    assert sorted(by_seed) == [0, 1, 2, 3, 4, 5]
    assert all(len(by_seed[seed]) == 2 for seed in range(1, 6))  # the winner and trial 0


def test_no_difference_is_not_recommended(search, tmp_path):
    # Dropout does nothing where no step is taken, so every trial is the same.
    space = parse_space(BLIND, ["dropout=0.1:0.9"])
    outcome = swept(search, tmp_path, recipe=BLIND.with_options(checkpoints=(0,)), space=space, trials=3)
    assert not outcome.recommended
    assert outcome.best.number == 0
    assert outcome.lines() == ["No trial has a lower loss than trial 0: keep the recipe as it is."]
    assert outcome.command(FIT) == "adamab fit task.yaml"


def test_a_sweep_that_is_stopped_says_what_is_kept(search, tmp_path):
    def stop(finished, total, what):
        if finished == 2:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError, match=r"2 fits are done and kept in .*optuna\.jsonl"):
        swept(search, tmp_path, on_fit=stop)
    assert len(fits(tmp_path)) == 2


@pytest.mark.parametrize("written", [1, 6, 12, 25])  # lines, of which the last is of the examination
def test_a_killed_sweep_ends_as_one_never_stopped(done, search, tmp_path, written):
    lines = (done[1] / "optuna.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) > written
    (tmp_path / "optuna.jsonl").write_text("".join(lines[:written]) + lines[written][:9])
    swept(search, tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == (done[1] / "sweep.json").read_bytes()
    assert fits(tmp_path) == fits(done[1])


def test_more_trials_later_are_those_of_a_longer_sweep(done, search, tmp_path):
    swept(search, tmp_path, trials=3)
    swept(search, tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == (done[1] / "sweep.json").read_bytes()


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_ray_finds_the_same(done, search, tmp_path, ray_address):
    swept(search, tmp_path, engine=Engine("ray", address=ray_address))
    assert (tmp_path / "sweep.json").read_bytes() == (done[1] / "sweep.json").read_bytes()
    assert fits(tmp_path) == fits(done[1])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, "with another --seed"),
        ({"sampler": "random"}, "with another --sampler"),
        ({"space": parse_space(BLIND, ["words=true,false"])}, "with another --search"),
    ],
)
def test_another_search_in_the_same_directory_is_refused(done, search, changes, told):
    _, folder = done
    with pytest.raises(RunError, match=f"holds a sweep {told}; .* another --output"):
        swept(search, folder, **changes)


def test_another_task_in_the_same_directory_is_refused(done):
    _, folder = done
    with pytest.raises(RunError, match="holds a sweep of another task"):
        swept(search_for(a_task(examples=5)), folder)
    with pytest.raises(RunError, match="with another --recipe and --set"):
        swept(search_for(a_task(), BLIND.with_options(weight_ridge=1)), folder)


def test_one_example_a_class_cannot_be_held_out(tmp_path):
    with pytest.raises(TaskError, match="no class has two examples"):
        swept(search_for(a_task(examples=1)), tmp_path)


def test_the_only_example_of_a_class_is_never_held_out():
    task = a_task()
    alone = next(sample for sample in task.samples if sample.class_name == "tool")
    kept = tuple(s for s in task.samples if s.class_name != "tool" or s is alone)
    task = replace(task, samples=kept)
    folds = search_for(task).folds(0)
    assert [s for s, fold in zip(task.samples, folds, strict=True) if fold < 0] == [alone]


def test_a_journal_that_is_none_is_told(search, tmp_path):
    (tmp_path / "optuna.jsonl").write_text("no journal\nat all\n")
    with pytest.raises(RunError, match="is no journal of Optuna or is damaged"):
        swept(search, tmp_path)


def test_spaces_are_read_as_people_write_them():
    texts = [
        "weight_ridge=0.3:30:log",
        "layers=1:4",
        "views=none,pooled,pooled+first",
        "class_input=mean,both",
    ]
    space = parse_space(Recipe(), texts)
    assert space["weight_ridge"] == Range(0.3, 30.0, log=True)
    assert space["layers"] == Range(1, 4, whole=True)
    assert space["views"] == Choices((None, ("pooled",), ("pooled", "first")))
    assert [f"{name}={in_words(part)}" for name, part in space.items()] == texts


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("weight_ridge", "write FIELD="),
        ("weight_ridge=3", "one value is no choice"),
        ("weight_ridg=1,2", "did you mean 'weight_ridge'"),
        ("weight_ridge=3:1", "LOW must be below HIGH"),
        ("weight_ridge=0:1:log", "above zero with log"),
        ("words=0:1:log", "a range is for numbers"),
        ("dropout=0.1:2", "dropout"),
        ("alpha=1,2", "matters only while samples are generated"),
    ],
)
def test_spaces_that_cannot_be_are_refused(text, told):
    with pytest.raises(RecipeError, match=told):
        parse_space(Recipe(), [text])


def test_views_that_the_embedder_lacks_are_told_at_once(search, tmp_path):
    space = parse_space(BLIND, ["views=pooled,layers"])
    with pytest.raises(RecipeError, match="the embedder has no 'layers'"):
        swept(search, tmp_path, space=space)


def test_the_usual_space_goes_by_the_task():
    usual = default_space(Recipe(), modality="text", views=("pooled", "first"), described=True)
    assert {"views", "words", "similarity", "folds", "weight_ridge"} <= set(usual)
    sample_images = default_space(Recipe(), modality="image", views=("pooled",), described=False)
    assert not {"views", "words", "similarity", "class_input"} & set(sample_images)
    assert all(getattr(Recipe(), name) in part for name, part in usual.items())
    with pytest.raises(RecipeError, match="name others with --search"):
        default_space(Recipe.preset("paper"), modality="text", views=("pooled",), described=True)
