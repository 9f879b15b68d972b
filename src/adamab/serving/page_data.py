"""What the page shows, as plain data: small however long a run is or how many classes it has."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adamab.run.reading import SampleSeen
from adamab.run.sample_files import HeldOutAnswer
from adamab.serving.run_figures import (
    ClassErrors,
    ClassSources,
    RoundFigure,
    RunFigures,
    class_errors,
    confusion_matrix,
    estimate,
    spend_rows,
)
from adamab.serving.run_view import RunView, can_enter
from adamab.task.spec import ClassSpec

COLUMNS = 120  # of the strip that shows in which rounds a class was chosen
MATRIX = 24  # classes of a confusion matrix that can be read
PAIRS = 20  # confusions in words
EXAMPLES = 3
_LONGEST = 2000  # characters of a text in a list
_PREVIEW = 5
_SPENT = ("usd", "held", "calls", "unsettled", "input_tokens", "output_tokens")


@dataclass(frozen=True)
class SampleFilter:
    """Which samples are shown; None lets all pass. `reason` is one of the gate's, `used`, or `any`."""

    class_name: str | None = None
    source: str | None = None
    reason: str | None = None
    verdict: str | None = None  # accept, reject, or none
    words: str | None = None

    def about(self, sample: SampleSeen) -> bool:
        """Whether it is about what the user is looking at, whatever was decided."""
        if self.class_name is not None and sample.class_name != self.class_name:
            return False
        return self.words is None or self.words.casefold() in sample.text.casefold()

    def passes(self, sample: SampleSeen) -> bool:
        """Whether it is shown."""
        return (
            self.about(sample)
            and self.source in (None, sample.source)
            and self.verdict in (None, sample.verdict or "none")
            and (self.reason is None or self.reason in _statuses(sample))
        )


def overview(view: RunView) -> dict[str, Any]:
    """What the page's head and the run's figures in short need; asked for again and again."""
    state, changed = view.state()
    summary, started, figures = view.summary() or {}, view.started(), view.figures()
    rounds = figures.rounds if figures is not None else []
    sources = view.sources().values()
    task, spent = view.task(), view.spending()
    return {
        "state": state,
        "changed": changed,
        "began": started.get("at"),
        "run": view.directory.resolve().name,
        "refit": _refit(view.directory),
        "task": task.name if task is not None else summary.get("task", {}).get("name"),
        "modality": task.modality if task is not None else summary.get("task", {}).get("modality", "text"),
        "classes": len(view.classes()),
        "given": sum(counts.given for counts in sources),
        "synthetic": sum(counts.synthetic for counts in sources),
        "kept_out": sum(counts.kept_out for counts in sources),
        "rejected": sum(counts.rejected for counts in sources),
        "rounds": len(rounds),
        "last": rounds[-1].seq if rounds else 0,
        "loss": next((r.loss for r in reversed(rounds) if r.loss is not None), None),
        "ended": next((r.ended for r in reversed(rounds) if r.ended is not None), None),
        "generator": _kind(started.get("generator") or summary.get("generator")),
        "policy": started.get("policy") or summary.get("policy"),
        "budget": started.get("budget"),
        "changes": started.get("changes", []),
        "estimate": estimate(summary),
        "seconds": summary.get("seconds"),
        "described": any(spec.description for spec in view.classes()),
        "spent": {key: spent[key] for key in _SPENT},
        "waiting": view.waiting(),
        "examples": _examples(view.samples()),
    }


def _refit(directory: Path) -> str:
    """The command that goes on with the run, for a shell; the run is named as whoever serves it does."""
    named = str(directory)
    return f"adamab fit --run {shlex.quote(f'./{named}' if named.startswith('-') else named)}"


def _kind(generator: str | None) -> str | None:
    """Without files and addresses, which are nobody's business."""
    return None if generator is None else generator.partition("?")[0].partition(":")[0]


def _examples(samples: Sequence[SampleSeen]) -> list[str]:
    """Given texts to begin with, of different classes."""
    first: dict[str, str] = {}
    for sample in samples:
        if sample.source != "given" or len(first) == EXAMPLES:
            break
        if sample.image is None and len(sample.text) <= 160:
            first.setdefault(sample.class_name, sample.text)
    return list(first.values())


