"""The yardstick's scores put together: leads with intervals, duels with the best rival, ranks, and the bars.

Every method of a cell has the same seeds and test samples, so differences are paired. All cells of a set
share their columns of test samples and their seeds, and a draw of the bootstrap takes the same ones in all
of them: a mean over cells does not get narrower by counting a sample more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from adamab.evaluation.statistics import Bootstrap, Interval, interval_of, paired_p, points
from experiments.datasets.base import SCORED_ONCE
from experiments.quality_plan import (
    ALL_SETS,
    API,
    DEFAULT,
    EVENLY,
    IMAGE_SETS,
    OLD,
    ON_API,
    RIVALS,
    SAME_INPUTS,
    SETFIT,
    TEXT_SETS,
    Place,
)
from experiments.shapes import EVEN, SHAPES
from experiments.summary import holm

SIGNIFICANT = 0.05
FAMILIES = {"text sets": TEXT_SETS, "image sets": IMAGE_SETS, "all sets": ALL_SETS}
Pair: TypeAlias = tuple[Place, str, str]  # where, ours, theirs


@dataclass(frozen=True, eq=False)
class Score:
    """One method in one cell; `hits` has a row per seed and a column per test sample of the set."""

    place: Place
    method: str
    seeds: tuple[int, ...]
    hits: NDArray[np.float64]  # (seeds, samples), NaN where a seed did not score a sample
    seconds: tuple[float, ...]  # of the fits, by seed
    losses: tuple[float | None, ...] = ()  # log losses, by seed; None where it was not measured

    @property
    def by_seed(self) -> NDArray[np.float64]:
        """(seeds,) accuracies."""
        means: NDArray[np.float64] = np.nanmean(self.hits, axis=1)
        return means

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return float(self.by_seed.mean())

    @property
    def log_loss(self) -> float | None:
        """The mean over the seeds, where all have one."""
        known = [loss for loss in self.losses if loss is not None]
        return float(np.mean(known)) if known and len(known) == len(self.losses) else None


@dataclass(frozen=True)
class Duel:
    """Our lead over a rival in one cell."""

    place: Place
    rival: str
    lead: Interval
    p: float
    corrected: float  # by Holm, for all duels of its kind

    @property
    def significant(self) -> bool:
        """At the level of 5 % after the correction."""
        return self.corrected < SIGNIFICANT


@dataclass(frozen=True)
class Tally:
    """One of ours against the best rival with the same inputs in each cell, over some cells."""

    name: str
    cells: int
    seeds: int  # the fewest of a cell
    accuracy: float
    rival_accuracy: float
    log_loss: float | None  # over the cells in which both have one
    rival_log_loss: float | None
    lead: Interval
    wins: int
    significant_wins: int
    losses: int
    significant_losses: int
    ranks: Mapping[str, float]  # mean rank by method, over the cells that have it


@dataclass
class Scores:
    """All scores; looks up, compares and averages them."""

    measured: Sequence[Score]
    _known: dict[tuple[Place, str], Score] = field(init=False)
    _draws: dict[Pair, tuple[float, NDArray[np.float64]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._known = {(score.place, score.method): score for score in self.measured}

    def get(self, place: Place, method: str) -> Score | None:
        """The score, if it was measured."""
        return self._known.get((place, method))

    def places(self, wanted: Callable[[Place], bool] = lambda _: True, method: str = DEFAULT) -> list[Place]:
        """Cells with a method, set by set and in ascending order."""
        places = {score.place for score in self.measured if score.method == method and wanted(score.place)}
        return sorted(
            places,
            key=lambda p: (ALL_SETS.index(p.set), SHAPES.index(p.shape), p.given, p.synthetic),
        )

    def best(self, place: Place, among: Iterable[str] = RIVALS, ours: str = DEFAULT) -> str | None:
        """The rival over which the lead is least in a cell, on the seeds that both have."""
        known = [method for method in among if self.get(place, method)]
        return min(known, key=lambda method: self.lead((place, ours, method)), default=None)

    def pairs(self, places: Iterable[Place], theirs: str, ours: str = DEFAULT) -> list[Pair]:
        """Where both were measured."""
        return [(p, ours, theirs) for p in places if self.get(p, ours) and self.get(p, theirs)]

    def best_pairs(self, ours: str = DEFAULT) -> list[Pair]:
        """One of ours against the best rival with the same inputs, cell by cell."""
        pairs = [
            (place, ours, self.best(place, SAME_INPUTS[ours], ours)) for place in self.places(method=ours)
        ]
        return [(place, method, rival) for place, method, rival in pairs if rival is not None]

    def loss_lead(self, pairs: Sequence[Pair]) -> tuple[float, int] | None:
        """How much lower the log loss of ours is, on the mean over cells, and in how many cells."""
        leads = []
        for pair in pairs:
            (ours, mine), (theirs, others) = self._on_both(pair)
            losses = [(ours.losses[a], theirs.losses[b]) for a, b in zip(mine, others, strict=True)]
            known = [b - a for a, b in losses if a is not None and b is not None]
            if known:
                leads.append(float(np.mean(known)))
        return (float(np.mean(leads)), len(leads)) if leads else None

    def differences(self, pair: Pair) -> NDArray[np.float64]:
        """(seeds, samples) on the seeds that both have."""
        (ours, mine), (theirs, others) = self._on_both(pair)
        lead: NDArray[np.float64] = ours.hits[mine] - theirs.hits[others]
        return lead

    def _on_both(self, pair: Pair) -> list[tuple[Score, list[int]]]:
        """Both scores, each with the rows of the seeds that both have."""
        place, *methods = pair
        both = [self._known[place, method] for method in methods]
        seeds = [seed for seed in both[0].seeds if seed in both[1].seeds]
        return [(score, [score.seeds.index(seed) for seed in seeds]) for score in both]

    def differ(self, pair: Pair) -> bool:
        """Whether any test sample of any seed was hit by one of both alone."""
        return bool(np.nan_to_num(self.differences(pair)).any())

    def duels(self, pairs: Sequence[Pair]) -> list[Duel]:
        """Each with its interval and its p-value, which is corrected for their number."""
        p_values = [paired_p(self.differences(pair)) for pair in pairs]
        corrected = holm(p_values)
        return [
            Duel(pair[0], pair[2], interval_of(*self._drawn(pair)), p, q)
            for pair, p, q in zip(pairs, p_values, corrected, strict=True)
        ]

    def mean_lead(self, pairs: Sequence[Pair]) -> Interval | None:
        """The mean over cells; None without any."""
        if not pairs:
            return None
        drawn = [self._drawn(pair) for pair in pairs]
        return interval_of(
            float(np.mean([mean for mean, _ in drawn])), np.mean([d for _, d in drawn], axis=0)
        )

    def lead(self, pair: Pair) -> float:
        """The mean difference of one cell."""
        return float(np.nanmean(self.differences(pair), axis=1).mean())

    def ranks(self, places: Sequence[Place]) -> dict[str, float]:
        """Mean rank by accuracy among the default and its rivals, 1 is best; equals share the mean rank."""
        collected: dict[str, list[float]] = {}
        for place in places:
            known = [method for method in (DEFAULT, *RIVALS) if self.get(place, method)]
            accuracies = [round(self._known[place, method].accuracy, 9) for method in known]
            for method, rank in zip(known, rankdata([-a for a in accuracies]), strict=True):
                collected.setdefault(method, []).append(float(rank))
        return {m: float(np.mean(collected[m])) for m in (DEFAULT, *RIVALS) if len(collected.get(m, ())) > 0}

    def _drawn(self, pair: Pair) -> tuple[float, NDArray[np.float64]]:
        if pair not in self._draws:
            values = self.differences(pair)
            self._draws[pair] = self.lead(pair), _bootstrap(*values.shape).draws(values)
        return self._draws[pair]


@lru_cache(maxsize=2)  # those of the images have a hundred megabytes; cells come set by set
def _bootstrap(n_seeds: int, n_test: int) -> Bootstrap:
    return Bootstrap(n_seeds, n_test)


@dataclass(frozen=True)
class Summary:
    """What page and figure tell."""

    scores: Scores
    duels: tuple[Duel, ...]  # the default against the best rival of each cell
    tallies: tuple[Tally, ...]  # by set, then by family
    by_kind: tuple[Tally, ...]  # by given samples, over the text sets and over the image sets
    api_tallies: tuple[Tally, ...]  # of the API's views, by set, kind and over everything


def summarise(all_scores: Sequence[Score]) -> Summary:
    """Duels of all cells, and their tallies."""
    scores = Scores(all_scores)
    duels = scores.duels(scores.best_pairs())
    of_sets = _sets_of([duel.place for duel in duels])
    tallies = tuple(_tally(name, DEFAULT, scores, duels, of) for name, of in of_sets.items())
    kinds = _kinds_of([duel.place for duel in duels])
    by_kind = tuple(_tally(name, DEFAULT, scores, duels, of) for name, of in kinds.items())
    api = scores.duels(scores.best_pairs(API))
    places = [duel.place for duel in api]
    groups = _sets_of(places) | _kinds_of(places)
    api_tallies = tuple(_tally(name, API, scores, api, of) for name, of in groups.items())
    return Summary(scores, tuple(duels), tallies, by_kind, api_tallies)


def _sets_of(places: Sequence[Place]) -> dict[str, list[Place]]:
    """The cells of each set, then of each family with more than one of them."""
    measured = [name for name in ALL_SETS if any(place.set == name for place in places)]
    groups = {name: [place for place in places if place.set == name] for name in measured}
    for family, names in FAMILIES.items():
        if sum(name in measured for name in names) > 1:
            groups[family] = [place for place in places if place.set in names]
    return groups


def _kinds_of(places: Sequence[Place]) -> dict[str, list[Place]]:
    groups: dict[str, list[Place]] = {}
    for family, names in (("text", (*TEXT_SETS, *SCORED_ONCE)), ("images", IMAGE_SETS)):
        some = [place for place in places if place.set in names]
        for place in sorted(some, key=lambda p: (p.synthetic, SHAPES.index(p.shape), p.given)):
            groups.setdefault(f"{family}, {place.kind}", []).append(place)
    return groups


def _tally(name: str, ours: str, scores: Scores, duels: Sequence[Duel], places: Sequence[Place]) -> Tally:
    fought = [duel for duel in duels if duel.place in places]
    lead = scores.mean_lead([(duel.place, ours, duel.rival) for duel in fought])
    if lead is None:
        raise ValueError(f"no cells of {name}")
    wins = [duel for duel in fought if duel.lead.mean > 0]
    losses = [duel for duel in fought if duel.lead.mean < 0]
    pairs = [(scores.get(d.place, ours), scores.get(d.place, d.rival)) for d in fought]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    lossy = [(a.log_loss, b.log_loss) for a, b in both if a.log_loss is not None and b.log_loss is not None]
    mean_losses = np.mean(lossy, axis=0).tolist() if lossy else (None, None)
    return Tally(
        name=name,
        cells=len(fought),
        seeds=min(len(set(a.seeds) & set(b.seeds)) for a, b in both),
        accuracy=float(np.mean([a.accuracy for a, _ in both])),
        rival_accuracy=float(np.mean([b.accuracy for _, b in both])),
        log_loss=mean_losses[0],
        rival_log_loss=mean_losses[1],
        lead=lead,
        wins=len(wins),
        significant_wins=sum(duel.significant for duel in wins),
        losses=len(losses),
        significant_losses=sum(duel.significant for duel in losses),
        ranks=scores.ranks([duel.place for duel in fought]),
    )


UNEVEN = ("uneven", "drawn")  # shapes whose counts differ
GAIN = 0.015  # over the old default on uneven cells
FAR_BEHIND, FEW_CELLS = -0.02, 0.05
TIMES_FASTER = 20
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Bar:
    """One of them; `passed` is None where nothing was measured that could tell."""

    name: str
    wanted: str
    measured: str
    passed: bool | None

    @property
    def verdict(self) -> str:
        """For a table."""
        return "not measured" if self.passed is None else "yes" if self.passed else "NO"


def bars(summary: Summary) -> list[Bar]:
    """All of them, in the order in which they were set."""
    scores = summary.scores
    even, uneven = (
        scores.pairs(scores.places(wanted), OLD)
        for wanted in (lambda place: place.shape == EVEN, lambda place: place.shape in UNEVEN)
    )
    api = f"`{API}` level or ahead of the best with the same inputs"
    return [
        _lead("equal counts, against the old default", f"`{DEFAULT}` level or ahead", scores, even, 0.0),
        _lead("uneven counts, against the old default", "+1.5 points or more", scores, uneven, GAIN),
        _log_loss(scores),
        _each_rival(scores),
        _lead(
            "an API's views, against the best rival of each cell", api, scores, scores.best_pairs(API), 0.0
        ),
        _far_behind(scores, DEFAULT),
        _far_behind(scores, API),
        _ahead_of_setfit(scores),
        _faster_than_setfit(scores),
        _level_with_round_robin(scores),
    ]


def in_words(checked: Sequence[Bar]) -> str:
    """Which bars fail, in one paragraph."""
    failed = [bar for bar in checked if bar.passed is False]
    unknown = [bar for bar in checked if bar.passed is None]
    sentences = [f"{sum(bar.passed is True for bar in checked)} of {len(checked)} bars hold."]
    if failed:
        sentences.append(f"These fail: {'; '.join(f'{bar.name} ({bar.measured})' for bar in failed)}.")
    if unknown:
        sentences.append(f"Not measured: {'; '.join(bar.name for bar in unknown)}.")
    return " ".join(sentences)


def lead_in_words(summary: Summary) -> Iterator[str]:
    """What the lead is over rivals with the same inputs, whatever it is."""
    scores = summary.scores
    for ours, inputs in ((DEFAULT, "all views"), (API, "an API's views")):
        pairs = scores.best_pairs(ours)
        lead = scores.mean_lead(pairs)
        if lead is not None:
            yield (
                f"`{ours}`: {points(lead)}, against the best rival of each cell that sees {inputs}, "
                f"mean of {len(pairs)} cells."
            )


def far_behind(scores: Scores, ours: str) -> list[tuple[float, Pair]]:
    """Cells in which ours is more than two points behind the best rival with the same inputs, worst first."""
    leads = [(scores.lead(pair), pair) for pair in scores.best_pairs(ours)]
    return sorted((x for x in leads if x[0] < FAR_BEHIND - _ROUNDING), key=lambda x: x[0])


def _far_behind(scores: Scores, ours: str) -> Bar:
    name = f"cells of `{ours}` more than 2 points behind their best rival"
    wanted, cells = f"at most {100 * FEW_CELLS:.0f} %, five seeds or more", len(scores.best_pairs(ours))
    if not cells:
        return Bar(name, wanted, "no cells", None)
    behind = far_behind(scores, ours)
    return Bar(name, wanted, f"{len(behind)} of {cells} cells", len(behind) <= FEW_CELLS * cells + _ROUNDING)


def _lead(name: str, wanted: str, scores: Scores, pairs: Sequence[Pair], least: float) -> Bar:
    lead = scores.mean_lead(pairs)
    if lead is None:
        return Bar(name, wanted, "no cells", None)
    return Bar(name, wanted, _over(lead, len(pairs)), lead.mean >= least - _ROUNDING)


def _log_loss(scores: Scores) -> Bar:
    name, wanted = "log loss, against the old default", "lower on average"
    lead = scores.loss_lead(scores.pairs(scores.places(), OLD))
    if lead is None:
        return Bar(name, wanted, "no cells", None)
    return Bar(name, wanted, f"{-lead[0]:+.3f}, {lead[1]} cells", lead[0] > 0)


def _each_rival(scores: Scores) -> Bar:
    name, wanted = "an API's views, against every single rival", f"`{API}` ahead of each on average"
    leads = {
        rival: (lead, len(pairs))
        for rival in ON_API
        if (pairs := scores.pairs(scores.places(method=API), rival, API))
        and (lead := scores.mean_lead(pairs))
    }
    if not leads:
        return Bar(name, wanted, "no cells", None)
    nearest = min(leads, key=lambda rival: leads[rival][0].mean)
    lead, count = leads[nearest]
    return Bar(name, wanted, f"nearest: {nearest}, {_over(lead, count)}", lead.mean > 0)


def _level_with_round_robin(scores: Scores) -> Bar:
    """Cells in which both ended with the same results are no tests, and Holm does not count them."""
    pairs = scores.pairs(scores.places(), EVENLY)
    duels = scores.duels([pair for pair in pairs if scores.differ(pair)])
    lost = [duel for duel in duels if duel.significant and duel.lead.mean < 0]
    measured = f"{len(lost)} of {len(duels)} cells" if duels else "no cells"
    measured += "".join(f"; {d.place}, {d.rival} ({points(d.lead)})" for d in lost[:5])
    measured += f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    if same := len(pairs) - len(duels):
        measured += f"; the same results in {same} more"
    name = "ADAMAB's choice of classes level with round-robin or better"
    return Bar(name, "none after Holm's correction", measured, not lost if pairs else None)


def _over(lead: Interval, count: int) -> str:
    return f"{points(lead)}, {count} cells"


def _setfit_pairs(scores: Scores) -> list[Pair]:
    return scores.pairs(scores.places(lambda place: not place.synthetic), SETFIT)


def _ahead_of_setfit(scores: Scores) -> Bar:
    name, wanted, pairs = "SetFit, 5 given", "ahead on average over the five text sets", _setfit_pairs(scores)
    lead = scores.mean_lead(pairs)
    if lead is None:
        return Bar(name, wanted, "no SetFit", None)
    lacking = sorted(set(TEXT_SETS) - {place.set for place, *_ in pairs})
    if lacking:
        return Bar(name, wanted, f"{_over(lead, len(pairs))}; without {', '.join(lacking)}", None)
    return Bar(name, wanted, _over(lead, len(pairs)), lead.mean > 0)


def _faster_than_setfit(scores: Scores) -> Bar:
    name, wanted = "SetFit's training time", f"at most 1/{TIMES_FASTER} of it on every set (medians)"
    pairs = _setfit_pairs(scores)
    if not pairs:
        return Bar(name, wanted, "no SetFit", None)
    shares = [
        (median_seconds(scores, p, DEFAULT) / median_seconds(scores, p, SETFIT), p.set) for p, *_ in pairs
    ]
    share, slowest = max(shares)
    result = f"1/{1 / share:.0f} at most ({slowest})" if share > 0 else "no time at all"
    lacking = set(TEXT_SETS) - {place.set for place, *_ in pairs}
    return Bar(name, wanted, result, None if lacking else share <= 1 / TIMES_FASTER + _ROUNDING)


def median_seconds(scores: Scores, place: Place, method: str) -> float:
    """Of the fits of one method in a cell."""
    score = scores.get(place, method)
    return float(np.median(score.seconds)) if score else float("nan")
