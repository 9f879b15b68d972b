"""What people decided on a run's samples, segment by segment; texts are told apart as `folded` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adamab.errors import RunError
from adamab.run.journal import Event
from adamab.run.past import OVERRULED, RoundOutcome
from adamab.task.words import folded


@dataclass(frozen=True)
class Verdicts:
    """What people decided on samples since the last segment began, as folded texts."""

    rejected: tuple[str, ...]
    restored: tuple[str, ...]  # rejected before, and not any more
    wanted: tuple[str, ...]  # accepted although the gate kept them out

    @classmethod
    def of(
        cls,
        segments: Sequence[Event],
        outcomes: Sequence[RoundOutcome],
        verdicts: Mapping[str, str],
        reject: Mapping[str, None],
    ) -> Verdicts:
        """From the journal, the reviews and `--reject`."""
        out, overruled = dropped(segments), wanted(segments)
        known = {folded(text) for outcome in outcomes for text in outcome.texts}
        if segments and any(key not in known | overruled | out for key in reject):
            raise RunError("a text of --reject is not among the run's synthetic samples; copy it from there")
        turned_away = {folded(t) for o in outcomes for t, reason in o.turned_away if reason in OVERRULED}
        rejected = [key for key, verdict in verdicts.items() if verdict == "reject" and key in known]
        if not segments:  # a run that begins anew does not take in what was rejected before
            rejected = [key for key, verdict in verdicts.items() if verdict == "reject"]
        rejected += [key for key in overruled if verdicts.get(key, "accept") != "accept"]
        return cls(
            tuple(key for key in dict.fromkeys([*reject, *rejected]) if key not in out),
            tuple(k for k, v in verdicts.items() if v != "reject" and k in out and k not in reject),
            tuple(k for k, v in verdicts.items() if v == "accept" and k in turned_away - known - overruled),
        )

    def told(self) -> list[str]:
        """In words."""
        told = (
            (self.rejected, "rejected"),
            (tuple(set(self.restored) - set(self.wanted)), "accepted again"),
            (self.wanted, "accepted against the quality gate"),
        )
        return [f"{len(keys)} sample{'s' * (len(keys) > 1)} {what}" for keys, what in told if keys]

    def to_json(self) -> dict[str, list[str]]:
        """Plain data."""
        return {name: list(keys) for name, keys in vars(self).items()}


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
        keys -= set(segment.data["rejected"])
    return keys
