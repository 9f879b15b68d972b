"""`adamab sweep` on the toy task of three classes."""

import json
import sys

import pytest
import yaml

SWEEP = (
    "sweep", "task.yaml", "--embedder=npz:vectors.npz", "--trials=3", "--folds=2", "--jobs=0", "-o", "out",
    "--set", "folds=2", "--set", "checkpoints=0,6",
    "--search", "pull=0.3:30:log", "--search", "words=true,false",
)  # fmt: skip


def test_a_sweep_tells_what_it_found_and_how_to_use_it(adamab, folder):
    result = adamab(*SWEEP)
    assert result.exit_code == 0, result.output
    assert "the recipe as it is" in result.stdout
    fit = "adamab fit task.yaml --run run --embedder npz:vectors.npz --set folds=2 --set checkpoints=0,6"
    assert fit in result.stdout
    assert "Written to out: sweep.json, best.yaml" in result.stdout
    assert result.stderr == ""
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "best.yaml", "inputs.json", "optuna.jsonl", "rows.jsonl", "sweep.json", "writer.lock"
    ]  # fmt: skip
    again = adamab(*SWEEP, "--json")
    assert again.exit_code == 0, again.output
    read = json.loads(again.stdout)
    assert (read["samples"], read["held_out"], len(read["trials"])) == (9, 9, 3)
    kept = json.loads((folder / "out" / "sweep.json").read_text())
    assert kept == {name: value for name, value in read.items() if name != "files"}
    best = yaml.safe_load((folder / "out" / "best.yaml").read_text())
    assert best == read["trials"][read["best"]]["options"]


def test_the_options_it_prints_are_those_that_fit_takes(adamab, folder):
    from adamab.cli.recipe_options import recipe_of
    from adamab.study.sweep_report import _settings

    options = {"views": ("pooled", "first"), "max_width": None, "pull": 0.3, "words": False, "layers": 2}
    recipe = recipe_of("default", _settings(options)[1::2])
    assert {name: getattr(recipe, name) for name in options} == options


def test_a_dry_run_leaves_nothing(adamab, folder):
    result = adamab(*SWEEP, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "3 trials: at most 6 fits, and 20 to examine the best" in result.stdout
    assert "--search pull=0.3:30:log\n--search words=true,false" in result.stdout
    assert not (folder / "out").exists()
    read = json.loads(adamab(*SWEEP, "--dry-run", "--json").stdout)
    assert read["fits"] == {"search": 6, "examination": 20}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--engine=spark"], "--engine 'spark' is unknown; choose local or ray"),
        (["--address=10.0.0.1:6379"], "--address is that of a Ray cluster; add --engine ray"),
        (["--engine=ray"], "--jobs 0 is this process"),
        (["--sampler=grid"], "--sampler 'grid' is unknown"),
        (["--search=alpha=1,2"], "matters only while samples are generated"),
        (["--budget=5 samples"], "a sweep generates nothing"),
    ],
)
def test_what_cannot_be_is_refused(refused, folder, options, told):
    assert told in refused(*SWEEP, *options)
    assert not (folder / "out").exists()


def test_one_example_a_class_is_told(refused, folder):
    task = json.loads((folder / "task.yaml").read_text())
    for c in task["classes"]:
        c["examples"] = c["examples"][:1]
    (folder / "task.yaml").write_text(json.dumps(task))
    assert "no class has two examples, so none can be held out" in refused(*SWEEP)


def test_a_missing_optuna_is_told_with_its_extra(refused, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert (
        "Optuna, which proposes what a sweep tries, is not installed; run: pip install 'adamab[sweep]'"
        in (refused(*SWEEP))
    )
