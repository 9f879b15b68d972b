"""What a report says about a run, as plain data and finished figures for the template.

Whatever could be long is bounded here, and what is left out is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adamab.errors import RecipeError
from adamab.run.public_names import public_fingerprint, without_place
from adamab.run.reading import RunReader, SampleSeen, State
from adamab.run.sample_files import HeldOutAnswer
from adamab.serving import report_figures as draw
from adamab.serving.report_rounds import rounds_section
from adamab.serving.report_thumbnails import Thumbnails
from adamab.serving.run_figures import (
    ClassErrors,
    ClassSources,
    RunFigures,
    class_errors,
    completed,
    confusion_matrix,
    estimate,
    sources_by_class,
    spend_rows,
)
from adamab.task.recipe import Recipe
from adamab.task.spec import Task
from adamab.version import __version__

MOST_CLASSES, MOST_HARD = 100, 8
MOST_IN_MATRIX, MOST_BESIDE_MATRIX, MOST_PAIRS = 30, 8, 30
MOST_ROWS, MOST_EXAMPLES = 20, 3
TEXT_WIDTH = 300  # characters of a sample
# Folders of this machine in a reason; addresses begin otherwise and stay.
_FOLDERS = re.compile(r"(?<![:/\w.])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")


@dataclass(frozen=True)
class Seen:
    """A run, read once."""

    name: str
    state: State
    summary: Mapping[str, Any]  # empty before the first fit has ended
    task: Task | None
    figures: RunFigures
    samples: Sequence[SampleSeen]
    answers: Sequence[HeldOutAnswer]
    spending: Mapping[str, Any]
    segments: Sequence[Mapping[str, Any]]
    started: Mapping[str, Any]

    @classmethod
    def of(cls, reader: RunReader) -> Seen:
        """Everything that a report needs."""
        summary, task = reader.summary() or {}, reader.task()
        segments = [segment.data for segment in reader.segments()]
        named = summary.get("task", {}).get("name") or reader.directory.resolve().name
        return cls(
            name=named if task is None else task.name,
            state=reader.state(),
            summary=summary,
            task=task,
            figures=RunFigures(reader).follow(),
            samples=reader.samples(),
            answers=reader.held_out(),
            spending=reader.spending() if segments else {**_NO_SPENDING, **summary.get("spent", {})},
            segments=segments,
            started=reader.started(),
        )

    @property
    def classes(self) -> list[str]:
        """Names in the task's order; runs of earlier versions know them from elsewhere."""
        if self.task is not None:
            return list(self.task.class_names)
        if self.segments:
            return list(self.segments[-1]["inputs"]["classes"])
        return list(self.summary.get("synthetic_by_class", {}))

    @property
    def modality(self) -> str:
        """Of the task."""
        if self.task is not None:
            return self.task.modality
        return str(self.summary.get("task", {}).get("modality", "text"))


_NO_SPENDING: dict[str, Any] = {
    "usd": 0.0,
    "calls": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "unsettled": 0,
    "by_purpose": {},
    "by_class": {},
}


def content(seen: Seen, *, samples: bool) -> dict[str, Any]:
    """What the template needs; without `samples` no text and no picture of one is in it."""
    sources, errors = _sources(seen), class_errors(seen.answers)
    shown = _Shown(seen.samples, samples)
    return {
        "name": seen.name,
        "state": seen.state,
        "noun": "pictures" if seen.modality == "image" else "texts",
        "with_samples": samples,
        "adamab": __version__,
        "summary": seen.summary,
        "n_classes": len(seen.classes),
        "given": sum(found.given for found in sources.values()),
        "synthetic": sum(found.synthetic for found in sources.values()),
        "n_rounds": len(seen.figures.rounds) or seen.summary.get("rounds", 0),
        "estimate": _estimate(seen),
        "pairs": _pairs(seen.answers),
        "spending": _spending(seen),
        "rounds": rounds_section(seen.figures, seen.classes, _without_folders),
        "classes": _classes(seen, sources, errors),
        "confusion": _confusion(seen),
        "hardest": _hardest(errors, shown),
        "gate": _gate(seen, sources, shown),
        "making": _making(seen),
    }


