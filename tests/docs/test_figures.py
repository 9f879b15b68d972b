"""Figures that the README repeats are those of the published results."""

from __future__ import annotations

import json
from statistics import mean

import pytest
from docs_runner.pages import ROOT

from adamab.task.recipe import Recipe
from experiments.quality import by_place
from experiments.quality_plan import Place
from experiments.rows import Row, read_parquet

README = (ROOT / "README.md").read_text(encoding="utf-8")
METHODS = {  # heading of a column of the README: method in results/quality.rows.parquet
    "ADAMAB": "default",
    "the same, API views": "default-api",
    "zero-shot": "zero-shot",
    "linear probe": "linear-probe",
    "linear SVM": "linear-svm",
    "SetFit": "setfit",
}


def table(first_heading: str) -> list[dict[str, str]]:
    """The rows of the README's table that begins with this heading, by heading."""
    lines = README.split(f"| {first_heading} |", 1)[1].split("\n\n", 1)[0].splitlines()
    headings = [first_heading, *(cell.strip() for cell in lines[0].strip(" |").split("|"))]
    body = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines[2:]]
    return [dict(zip(headings, cells, strict=True)) for cells in body]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(read_parquet(ROOT / "results" / "quality.rows.parquet"))


@pytest.fixture(scope="module")
def accuracies(rows: list[Row]) -> dict[tuple[Place, str], dict[int, float]]:
    """By cell and method, and within it by seed."""
    return {place: {row.cell.seed: row.accuracy for row in of} for place, of in by_place(rows).items()}


def test_the_table_of_eight_sets_is_that_of_the_yardstick(
    accuracies: dict[tuple[Place, str], dict[int, float]],
) -> None:
    lines = table("Set")
    names = {line["Set"].split()[0].lower() for line in lines}
    assert names == {place.set for place, _ in accuracies}
    for line in lines:
        place = Place(line["Set"].split()[0].lower(), 5, 0, "none")
        for heading, method in METHODS.items():
            measured = accuracies.get((place, method))
            expected = "" if measured is None else f"{100 * mean(measured.values()):.1f}"
            assert line[heading] == expected, (line["Set"], heading)


def test_the_table_of_the_demo_is_that_of_its_page() -> None:
    page = (ROOT / "results" / "demo.md").read_text(encoding="utf-8")
    rows = table("Method, samples by")
    assert rows
    for row in rows:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row['Method, samples by']} |")]
        for cell in row.values():
            assert f"| {cell} |" in line, (row, line)


def test_the_same_samples_have_the_same_results_whoever_chose_them(rows: list[Row]) -> None:
    """Else one side of the comparison with round-robin is of older code than the other."""
    places: dict[tuple[object, ...], dict[str, Row]] = {}
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


def test_what_the_bars_are_without_the_demo(accuracies: dict[tuple[Place, str], dict[int, float]]) -> None:
    cells: dict[Place, dict[str, dict[int, float]]] = {}
    for (place, method), by_seed in accuracies.items():
        cells.setdefault(place, {})[method] = by_seed
    cells = {place: of for place, of in cells.items() if place.set != "demo" and "default" in of}
    texts = [c for place, c in cells.items() if not place.synthetic and "zero-shot" in c]
    rivals = ("paper", "zero-shot", "linear-probe", "linear-svm", "class-mean", "cache-adapter")

    def of(cell: dict[str, dict[int, float]], method: str) -> float:
        return mean(cell[method].values())

    def over_setfit(cell: dict[str, dict[int, float]]) -> float:
        return mean(cell["default"][seed] - accuracy for seed, accuracy in cell["setfit"].items())

    leads = (
        mean(of(c, "default") - of(c, "linear-probe") for c in texts),
        mean(of(c, "default-api") - of(c, "linear-probe") for c in texts),
        mean(over_setfit(c) for c in texts if "setfit" in c),
        mean(of(c, "default") - max(of(c, m) for m in rivals if m in c) for c in cells.values()),
    )
    sentence = (
        "Without the demo the text bars read {:+.1f} over the probe, {:+.1f} by API views and {:+.1f} over "
        "SetFit, and the lead over the best rival of all other cells {:+.1f}"
    ).format(*(100 * lead for lead in leads))
    assert sentence in (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")


def test_the_history_of_the_recipe_has_its_options_and_defaults():
    history = json.loads((ROOT / "results" / "recipe-history.json").read_text(encoding="utf-8"))
    page = (ROOT / "results" / "recipe-history.md").read_text(encoding="utf-8")
    fields = Recipe.model_fields
    for row in history:
        assert row["default"] == repr(fields[row["option"]].default)
        assert f"| `{row['option']}` | {row['default']} | {row['why']} |" in page
