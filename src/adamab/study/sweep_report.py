"""What a sweep says: a table of trials, a verdict, the command that uses the winner, and its files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from adamab.study.documents import as_document
from adamab.study.statistics import Interval, points
from adamab.study.sweep import LEVEL, REPEATS, Examination, Outcome, Sweep, Trial
from adamab.study.sweep_directory import replace_text
from adamab.study.sweep_space import said, setting

REPORT, BEST = "sweep.json", "best.yaml"
HEADER = ("trial", "loss#", "accuracy, %#", "what differs from trial 0")
_SHOWN = 5  # of the best trials


@dataclass(frozen=True)
class SweepReport:
    """The outcome of a sweep; `fit` is the command that fits what the search began with."""

    sweep: Sweep
    outcome: Outcome
    fit: Sequence[str]  # such as adamab fit task.yaml --run run

    @property
    def command(self) -> str:
        """What fits the recipe that the sweep recommends."""
        options = self.outcome.best.options if self.outcome.recommended else {}
        return shlex.join([*self.fit, *_settings(options)])

    def to_json(self) -> dict[str, Any]:
        """Plain data, without times: the same for every engine and after every stop."""
        search, materials, outcome = self.sweep.search, self.sweep.materials, self.outcome
        return {
            "task": materials.task.name,
            "classes": len(materials.task.classes),
            "samples": len(materials.task.samples),
            "held_out": outcome.n_held_out,
            "folds": materials.n_folds,
            "seed": search.seed,
            "sampler": search.sampler,
            "space": said(search.space),
            "best": outcome.best.number,
            "searched": _plain(outcome.searched),
            "examined": _plain(outcome.examined),
            "recommended": outcome.recommended,
            "command": self.command,
            "trials": [asdict(trial) for trial in outcome.trials],
        }

    def write(self) -> list[Path]:
        """Everything as JSON, and the best options as YAML."""
        folder, best = self.sweep.directory, self.outcome.best
        note = "recommended" if self.outcome.recommended else "not told apart from the recipe it began with"
        options = {
            name: list(value) if isinstance(value, tuple) else value for name, value in best.options.items()
        }
        text = f"# Trial {best.number}, {note}.\n{yaml.safe_dump(options)}"
        replace_text(folder / BEST, text)
        replace_text(folder / REPORT, as_document(self.to_json()))
        return [folder / REPORT, folder / BEST]

    def table(self) -> list[tuple[str, ...]]:
        """The best trials and trial 0."""
        ordered = sorted(self.outcome.trials, key=lambda trial: (trial.loss, trial.number))
        return [_cells(trial) for trial in ordered if trial in ordered[:_SHOWN] or trial.number == 0]

    def lines(self) -> list[str]:
        """What the figures come to."""
        outcome = self.outcome
        if outcome.searched is None or outcome.examined is None:
            return ["No trial has a lower loss than trial 0: keep the recipe as it is."]
        return [
            f"Trial {outcome.best.number} against trial 0 in the search, where the best of many flatters: "
            f"{_gain(outcome.searched)}.",
            f"Examined on {REPEATS} x {self.sweep.materials.n_folds} new folds: {_gain(outcome.examined)}; "
            f"p = {outcome.examined.p:.2g} after correction for the recipes that were tried.",
            _verdict(outcome),
        ]


def _verdict(outcome: Outcome) -> str:
    found = outcome.examined
    if outcome.recommended or found is None:
        return "The gain stands: use it."
    if found.loss.low <= 0 or found.p >= LEVEL:
        return "That is not told apart from nothing: keep the recipe as it is."
    return "The loss is lower, but accuracy is too: keep the recipe as it is."


def _gain(found: Examination) -> str:
    return f"loss {_lower(found.loss)}, accuracy {points(found.accuracy)}"


def _lower(gain: Interval) -> str:
    return f"{-gain.mean:+.3f} ({-gain.high:+.3f} to {-gain.low:+.3f})"


def _cells(trial: Trial) -> tuple[str, ...]:
    changed = ", ".join(f"{name}={setting(value)}" for name, value in sorted(trial.options.items()))
    return (
        str(trial.number),
        f"{trial.loss:.3f}",
        f"{100 * trial.accuracy:.1f}",
        changed or ("nothing" if trial.number else "the recipe as it is"),
    )


def _settings(options: Mapping[str, Any]) -> list[str]:
    return [part for name in sorted(options) for part in ("--set", f"{name}={setting(options[name])}")]


def _plain(found: Examination | None) -> dict[str, Any] | None:
    """Rounded: the last digits of a sum are nobody's business."""
    if found is None:
        return None
    intervals = {"loss": found.loss, "accuracy": found.accuracy}
    plain = {name: [round(x, 6) for x in (i.mean, i.low, i.high)] for name, i in intervals.items()}
    return {**plain, "p": float(f"{found.p:.4g}")}
