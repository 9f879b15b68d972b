"""Figures that the README repeats are those of the published results."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest
from docs_runner.pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
METHODS = {  # heading of a column of the README: method in results/quality.json
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
def accuracies() -> dict[tuple[str, str], list[float]]:
    """Of five given samples a class and nothing else, by set and method."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in json.loads((ROOT / "results" / "quality.json").read_text())["rows"]:
        if row["given"] == 5 and row["synthetic"] == 0:
            found.setdefault((row["set"], row["method"]), []).append(row["accuracy"])
    return found


def test_the_table_of_eight_sets_is_that_of_the_yardstick(
    accuracies: dict[tuple[str, str], list[float]],
) -> None:
    rows = table("Set")
    assert {row["Set"].split()[0].lower() for row in rows} == {name for name, _ in accuracies}
    for row in rows:
        for heading, method in METHODS.items():
            measured = accuracies.get((row["Set"].split()[0].lower(), method))
            expected = "" if measured is None else f"{100 * mean(measured):.1f}"
            assert row[heading] == expected, (row["Set"], heading)


def test_the_table_of_the_demo_is_that_of_its_page() -> None:
    page = (ROOT / "results" / "demo.md").read_text(encoding="utf-8")
    rows = table("Method, samples by")
    assert rows
    for row in rows:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row['Method, samples by']} |")]
        for cell in row.values():
            assert f"| {cell} |" in line, (row, line)


def test_the_same_samples_have_the_same_results_whoever_chose_them() -> None:
    """Else one side of the comparison with round-robin is of older code than the other."""
    found: dict[tuple[object, ...], dict[str, dict[str, Any]]] = {}
    for line in (ROOT / "results" / "quality.rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["method"] == "calibrator" and row["recipe"] == "default" and "views" not in row["options"]:
            place = (row["set"], row["given"], row["generator"], row["amount"], row["seed"])
            found.setdefault(place, {})[row["policy"]] = row
    pairs = [(p["adamab"], p["round-robin"]) for p in found.values() if {"adamab", "round-robin"} <= set(p)]
    same = [(a, b) for a, b in pairs if a["counts"] == b["counts"]]
    assert len(same) > 100
    for ours, theirs in same:
        hits = (int(row["correct"], 16) for row in (ours, theirs))
        differing = (next(hits) ^ next(hits)).bit_count()
        assert differing <= 0.005 * ours["n_test"], (ours["set"], ours["given"], ours["amount"], ours["seed"])


def test_what_the_bars_are_without_the_demo() -> None:
    cells: dict[tuple[object, ...], dict[str, dict[int, float]]] = {}
    for row in json.loads((ROOT / "results" / "quality.json").read_text())["rows"]:
        place = tuple(row[key] for key in ("set", "given", "synthetic", "generator"))
        cells.setdefault(place, {}).setdefault(row["method"], {})[row["seed"]] = row["accuracy"]
    cells = {place: found for place, found in cells.items() if place[0] != "demo" and "default" in found}
    texts = [c for place, c in cells.items() if not place[2] and "zero-shot" in c]
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
    told = (
        "Without the demo the text bars read {:+.1f} over the probe, {:+.1f} by API views and {:+.1f} over "
        "SetFit, and the lead over the best rival of all other cells {:+.1f}"
    ).format(*(100 * lead for lead in leads))
    assert told in (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
