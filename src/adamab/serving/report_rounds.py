"""The rounds in a report: the loss, who was chosen when and why, and how the classes grew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adamab.serving import report_figures as draw
from adamab.serving.run_figures import RoundFigure, RunFigures

MOST_ROWS, MOST_COLUMNS = 24, 120  # of a figure with a row a class
MOST_ROUNDS = 40  # of the table: the first half of them and the last


def rounds_section(
    figures: RunFigures, classes: Sequence[str], worded: Callable[[str], str]
) -> dict[str, Any]:
    """Figures and the table; `worded` is applied to what was said about a round."""
    rounds = figures.rounds
    if not rounds:
        return {"n": 0}
    names = _most_chosen(figures, classes)
    losses = figures.losses()
    return {
        "n": len(rounds),
        "loss": _loss(losses) if losses else None,
        "loss_points": len(losses),
        "choices": _choices(rounds, names) if figures.chosen() else None,
        "growth": _growth(figures, names),
        "shown": len(names),
        "left_out": len(classes) - len(names),
        "a_column": -(-len(rounds) // MOST_COLUMNS),
        "table": [_row(found, worded) for found in _first_and_last(rounds)],
        "table_left_out": max(len(rounds) - MOST_ROUNDS, 0),
        "scored": any(found.why is not None and found.why.score is not None for found in rounds),
    }


def _most_chosen(figures: RunFigures, classes: Sequence[str]) -> list[str]:
    """Few classes stand in the task's order, so that figures can be compared; of many, the most chosen."""
    if len(classes) <= MOST_ROWS:
        return list(classes)
    return list(dict.fromkeys([*figures.chosen(), *classes]))[:MOST_ROWS]


def _loss(losses: Sequence[tuple[int, float]]) -> Any:
    told = f"training loss from {losses[0][1]:.3g} in round {losses[0][0]} to {losses[-1][1]:.3g} at the end"
    return draw.line_chart(losses, told=told, x_name="round", y_name="loss")


def _choices(rounds: Sequence[RoundFigure], names: Sequence[str]) -> Any:
    """Columns are rounds, or as many rounds each as needed."""
    columns = min(len(rounds), MOST_COLUMNS)
    counts = {name: [0] * columns for name in names}
    chosen = dict.fromkeys(names, 0)
    for place, found in enumerate(rounds):
        if found.chosen in counts:
            counts[found.chosen][place * columns // len(rounds)] += 1
            chosen[found.chosen] += 1
    rows = [draw.HeatRow(name, counts[name], f"{chosen[name]:,} ×") for name in names]
    told = f"which of {len(names)} classes was chosen in each of {len(rounds)} rounds"
    return draw.heat_rows(rows, told=told, columns=_ends(rounds), gap=True)


def _growth(figures: RunFigures, names: Sequence[str]) -> Any:
    growth = figures.growth(MOST_COLUMNS)
    lines = [(name, growth.counts.get(name, ())) for name in names]
    rows = [draw.HeatRow(name, line, f"{line[-1]:,}" if line else "") for name, line in lines]
    told = f"samples of {len(names)} classes after each round, given and synthetic"
    return draw.heat_rows(rows, told=told, columns=_ends(figures.rounds), gap=False)


def _ends(rounds: Sequence[RoundFigure]) -> tuple[str, str]:
    return f"round {rounds[0].round:,}", f"round {rounds[-1].round:,}"


def _first_and_last(rounds: Sequence[RoundFigure]) -> list[RoundFigure]:
    half = MOST_ROUNDS // 2
    return list(rounds) if len(rounds) <= MOST_ROUNDS else [*rounds[:half], *rounds[-half:]]


def _row(found: RoundFigure, worded: Callable[[str], str]) -> dict[str, Any]:
    notes = [worded(why) for why in (found.closed, found.ended) if why]
    if found.refused:
        notes.insert(0, "refused")
    next_best = found.runners_up[0] if found.runners_up else None
    return {
        "round": found.round,
        "chosen": found.chosen,
        "why": found.why,
        "next": next_best,
        "asked": found.asked,
        "accepted": found.accepted,
        "kept_out": sum(found.rejected.values()),
        "loss": found.loss,
        "note": "; ".join(notes),
    }
