"""The rows of an experiment put together: means, intervals, and ADAMAB against all that it has to beat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adamab.evaluation.statistics import Bootstrap, Interval, paired_p
from adamab.task import Sample
from experiments.cells import BOTH, Cell, DrawKey
from experiments.definition import BY_FOLDS, CALIBRATOR, EVENLY, NONE
from experiments.rows import Row
from experiments.runner import Result

OURS, PROBE = "adamab", "linear-probe"
BANDITS_OWN = ("alpha", "difficulty", "max_batches_ahead")  # options that other policies do not read
POLICY_NAMES = {
    NONE: "given only",
    "random": "random",
    EVENLY: "round-robin",
    "greedy": "greedy",
    "tight": "tight",
    OURS: "ADAMAB",
    BY_FOLDS: "options and samples chosen by cross-validation",
}
TESTS = (
    "P-values are of paired tests on the same seeds and test samples, in which both are random (two-way "
    "analysis of variance, averaged over what so few seeds leave open of their variance), corrected by Holm "
    "for {n} comparisons."
)
SIGNIFICANT = 0.05
AHEAD, OPEN, BEHIND, SAME = "ahead of", "not told apart from", "behind", "the same as"
SampleName: TypeAlias = tuple[str, str, int]  # text, class, number among equals


@dataclass(frozen=True)
class Line:
    """One method on one set, over all seeds; the cell's seed says nothing."""

    cell: Cell
    accuracy: Interval
    by_seed: tuple[float, ...]
    seconds: float  # median of the fits
    n_parameters: tuple[int, int]  # smallest and largest of the seeds
    synthetic: float  # mean over the seeds
    per_class: float  # training samples per class, mean
    n_test: int  # of the first seed
    n_distinct: int  # test samples of all seeds together
    answers: Mapping[str, int]  # of a chat model, other than classes; all seeds together
    n_answers: int
    chosen: tuple[Cell, ...] = ()  # by seed, where options were chosen

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
    corrected: float  # by Holm, for all comparisons of the experiment that are tests
    same_samples: bool  # both ended with as many samples of each class, and so with the same ones
    same_results: bool  # calibrators with the same samples, hits and misses on all seeds: nothing to test

    @property
    def rival_name(self) -> str:
        """A policy, or the probe."""
        return PROBE if self.rival.method == PROBE else self.rival.policy

    @property
    def verdict(self) -> str:
        """What can be said at the level of 5 % after the correction."""
        if self.same_results:
            return SAME
        if self.corrected >= SIGNIFICANT:
            return OPEN
        return AHEAD if self.lead.mean > 0 else BEHIND


@dataclass(frozen=True)
class Summary:
    """Everything that tables and figures need."""

    result: Result
    lines: tuple[Line, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def tests(self) -> tuple[Comparison, ...]:
        """The comparisons that are tests, for which the correction is made."""
        return tuple(c for c in self.comparisons if not c.same_results)

    def line(self, **wanted: Any) -> Line | None:
        """The first line whose cell has these values."""
        return next((line for line in self.lines if _fits(line.cell, wanted)), None)

    def options_text(self, cell: Cell) -> str:
        """The options of a calibrator that tell it from the experiment's others, each after a comma."""
        shared = _shared_options([line.cell for line in self.lines if line.cell.method == CALIBRATOR])
        in_label = {"views", "words"} if "views" in cell.settings else set()  # see `recipe_name`
        differing = {
            k: v for k, v in cell.settings.items() if (k, option_text(v)) not in shared and k not in in_label
        }
        return "".join(f", {'α' if k == 'alpha' else k} {option_text(v)}" for k, v in differing.items())

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "lines": [asdict(line) | {"label": line.label} for line in self.lines],
            "comparisons": [asdict(c) | {"verdict": c.verdict} for c in self.comparisons],
        }


