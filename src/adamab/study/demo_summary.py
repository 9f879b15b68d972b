"""From measurements to a table: accuracies, their intervals, and what can honestly be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamab.study import statistics
from adamab.study.demo import POLICIES, PROBE, RECIPE, SIMILARITY, Measurement
from adamab.study.statistics import Bootstrap, Interval, percent, points

NAMES = {"random": "random", "round-robin": "round-robin", "adamab": "ADAMAB"}
INTERVALS = statistics.INTERVALS.format(samples="messages")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    policy: str
    synthetic: int
    accuracy: Interval
    difference: Interval | None  # to the linear probe with as many samples; None for the probe itself
    by_seed: tuple[float, ...]
    seconds: float  # median of the fits

    @property
    def label(self) -> str:
        """The method in words."""
        if self.method == SIMILARITY:
            return "zero-shot similarity"
        source = "given only" if self.policy == "none" else NAMES[self.policy]
        return f"{'linear probe' if self.method == PROBE else 'calibrator'}, {source}"


@dataclass(frozen=True)
class Summary:
    """Everything that the table, the figures and the files need."""

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    n_given: int
    n_test: int
    classes: tuple[str, ...]
    samples_by_class: dict[str, list[list[int]]]  # policy -> seed -> class, at the largest number
    estimate: Interval | None  # out-of-fold, of the first seed's classifier on the given examples
    against: dict[str, Interval]  # policy -> ADAMAB's lead over it, at the largest number

    @property
    def most(self) -> int:
        """The largest number of synthetic samples."""
        return max(row.synthetic for row in self.rows)

    @property
    def same_samples(self) -> bool:
        """ADAMAB has round-robin's samples: equal counts, and a class is handed out in one order a seed."""
        return self.samples_by_class["adamab"] == self.samples_by_class["round-robin"]

    def table(self) -> list[Row]:
        """Rows without any synthetic sample and with the most of them; others are for the figure."""
        return [row for row in self.rows if row.synthetic in (0, self.most)]

    def row(self, method: str, policy: str, synthetic: int) -> Row:
        """One row; KeyError if there is none."""
        return {(r.method, r.policy, r.synthetic): r for r in self.rows}[method, policy, synthetic]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **asdict(self),
            "same_samples": self.same_samples,
            "intervals": INTERVALS,
            "findings": findings(self),
        }


_Key = tuple[str, str, int]


def summarise(measurements: Sequence[Measurement]) -> Summary:
    """The table in the order of the story: nothing generated, then ever more."""
    groups: dict[_Key, list[Measurement]] = {}
    for m in sorted(measurements, key=lambda m: m.seed):
        groups.setdefault((m.method, m.policy, m.synthetic), []).append(m)
    correct = {key: np.stack([m.correct for m in group]).astype(np.float64) for key, group in groups.items()}
    first = groups[RECIPE, "none", 0]
    bootstrap = Bootstrap(*correct[RECIPE, "none", 0].shape)
    most = max(key[2] for key in groups)
    best = correct[RECIPE, "adamab", most]
    return Summary(
        rows=tuple(_row(key, groups[key], correct, bootstrap) for key in sorted(groups, key=_order)),
        seeds=tuple(m.seed for m in first),
        n_given=sum(first[0].samples_by_class.values()),
        n_test=len(first[0].correct),
        classes=tuple(first[0].samples_by_class),
        samples_by_class={
            p: [list(m.samples_by_class.values()) for m in groups[RECIPE, p, most]] for p in POLICIES
        },
        estimate=None if first[0].estimate is None else Interval(*first[0].estimate),
        against={p: bootstrap(best - correct[RECIPE, p, most]) for p in POLICIES if p != "adamab"},
    )


def findings(summary: Summary) -> list[str]:
    """What the table shows, in sentences made from its numbers."""
    best, given = summary.row(RECIPE, "adamab", summary.most), summary.row(RECIPE, "none", 0)
    compared = (("the given examples", given), (f"{summary.most} synthetic samples more", best))
    leads = [_lead(lead, NAMES[policy]) for policy, lead in reversed(summary.against.items())]
    return [
        *(f"With {what} the calibrator is {_lead(r.difference, 'the probe')}." for what, r in compared),
        f"ADAMAB's choice of classes is {' and '.join(leads)} here.",
        *_equal_sentence(summary),
        *_estimate_sentence(summary, given),
        f"A fit took {given.seconds:.1f} s without and {best.seconds:.1f} s with synthetic samples "
        "(median; two fits at a time, one thread each).",
    ]


def _lead(difference: Interval | None, over: str) -> str:
    if difference is None:  # only the probe's own rows have none
        raise ValueError("a row without a difference")
    return f"{difference.verdict} {over} ({points(difference)})"


def _equal_sentence(summary: Summary) -> list[str]:
    if not summary.same_samples:
        return []
    return [
        "ADAMAB and round-robin ended with the same number of samples of each class, and so with the same "
        "messages: the same classifier. A budget that does not go round evenly would tell them apart."
    ]


def _estimate_sentence(summary: Summary, given: Row) -> list[str]:
    if summary.estimate is None:
        return []
    return [
        f"Without a test set, the {summary.n_given} given examples alone foretold "
        f"{percent(summary.estimate)} for the first seed's calibrator; the {summary.n_test} test messages "
        f"say {100 * given.by_seed[0]:.1f} %."
    ]


def _row(
    key: _Key, group: list[Measurement], correct: dict[_Key, NDArray[np.float64]], bootstrap: Bootstrap
) -> Row:
    method, policy, synthetic = key
    probe = next(values for (m, _, n), values in correct.items() if m == PROBE and n == synthetic)
    return Row(
        method=method,
        policy=policy,
        synthetic=synthetic,
        accuracy=bootstrap(correct[key]),
        difference=None if method == PROBE else bootstrap(correct[key] - probe),
        by_seed=tuple(float(m.correct.mean()) for m in group),
        seconds=float(np.median([m.seconds for m in group])),
    )


def _order(key: _Key) -> tuple[int, int, int]:
    method, policy, synthetic = key
    place = ("none", *POLICIES).index(policy)
    return synthetic, (SIMILARITY, PROBE, RECIPE).index(method), place
