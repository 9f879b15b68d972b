"""The rows of an experiment put together: means, intervals, and ADAMAB against all that it has to beat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.study.experiments.cells import BOTH, Cell
from adamab.study.experiments.definition import BY_TEST, CALIBRATOR, EVENLY, NONE
from adamab.study.experiments.rows import Row
from adamab.study.experiments.runner import Result
from adamab.study.statistics import Bootstrap, Interval, holm, paired_p

OURS, PROBE = "adamab", "linear-probe"
POLICY_NAMES = {
    NONE: "given only",
    "random": "random",
    EVENLY: "round-robin",
    "greedy": "greedy",
    "tight": "tight",
    OURS: "ADAMAB",
}
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Line:
    """One method on one set, over all seeds; the cell's seed says nothing."""

    cell: Cell
    accuracy: Interval
    by_seed: tuple[float, ...]
    seconds: float  # median of the fits
    n_parameters: int  # of the first seed
    synthetic: float  # mean over the seeds
    per_class: float  # training samples a class, mean
    n_test: int

    @property
    def label(self) -> str:
        """The method in words."""
        return label_of(self.cell)


@dataclass(frozen=True)
class Comparison:
    """ADAMAB's lead over a rival that had as many samples, on the same seeds and test samples."""

    cell: Cell  # ADAMAB's
    rival: Cell
    lead: Interval
    p: float
    corrected: float  # by Holm, for all comparisons of the experiment
    same_samples: bool  # both ended with as many samples of each class, and so with the same ones

    @property
    def rival_name(self) -> str:
        """A policy, or the probe."""
        return PROBE if self.rival.method == PROBE else self.rival.policy

    @property
    def verdict(self) -> str:
        """What can be said at the level of 5 % after the correction."""
        if self.corrected >= SIGNIFICANT:
            return "level with"
        return "ahead of" if self.lead.mean > 0 else "behind"


@dataclass(frozen=True)
class Summary:
    """Everything that tables and figures need."""

    result: Result
    lines: tuple[Line, ...]
    comparisons: tuple[Comparison, ...]

    def line(self, **wanted: Any) -> Line | None:
        """The first line whose cell has these values."""
        return next((line for line in self.lines if _fits(line.cell, wanted)), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "lines": [asdict(line) | {"label": line.label} for line in self.lines],
            "comparisons": [asdict(c) | {"verdict": c.verdict} for c in self.comparisons],
        }


def label_of(cell: Cell) -> str:
    """A method in words, with the source of its samples."""
    name = cell.method.replace("-", " ")
    if cell.method != CALIBRATOR:
        return name if cell.policy == NONE else f"{name}, {EVENLY}’s samples"
    return f"{name} ({cell.recipe}), {POLICY_NAMES[cell.policy]}"


def summarise(result: Result) -> Summary:
    """Lines in the order of the experiment, and the comparisons that they allow."""
    groups = _chosen(result)
    matrices = {cell: _matrix(rows) for cell, rows in groups.items()}
    boots: dict[tuple[int, int, bool], Bootstrap] = {}

    def boot(cell: Cell) -> Bootstrap:
        crossed = _crossed(groups[cell])
        shape = (*matrices[cell].shape, crossed)
        if shape not in boots:
            boots[shape] = Bootstrap(shape[0], shape[1], crossed=crossed)
        return boots[shape]

    lines = tuple(_line(cell, rows, boot(cell)(matrices[cell])) for cell, rows in groups.items())
    pairs = list(_pairs(groups))
    p_values = [paired_p(matrices[a] - matrices[b], crossed=_crossed(groups[a])) for a, b in pairs]
    comparisons = tuple(
        Comparison(a, b, boot(a)(matrices[a] - matrices[b]), p, corrected, _same(groups[a], groups[b]))
        for (a, b), p, corrected in zip(pairs, p_values, holm(p_values), strict=True)
    )
    return Summary(result, lines, comparisons)


def _chosen(result: Result) -> dict[Cell, list[Row]]:
    """Rows by what is averaged; where options are chosen, they are no part of it."""
    choice, groups = result.experiment.chosen, dict[Cell, list[Row]]()
    for row in result.rows:
        cell = row.cell.group
        if choice not in ("all", BY_TEST):
            cell = replace(cell, options="{}", amount=choice, rounds=0, policy=OURS)
        groups.setdefault(cell, []).append(row)
    if choice == BY_TEST:
        groups = _best_on_test(groups)
    return {cell: sorted(rows, key=lambda row: row.cell.seed) for cell, rows in groups.items()}


def _best_on_test(groups: Mapping[Cell, list[Row]]) -> dict[Cell, list[Row]]:
    """The paper's way: the options whose test accuracy is best, which flatters them."""
    best: dict[Cell, list[Row]] = {}
    for cell, rows in groups.items():
        place = replace(cell, options="{}", amount=BY_TEST, rounds=0, policy=OURS)
        if place not in best or _mean(rows) > _mean(best[place]):
            best[place] = rows
    return best


def _mean(rows: Sequence[Row]) -> float:
    return float(np.mean([row.accuracy for row in rows]))


def _matrix(rows: Sequence[Row]) -> NDArray[np.float64]:
    shortest = min(len(row.measured.correct) for row in rows)  # the paper's split may give one less
    return np.stack([row.measured.correct[:shortest] for row in rows]).astype(np.float64)


def _crossed(rows: Sequence[Row]) -> bool:
    return len({row.scored_on for row in rows}) == 1


def _same(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    return [row.measured.counts for row in ours] == [row.measured.counts for row in theirs]


def _line(cell: Cell, rows: Sequence[Row], accuracy: Interval) -> Line:
    by_seed = tuple(row.accuracy for row in rows)
    return Line(
        cell=cell,
        accuracy=replace(accuracy, mean=float(np.mean(by_seed))),
        by_seed=by_seed,
        seconds=float(np.median([row.measured.seconds for row in rows])),
        n_parameters=rows[0].measured.n_parameters,
        synthetic=float(np.mean([row.measured.synthetic for row in rows])),
        per_class=float(np.mean([np.mean(row.measured.counts) for row in rows])),
        n_test=len(rows[0].measured.correct),
    )


def _pairs(groups: Mapping[Cell, Sequence[Row]]) -> Iterator[tuple[Cell, Cell]]:
    """ADAMAB against every other policy, and against the linear probe on as many samples."""
    for ours in groups:
        if ours.method != CALIBRATOR or ours.policy != OURS:
            continue
        for rival in groups:
            if _fits(rival, {n: getattr(ours, n) for n in ("set", "given", "generator", "scored")}):
                if rival.method == CALIBRATOR:
                    found = rival.policy != OURS and _rivals(ours, rival)
                else:
                    found = rival.method == PROBE and rival.amount == ours.amount and rival.policy == EVENLY
                if found:
                    yield ours, rival


def _rivals(ours: Cell, rival: Cell) -> bool:
    """The same recipe and setting, and as many samples or none added; α is the bandit's own."""
    mine, theirs = dict(ours.settings), dict(rival.settings)
    for options in (mine, theirs):
        options.pop("alpha", None)
    same = (ours.recipe, ours.setting, mine) == (rival.recipe, rival.setting, theirs)
    return same and (rival.policy == NONE or rival.amount == ours.amount)


def _fits(cell: Cell, wanted: Mapping[str, Any]) -> bool:
    found = {name: getattr(cell, name) for name in wanted}
    if "setting" in wanted and found["setting"] == BOTH:
        found["setting"] = wanted["setting"]
    return found == dict(wanted)
