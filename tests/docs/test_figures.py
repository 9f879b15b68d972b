"""Figures that the README repeats are those of the published results."""

import json
from statistics import mean

import pytest
from docs_runner.pages import ROOT

from adamab.task.recipe import Recipe
from experiments.quality import by_place
from experiments.quality_plan import Place
from experiments.rows import read_parquet

README = (ROOT / "README.md").read_text(encoding="utf-8")
METHODS = {  # heading of a column of the README: method in results/quality-part.rows.parquet
    "ADAMAB": "default",
    "API views": "default-api",
    "paper": "paper",
    "calibrator": "calibrator",
    "zero-shot": "zero-shot",
    "linear probe": "linear-probe",
    "joint probe": "joint-probe",
    "soft vote": "soft-vote",
    "SetFit": "setfit",
}


def table(first_heading):
    """The rows of the README's table that begins with this heading, by heading."""
    lines = README.split(f"| {first_heading} |", 1)[1].split("\n\n", 1)[0].splitlines()
    headings = [first_heading, *(cell.strip() for cell in lines[0].strip(" |").split("|"))]
    body = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines[2:]]
    return [dict(zip(headings, cells, strict=True)) for cells in body]


@pytest.fixture(scope="module")
def rows():
    return list(read_parquet(ROOT / "results" / "quality-part.rows.parquet"))


@pytest.fixture(scope="module")
def accuracies(rows):
    """By cell and method, and within it by seed."""
    return {place: {row.cell.seed: row.accuracy for row in of} for place, of in by_place(rows).items()}


def test_the_table_of_sets_is_that_of_the_yardstick(accuracies):
    lines = table("Set")
    names = {line["Set"].split()[0].lower() for line in lines}
    assert names == {place.set for place, _ in accuracies}
    for line in lines:
        place = Place(line["Set"].split()[0].lower(), 5, 0, "none")
        for heading, method in METHODS.items():
            measured = accuracies.get((place, method))
            expected = "" if measured is None else f"{100 * mean(measured.values()):.1f}"
            assert line[heading] == expected, (line["Set"], heading)


def test_the_table_of_the_demo_is_that_of_its_page():
    page = (ROOT / "results" / "demo.md").read_text(encoding="utf-8")
    rows = table("Method, samples by")
    assert rows
    for row in rows:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row['Method, samples by']} |")]
        for cell in row.values():
            assert f"| {cell} |" in line, (row, line)


def test_the_same_samples_have_the_same_results_whoever_chose_them(rows):
    """Else one side of the comparison with round-robin is of older code than the other."""
    places = {}
    for row in rows:
        cell = row.cell
        if cell.method == "calibrator" and cell.recipe == "default" and "views" not in cell.settings:
            place = (cell.set, cell.given, cell.generator, cell.amount, cell.seed)
            places.setdefault(place, {})[cell.policy] = row
    pairs = [(p["adamab"], p["round-robin"]) for p in places.values() if {"adamab", "round-robin"} <= set(p)]
    same = [(a.measured, b.measured) for a, b in pairs if a.measured.counts == b.measured.counts]
    assert len(same) > 100
    for ours, theirs in same:
        assert (ours.correct != theirs.correct).mean() <= 0.005


def test_the_history_of_the_recipe_has_its_options_and_defaults():
    history = json.loads((ROOT / "results" / "recipe-history.json").read_text(encoding="utf-8"))
    page = (ROOT / "results" / "recipe-history.md").read_text(encoding="utf-8")
    fields = Recipe.model_fields
    for row in history:
        assert row["default"] == repr(fields[row["option"]].default)
        assert f"| `{row['option']}` | {row['default']} | {row['why']} |" in page
