"""What a run's rounds, samples and held-out answers say, as plain data for the page and the report.

The page follows runs of thousands of rounds and classes, so every round is boiled down once: the loss,
the chosen class, and the few scores that explain the choice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from adamab.run.class_scores import ScoreArrays
from adamab.run.reading import Round, RunReader, SampleSeen
from adamab.run.sample_files import HeldOutAnswer

RUNNERS_UP = 4
POINTS = 200  # of a line in a figure
OTHERS = 3  # classes that one is confused with, and wrong answers that are shown of it


@dataclass(frozen=True)
class ScoreFigure:
    """What the policy knew of a class when it chose: score = bonus − δ², and the highest score wins.

    δ² is how far one more batch of this class would leave the training gradient from that of a balanced
    training set, in units of the round's own scale where the recipe says so. The bonus is large for classes
    with few samples and for those that the folds find hard. All three are None where the policy computes no
    scores or the class had no sample yet. Where `exact` is False, the score is an upper bound and δ² a lower
    one: the class could not win any more.
    """

    class_name: str
    count: int  # its samples before the round
    score: float | None
    bonus: float | None
    shift: float | None  # δ²
    exact: bool | None


@dataclass(frozen=True)
class RoundFigure:
    """A round in short."""

    seq: int  # its place in the journal
    at: float  # seconds since 1970
    segment: int
    round: int
    loss: float | None
    n_samples: int  # after the round
    chosen: str | None
    asked: int
    accepted: int
    rejected: Mapping[str, int]  # the gate's reason -> samples
    refused: bool
    closed: str | None
    ended: str | None
    why: ScoreFigure | None  # of the chosen class
    runners_up: tuple[ScoreFigure, ...]  # the best others, the best first


@dataclass(frozen=True)
class Growth:
    """Samples a class after some rounds, given and synthetic together; one list a class."""

    rounds: tuple[int, ...]
    counts: Mapping[str, tuple[int, ...]]


@dataclass
class ClassSources:
    """Where the samples of a class come from; `kept_out` and `rejected` are not trained on."""

    given: int = 0
    synthetic: int = 0
    kept_out: int = 0  # by the gate
    rejected: int = 0  # by a person, and followed by a fit

    @property
    def in_training(self) -> int:
        """Samples that are trained on."""
        return self.given + self.synthetic


@dataclass(frozen=True)
class ClassErrors:
    """What folds that did not see them say about the given samples of a class."""

    class_name: str
    n: int
    right: int
    confused_with: tuple[tuple[str, int], ...]  # the most frequent first
    examples: tuple[HeldOutAnswer, ...]  # wrong answers, the surest first

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.right / self.n


@dataclass
class RunFigures:
    """The rounds of a run; `follow` adds those that have ended since."""

    reader: RunReader
    rounds: list[RoundFigure] = field(default_factory=list)
    _began: float | None = None
    # The counts before the first round of each segment, in the order of its classes.
    _starts: dict[int, dict[str, int]] = field(default_factory=dict)

    def follow(self) -> Self:
        """See what is new; a run that began anew in the same directory is read from its beginning."""
        segments = self.reader.segments()
        began = segments[0].at if segments else None
        if began != self._began:
            self.rounds, self._starts, self._began = [], {}, began
        names = [list(segment.data["inputs"]["classes"]) for segment in segments]
        for found in self.reader.rounds(after=self.rounds[-1].seq if self.rounds else 0):
            self._add(found, names[found.segment - 1])
        return self

    def _add(self, found: Round, classes: Sequence[str]) -> None:
        if found.segment not in self._starts:
            counts = found.record.scores.arrays().count.tolist()
            self._starts[found.segment] = dict(zip(classes, counts, strict=True))
        self.rounds.append(_round_figure(found, classes))

    def growth(self, points: int = POINTS) -> Growth:
        """Samples a class over the rounds; the last round is always there."""
        shown = set(_spread(len(self.rounds), points))
        names = list(dict.fromkeys(name for start in self._starts.values() for name in start))
        rounds: list[int] = []
        lines: dict[str, list[int]] = {name: [] for name in names}
        counts: Counter[str] = Counter()
        segment = 0
        for place, found in enumerate(self.rounds):
            if found.segment != segment:
                segment, counts = found.segment, Counter(self._starts[found.segment])
            if found.chosen is not None:
                counts[found.chosen] += found.accepted
            if place in shown:
                rounds.append(found.round)
                for name in names:
                    lines[name].append(counts[name])
        return Growth(tuple(rounds), {name: tuple(line) for name, line in lines.items()})

    def losses(self, points: int = POINTS) -> list[tuple[int, float]]:
        """Rounds and the training loss after them."""
        known = [(r.round, r.loss) for r in self.rounds if r.loss is not None]
        return [known[place] for place in _spread(len(known), points)]

    def chosen(self) -> dict[str, int]:
        """How often each class was chosen, the most frequent first."""
        return dict(Counter(r.chosen for r in self.rounds if r.chosen is not None).most_common())

    def gate_reasons(self) -> dict[str, dict[str, int]]:
        """Samples that the quality gate kept out, by class and reason."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for found in self.rounds:
            if found.chosen is not None and found.rejected:
                counts[found.chosen].update(found.rejected)
        return {name: dict(reasons) for name, reasons in counts.items()}


