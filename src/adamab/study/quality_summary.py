"""The yardstick's scores put together: leads with intervals, duels with the best rival, ranks.

Every method of a cell has the same seeds and test samples, so differences are paired. All cells of a set
share their columns of test samples and their seeds, and a draw of the bootstrap takes the same ones in all
of them: a mean over cells does not get narrower by counting a sample more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from adamab.study.quality_plan import DEFAULT, IMAGE_SETS, RIVALS, SETS, TEXT_SETS, Place
from adamab.study.statistics import Bootstrap, Interval, holm, interval_of, paired_p

SIGNIFICANT = 0.05
FAMILIES = {"text sets": TEXT_SETS, "image sets": IMAGE_SETS, "all sets": SETS}
Pair: TypeAlias = tuple[Place, str, str]  # where, ours, theirs


@dataclass(frozen=True, eq=False)
class Score:
    """One method in one cell; `hits` has a row a seed and a column a test sample of the set."""

    place: Place
    method: str
    policy: str
    seeds: tuple[int, ...]
    hits: NDArray[np.float64]  # (seeds, samples), NaN where a seed did not score a sample
    seconds: tuple[float, ...]  # of the fits, by seed

    @property
    def by_seed(self) -> NDArray[np.float64]:
        """(seeds,) accuracies."""
        found: NDArray[np.float64] = np.nanmean(self.hits, axis=1)
        return found

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return float(self.by_seed.mean())

    def rows(self) -> list[dict[str, Any]]:
        """One a seed, as `quality.json` has them."""
        numbers = zip(self.seeds, self.by_seed, self.hits, self.seconds, strict=True)
        return [
            {
                "set": self.place.set,
                "given": self.place.given,
                "synthetic": self.place.synthetic,
                "generator": self.place.generator,
                "policy": self.policy,
                "seed": seed,
                "method": self.method,
                "accuracy": round(float(accuracy), 6),
                "n_test": int((~np.isnan(hits)).sum()),
                "fit_seconds": round(taken, 3),
            }
            for seed, accuracy, hits, taken in numbers
        ]


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

    found: Sequence[Score]
    _known: dict[tuple[Place, str], Score] = field(init=False)
    _draws: dict[Pair, tuple[float, NDArray[np.float64]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._known = {(score.place, score.method): score for score in self.found}

    def get(self, place: Place, method: str) -> Score | None:
        """The score, if it was measured."""
        return self._known.get((place, method))

    def places(self, wanted: Callable[[Place], bool] = lambda _: True) -> list[Place]:
        """Cells with a default, set by set and in ascending order."""
        found = {score.place for score in self.found if score.method == DEFAULT and wanted(score.place)}
        return sorted(found, key=lambda p: (SETS.index(p.set), p.given, p.synthetic))

    def best(self, place: Place, among: Iterable[str] = RIVALS) -> str | None:
        """The rival of the highest mean accuracy in a cell; of equals the first."""
        known = [method for method in among if self.get(place, method)]
        return max(known, key=lambda method: self._known[place, method].accuracy, default=None)

    def pairs(self, places: Iterable[Place], theirs: str, ours: str = DEFAULT) -> list[Pair]:
        """Where both were measured."""
        return [(p, ours, theirs) for p in places if self.get(p, ours) and self.get(p, theirs)]

    def best_pairs(self, places: Iterable[Place], among: Iterable[str] = RIVALS) -> list[Pair]:
        """The default against the best of some rivals, cell by cell."""
        chosen, found = tuple(among), list[Pair]()
        for place in places:
            rival = self.best(place, chosen)
            if rival is not None:
                found.append((place, DEFAULT, rival))
        return found

    def differences(self, pair: Pair) -> NDArray[np.float64]:
        """(seeds, samples) on the seeds that both have."""
        place, *methods = pair
        ours, theirs = (self._known[place, method] for method in methods)
        seeds = [seed for seed in ours.seeds if seed in theirs.seeds]
        mine, others = ([s.seeds.index(seed) for seed in seeds] for s in (ours, theirs))
        found: NDArray[np.float64] = ours.hits[mine] - theirs.hits[others]
        return found

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


@lru_cache(maxsize=2)  # those of the pictures have a hundred megabytes; cells come set by set
def _bootstrap(n_seeds: int, n_test: int) -> Bootstrap:
    return Bootstrap(n_seeds, n_test)


@dataclass(frozen=True)
class Summary:
    """What page and figure tell."""

    scores: Scores
    duels: tuple[Duel, ...]  # the default against the best rival of each cell
    tallies: tuple[Tally, ...]  # by set, then by family


def summarise(found: Sequence[Score]) -> Summary:
    """Duels of all cells, and their tallies."""
    scores = Scores(found)
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
    found = [scores.get(place, method) for place, method in wanted]
    return float(np.mean([score.accuracy for score in found if score is not None]))
