"""What the figures of an experiment say, in sentences made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adamab.study.experiments.cells import BOTH, Cell
from adamab.study.experiments.definition import BY_FOLDS, BY_TEST, EVENLY, NONE
from adamab.study.experiments.summary import (
    PROBE,
    Comparison,
    Summary,
)
from adamab.study.statistics import points

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
        found = [c for c in summary.comparisons if c.rival_name == rival]
        if found:
            missed = sum(c.verdict != "ahead of" for c in found)
            parts.append(f"{RIVALS[rival]} in {missed} of {_count(len(found), 'comparison')}")
    if not parts:
        return "No comparison of ADAMAB with round-robin or the linear probe was asked for."
    return f"ADAMAB does not beat {' and '.join(parts)}."


def in_short(summary: Summary) -> list[str]:
    """Against whom ADAMAB is ahead, level or behind, in how many comparisons."""
    if not summary.comparisons:
        return []
    sentences = []
    for recipe in dict.fromkeys(c.cell.recipe for c in summary.comparisons):
        for rival, name in RIVALS.items():
            found = [c for c in summary.comparisons if c.cell.recipe == recipe and c.rival_name == rival]
            if found:
                sentences.append(_tally(found, recipe, name, summary))
    strays = [c for c in summary.comparisons if c.verdict == "level with" != c.lead.verdict]
    if strays:
        total = len(summary.comparisons)
        sentences.append(
            f"{_count(len(strays), 'difference')} called level {'has' if len(strays) == 1 else 'have'} an "
            f"interval without zero: these are not corrected, and of {total} about {total / 20:.0f} would "
            "be so by chance alone."
        )
    return sentences


def _tally(found: Sequence[Comparison], recipe: str, name: str, summary: Summary) -> str:
    ahead, level, behind = (
        [c for c in found if c.verdict == verdict] for verdict in ("ahead of", "level with", "behind")
    )
    text = (
        f"With the recipe {recipe}, of {_count(len(found), 'comparison')} with {name} ADAMAB is ahead in "
        f"{len(ahead)}, level in {len(level)} and behind in {len(behind)}"
    )
    if same := sum(c.same_samples for c in found):
        text += f" ({same} of them with the same samples on both sides)"
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
    options = cell.settings
    varied = "".join(
        f", {name} {options[name]:g}" for name in summary.result.experiment.vary if name in options
    )
    return f"{title}, {cell.generator}, {cell.recipe}, amount {cell.amount}{setting}{varied}"


def notes(summary: Summary) -> Iterator[str]:
    """What a reader has to know."""
    result = summary.result
    experiment = result.experiment
    if experiment.note:
        yield experiment.note
    if experiment.seeds < 5:
        yield f"Only {_count(experiment.seeds, 'seed')}: at least five are needed for anything but a look."
    if experiment.split == "paper":
        yield "The given samples are drawn from the official test split, as in the paper."
    if experiment.part == "development":
        yield "Scored on the development part, not on test samples."
    if experiment.chosen == BY_FOLDS:
        yield (
            "For every seed the options were chosen by cross-validation on the given samples; nothing but "
            "the chosen ones was scored on test samples."
        )
    if experiment.chosen == BY_TEST:
        yield (
            "The options were chosen by test accuracy, as in the paper: the best of many tries on the same "
            "test samples, which flatters them and is no estimate of anything."
        )
    for left in result.left_out:
        yield f"Left out: {result.titles[left.set]}, {left.generator}, amount {left.amount}: {left.why}."


def chosen_options(summary: Summary) -> Iterator[str]:
    """What cross-validation chose, seed by seed."""
    for validated in summary.result.chosen:
        cell = validated.cell
        options = ", ".join(f"{name} {value:g}" for name, value in cell.settings.items())
        yield (
            f"{summary.result.titles[cell.set]} ({cell.generator}), {cell.setting}, seed {cell.seed}: "
            f"{options}, amount {cell.amount}; {100 * validated.accuracy:.1f} % in cross-validation."
        )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