def figures(view: RunView, offset: int, limit: int) -> dict[str, Any]:
    """Loss, choices and samples a class over the rounds, kept-out samples and spending."""
    found = view.figures()
    if found is None:
        return {"loss": [], "rounds": [], "columns": [], "classes": [], "total": 0, **_money(view)}
    growth, chosen = found.growth(), found.chosen()
    names = sorted(growth.counts, key=lambda name: -chosen.get(name, 0))
    sources = view.sources()
    shown = names[offset : offset + limit]
    columns, strips = _strips(found.rounds, shown)
    return {
        "loss": found.losses(),
        "rounds": growth.rounds,
        "columns": columns,
        "classes": [
            {
                "class": name,
                "chosen": chosen.get(name, 0),
                "counts": growth.counts[name],
                "samples": sources[name].in_training if name in sources else 0,  # the class may be gone
                "strip": strips[name],
            }
            for name in shown
        ],
        "total": len(names),
        "gate": _gate(found),
        **_money(view),
    }


def _strips(
    rounds: Sequence[RoundFigure], names: Sequence[str]
) -> tuple[list[int], dict[str, list[tuple[int, int]]]]:
    """The first round of every column; and by class the columns in which it was chosen, and how often."""
    width = max(1, -(-len(rounds) // COLUMNS))
    counts: dict[str, Counter[int]] = {name: Counter() for name in names}
    for place, found in enumerate(rounds):
        if found.chosen in counts:
            counts[found.chosen][place // width] += 1
    return [found.round for found in rounds[::width]], {name: sorted(c.items()) for name, c in counts.items()}


def _gate(found: RunFigures) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    by_class = found.gate_reasons()
    for counts in by_class.values():
        reasons.update(counts)
    most = sorted(by_class.items(), key=lambda item: -sum(item[1].values()))[:PAIRS]
    return {
        "reasons": dict(reasons.most_common()),
        "classes": [{"class": name, "reasons": counts} for name, counts in most],
    }


def _money(view: RunView) -> dict[str, Any]:
    spent = view.spending()
    return {
        "spending": {
            **{key: spent[key] for key in _SPENT},
            "by_purpose": spend_rows(spent, "purpose"),
            "by_class": spend_rows(spent, "class")[:PAIRS],
            "classes": len(spent["by_class"]),
        }
    }


def rounds(view: RunView, after: int, before: int | None, limit: int) -> dict[str, Any]:
    """Rounds between two events, the latest first."""
    found = view.figures()
    among = [
        r for r in (found.rounds if found else ()) if r.seq > after and (before is None or r.seq < before)
    ]
    shown = among[::-1][:limit]
    return {"rounds": [asdict(r) for r in shown], "more": len(among) > limit, "total": len(among)}


def classes(view: RunView, words: str | None, order: str, offset: int, limit: int) -> dict[str, Any]:
    """A page of classes with their samples and what held-out samples say."""
    sources, errors = view.sources(), {e.class_name: e for e in class_errors(view.held_out())}
    specs = [spec for spec in view.classes() if words is None or _mentions(spec, words)]
    if order == "hardest":
        last = len(errors)
        rank = {name: place for place, name in enumerate(errors)}
        specs.sort(key=lambda spec: rank.get(spec.name, last))
    elif order == "fewest":
        specs.sort(key=lambda spec: sources[spec.name].given + sources[spec.name].synthetic)
    shown = specs[offset : offset + limit]
    return {
        "classes": [
            _class_row(spec, sources[spec.name], errors.get(spec.name), view.added()) for spec in shown
        ],
        "total": len(specs),
        "held_out": len(view.held_out()),
    }


def one_class(view: RunView, name: str) -> dict[str, Any] | None:
    """Everything about a class; None where there is none of that name."""
    spec = next((spec for spec in view.classes() if spec.name == name), None)
    if spec is None:
        return None
    answers = view.held_out()
    errors = {e.class_name: e for e in class_errors(answers, most=_PREVIEW)}
    taken = Counter(a.label for a in answers if a.predicted == name and a.label != name)
    found, members = view.figures(), [s for s in view.samples() if s.class_name == name]
    return {
        **_class_row(spec, view.sources()[name], errors.get(name), view.added()),
        "taken_for_it": taken.most_common(_PREVIEW),
        "examples": [_answer_row(a) for a in errors[name].examples] if name in errors else [],
        "gate": found.gate_reasons().get(name, {}) if found is not None else {},
        "spent": view.spending()["by_class"].get(name),
        "given_samples": [sample_row(s) for s in members if s.source == "given"][:_PREVIEW],
        "synthetic_samples": [sample_row(s) for s in members if s.source == "synthetic" and s.used][
            -_PREVIEW:
        ],
    }


def confusion(view: RunView) -> dict[str, Any]:
    """The matrix of all classes, or of the hardest where there are many; and confusions in words."""
    answers = view.held_out()
    names = [spec.name for spec in view.classes()]
    if len(names) > MATRIX:
        hardest = {errors.class_name for errors in class_errors(answers)[:MATRIX]}
        names = [name for name in names if name in hardest]
    pairs = Counter((a.label, a.predicted) for a in answers if a.label != a.predicted)
    return {
        "classes": names,
        "all": len(view.classes()),
        "matrix": confusion_matrix(answers, names),
        "pairs": [{"class": a, "predicted": b, "count": n} for (a, b), n in pairs.most_common(PAIRS)],
        "held_out": len(answers),
    }


def samples(view: RunView, wanted: SampleFilter, offset: int, limit: int) -> dict[str, Any]:
    """A page of samples; counts are of all that it is about, so that a filter tells what it would show."""
    everything = view.samples()
    shown = [sample for sample in everything if wanted.passes(sample)]
    around = [sample for sample in everything if wanted.about(sample)]
    return {
        "samples": [sample_row(sample) for sample in shown[offset : offset + limit]],
        "total": len(shown),
        "counts": _counts(around, wanted.source),
        "waiting": view.waiting(),
    }


def _counts(around: Iterable[SampleSeen], source: str | None) -> dict[str, dict[str, int]]:
    """All sources; reasons and verdicts of the one that is looked at."""
    sources: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for sample in around:
        sources[sample.source] += 1
        if source in (None, sample.source):
            verdicts[sample.verdict or "none"] += 1
            reasons.update(_statuses(sample))
    return {"sources": dict(sources), "reasons": dict(reasons.most_common()), "verdicts": dict(verdicts)}


def sample_row(sample: SampleSeen) -> dict[str, Any]:
    """A sample for a list."""
    return {
        "id": sample.id,
        "text": sample.text[:_LONGEST],
        "cut": len(sample.text) > _LONGEST,
        "class": sample.class_name,
        "source": sample.source,
        "round": sample.round,
        "used": sample.used,
        "reason": sample.reason,
        "verdict": sample.verdict,
        "picture": sample.image is not None,
        "can_enter": can_enter(sample),
    }


def _statuses(sample: SampleSeen) -> tuple[str, ...]:
    """The values of the reason filter that a sample answers to."""
    if sample.reason is not None:
        return ("any", sample.reason, "used") if sample.used else ("any", sample.reason)
    return ("used",) if sample.used else ()


def _class_row(
    spec: ClassSpec, counts: ClassSources, errors: ClassErrors | None, added: Container[str]
) -> dict[str, Any]:
    return {
        "class": spec.name,
        "description": spec.description,
        "added": spec.name in added,  # by `adamab add-class`, since the last fit
        **asdict(counts),
        "held_out": None if errors is None else {"n": errors.n, "right": errors.right},
        "confused_with": [] if errors is None else errors.confused_with,
    }


def _answer_row(answer: HeldOutAnswer) -> dict[str, Any]:
    text = answer.text[:_LONGEST]
    return {"text": text, "predicted": answer.predicted, "probability": answer.probability}


def _mentions(spec: ClassSpec, words: str) -> bool:
    return words.casefold() in f"{spec.name}\n{spec.description or ''}".casefold()