def sources_by_class(samples: Iterable[SampleSeen], classes: Sequence[str] = ()) -> dict[str, ClassSources]:
    """Samples by source; named classes come first and are there without samples too."""
    found: dict[str, ClassSources] = {name: ClassSources() for name in classes}
    for sample in samples:
        counts = found.setdefault(sample.class_name, ClassSources())
        if sample.source == "given":
            counts.given += 1
        elif sample.used:
            counts.synthetic += 1
        elif sample.reason is not None:
            counts.kept_out += 1
        else:
            counts.rejected += 1
    return found


def completed(
    sources: Mapping[str, ClassSources],
    samples: Sequence[SampleSeen],
    figures: RunFigures | None,
    summary: Mapping[str, Any],
) -> dict[str, ClassSources]:
    """What `sources_by_class` cannot see in the samples: vectors, which have no texts, and texts not kept."""
    found = {name: replace(counts) for name, counts in sources.items()}
    gate = figures.gate_reasons() if figures is not None else {}
    overruled = Counter(s.class_name for s in samples if s.reason is not None and s.used)
    for name, reasons in gate.items():
        counts = found.setdefault(name, ClassSources())
        counts.kept_out = max(counts.kept_out, sum(reasons.values()) - overruled[name])
    if any(sample.source == "synthetic" for sample in samples):
        return found
    rounds = figures.rounds if figures is not None else []
    made = Counter({r.chosen: 0 for r in rounds if r.chosen is not None})
    for record in rounds:
        if record.chosen is not None:
            made[record.chosen] += record.accepted
    for name, count in (made if rounds else summary.get("synthetic_by_class", {})).items():
        found.setdefault(name, ClassSources()).synthetic = count
    return found


def confusion_matrix(answers: Sequence[HeldOutAnswer], classes: Sequence[str]) -> list[list[int]]:
    """Held-out answers: a row a true class, a column a predicted one."""
    place = {name: i for i, name in enumerate(classes)}
    matrix = [[0] * len(classes) for _ in classes]
    for answer in answers:
        if answer.label in place and answer.predicted in place:  # a class may be new since
            matrix[place[answer.label]][place[answer.predicted]] += 1
    return matrix


def class_errors(answers: Sequence[HeldOutAnswer], most: int = OTHERS) -> list[ClassErrors]:
    """Every class with a held-out sample, the hardest first; those with more samples first among equals."""
    by_class: dict[str, list[HeldOutAnswer]] = defaultdict(list)
    for answer in answers:
        by_class[answer.label].append(answer)
    found = [_class_errors(name, members, most) for name, members in by_class.items()]
    return sorted(found, key=lambda errors: (errors.accuracy, -errors.n, errors.class_name))


def _class_errors(name: str, answers: Sequence[HeldOutAnswer], most: int) -> ClassErrors:
    wrong = [answer for answer in answers if answer.predicted != name]
    others = Counter(answer.predicted for answer in wrong).most_common(most)
    surest = sorted(wrong, key=lambda answer: -answer.probability)[:most]
    return ClassErrors(name, len(answers), len(answers) - len(wrong), tuple(others), tuple(surest))


def estimate(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The expected accuracy with its interval, which holds it even where rounding would not let it."""
    told = summary.get("estimate")
    if told is None:
        return None
    accuracy = told["accuracy"]
    return {**told, "low": min(told["low"], accuracy), "high": max(told["high"], accuracy)}


def spend_rows(spending: Mapping[str, Any], by: str) -> list[dict[str, Any]]:
    """`RunReader.spending` by `purpose` or `class` as rows, the dearest first."""
    rows = [{"name": name, **spend} for name, spend in spending[f"by_{by}"].items()]
    return sorted(rows, key=lambda row: (-row["usd"], -row["calls"], row["name"]))


def _round_figure(found: Round, classes: Sequence[str]) -> RoundFigure:
    record, known = found.record, found.record.scores.arrays()
    best = known.place[np.argsort(-known.score, kind="stable")[: RUNNERS_UP + 1]].tolist()
    others = [place for place in best if classes[place] != record.chosen][:RUNNERS_UP]
    why = None
    if record.chosen is not None and record.chosen in classes:
        why = _score_figure(record.chosen, known, classes.index(record.chosen))
    return RoundFigure(
        seq=found.seq,
        at=found.at,
        segment=found.segment,
        round=record.round,
        loss=record.loss,
        n_samples=record.n_samples,
        chosen=record.chosen,
        asked=record.asked,
        accepted=record.accepted,
        rejected=dict(record.rejected),
        refused=record.refused,
        closed=record.closed,
        ended=record.ended,
        why=why,
        runners_up=tuple(_score_figure(classes[place], known, place) for place in others),
    )


def _score_figure(name: str, known: ScoreArrays, place: int) -> ScoreFigure:
    count, at = int(known.count[place]), int(np.searchsorted(known.place, place))
    if at == len(known.place) or known.place[at] != place:
        return ScoreFigure(name, count, None, None, None, None)
    score, shift = float(known.score[at]), float(known.shift[at])
    # δ² is a square; rounding may take it below zero.
    return ScoreFigure(name, count, score, score + shift, max(0.0, shift), bool(known.exact[at]))


def _spread(count: int, points: int) -> list[int]:
    """At most `points` places out of `count`, evenly spread, with the first and the last."""
    if count <= points:
        return list(range(count))
    return sorted({round(i * (count - 1) / (points - 1)) for i in range(points)})
