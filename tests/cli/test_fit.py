import json

import pytest

from adamab.cli.options import settings_of
from adamab.errors import RecipeError
from adamab.model import load
from adamab.providers.metering import Price
from adamab.run.directory import RESULTS
from adamab.run.run_log import prices_of_run
from adamab.testing import HashEmbedder, ProviderServer
from tests.cli.conftest import NEW, TEXTS

NPZ = ("--embedder", "npz:vectors.npz")


def test_summary_and_files(adamab, folder):
    result = adamab("fit", "task.yaml", "--run", "run", *NPZ, "--no-cache")
    assert result.exit_code == 0, result.output
    assert "toy: 3 classes, 9 given samples\n" in result.output
    assert "out of fold, measured on 9 given samples)" in result.output
    assert "adamab predict run" in result.output
    progress = ["journal.sqlite", "task.json", "writer.lock"]
    assert sorted(path.name for path in (folder / "run").iterdir()) == sorted([*RESULTS, *progress])
    assert load("run").embedder_spec == "npz:vectors.npz"


def test_generator_budget_and_closed_classes(adamab, folder):
    result = adamab(
        "fit", "task.yaml", "--run", "run", *NPZ, "--no-cache", "--generator", "replay:new.jsonl",
        "--budget", "8 samples", "--policy", "round-robin", "--set", "batch=3", "--all-scores", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["synthetic"] == sum(summary["synthetic_by_class"].values()) == 8
    assert summary["budget"] == "8 samples"
    assert len((folder / "run" / "history.jsonl").read_text().splitlines()) == summary["rounds"] == 3
    rows = [json.loads(line) for line in (folder / "run" / "synthetic.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    assert set(rows[0]) == {"label", "text"}
    again = adamab(
        "fit", "task.yaml", "--run", "run", *NPZ, "--no-cache", "--generator", "pool:new.jsonl", "--overwrite"
    )
    assert again.exit_code == 0, again.output
    assert "9 synthetic ones" in again.output
    assert "(pool exhausted)" in again.output


def test_paper_recipe_has_no_estimate(adamab, folder):
    options = ("--recipe", "paper", "--set", "rounds=3", "--set", "augmentation_rounds=1", "--no-cache")
    result = adamab("fit", "task.yaml", "--run", "run", *NPZ, *options)
    assert result.exit_code == 0, result.output
    assert "expected accuracy: unknown" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "5 samples"), "name what writes them"),
        (("--budget", "nonsense"), "'nonsense' is not a number with a unit"),
        (("--generator", "openai:m", "--price", "m=cheap"), "the price 'm=cheap' does not read"),
        (("--holdout", "none.csv"), "no such file"),
        (("--reject", "none.csv"), "no such file"),
        (("--generator", "oracle"), "unknown generator"),
        (("--generator", "replay:none.jsonl"), "no such file"),
        (("--policy", "best"), "unknown policy"),
        (("--recipe", "mine"), "unknown recipe"),
        (("--set", "dropout"), "KEY=VALUE"),
        (("--set", "dropuot=0.3"), "did you mean 'dropout'?"),
        (("--set", "dropout=much"), "dropout"),
        (("--embedder", "magic"), "unknown embedder"),
        (("--embedder", "npz:none.npz"), "no such file"),
        (("--embedder", "npz:vectors.npz", "--long-texts", "cut"), "long_texts"),
    ],
)
def test_bad_options(refused, folder, options, message):
    assert message in refused("fit", "task.yaml", "--run", "run", *NPZ, "--no-cache", *options)
    assert not (folder / "run").exists()


def test_missing_task_and_taken_directories(refused, folder):
    assert "no such file" in refused("fit", "none.yaml", "--run", "run")
    (folder / "run").mkdir()
    (folder / "run" / "thesis.tex").write_text("all of it")
    for extra in ((), ("--overwrite",)):
        assert "something else than a run" in refused("fit", "task.yaml", "--run", "run", *extra)
    assert "is a file" in refused("fit", "task.yaml", "--run", "task.yaml")


def test_recipe_options():
    options = {"embedder": "local", "recipe": "default"}
    settings = ["views=pooled, layers", "words=false", "batch_size=none", "alpha=3"]
    recipe = settings_of({**options, "settings": settings}).recipe
    assert recipe.views == ("pooled", "layers")
    assert (recipe.words, recipe.batch_size, recipe.alpha) == (False, None, 3.0)
    with pytest.raises(RecipeError, match="checkpoints"):
        settings_of({**options, "settings": ["checkpoints=a,b"]})


