"""The bars that the default recipe is held to, each computed from the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from adamab.study.quality_plan import (
    API,
    DEFAULT,
    EVENLY,
    IMAGE_SETS,
    PROBE,
    SETFIT,
    TEXT_SETS,
    ZERO_SHOT,
    Place,
)
from adamab.study.quality_summary import Duel, Pair, Scores, Summary
from adamab.study.statistics import Interval, points

WORST_LOSS = -0.01  # one point
LEAD, API_LEAD, IMAGE_LEAD = 0.10, 0.08, 0.01
TIMES_FASTER = 20
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Bar:
    """One of them; `passed` is None where nothing was measured that could tell."""

    name: str
    wanted: str
    found: str
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


def in_words(found: Sequence[Bar]) -> str:
    """Which bars fail, in one paragraph."""
    failed = [bar for bar in found if bar.passed is False]
    unknown = [bar for bar in found if bar.passed is None]
    told = [f"{sum(bar.passed is True for bar in found)} of {len(found)} bars hold."]
    if failed:
        told.append(f"These fail: {'; '.join(f'{bar.name} ({bar.found})' for bar in failed)}.")
    if unknown:
        told.append(f"Not measured: {'; '.join(bar.name for bar in unknown)}.")
    return " ".join(told)


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
    lowest, (place, _, rival) = min(leads, key=lambda found: found[0])
    below = sum(lead < WORST_LOSS - _ROUNDING for lead, _ in leads)
    found = f"lowest {100 * lowest:+.1f} points ({place}, {rival}); {below} of {len(pairs)} cells below -1"
    return Bar(name, wanted, found, not below)


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
    return replace(bar, found=f"{bar.found}; {same}", passed=bar.passed is not False)


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
    found = f"1/{1 / share:.0f} at most ({slowest})" if share > 0 else "no time at all"
    lacking = set(TEXT_SETS) - {place.set for place, *_ in pairs}
    return Bar(name, wanted, found, None if lacking else share <= 1 / TIMES_FASTER + _ROUNDING)


def median_seconds(scores: Scores, place: Place, method: str) -> float:
    """Of the fits of one method in a cell."""
    score = scores.get(place, method)
    return float(np.median(score.seconds)) if score else float("nan")