class _Shown:
    """Samples as they are shown, or not."""

    def __init__(self, samples: Sequence[SampleSeen], wanted: bool) -> None:
        self.wanted = wanted
        self._paths: dict[str, Path] = {s.text: s.image for s in samples if s.image is not None}
        self._thumbnails = Thumbnails()

    def sample(self, text: str) -> dict[str, Any]:
        """A text, or a small picture."""
        if text.startswith("image:"):
            return {"picture": self._thumbnails.of(text, self._paths.get(text)), "text": None}
        return {"picture": None, "text": text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"}


def _sources(seen: Seen) -> dict[str, ClassSources]:
    """Counts by class; where samples are vectors or were not kept, the summary knows how many there are."""
    found = sources_by_class(seen.samples, seen.classes)
    if seen.task is None and seen.segments:
        for name, hashes in seen.segments[-1]["inputs"]["given"].items():
            found[name].given = len(hashes)
    return completed(found, seen.samples, seen.figures, seen.summary)


def _estimate(seen: Seen) -> dict[str, Any] | None:
    told = estimate(seen.summary)
    if told is None:
        return None
    accuracy, low, high = (float(told[key]) for key in ("accuracy", "low", "high"))
    chance = 1 / max(len(seen.classes), 2)
    words = f"expected accuracy {accuracy:.1%}, interval {low:.1%} to {high:.1%}, guessing {chance:.1%}"
    bar = draw.interval_bar(accuracy, low, high, chance, told=words)
    return {"accuracy": accuracy, "low": low, "high": high, "n": int(told["n"]), "bar": bar}


def _pairs(answers: Sequence[HeldOutAnswer]) -> list[dict[str, Any]]:
    """What is taken for what, the most frequent first."""
    of_class = Counter(answer.label for answer in answers)
    wrong = Counter((a.label, a.predicted) for a in answers if a.label != a.predicted)
    ordered = sorted(wrong.items(), key=lambda item: (-item[1], -item[1] / of_class[item[0][0]]))
    return [{"true": t, "predicted": p, "count": n, "of": of_class[t]} for (t, p), n in ordered]


def _classes(
    seen: Seen, sources: Mapping[str, ClassSources], errors: Sequence[ClassErrors]
) -> dict[str, Any]:
    judged = {found.class_name: found for found in errors}
    described = {} if seen.task is None else {spec.name: spec.description for spec in seen.task.classes}
    names = seen.classes
    if len(names) > MOST_CLASSES:  # the hardest, then those that were never judged
        names = [*judged, *(name for name in names if name not in judged)][:MOST_CLASSES]
    rows = [
        {
            "name": n,
            "description": described.get(n),
            "added": n in seen.summary.get("added", ()),
            "sources": sources[n],
            "errors": judged.get(n),
        }
        for n in names
    ]
    bars = [
        draw.BarRow(n, (sources[n].given, sources[n].synthetic, sources[n].kept_out))
        for n in names[:MOST_IN_MATRIX]
    ]
    told = "given, synthetic and kept-out samples of each class"
    legend: tuple[str, ...] = ("given", "synthetic", "kept out by the gate")
    while len(legend) > 1 and not any(row.parts[-1] for row in bars):
        bars, legend = [draw.BarRow(row.name, row.parts[:-1]) for row in bars], legend[:-1]
    return {
        "rows": rows,
        "left_out": len(seen.classes) - len(rows),
        "bars": draw.stacked_bars(bars, legend, told=told),
        "bars_shown": len(bars),
        "bars_left_out": len(seen.classes) - len(bars),
        "rejected": any(found.rejected for found in sources.values()),
    }


def _confusion(seen: Seen) -> dict[str, Any]:
    names, pairs = seen.classes, _pairs(seen.answers)
    small = 0 < len(names) <= MOST_IN_MATRIX and bool(seen.answers)
    counts = confusion_matrix(seen.answers, names) if small else []
    most = MOST_BESIDE_MATRIX if small else MOST_PAIRS
    told = f"confusion matrix of {len(names)} classes on held-out samples"
    return {
        "n": len(seen.answers),
        "matrix": draw.matrix(counts, names, told=told) if small else None,
        "pairs": pairs[:most],
        "left_out": len(pairs[most:]),
    }


def _hardest(errors: Sequence[ClassErrors], shown: _Shown) -> dict[str, Any]:
    hard = [found for found in errors if found.right < found.n]
    rows = [
        {
            "errors": found,
            "examples": [
                {**shown.sample(a.text), "predicted": a.predicted, "probability": a.probability}
                for a in (found.examples if shown.wanted else ())
            ],
        }
        for found in hard[:MOST_HARD]
    ]
    return {"rows": rows, "left_out": len(hard) - len(rows)}


def _gate(seen: Seen, sources: Mapping[str, ClassSources], shown: _Shown) -> dict[str, Any]:
    by_class = seen.figures.gate_reasons() or seen.summary.get("rejected", {})
    reasons: Counter[str] = Counter()
    for counts in by_class.values():
        reasons.update(counts)
    ordered = sorted(by_class.items(), key=lambda item: -sum(item[1].values()))
    refused = Counter(r.chosen for r in seen.figures.rounds if r.refused) or seen.summary.get("refused", {})
    return {
        "reasons": reasons.most_common(),
        "rows": ordered[:MOST_ROWS],
        "left_out": len(ordered[MOST_ROWS:]),
        "entered": sum(found.synthetic for found in sources.values()),
        "refused": sum(refused.values()),
        "rejected": sum(found.rejected for found in sources.values()),
        "examples": _kept_out(seen.samples, shown) if shown.wanted else {},
    }


def _kept_out(samples: Sequence[SampleSeen], shown: _Shown) -> dict[str, list[dict[str, Any]]]:
    """A few of each reason."""
    found: dict[str, list[dict[str, Any]]] = {}
    for sample in samples:
        if sample.reason is not None and not sample.used:
            some = found.setdefault(sample.reason, [])
            if len(some) < MOST_EXAMPLES:
                some.append({**shown.sample(sample.text), "class_name": sample.class_name})
    return found


def _spending(seen: Seen) -> dict[str, Any]:
    rows = spend_rows(seen.spending, "class")
    return {
        "total": seen.spending,
        "by_purpose": spend_rows(seen.spending, "purpose"),
        "by_class": rows[:MOST_ROWS],
        "left_out": len(rows[MOST_ROWS:]),
        "dearest": max((row["usd"] for row in rows), default=0.0),
    }


def _making(seen: Seen) -> dict[str, Any]:
    last = seen.segments[-1] if seen.segments else {}
    inputs, started, known = last.get("inputs", {}), seen.started, seen.summary
    recipe = known.get("recipe") or inputs.get("recipe") or {}
    embedder = known.get("embedder", {})
    generator = known.get("generator") or started.get("generator") or inputs.get("generator")
    return {
        "embedder": without_place(embedder.get("spec") or started.get("embedder") or ""),
        "fingerprint": public_fingerprint(embedder.get("fingerprint") or inputs.get("embedder") or ""),
        "generator": without_place(str(generator or "none")),
        "policy": known.get("policy") or inputs.get("policy"),
        "seed": known.get("seed", inputs.get("seed")),
        "recipe": _recipe_rows(recipe),
        "recipe_name": recipe.get("name"),
        "closed": [(name, _without_folders(why)) for name, why in known.get("closed", {}).items()],
        "ended": _without_folders(known.get("ended") or ""),
        "changes": [
            (number, [_without_folders(change) for change in segment.get("changes", ())])
            for number, segment in enumerate(seen.segments, 1)
        ],
    }


def _recipe_rows(recipe: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Option, value, and whether the preset has another."""
    try:
        usual = Recipe.preset(str(recipe.get("name"))).model_dump(mode="json")
    except RecipeError:
        usual = dict(recipe)
    return [(key, _value(value), usual.get(key, value) != value) for key, value in recipe.items()]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return "not set" if value is None else str(value)


def _without_folders(reason: str) -> str:
    """A reason that was made for the person at this machine, for others to read."""
    return _FOLDERS.sub("", reason)