def test_long_texts_are_told_by_every_command(adamab, folder, monkeypatch):
    toy = HashEmbedder(width=16, max_words=3)
    monkeypatch.setattr("adamab.providers.registry.resolve_embedder", lambda spec, **options: toy)
    fitted = adamab(
        "fit", "task.yaml", "--run", "run", "--embedder", "toy", "--set", "words=false", "--no-cache"
    )
    assert fitted.stderr.startswith("warning: ")
    assert "texts are longer than the embedder takes" in fitted.stderr
    for command in ("evaluate", "predict"):
        message = adamab(command, "run", "new.jsonl", "--no-cache").stderr
        assert message.startswith("warning: 2 texts are longer"), message


def test_a_run_goes_on_without_its_task_file(adamab, refused, folder):
    assert "there is no run to go on with; name TASK" in refused("fit", "--run", "run")
    started = adamab("fit", "task.yaml", "--run", "run", *NPZ, "--no-cache", "--seed", "7")
    assert started.exit_code == 0, started.output
    (folder / "task.yaml").unlink()
    again = adamab("fit", "--run", "run", "--no-cache")
    assert again.exit_code == 0, again.output
    assert "the run is complete and nothing has changed" in again.stderr
    assert adamab("fit", "--run", "run", *NPZ, "--no-cache").exit_code == 0, "its files may be elsewhere now"
    for option in (("--overwrite",), ("--text-column", "text")):
        assert f"leave out {option[0]}, or name TASK" in refused("fit", "--run", "run", *option)


def test_options_that_are_not_given_stay_what_they_were(adamab, refused, folder):
    (folder / "r.jsonl").write_text(json.dumps({"label": "praise", "text": NEW["praise"][0]}) + "\n")
    begin = ("--generator", "replay:r.jsonl", "--budget", "1 sample", "--policy", "random", "--seed", "7")
    more = (
        "--set",
        "dropout=0.3",
        "--set",
        "augmentation_rounds=9",
        "--price",
        "m=1/2",
        "--no-cache",
        "--json",
    )
    assert adamab("fit", "task.yaml", "--run", "run", *NPZ, *begin, *more).exit_code == 0
    text = (folder / "task.yaml").read_text()
    (folder / "task.yaml").write_text(text.replace(TEXTS["refund"][2], NEW["refund"][0]))
    again = adamab("fit", "task.yaml", "--run", "run", "--no-cache", "--json")
    assert again.exit_code == 0, again.output
    summary = json.loads(again.stdout)
    assert summary["changes"] == ["1 given sample of class 'refund' changed"]
    assert (summary["synthetic"], summary["policy"], summary["seed"]) == (1, "random", 7)
    assert prices_of_run(folder / "run") == {"m": Price.parse("m=1/2")[1]}
    assert "another recipe: dropout ('0.3', now '0.2')" in refused(
        "fit", "--run", "run", "--set", "dropout=0.2"
    )
    for changed in (("--generator", "none"), ("--seed", "1"), ("--recipe", "default")):
        assert "started with another" in refused("fit", "task.yaml", "--run", "run", *changed)


def test_a_start_that_got_nowhere_leaves_no_options(adamab, refused, folder):
    fit = ("fit", "task.yaml", "--run", "run", *NPZ, "--no-cache")
    (folder / "run").mkdir()
    with ProviderServer() as server:
        gone = f"openai:m?base_url={server.url}/v1"
    assert "running" in refused(*fit, "--generator", gone, "--budget", "6 samples, 9 calls")
    assert (folder / "run" / "journal.sqlite").exists()
    summary = json.loads(adamab(*fit, "--json").stdout)
    assert (summary["generator"], summary["budget"]) == ("none", "9 calls")


def test_a_dry_run_without_the_task_file_plans_what_the_run_would_do(adamab, folder):
    assert adamab("fit", "task.yaml", "--run", "run", *NPZ, "--no-cache").exit_code == 0
    plan = adamab("fit", "--run", "run", "--dry-run", "--no-cache")
    assert plan.exit_code == 0, plan.output
    assert "3 classes, 9 given samples" in plan.output
