"""What the figures of an experiment say, in sentences made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from adamab.evaluation.statistics import points
from experiments.cells import BOTH, RECORDED, TEST, Cell
from experiments.definition import BY_FOLDS, EVENLY, NONE
from experiments.summary import (
    AHEAD,
    BEHIND,
    OPEN,
    POLICY_NAMES,
    PROBE,
    Comparison,
    Summary,
    recipe_name,
)

ANSWERS = {
    "none": "said that no class suits",
    "unparsed": "could not be read",
    "refused": "were refusals",
    "cut": "were cut off",
}
SAME_RESULTS = "the same results on every test sample"
RIVALS = {
    EVENLY: "round-robin",
    PROBE: "the linear probe on as many samples",
    "random": "random",
    "greedy": "greedy",
    "tight": "tight",
    NONE: "the given samples only",
}


def headline(summary: Summary) -> str:
    """The first paragraph: where ADAMAB does not beat what it should."""
    parts = []
    for rival in (EVENLY, PROBE):
        compared = [c for c in summary.comparisons if c.rival_name == rival]
        if compared:
            missed = sum(c.verdict != AHEAD for c in compared)
            part = f"{RIVALS[rival]} in {missed} of {_count(len(compared), 'comparison')}"
            if same := sum(c.same_results for c in compared):
                part += f" (in {same} of them both had the same samples and gave {SAME_RESULTS})"
            parts.append(part)
    if not parts:
        return "No comparison of ADAMAB with round-robin or the linear probe was asked for."
    return f"ADAMAB does not beat {' and '.join(parts)}."


def _by_recipe(comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    groups: dict[str, list[Comparison]] = {}
    for c in comparisons:
        groups.setdefault(recipe_name(c.cell), []).append(c)
    return groups


def in_short(summary: Summary) -> list[str]:
    """Against whom ADAMAB is ahead, behind or neither, in how many comparisons."""
    if not summary.comparisons:
        return []
    sentences = []
    for recipe, of_recipe in _by_recipe(summary.comparisons).items():
        for rival, name in RIVALS.items():
            if compared := [c for c in of_recipe if c.rival_name == rival]:
                sentences.append(_tally(compared, recipe, name, summary))
    if any(c.verdict == OPEN for c in summary.tests):
        sentences.append(
            "Not told apart means that no difference was shown after the correction for "
            f"{_count(len(summary.tests), 'comparison')}, not that there is none."
        )
    return sentences


def _tally(comparisons: Sequence[Comparison], recipe: str, name: str, summary: Summary) -> str:
    tested = [c for c in comparisons if not c.same_results]
    same = len(comparisons) - len(tested)
    if not tested:
        whole = "the comparison" if same == 1 else f"all {same} comparisons"
        return f"With the recipe {recipe}, {whole} with {name} gave {SAME_RESULTS}."
    ahead, apart, behind = ([c for c in tested if c.verdict == v] for v in (AHEAD, OPEN, BEHIND))
    text = (
        f"With the recipe {recipe}, of {_count(len(tested), 'comparison')} with {name} ADAMAB is ahead in "
        f"{len(ahead)}, not told apart in {len(apart)} and behind in {len(behind)}"
    )
    if alike := sum(c.same_samples for c in tested):
        text += f" ({alike} of them with the same samples on both sides)"
    if same:
        text += f"; {same} more gave {SAME_RESULTS}"
    if behind:
        worst = min(behind, key=lambda c: c.lead.mean)
        text += f"; furthest behind on {where(summary, worst.cell)}: {points(worst.lead)}"
    return text + "."


def where(summary: Summary, cell: Cell) -> str:
    """The place of a comparison."""
    title = summary.result.titles[cell.set]
    setting = (
        "" if cell.setting == BOTH or len(summary.result.experiment.settings) == 1 else f", {cell.setting}"
    )
    options = summary.options_text(cell)
    return f"{title}, {cell.generator}, {recipe_name(cell)}, amount {cell.amount}{setting}{options}"


def notes(summary: Summary) -> Iterator[str]:
    """What a reader has to know."""
    result = summary.result
    experiment = result.experiment
    if experiment.note:
        yield experiment.note
    if experiment.seeds < 5:
        yield f"Only {_count(experiment.seeds, 'seed')}: at least five are needed for anything but a look."
    if experiment.split == "paper":
        yield (
            "The given samples are drawn from the official test split, as in the paper. So each seed scores "
            "other test samples, most of them shared with other seeds; intervals and tests know them again."
        )
    if experiment.part == "development":
        yield "Scored on the development part, not on test samples."
    if experiment.chosen == BY_FOLDS:
        yield (
            "For every seed the options were chosen by cross-validation on the given samples; nothing but "
            "the chosen ones was scored on test samples. A choice may be to add no sample: see what was "
            "chosen."
        )
        if any(row.cell.generator == RECORDED for row in result.rows):
            yield (
                "The recorded samples were written by a model that had seen all the given samples, those "
                "that a fold holds out among them. So with the recorded generator cross-validation flatters "
                "added samples."
            )
    for left in result.left_out:
        yield f"Left out: {result.titles[left.set]}, {left.generator}, amount {left.amount}: {left.why}."


def chosen_options(summary: Summary) -> Iterator[str]:
    """What was chosen by cross-validation, seed by seed."""
    validated = {replace(row.cell, scored=TEST): row.accuracy for row in summary.result.chosen}
    for line in summary.lines:
        for cell in line.chosen:
            where = f"{summary.result.titles[cell.set]} ({cell.generator}), {cell.setting}"
            percent = f"{100 * validated[cell]:.1f} % in cross-validation"
            yield f"{where}, seed {cell.seed}: {_choice(cell)}; {percent}."


def _choice(cell: Cell) -> str:
    options = ", ".join(f"{name} {value}" for name, value in cell.settings.items())
    added = "nothing added" if cell.policy == NONE else f"{POLICY_NAMES[cell.policy]}, amount {cell.amount}"
    return f"{options}, {added}" if options else added


def answers(summary: Summary) -> Iterator[str]:
    """Answers of chat models that name no class, a sentence per method, set and setting."""
    for line in summary.lines:
        if line.n_answers:
            cell, counts = line.cell, line.answers
            counted = ", ".join(f"{counts.get(kind, 0)} {words}" for kind, words in ANSWERS.items())
            yield (
                f"{line.label}, {summary.result.titles[cell.set]} ({cell.generator}), {cell.setting}: of "
                f"{_count(line.n_answers, 'answer')} {counted}."
            )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
