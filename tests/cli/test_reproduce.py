from __future__ import annotations

import json

import numpy as np
import pytest

from adamab.providers.prices import usd
from adamab.providers.sync import run_sync
from adamab.study.datasets.base import load_data_set
from adamab.study.experiments.materials import known_items, wordings
from adamab.testing import HashEmbedder

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


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current directory with an experiment on the built-in set and vectors of its texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ADAMAB_DATA", raising=False)
    draw = load_data_set("demo", tmp_path).draw(0)
    toy = HashEmbedder(width=16)
    ids = list(dict.fromkeys([*known_items(draw, toy), *wordings(draw, ["zero-shot"])]))
    vectors = run_sync(toy.embed(ids)).views["pooled"]
    np.savez("vectors.npz", **{"ids": np.array(ids), "view/pooled": vectors, "model": np.array("toy")})
    (tmp_path / "look.yaml").write_text(FILE)
    return tmp_path


def test_the_list_names_every_experiment(adamab):
    shown = adamab("reproduce", "--list").stdout
    for name in (
        "text-table",
        "text-table-api",
        "images",
        "image-table-api",
        "samples",
        "alpha",
        "grid",
        "convergence",
        "quality",
        "quality-full",
        "ablation",
        "ablation-added",
        "one-picture",
        "policies",
        "policies-images",
    ):
        assert name in shown
    assert len(json.loads(adamab("reproduce", "--list", "--json").stdout)) == 15


def test_a_file_of_ones_own_from_estimate_to_tables(adamab, place):
    asked = adamab("reproduce", "look.yaml", "--dry-run")
    assert asked.exit_code == 0, asked.output
    assert "look: 4 cells, 0 done before" in asked.stdout
    assert "nothing leaves the machine" in asked.stdout
    assert not (place / "results").exists()
    result = adamab("reproduce", "look.yaml", "--jobs=0", "--output=out", "--work=work")
    assert result.exit_code == 0, result.output
    assert "calibrator (paper), ADAMAB" in (place / "out" / "look.md").read_text()
    assert {p.name for p in (place / "out").iterdir()} == {"look.md", "look.tex", "look.csv", "look.json"}
    assert "4/4" in result.stderr
    told = json.loads((place / "out" / "look.json").read_text())
    assert told["command"] == "adamab reproduce look.yaml"
    again = adamab("reproduce", "look.yaml", "--jobs=0", "--output=out", "--work=work", "--json")
    assert again.stderr == ""
    assert len(json.loads(again.stdout)["lines"]) == 4
    done = json.loads(adamab("reproduce", "look.yaml", "--work=work", "--dry-run", "--json").stdout)
    assert (done["cells"], done["done"], done["expected"]["usd"]) == (4, 4, 0)


def test_text_and_json_of_a_dry_run_have_the_same_totals(adamab, place):
    (place / "paid.yaml").write_text(FILE.replace("  - zero-shot", "  - chat:known\n  - chat:unknown"))
    command = ("reproduce", "paid.yaml", "--dry-run", "--price", "known=1/2")
    told = json.loads(adamab(*command, "--json").stdout)
    known, unknown = (party["expected"] for party in told["parties"])
    assert told["expected"]["usd"] == known["usd"] > 0
    assert told["expected"]["calls"] == known["calls"] + unknown["calls"]
    assert told["unpriced"] == ["openai:unknown"]
    shown = adamab(*command).stdout
    assert (
        f"in all expected: {told['expected']['calls']:,} calls, {usd(round(10**9 * known['usd']))}" in shown
    )
    assert "no price is known: openai:unknown; give" in shown
    nobody = ("reproduce", "paid.yaml", "--dry-run")
    assert json.loads(adamab(*nobody, "--json").stdout)["expected"]["usd"] is None
    assert "calls, unknown" in adamab(*nobody).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--list"),
        (("text-tabel",), "did you mean 'text-table'"),
        (("no.yaml",), "no.yaml"),
        (("text-table",), "--data or ADAMAB_DATA"),
        (("text-table", "--data", "nowhere", "--sets", "trec"), "nowhere"),
        (("text-table", "--data", ".", "--sets", "trek"), "did you mean 'trec'"),
        (("look.yaml", "--split", "official"), "split"),
        (("look.yaml", "--split", "paper"), "the paper does not use this set"),
        (("look.yaml", "--output", "look.yaml"), "is a file"),
        (("convergence", "--dry-run"), "takes no --dry-run"),
        (("convergence", "--price", "x=1"), "takes no --price"),
        (("convergence", "--work", "there"), "takes no --work"),
        (("text-table", "--sets", "demo", "--dry-run", "--budget", "junk"), "'junk' is not a number"),
    ],
)
def test_mistakes_are_told_in_one_line(refused, place, arguments, words):
    assert words in refused("reproduce", *arguments)
