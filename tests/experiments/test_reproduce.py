"""`python -m experiments` from a dry run to tables and pages, and its mistakes in one line."""

import json

import pytest

from adamab.testing import Fault, ProviderServer
from experiments import quality_plan
from experiments.__main__ import STUDIES
from experiments.datasets.text_sets import DemoSet
from experiments.definition import FOLDER

FILE = """
title: A look at the built-in set
sets: [demo]
generators: [pool]
amounts: [2]
embedder: "npz:vectors.npz"
seeds: 1
methods:
  - zero-shot
  - method: calibrator
    recipe: paper
    policies: [none, round-robin, adamab]
    options: {rounds: 3}
"""
QUALITY = ("quality", "--sets=demo", "--seeds=1", "--embedder=npz:vectors.npz")


@pytest.fixture
def place(tmp_path, monkeypatch, save_vectors):
    """The current directory with an experiment on the built-in set, of which one cell is in the quick study
    of quality, and vectors of its texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ADAMAB_DATA", raising=False)
    monkeypatch.setitem(quality_plan.QUICK_SHAPES, "demo", (("even", 1),))
    save_vectors(tmp_path / "vectors.npz", draws=[DemoSet().draw(0)])
    (tmp_path / "look.yaml").write_text(FILE)
    return tmp_path


def test_the_list_names_every_experiment(run):
    shown, names = run("--list").stdout, {e["name"] for e in json.loads(run("--list", "--json").stdout)}
    defined = {path.stem for path in FOLDER.glob("*.yaml")}
    assert names == defined | {"convergence", *quality_plan.NAMES, *STUDIES}
    assert all(name in shown for name in names)


def test_a_file_of_ones_own_from_estimate_to_tables(run, place):
    dry = run("look.yaml", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "look: 4 cells, 0 done before" in dry.stdout
    assert "nothing leaves the machine" in dry.stdout
    assert not (place / "results").exists()
    result = run("look.yaml", "--jobs=0", "--output=out", "--work=work")
    assert result.exit_code == 0, result.output
    assert "calibrator (paper), ADAMAB" in (place / "out" / "look.md").read_text()
    assert {p.name for p in (place / "out").iterdir()} == {"look.md", "look.json", "look.rows.parquet"}
    assert "4/4" in result.stderr
    assert (
        json.loads((place / "out" / "look.json").read_text())["command"] == "python -m experiments look.yaml"
    )
    again = run("look.yaml", "--jobs=0", "--output=out", "--work=work", "--json")
    assert again.stderr == ""
    assert len(json.loads(again.stdout)["lines"]) == 4
    done = json.loads(run("look.yaml", "--work=work", "--dry-run", "--json").stdout)
    assert (done["cells"], done["done"], done["expected"]["usd"]) == (4, 4, 0)


def test_a_model_that_is_gone_is_left_out_and_the_rest_is_written(run, refused, place):
    with ProviderServer(faults=[Fault("status", status=404, times=10_000)]) as gone:
        retired = f"chat:m?base_url={gone.url}/v1"
        quick = FILE.partition("  - method: calibrator")[0]
        (place / "paid.yaml").write_text(quick.replace("seeds: 1", "seeds: 2") + f'  - "{retired}"\n')
        result = run("paid.yaml", "--output=out", "--work=work")
        assert result.exit_code == 0, result.output
        page = (place / "out" / "paid.md").read_text()
        (line,) = [line for line in page.splitlines() if "Left out" in line]
        assert retired in line
        assert "(404 model_not_found)" in line
        assert len(json.loads((place / "out" / "paid.json").read_text())["lines"]) == 1
        assert 0 < gone.count() <= 8  # it was not asked again for the other seed
        (place / "alone.yaml").write_text(quick.replace("zero-shot", f'"{retired}"'))
        assert "404" in refused("alone.yaml", "--output=out", "--work=other", "--quiet")


def test_quality_from_dry_run_to_page(run, place):
    dry = run(*QUALITY, "--dry-run")
    assert dry.exit_code == 0, dry.output
    cells = 16  # a method each
    assert f"quality: {cells} cells, 0 done before\nto run: demo {cells}" in dry.stdout
    assert not (place / "results").exists()
    result = run(*QUALITY, "--jobs=0", "--output=out", "--work=work")
    assert result.exit_code == 0, result.output
    assert "of 10 bars hold" in result.stdout
    name = "quality-development-quick"
    files = {f"{name}.{ending}" for ending in ("md", "json", "rows.parquet", "svg")}
    assert {p.name for p in (place / "out").iterdir()} == files
    written = json.loads((place / "out" / f"{name}.json").read_text())
    assert (written["part"], len(written["bars"])) == ("development", 10)
    assert written["command"] == f"python -m experiments {' '.join(QUALITY)}".replace("=", " ")
    again = run(*QUALITY, "--jobs=0", "--output=out", "--work=work", "--json")
    assert len(json.loads(again.stdout)["bars"]) == 10
    done = json.loads(run(*QUALITY, "--work=work", "--dry-run", "--json").stdout)
    assert (done["cells"], done["to_run"]) == (cells, {})
    more = json.loads(run("quality-dev", *QUALITY[1:], "--work=work", "--dry-run", "--json").stdout)
    assert more["cells"] - more["to_run"]["demo"] == cells  # rows of the same part are shared
    some = run("quality-dev", *QUALITY[1:], "--work=work", "--only=knn,default", "--dry-run", "--json")
    assert json.loads(some.stdout)["cells"] == 18  # of nine cells


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--list"),
        (("text-tabel",), "did you mean 'text-table'"),
        (("no.yaml",), "no.yaml"),
        (("text-table",), "--data or ADAMAB_DATA"),
        (("text-table", "--data", "nowhere", "--sets", "trec"), "nowhere"),
        (("text-table", "--data", ".", "--sets", "trek"), "did you mean 'trec'"),
        (("look.yaml", "--split", "paper"), "the paper does not use this set"),
        (("look.yaml", "--output", "look.yaml"), "is a file"),
        (("convergence", "--dry-run"), "takes no --dry-run"),
        (("convergence", "--part", "development"), "takes no --part"),
        (("text-table", "--sets", "demo", "--dry-run", "--budget", "junk"), "'junk' is not a number"),
        (("quality", "--sets", "pets-images"), "has no set"),
        (("quality", "--part", "dev"), "development"),
        (("quality-dev", "--only", "joint"), "has no method"),
        (("quality-dev", "--sets", "clinc150"), "has no set"),
        (("text-table", "--only", "knn"), "takes no --only"),
        (("quality-full", "--split", "paper"), "takes no --split"),
        (("quality", "--sets", "demo", "--embedder", "voyage:voyage-3", "--dry-run"), "asks an API"),
        (("quality-full",), "--data or ADAMAB_DATA"),
    ],
)
def test_mistakes_are_one_line(refused, place, arguments, words):
    assert words in refused(*arguments)