def option_text(value: object) -> str:
    """The value of an option.

    Example:
        >>> option_text(100.0), option_text((0, 4)), option_text(None), option_text(True)
        ('100', '0 4', 'none', 'true')
    """
    if isinstance(value, list | tuple):
        return " ".join(map(option_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _shared_options(cells: Sequence[Cell]) -> set[tuple[str, str]]:
    """What every one of the cells has."""
    options = [{(name, option_text(value)) for name, value in cell.settings.items()} for cell in cells]
    return set.intersection(*options) if options else set()


def label_of(cell: Cell) -> str:
    """A method in words, with the source of its samples."""
    name = cell.method if ":" in cell.method else cell.method.replace("-", " ")
    if cell.method != CALIBRATOR:
        return name if cell.policy == NONE else f"{name}, {EVENLY}’s samples"
    return f"{name} ({recipe_name(cell)}), {POLICY_NAMES[cell.policy]}"


def recipe_name(cell: Cell) -> str:
    """The recipe of a calibrator, with the views that it was restricted to."""
    if "views" not in cell.settings:
        return cell.recipe
    recipe = cell.full_recipe()
    views = [*(recipe.views or ()), *(["words"] if recipe.words else [])]
    return f"{cell.recipe}, {' and '.join(views)} only"


def summarise(result: Result) -> Summary:
    """Lines in the order of the experiment, and the comparisons that they allow."""
    groups = _chosen(result)
    names = {draw: sample_names(tests) for draw, tests in result.tests.items()}
    matrices = {cell: hits_of(rows, names) for cell, rows in groups.items()}
    boots: dict[tuple[int, ...], Bootstrap] = {}

    def interval(values: NDArray[np.float64]) -> Interval:
        if values.shape not in boots:
            boots[values.shape] = Bootstrap(*values.shape)
        return boots[values.shape](values)

    lines = tuple(_line(cell, rows, matrices[cell], interval) for cell, rows in groups.items())
    comparisons = [_comparison(pair, groups, matrices, interval) for pair in _pairs(groups)]
    # Those that are no tests count for nothing in the correction.
    tested = iter(holm([c.p for c in comparisons if not c.same_results]))
    corrected = [c if c.same_results else replace(c, corrected=next(tested)) for c in comparisons]
    return Summary(result, lines, tuple(corrected))


def _comparison(
    pair: tuple[Cell, Cell],
    groups: Mapping[Cell, Sequence[Row]],
    matrices: Mapping[Cell, NDArray[np.float64]],
    interval: Callable[[NDArray[np.float64]], Interval],
) -> Comparison:
    """Of two groups, not corrected yet."""
    (a, b), lead = pair, matrices[pair[0]] - matrices[pair[1]]
    counts_a, counts_b = ([row.measured.counts for row in groups[cell]] for cell in pair)
    same_samples, p = counts_a == counts_b, paired_p(lead)
    same_results = b.method == CALIBRATOR and same_samples and not np.nan_to_num(lead).any()
    return Comparison(a, b, interval(lead), p, p, same_samples, same_results)


def _chosen(result: Result) -> dict[Cell, list[Row]]:
    """Rows by what is averaged; where options are chosen, they are no part of it."""
    groups: dict[Cell, list[Row]] = {}
    for row in result.rows:
        cell = row.cell.group
        if result.experiment.chosen == BY_FOLDS:  # a choice may be to add nothing
            cell = replace(cell, options="{}", amount=BY_FOLDS, rounds=0, policy=BY_FOLDS)
        groups.setdefault(cell, []).append(row)
    return {cell: sorted(rows, key=lambda row: row.cell.seed) for cell, rows in groups.items()}


def sample_names(samples: Sequence[Sample]) -> list[SampleName]:
    """What samples are known by in other draws; of equal ones the first, the second and so on."""
    seen: Counter[tuple[str, str]] = Counter()
    names = []
    for sample in samples:
        said = sample.text, sample.class_name
        names.append((*said, seen[said]))
        seen[said] += 1
    return names


def hits_of(
    rows: Sequence[Row],
    names: Mapping[DrawKey, Sequence[SampleName]],
    columns: dict[SampleName, int] | None = None,
) -> NDArray[np.float64]:
    """(seeds, samples) hits; NaN where a seed did not score a sample, because it was given to it.

    `columns` are the samples' places, where several matrices share them; else those of these rows.
    """
    columns = {} if columns is None else columns
    for row in rows:
        for name in names[row.cell.draw]:
            columns.setdefault(name, len(columns))
    matrix = np.full((len(rows), len(columns)), np.nan)
    for hits, row in zip(matrix, rows, strict=True):
        hits[[columns[name] for name in names[row.cell.draw]]] = row.measured.correct
    return matrix


def _line(
    cell: Cell,
    rows: Sequence[Row],
    hits: NDArray[np.float64],
    interval: Callable[[NDArray[np.float64]], Interval],
) -> Line:
    answers: Counter[str] = Counter()
    for row in rows:
        answers.update(row.measured.answers)
    sizes = [row.measured.n_parameters for row in rows]
    return Line(
        cell=cell,
        accuracy=interval(hits),
        by_seed=tuple(row.accuracy for row in rows),
        seconds=float(np.median([row.measured.seconds for row in rows])),
        n_parameters=(min(sizes), max(sizes)),
        synthetic=float(np.mean([row.measured.synthetic for row in rows])),
        per_class=float(np.mean([np.mean(row.measured.counts) for row in rows])),
        n_test=len(rows[0].measured.correct),
        n_distinct=hits.shape[1],
        answers=dict(answers),
        n_answers=sum(len(row.measured.correct) for row in rows if row.measured.answers),
        chosen=tuple(row.cell for row in rows) if cell.policy == BY_FOLDS else (),
    )


def _pairs(groups: Mapping[Cell, Sequence[Row]]) -> Iterator[tuple[Cell, Cell]]:
    """ADAMAB against every other policy, and against the linear probe on as many samples."""
    for ours in groups:
        if ours.method != CALIBRATOR or ours.policy != OURS:
            continue
        for rival in groups:
            if _fits(rival, {n: getattr(ours, n) for n in ("set", "given", "generator", "scored")}):
                if rival.method == CALIBRATOR:
                    paired = rival.policy != OURS and _rivals(ours, rival)
                else:
                    paired = rival.method == PROBE and rival.amount == ours.amount and rival.policy == EVENLY
                if paired:
                    yield ours, rival


def _rivals(ours: Cell, rival: Cell) -> bool:
    """The same recipe and setting, and as many samples or none added, whatever the bandit's own options."""
    mine, theirs = dict(ours.settings), dict(rival.settings)
    for options in (mine, theirs):
        for own in BANDITS_OWN:
            options.pop(own, None)
    same = (ours.recipe, ours.setting, mine) == (rival.recipe, rival.setting, theirs)
    return same and (rival.policy == NONE or rival.amount == ours.amount)


def _fits(cell: Cell, wanted: Mapping[str, Any]) -> bool:
    fields = {name: getattr(cell, name) for name in wanted}
    if "setting" in wanted and fields["setting"] == BOTH:
        fields["setting"] = wanted["setting"]
    return fields == dict(wanted)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, in the same order.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, so_far = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = so_far
    return corrected
