"""Sweeps on a task whose words give its classes away, with vectors that hardly do."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from adamab.display import Bar
from adamab.engines import HERE, Engine
from adamab.errors import RecipeError, RunError, StoppedError, TaskError
from adamab.providers.embedders.stored import MemoryEmbedder
from adamab.sweep import (
    Choices,
    Range,
    Search,
    Sweep,
    default_space,
    embed_all,
    folds_of,
    in_words,
    parse_space,
)
from adamab.task import ClassSpec, Sample, Task
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder, PixelEmbedder

WORDS = {"fruit": "apple pear plum", "tool": "hammer saw drill", "river": "danube rhine nile"}
BLIND = Recipe(words=False)
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


def swept(search, folder, *, engine=HERE, bar=None, **changes):
    outcome = Sweep(replace(search, **changes), folder).run(engine=engine, bar=bar)
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


def test_a_gain_that_stands_is_recommended(done, search):
    outcome, folder = done
    assert outcome.trials[0].options == {}
    assert len(outcome.trials) == 6
    assert outcome.best.options["words"] is True
    assert outcome.recommended
    assert outcome.examined.loss.low > 0
    assert "words=true" in outcome.command(FIT)
    assert outcome.lines()[-1] == "The gain stands: use it."
    assert "words: true" in (folder / "best.yaml").read_text()
    assert "the recipe as it is" in [row[-1] for row in outcome.table()]
    losses, recipes = [], {}
    for (options, seed, _), (_, of_fold) in fits(folder).items():
        recipes.setdefault(seed, set()).add(options)
        losses += of_fold if (options, seed) == ("{}", 0) else []
    assert len(losses) == outcome.n_held_out == len(search.task.samples)
    assert outcome.trials[0].loss == pytest.approx(np.mean(losses), abs=1e-6)
    assert sorted(recipes) == [0, 1, 2, 3, 4, 5]
    assert all(len(recipes[seed]) == 2 for seed in range(1, 6))  # the winner and trial 0, on new folds


def test_no_difference_is_not_recommended(search, tmp_path):
    # Dropout does nothing where nothing is trained, so every trial is the same.
    space = parse_space(BLIND, ["dropout=0.1:0.9"])
    outcome = swept(search, tmp_path, space=space, trials=3)
    assert not outcome.recommended
    assert outcome.best.number == 0
    assert outcome.lines() == ["No trial has a lower loss than trial 0: keep the recipe as it is."]
    assert outcome.command(FIT) == "adamab fit task.yaml"


class StopAfterTwoFits(Bar):
    fits = 0

    def step(self, count=1):
        self.fits += count
        if self.fits == 2:
            raise KeyboardInterrupt


def test_a_sweep_that_is_stopped_says_what_is_kept(search, tmp_path):
    with pytest.raises(StoppedError, match=r"2 fits are done and kept in .*optuna\.jsonl"):
        swept(search, tmp_path, bar=StopAfterTwoFits())
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
    ("changes", "message"),
    [
        ({"seed": 1}, r"--seed \('0', now '1'\)"),
        ({"sampler": "random"}, r"--sampler \('\w+', now 'random'\)"),
        ({"space": parse_space(BLIND, ["words=true,false"])}, "--search: .*"),
        ({"task": a_task(examples=5)}, "task"),
        ({"recipe": BLIND.with_options(weight_ridge=2)}, r"recipe: weight_ridge \('1.0', now '2.0'\)"),
    ],
)
def test_another_search_in_the_same_directory_is_refused(done, search, changes, message):
    with pytest.raises(RunError, match=f"holds a sweep with another {message}; .* another --output"):
        swept(search, done[1], **changes)


def test_one_example_per_class_cannot_be_held_out(tmp_path):
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
    ("text", "message"),
    [
        ("weight_ridge", "write FIELD="),
        ("weight_ridge=3", "one value is no choice"),
        ("weight_ridg=1,2", "did you mean 'weight_ridge'"),
        ("weight_ridge=3:1", "LOW must be below HIGH"),
        ("weight_decay=0:1:log", "above zero with log"),
        ("words=0:1:log", "a range is for numbers"),
        ("dropout=0.1:2", "dropout"),
        ("alpha=1,2", "matters only while samples are generated"),
    ],
)
def test_spaces_that_cannot_be_are_refused(text, message):
    with pytest.raises(RecipeError, match=message):
        parse_space(Recipe(), [text])


def test_views_that_the_embedder_lacks_are_told_at_once(search, tmp_path):
    space = parse_space(BLIND, ["views=pooled,layers"])
    with pytest.raises(RecipeError, match="the embedder has no 'layers'"):
        swept(search, tmp_path, space=space)


@pytest.mark.parametrize(("modality", "usual"), [("text", True), ("image", False)])
def test_the_usual_space_goes_by_the_task(modality, usual):
    embedder = HashEmbedder(width=4) if usual else PixelEmbedder()
    space = default_space(setup_of(embedder, modality, Recipe()))
    assert ({"words", "description_weight"} <= set(space)) == usual
    assert {"example_weight", "weight_ridge"} <= set(space)
    assert all(getattr(Recipe(), name) in part for name, part in space.items())
    with pytest.raises(RecipeError, match="name others with --search"):
        default_space(setup_of(embedder, modality, Recipe.preset("paper")))


def setup_of(embedder, modality, recipe):
    task = SimpleNamespace(modality=modality)
    return SimpleNamespace(recipe=recipe, task=task, embedder=embedder)


def test_the_same_text_under_another_id_is_in_the_same_fold():
    samples = [
        Sample(text, name, id=f"{name}{i}{copy}")
        for name in "ab"
        for i, text in enumerate(f"{name} {n}" for n in range(6))
        for copy in range(2)
    ]
    folds = folds_of(Task((ClassSpec("a"), ClassSpec("b")), tuple(samples)), 3, seed=0)
    np.testing.assert_array_equal(folds[::2], folds[1::2])
    assert np.bincount(folds[::2]).tolist() == [4, 4, 4]
