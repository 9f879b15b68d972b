"""`adamab sweep` on the toy task of three classes."""

import json
import sys

import pytest
import yaml

from adamab.testing import ProviderServer

SWEEP = (
    "sweep", "task.yaml", "--embedder=npz:vectors.npz", "--trials=3", "--folds=2", "--jobs=0", "-o", "out",
    "--set", "described_views=pooled,words",
    "--search", "weight_ridge=0.3:30:log", "--search", "words=true,false",
)  # fmt: skip


def test_a_sweep_tells_what_it_found_and_how_to_use_it(adamab, folder):
    result = adamab(*SWEEP)
    assert result.exit_code == 0, result.output
    assert "the recipe as it is" in result.stdout
    fit = "adamab fit task.yaml --run run --embedder npz:vectors.npz --set described_views=pooled,words"
    assert fit in result.stdout
    assert "Written to out: sweep.json, best.yaml" in result.stdout
    assert result.stderr == ""
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "best.yaml", "optuna.jsonl", "sweep.json", "writer.lock"
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
    from adamab.cli import options as commands
    from adamab.sweep import settings_of

    options = {
        "views": ("pooled", "first"),
        "near_duplicate": None,
        "weight_ridge": 0.3,
        "words": False,
        "layers": 2,
    }
    settings = settings_of(options)[1::2]
    fit = commands.settings_of({"embedder": "local", "recipe": "default", "settings": settings})
    recipe = fit.recipe
    assert {name: getattr(recipe, name) for name in options} == options


def test_a_dry_run_leaves_nothing(adamab, folder):
    result = adamab(*SWEEP, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "3 trials: at most 6 fits, and 20 to examine the best" in result.stdout
    assert "--search weight_ridge=0.3:30:log\n--search words=true,false" in result.stdout
    assert not (folder / "out").exists()
    read = json.loads(adamab(*SWEEP, "--dry-run", "--json").stdout)
    assert read["fits"] == {"search": 6, "examination": 20}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine=spark"], "--engine 'spark' is unknown; choose local or ray"),
        (["--address=10.0.0.1:6379"], "--address is that of a Ray cluster; add --engine ray"),
        (["--engine=ray"], "--jobs 0 is this process"),
        (["--sampler=grid"], "--sampler 'grid' is unknown"),
        (["--search=alpha=1,2"], "matters only while samples are generated"),
        (["--budget=5 samples"], "a sweep generates nothing"),
    ],
)
def test_what_cannot_be_is_refused(refused, folder, options, message):
    assert message in refused(*SWEEP, *options)
    assert not (folder / "out").exists()


@pytest.fixture
def paid():
    """A server, and the sweep with an embedder behind it: 9 samples and 3 wordings, four a call."""
    with ProviderServer() as server:
        spec = f"openai:m?base_url={server.url}/v1&first_wait=0.01&batch=4"
        yield server, [f"--embedder={spec}" if part.startswith("--embedder") else part for part in SWEEP]


def test_an_api_is_asked_under_one_budget_and_only_before_the_fits(
    adamab, refused, folder, paid, monkeypatch
):
    server, command = paid
    for _ in range(2):  # the second start has nothing left
        assert "budget of 2 calls is spent" in refused(*command, "--budget=2 calls")
        assert server.count("/embeddings") == 2

    def in_this_process(*_):
        raise AssertionError("--jobs 1 is a process of its own")

    monkeypatch.setattr("adamab.engines._one_by_one", in_this_process)
    result = adamab(*command, "--budget=4 calls", "--jobs=1")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert server.count("/embeddings") == 4
    assert server.repeated("/embeddings") == 0


def test_nothing_is_paid_in_the_directory_of_another_sweep(adamab, refused, folder, paid):
    assert adamab(*SWEEP).exit_code == 0
    server, command = paid
    assert "holds a sweep with another --embedder" in refused(*command, "--budget=9 calls")
    assert server.count("/embeddings") == 0
    assert not (folder / "out" / "spending.db").exists()


def test_fits_that_ask_an_api_themselves_keep_to_the_budget(adamab, folder, paid):
    server, command = paid
    task = json.loads((folder / "task.yaml").read_text())
    (folder / "task.yaml").write_text(json.dumps({**task, "prompts": {"with_examples": True}}))
    result = adamab(*command, "--jobs=2", "--budget=6 calls")
    assert result.exit_code == 2
    assert "one process does it all" in result.stderr
    assert "budget of 6 calls is spent" in result.stderr
    assert server.count("/embeddings") == 6


def test_a_missing_optuna_is_told_with_its_extra(refused, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'adamab[sweep]'" in refused(*SWEEP)


def test_a_folder_of_other_files_is_not_taken(refused, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "data.csv").write_text("text\nhello\n")
    assert "mine: holds other files" in refused("sweep", "task.yaml", "-o", "mine", "--trials", "2")
    assert [path.name for path in (folder / "mine").iterdir()] == ["data.csv"]
