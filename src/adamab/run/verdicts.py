"""What people decided on a run's samples, segment by segment; texts are told apart as `folded` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adamab.errors import RunError
from adamab.run.journal import Event
from adamab.run.past import OVERRULED, REJECTED_BEFORE, RoundOutcome
from adamab.task.words import folded


@dataclass(frozen=True)
class Verdicts:
    """What changed since the last segment began, as folded texts."""

    rejected: tuple[str, ...]
    restored: tuple[str, ...]  # rejected before, and not any more
    wanted: tuple[str, ...]  # accepted although the gate kept them out
    unwanted: tuple[str, ...]  # wanted before, and not any more

    @classmethod
    def of(
        cls, segments: Sequence[Event], outcomes: Sequence[RoundOutcome], reviews: Mapping[str, str]
    ) -> Verdicts:
        """From the journal and the last review of each text."""
        out, overruled = dropped(segments), wanted(segments)
        known = {folded(text) for outcome in outcomes for text in outcome.texts}
        reasons = _reasons(outcomes)
        rejected = [key for key, verdict in reviews.items() if verdict == "reject"]
        entering = [key for key, verdict in reviews.items() if _enters(reasons.get(key, ()), verdict)]
        return cls(
            # A run that begins anew does not take in what was rejected before.
            tuple(key for key in rejected if (key in known or not segments) and key not in out),
            tuple(key for key, verdict in reviews.items() if verdict != "reject" and key in out),
            tuple(key for key in entering if key not in known | overruled),
            tuple(key for key in sorted(overruled) if key in reviews and key not in entering),
        )

    def told(self) -> list[str]:
        """In words."""
        gone = (*self.rejected, *self.unwanted)
        again = [key for key in self.restored if key not in self.wanted]
        told = ((gone, "rejected"), (again, "accepted again"), (self.wanted, _AGAINST))
        return [f"{len(keys)} sample{'s' * (len(keys) > 1)} {what}" for keys, what in told if keys]

    def to_json(self) -> dict[str, list[str]]:
        """Plain data."""
        return {name: list(keys) for name, keys in vars(self).items()}


_AGAINST = "accepted against the quality gate"


def check_known(
    reject: Mapping[str, str], segments: Sequence[Event], outcomes: Sequence[RoundOutcome]
) -> None:
    """Refuse texts of `--reject` that the run does not have."""
    if reject and not segments:
        raise RunError("there is no sample to reject yet; --reject is for a run that was started")
    known = {folded(text) for outcome in outcomes for text in outcome.texts}
    if set(reject) - known - wanted(segments) - dropped(segments):
        raise RunError("a text of --reject is not among the run's synthetic samples; copy it from there")


def dropped(segments: Sequence[Event]) -> set[str]:
    """Texts that must not be trained on."""
    keys: set[str] = set()
    for segment in segments:
        keys |= set(segment.data["rejected"])
        keys -= set(segment.data.get("restored", ()))  # not there in journals of earlier versions
    return keys


def wanted(segments: Sequence[Event]) -> set[str]:
    """Texts that are trained on although the gate kept them out."""
    keys: set[str] = set()
    for segment in segments:
        keys |= set(segment.data.get("wanted", ()))
        keys -= set(segment.data.get("unwanted", ()))
    return keys


def _reasons(outcomes: Sequence[RoundOutcome]) -> dict[str, set[str]]:
    """Why the gate kept a text out, where people may overrule it."""
    reasons: dict[str, set[str]] = {}
    for outcome in outcomes:
        for text, reason in outcome.turned_away:
            if reason in OVERRULED:
                reasons.setdefault(folded(text), set()).add(reason)
    return reasons


def _enters(reasons: Sequence[str] | set[str], verdict: str) -> bool:
    """A text that was kept out for an earlier rejection enters when that is taken back."""
    return bool(reasons) and (verdict == "accept" or (verdict == "none" and REJECTED_BEFORE in reasons))
