from __future__ import annotations

import json

import numpy as np
import pytest

from adamab.providers.sync import run_sync
from adamab.study import quality_plan
from adamab.study.datasets.base import load_data_set
from adamab.study.experiments.materials import known_items, wordings
from adamab.testing import HashEmbedder

ASKED = ("reproduce", "quality", "--sets=demo", "--seeds=1", "--embedder=npz:vectors.npz")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current directory with vectors of the built-in set, of which one cell is in the subset."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ADAMAB_DATA", raising=False)
    monkeypatch.setitem(quality_plan._QUICK, "demo", {1: (0,)})
    draw, toy = load_data_set("demo", tmp_path).draw(0), HashEmbedder(width=16)
    ids = list(dict.fromkeys([*known_items(draw, toy), *wordings(draw, ["zero-shot"])]))
    vectors = run_sync(toy.embed(ids)).views["pooled"]
    np.savez("vectors.npz", **{"ids": np.array(ids), "view/pooled": vectors, "model": np.array("toy")})
    return tmp_path


def test_quality_from_dry_run_to_page(adamab, place):
    asked = adamab(*ASKED, "--dry-run")
    assert asked.exit_code == 0, asked.output
    assert "quality: 8 cells, 0 done before\nto run: demo 8" in asked.stdout
    assert not (place / "results").exists()
    result = adamab(*ASKED, "--jobs=0", "--output=out", "--work=work")
    assert result.exit_code == 0, result.output
    assert "of 9 bars hold" in result.stdout
    name = "quality-development-quick"
    assert {p.name for p in (place / "out").iterdir()} == {
        f"{name}.{e}" for e in ("md", "json", "png", "svg")
    }
    written = json.loads((place / "out" / f"{name}.json").read_text())
    assert (written["part"], len(written["rows"])) == ("development", 8)
    assert written["command"] == "adamab reproduce quality --sets demo --seeds 1 --embedder npz:vectors.npz"
    again = adamab(*ASKED, "--jobs=0", "--output=out", "--work=work", "--json")
    assert len(json.loads(again.stdout)["bars"]) == 9
    done = json.loads(adamab(*ASKED, "--work=work", "--dry-run", "--json").stdout)
    assert (done["cells"], done["to_run"]) == (8, {})
    on_test = json.loads(adamab(*ASKED, "--work=work", "--part=test", "--dry-run", "--json").stdout)
    assert on_test["to_run"] == {"demo": 8}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("quality", "--sets", "pets-pictures"), "has no set"),
        (("quality", "--part", "dev"), "development"),
        (("quality-full", "--split", "paper"), "takes no --split"),
        (("quality", "--sets", "demo", "--embedder", "voyage:voyage-3"), "asks an API"),
        (("quality", "--sets", "demo", "--embedder", "voyage:voyage-3", "--dry-run"), "asks an API"),
        (("quality-full",), "--data or ADAMAB_DATA"),
        (("convergence", "--part", "development"), "takes no --part"),
    ],
)
def test_mistakes_are_told_in_one_line(refused, place, arguments, words):
    assert words in refused("reproduce", *arguments)
