"""The yardstick's scores put together: leads with intervals, duels with the best rival, ranks, and the bars.

Every method of a cell has the same seeds and test samples, so differences are paired. All cells of a set
share their columns of test samples and their seeds, and a draw of the bootstrap takes the same ones in all
of them: a mean over cells does not get narrower by counting a sample more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from adamab.evaluation.statistics import Bootstrap, Interval, holm, interval_of, paired_p, points
from experiments.quality_plan import (
    API,
    DEFAULT,
    EVENLY,
    IMAGE_SETS,
    PROBE,
    RIVALS,
    SETFIT,
    SETS,
    TEXT_SETS,
    ZERO_SHOT,
    Place,
)

SIGNIFICANT = 0.05
FAMILIES = {"text sets": TEXT_SETS, "image sets": IMAGE_SETS, "all sets": SETS}
Pair: TypeAlias = tuple[Place, str, str]  # where, ours, theirs


@dataclass(frozen=True, eq=False)
class Score:
    """One method in one cell; `hits` has a row per seed and a column per test sample of the set."""

    place: Place
    method: str
    seeds: tuple[int, ...]
    hits: NDArray[np.float64]  # (seeds, samples), NaN where a seed did not score a sample
    seconds: tuple[float, ...]  # of the fits, by seed

    @property
    def by_seed(self) -> NDArray[np.float64]:
        """(seeds,) accuracies."""
        means: NDArray[np.float64] = np.nanmean(self.hits, axis=1)
        return means

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return float(self.by_seed.mean())


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
    """The default against the best rival of each cell, over some sets."""

    name: str
    cells: int
    accuracy: float
    rival_accuracy: float
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

    def places(self, wanted: Callable[[Place], bool] = lambda _: True) -> list[Place]:
        """Cells with a default, set by set and in ascending order."""
        places = {score.place for score in self.measured if score.method == DEFAULT and wanted(score.place)}
        return sorted(places, key=lambda p: (SETS.index(p.set), p.given, p.synthetic))

    def best(self, place: Place, among: Iterable[str] = RIVALS) -> str | None:
        """The rival of the highest mean accuracy in a cell; of equals the first."""
        known = [method for method in among if self.get(place, method)]
        return max(known, key=lambda method: self._known[place, method].accuracy, default=None)

    def pairs(self, places: Iterable[Place], theirs: str, ours: str = DEFAULT) -> list[Pair]:
        """Where both were measured."""
        return [(p, ours, theirs) for p in places if self.get(p, ours) and self.get(p, theirs)]

    def best_pairs(self, places: Iterable[Place], among: Iterable[str] = RIVALS) -> list[Pair]:
        """The default against the best of some rivals, cell by cell."""
        chosen, pairs = tuple(among), list[Pair]()
        for place in places:
            rival = self.best(place, chosen)
            if rival is not None:
                pairs.append((place, DEFAULT, rival))
        return pairs

    def differences(self, pair: Pair) -> NDArray[np.float64]:
        """(seeds, samples) on the seeds that both have."""
        place, *methods = pair
        ours, theirs = (self._known[place, method] for method in methods)
        seeds = [seed for seed in ours.seeds if seed in theirs.seeds]
        mine, others = ([s.seeds.index(seed) for seed in seeds] for s in (ours, theirs))
        lead: NDArray[np.float64] = ours.hits[mine] - theirs.hits[others]
        return lead

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


def summarise(all_scores: Sequence[Score]) -> Summary:
    """Duels of all cells, and their tallies."""
    scores = Scores(all_scores)
    duels = scores.duels(scores.best_pairs(scores.places()))
    measured = [name for name in SETS if any(duel.place.set == name for duel in duels)]
    groups: dict[str, tuple[str, ...]] = {name: (name,) for name in measured}
    for family, names in FAMILIES.items():
        members = tuple(name for name in names if name in measured)
        if len(members) > 1:
            groups[family] = members
    tallies = tuple(_tally(name, members, scores, duels) for name, members in groups.items())
    return Summary(scores, tuple(duels), tallies)


def _tally(name: str, members: Sequence[str], scores: Scores, duels: Sequence[Duel]) -> Tally:
    fought = [duel for duel in duels if duel.place.set in members]
    lead = scores.mean_lead([(duel.place, DEFAULT, duel.rival) for duel in fought])
    if lead is None:
        raise ValueError(f"no cells of {name}")
    wins = [duel for duel in fought if duel.lead.mean > 0]
    losses = [duel for duel in fought if duel.lead.mean < 0]
    places = [duel.place for duel in fought]
    return Tally(
        name=name,
        cells=len(fought),
        accuracy=_mean(scores, [(place, DEFAULT) for place in places]),
        rival_accuracy=_mean(scores, [(duel.place, duel.rival) for duel in fought]),
        lead=lead,
        wins=len(wins),
        significant_wins=sum(duel.significant for duel in wins),
        losses=len(losses),
        significant_losses=sum(duel.significant for duel in losses),
        ranks=scores.ranks(places),
    )


def _mean(scores: Scores, wanted: Sequence[tuple[Place, str]]) -> float:
    present = [scores.get(place, method) for place, method in wanted]
    return float(np.mean([score.accuracy for score in present if score is not None]))


WORST_LOSS = -0.01  # one point
LEAD, API_LEAD, IMAGE_LEAD = 0.10, 0.08, 0.01
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
    return [
        _every_cell(scores, [(duel.place, DEFAULT, duel.rival) for duel in summary.duels]),
        _no_significant_loss("no significant loss to the best rival", summary.duels),
        _lead("text sets, given samples only", scores, _given_only(scores), DEFAULT, LEAD),
        _lead("the same by what an API embedder gives", scores, _given_only(scores), API, API_LEAD),
        _few_given(scores),
        _lead("image sets", scores, scores.places(lambda p: p.set in IMAGE_SETS), DEFAULT, IMAGE_LEAD),
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


def _given_only(scores: Scores) -> list[Place]:
    return scores.places(lambda place: place.set in TEXT_SETS and not place.synthetic)


def _every_cell(scores: Scores, pairs: Sequence[Pair]) -> Bar:
    return _worst("every cell against its best rival", scores, pairs)


def _few_given(scores: Scores) -> Bar:
    few = scores.places(lambda place: place.given <= 2)
    return _worst(
        "cells with 1 or 2 given against the better of zero-shot and linear probe",
        scores,
        scores.best_pairs(few, (ZERO_SHOT, PROBE)),
    )


def _worst(name: str, scores: Scores, pairs: Sequence[Pair]) -> Bar:
    wanted = "mean loss of at most 1 point"
    if not pairs:
        return Bar(name, wanted, "no cells", None)
    leads = [(scores.lead(pair), pair) for pair in pairs]
    lowest, (place, _, rival) = min(leads, key=lambda pair: pair[0])
    below = sum(lead < WORST_LOSS - _ROUNDING for lead, _ in leads)
    result = f"lowest {100 * lowest:+.1f} points ({place}, {rival}); {below} of {len(pairs)} cells below -1"
    return Bar(name, wanted, result, not below)


def _no_significant_loss(name: str, duels: Sequence[Duel]) -> Bar:
    wanted = "none after Holm's correction"
    if not duels:
        return Bar(name, wanted, "no cells", None)
    lost = [duel for duel in duels if duel.significant and duel.lead.mean < 0]
    named = "".join(f"; {d.place}, {d.rival} ({points(d.lead)})" for d in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    return Bar(name, wanted, f"{len(lost)} of {len(duels)} cells{named}{more}", not lost)


def _level_with_round_robin(scores: Scores) -> Bar:
    """Cells in which both ended with the same results are no tests, and Holm does not count them."""
    pairs = scores.pairs(scores.places(), EVENLY)
    differing = [pair for pair in pairs if scores.differ(pair)]
    name = "ADAMAB's choice of classes level with round-robin or better"
    bar = _no_significant_loss(name, scores.duels(differing))
    if len(differing) == len(pairs):
        return bar
    same = f"the same results in {len(pairs) - len(differing)} more"
    return replace(bar, measured=f"{bar.measured}; {same}", passed=bar.passed is not False)


def _lead(name: str, scores: Scores, places: Sequence[Place], ours: str, wanted: float) -> Bar:
    pairs = scores.pairs(places, PROBE, ours)
    asked = (
        f"`{ours}` at least {100 * wanted:.0f} point{'' if wanted == IMAGE_LEAD else 's'} ahead of the probe"
    )
    lead = scores.mean_lead(pairs)
    if lead is None:
        return Bar(name, asked, "no cells", None)
    return Bar(name, asked, _over(lead, len(pairs)), lead.mean >= wanted - _ROUNDING)


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
