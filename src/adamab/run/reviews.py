"""What people think of a run's synthetic samples: one line per verdict, the last one counts.

The file is only ever added to, so the page may write while a fit runs; the next fit follows it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from adamab.errors import os_errors
from adamab.run.resume import OVERRULED, REJECTED_BEFORE, RoundOutcome
from adamab.task.words import normalised_text

if TYPE_CHECKING:
    from adamab.run.run_log import Event

REVIEWS = "reviews.jsonl"
Review: TypeAlias = Literal["accept", "reject", "none"]  # none takes a verdict back
DECISIONS: tuple[Review, ...] = get_args(Review)


class Reviews:
    """The verdicts on the samples of the run in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / REVIEWS

    def add(self, text: str, class_name: str, verdict: Review) -> None:
        """Write a verdict down; returns when it is on the disk.

        Args:
            text: the sample that was looked at.
            class_name: the class that it was generated for.
            verdict: what is to become of it; the last one of a text counts.
        """
        self.add_all([(text, class_name)], verdict)

    def add_all(self, samples: Iterable[tuple[str, str]], verdict: Review) -> None:
        """The same for many, texts with their classes; all are written or none."""
        at = round(time.time(), 3)
        rows = [{"at": at, "label": name, "text": text, "verdict": verdict} for text, name in samples]
        # ASCII: a line stays a line whatever the text holds.
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        with os_errors(self.path, "cannot be written"):
            file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                torn = self.path.read_bytes()[-1:] not in (b"", b"\n")  # by a process that was killed
                os.write(file, b"\n" * torn + lines)  # at once, so that two writers do not mix
                os.fsync(file)
            finally:
                os.close(file)

    def latest(self) -> dict[str, Review]:
        """Normalised text -> its last verdict."""
        with os_errors(self.path, "cannot be read"):
            lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        latest: dict[str, Review] = {}
        for line in lines:
            try:
                row = json.loads(line)
                key, verdict = normalised_text(row["text"]), row["verdict"]
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # the line of a process that was killed while it wrote
            if verdict in DECISIONS:
                latest[key] = verdict
        return latest


# What people decided on a run's samples, segment by segment; texts are those of `normalised_text`.


@dataclass(frozen=True)
class ReviewChanges:
    """What changed since the last segment began, as normalised texts."""

    rejected: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()  # rejected before, and not any more
    wanted: tuple[str, ...] = ()  # accepted although the gate kept them out
    unwanted: tuple[str, ...] = ()  # wanted before, and not any more

    @classmethod
    def of(
        cls, segments: Sequence[Event], outcomes: Sequence[RoundOutcome], reviews: Mapping[str, str]
    ) -> ReviewChanges:
        """What people decided since the last segment began.

        Args:
            segments: the journal's events that began one; none in a run that starts over.
            outcomes: how the run's rounds ended.
            reviews: normalised text -> the last verdict on it.
        """
        out, overruled = decided(segments)
        present = {normalised_text(text) for outcome in outcomes for text in outcome.texts}
        reasons: dict[str, set[str]] = {}  # why the gate kept a text out, where people may overrule it
        for outcome in outcomes:
            for text, reason in outcome.turned_away:
                if reason in OVERRULED:
                    reasons.setdefault(normalised_text(text), set()).add(reason)
        rejected = [key for key, verdict in reviews.items() if verdict == "reject"]
        entering = [
            key
            for key, verdict in reviews.items()
            # A text that was kept out for an earlier rejection enters when that is taken back.
            if (verdict == "accept" and key in reasons)
            or (verdict == "none" and REJECTED_BEFORE in reasons.get(key, ()))
        ]
        return cls(
            # A run that starts over does not take in what was rejected before.
            tuple(key for key in rejected if (key in present or not segments) and key not in out),
            tuple(key for key, verdict in reviews.items() if verdict != "reject" and key in out),
            tuple(key for key in entering if key not in present | overruled),
            tuple(key for key in sorted(overruled) if key in reviews and key not in entering),
        )

    def in_words(self) -> list[str]:
        """In words."""
        gone = (*self.rejected, *self.unwanted)
        again = [key for key in self.restored if key not in self.wanted]
        changes = (
            (gone, "rejected"),
            (again, "accepted again"),
            (self.wanted, "accepted against the quality gate"),
        )
        return [f"{len(keys)} sample{'s' * (len(keys) > 1)} {what}" for keys, what in changes if keys]


def decided(segments: Sequence[Event]) -> tuple[set[str], set[str]]:
    """Texts that must not be trained on, and those that are although the gate kept them out."""
    dropped: set[str] = set()
    wanted: set[str] = set()
    for segment in segments:
        dropped = dropped.union(segment.data["rejected"]).difference(segment.data["restored"])
        wanted = wanted.union(segment.data["wanted"]).difference(segment.data["unwanted"])
    return dropped, wanted
