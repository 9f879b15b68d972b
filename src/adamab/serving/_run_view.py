"""What the page and the report show of a run, as plain data: small however long it is or large its task."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from adamab.run.directory import HeldOutAnswer
from adamab.serving.run_reader import Round, RunReader, RunSample
from adamab.task.spec import ClassSpec

COLUMNS = 120  # of the strip that shows in which rounds a class was chosen
MATRIX = 24  # classes of a confusion matrix that can be read
MOST_ROWS = 20  # of confusions, spending and samples that were kept out
OTHERS = 3  # classes that one is confused with, and wrong answers that are shown of it
_EXAMPLES = 3
_LONGEST = 2000  # characters of a text in a list
_PREVIEW = 5
_SPENT = ("usd", "held", "calls", "unsettled", "input_tokens", "output_tokens")
_Words = Annotated[str | None, Field(max_length=1000)]


@dataclass(frozen=True)
class ClassErrors:
    """What folds that did not see them say about the given samples of a class."""

    class_name: str
    n: int
    right: int
    confused_with: tuple[tuple[str, int], ...]  # the most frequent first
    examples: tuple[HeldOutAnswer, ...]  # wrong answers, the surest first


class SampleFilter(BaseModel):
    """Which samples are shown; nothing lets all pass. `reason` is one of the gate's, `used`, or `any`."""

    class_name: _Words = Field(default=None, alias="class")
    source: _Words = None
    reason: _Words = None
    verdict: _Words = None  # accept, reject, or none
    q: _Words = None

    def about(self, sample: RunSample) -> bool:
        """Whether it is about what the user is looking at, whatever was decided."""
        if self.class_name and sample.class_name != self.class_name:
            return False
        return not self.q or self.q.casefold() in sample.text.casefold()

    def passes(self, sample: RunSample) -> bool:
        """Whether it is shown."""
        return (
            self.about(sample)
            and (not self.source or self.source == sample.source)
            and (not self.verdict or self.verdict == (sample.verdict or "none"))
            and (not self.reason or self.reason in _statuses(sample))
        )


def overview(reader: RunReader) -> dict[str, Any]:
    """What the page's head and the run's figures in short need; asked for again and again."""
    summary, segments, rounds = reader.summary(), reader.segments(), reader.rounds()
    inputs = segments[-1].data["inputs"] if segments else {}
    sources = reader.sources().values()
    task, spent, samples = reader.task(), reader.spending(), reader.samples()
    generator = reader.started().get("generator") or summary.get("generator")
    named = str(reader.directory)
    return {
        "state": reader.state(),
        "changed": reader.last_change(),
        "began": segments[0].at if segments else None,
        "run": reader.directory.resolve().name,
        # For a shell; the run is named as whoever serves it does.
        "refit": f"adamab fit --run {shlex.quote(f'./{named}' if named.startswith('-') else named)}",
        "task": None if task is None else task.name,
        "modality": "text" if task is None else task.modality,
        "classes": len(reader.classes()),
        "given": sum(counts.given for counts in sources),
        "synthetic": sum(counts.synthetic for counts in sources),
        "kept_out": sum(counts.kept_out for counts in sources),
        "rejected": sum(counts.rejected for counts in sources),
        "rounds": len(rounds),
        "ended": next((r.ended for r in reversed(rounds) if r.ended is not None), None),
        # The kind alone: the rest may name a file or a server.
        "generator": None if generator is None else generator.partition("?")[0].partition(":")[0],
        "policy": inputs.get("policy") or summary.get("policy"),
        "budget": inputs.get("budget"),
        "estimate": estimate(summary),
        "described": any(spec.description for spec in reader.classes()),
        "spent": {key: spent[key] for key in _SPENT},
        "waiting": reader.waiting(),
        "examples": _examples(samples),
    }


def estimate(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The expected accuracy with its interval, which holds it even where rounding would not let it."""
    figures = summary.get("estimate")
    if figures is None:
        return None
    accuracy = figures["accuracy"]
    return {**figures, "low": min(figures["low"], accuracy), "high": max(figures["high"], accuracy)}


def _examples(samples: Sequence[RunSample]) -> list[str]:
    """Given texts to begin with, of different classes."""
    first: dict[str, str] = {}
    for sample in samples:
        if sample.source != "given" or len(first) == _EXAMPLES:
            break
        if sample.image is None and len(sample.text) <= 160:
            first.setdefault(sample.class_name, sample.text)
    return list(first.values())


def figures(reader: RunReader, offset: int, limit: int) -> dict[str, Any]:
    """Loss, choices and samples per class over the rounds, kept-out samples and spending."""
    (rounds, growth), chosen, sources = reader.growth(), reader.chosen(), reader.sources()
    names = sorted(growth, key=lambda name: -chosen.get(name, 0))
    shown = names[offset : offset + limit]
    columns, strips = _strips(reader.rounds(), shown)
    return {
        "loss": reader.losses(),
        "rounds": rounds,
        "columns": columns,
        "classes": [
            {
                "class": name,
                "chosen": chosen.get(name, 0),
                "counts": growth[name],
                "samples": sources[name].in_training if name in sources else 0,  # the class may be gone
                "strip": strips[name],
            }
            for name in shown
        ],
        "total": len(names),
        "gate": gate(reader),
        "spending": spending(reader),
    }


def _strips(
    rounds: Sequence[Round], names: Sequence[str]
) -> tuple[list[int], dict[str, list[tuple[int, int]]]]:
    """The first round of every column; and by class the columns in which it was chosen, and how often."""
    width = max(1, -(-len(rounds) // COLUMNS))
    counts: dict[str, Counter[int]] = {name: Counter() for name in names}
    for index, ended in enumerate(rounds):
        if ended.owner in counts:
            counts[ended.owner][index // width] += 1
    first = [ended.round for ended in rounds[::width]]
    return first, {name: sorted(columns.items()) for name, columns in counts.items()}


def gate(reader: RunReader) -> dict[str, Any]:
    """How many samples the gate kept out, by reason and for the worst classes."""
    by_class = reader.gate_reasons()
    reasons: Counter[str] = Counter()
    for counts in by_class.values():
        reasons.update(counts)
    worst = list(by_class.items())[:MOST_ROWS]
    return {
        "reasons": dict(reasons.most_common()),
        "classes": [{"class": name, "reasons": counts} for name, counts in worst],
        "total": len(by_class),
    }


def spending(reader: RunReader) -> dict[str, Any]:
    """What was spent, by purpose and for the dearest classes."""
    spent = reader.spending()
    rows = {}
    for by in ("by_purpose", "by_class"):
        named = [{"name": name, **spend} for name, spend in spent[by].items()]
        rows[by] = sorted(named, key=lambda row: (-row["usd"], -row["calls"], row["name"]))
    return {
        **{key: spent[key] for key in _SPENT},
        "by_purpose": rows["by_purpose"],
        "by_class": rows["by_class"][:MOST_ROWS],
        "classes": len(rows["by_class"]),
    }


def rounds(reader: RunReader, after: int, before: int | None, limit: int) -> dict[str, Any]:
    """Rounds between two events, the latest first."""
    among = [r for r in reader.rounds() if r.seq > after and (before is None or r.seq < before)]
    shown = among[::-1][:limit]
    return {"rounds": [asdict(r) for r in shown], "more": len(among) > limit, "total": len(among)}


def classes(reader: RunReader, words: str | None, order: str, offset: int, limit: int) -> dict[str, Any]:
    """Some of the classes with their samples and what held-out samples say.

    Args:
        reader: The run.
        words: In the name or the description.
        order: `task`, `hardest` or `fewest`.
        offset: Of the first one.
        limit: How many.
    """
    sources, errors = reader.sources(), class_errors(reader.held_out())
    words = (words or "").casefold()
    specs = [s for s in reader.classes() if words in f"{s.name}\n{s.description or ''}".casefold()]
    if order == "hardest":
        rank = {name: place for place, name in enumerate(errors)}
        specs.sort(key=lambda spec: rank.get(spec.name, len(rank)))
    elif order == "fewest":
        specs.sort(key=lambda spec: sources[spec.name].in_training)
    shown = specs[offset : offset + limit]
    return {
        "classes": [_class_row(reader, spec, errors.get(spec.name)) for spec in shown],
        "total": len(specs),
        "held_out": len(reader.held_out()),
    }


def one_class(reader: RunReader, name: str) -> dict[str, Any] | None:
    """Everything about a class; None where there is none of that name."""
    spec = next((spec for spec in reader.classes() if spec.name == name), None)
    if spec is None:
        return None
    answers = reader.held_out()
    errors = class_errors(answers, most=_PREVIEW).get(name)
    taken = Counter(a.label for a in answers if a.predicted == name and a.label != name)
    members = [s for s in reader.samples() if s.class_name == name]
    given = [s for s in members if s.source == "given"]
    synthetic = [s for s in members if s.source == "synthetic" and s.used]
    return {
        **_class_row(reader, spec, errors),
        "taken_for_it": taken.most_common(_PREVIEW),
        "examples": [
            {"text": a.text[:_LONGEST], "predicted": a.predicted, "probability": a.probability}
            for a in (() if errors is None else errors.examples)
        ],
        "gate": reader.gate_reasons().get(name, {}),
        "spent": reader.spending()["by_class"].get(name),
        "given_samples": [sample_row(s) for s in given[:_PREVIEW]],
        "synthetic_samples": [sample_row(s) for s in synthetic[-_PREVIEW:]],
    }


def _class_row(reader: RunReader, spec: ClassSpec, errors: ClassErrors | None) -> dict[str, Any]:
    return {
        "class": spec.name,
        "description": spec.description,
        "added": spec.name in reader.summary().get("added", ()),  # by `adamab add-class`, since the last fit
        **asdict(reader.sources()[spec.name]),
        "held_out": None if errors is None else {"n": errors.n, "right": errors.right},
        "confused_with": [] if errors is None else errors.confused_with,
    }


def class_errors(answers: Sequence[HeldOutAnswer], most: int = OTHERS) -> dict[str, ClassErrors]:
    """Every class with a held-out sample, the hardest first; those with more samples first among equals."""
    by_class: dict[str, list[HeldOutAnswer]] = defaultdict(list)
    for answer in answers:
        by_class[answer.label].append(answer)
    errors = []
    for name, members in by_class.items():
        wrong = [answer for answer in members if answer.predicted != name]
        others = Counter(answer.predicted for answer in wrong).most_common(most)
        surest = sorted(wrong, key=lambda answer: -answer.probability)[:most]
        right = len(members) - len(wrong)
        errors.append(ClassErrors(name, len(members), right, tuple(others), tuple(surest)))
    errors.sort(key=lambda one: (one.right / one.n, -one.n, one.class_name))
    return {one.class_name: one for one in errors}


def confusion(reader: RunReader) -> dict[str, Any]:
    """The matrix of all classes, or of the hardest where there are many; and confusions in words.

    A row of the matrix is a true class, a column a predicted one. The most frequent confusions come first.
    """
    answers, every = reader.held_out(), [spec.name for spec in reader.classes()]
    names = every
    if len(names) > MATRIX:
        hardest = list(class_errors(answers))[:MATRIX]
        names = [name for name in names if name in hardest]
    place = {name: i for i, name in enumerate(names)}
    matrix = [[0] * len(names) for _ in names]
    of_class = Counter(answer.label for answer in answers)
    wrong: Counter[tuple[str, str]] = Counter()
    for answer in answers:
        if answer.label in place and answer.predicted in place:  # a class may be new since
            matrix[place[answer.label]][place[answer.predicted]] += 1
        if answer.label != answer.predicted:
            wrong[answer.label, answer.predicted] += 1
    ordered = sorted(wrong.items(), key=lambda item: (-item[1], -item[1] / of_class[item[0][0]]))
    return {
        "classes": names,
        "all": len(every),
        "matrix": matrix,
        "pairs": [
            {"class": true, "predicted": predicted, "count": count, "of": of_class[true]}
            for (true, predicted), count in ordered[:MOST_ROWS]
        ],
        "total": len(ordered),
        "held_out": len(answers),
    }


def samples(reader: RunReader, wanted: SampleFilter, offset: int, limit: int) -> dict[str, Any]:
    """Some of the samples; counts are of all that it is about, so that a filter tells what it would show."""
    everything = reader.samples()
    shown = [sample for sample in everything if wanted.passes(sample)]
    sources: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for sample in everything:
        if not wanted.about(sample):
            continue
        sources[sample.source] += 1
        if not wanted.source or wanted.source == sample.source:
            verdicts[sample.verdict or "none"] += 1
            reasons.update(_statuses(sample))
    return {
        "samples": [sample_row(sample) for sample in shown[offset : offset + limit]],
        "total": len(shown),
        "counts": {"sources": sources, "reasons": dict(reasons.most_common()), "verdicts": verdicts},
    }


def sample_row(sample: RunSample) -> dict[str, Any]:
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
        "verdict": None if sample.verdict == "none" else sample.verdict,
        "image": sample.image is not None,
        "can_enter": sample.can_enter,
    }


def _statuses(sample: RunSample) -> tuple[str, ...]:
    """The values of the reason filter that a sample answers to."""
    if sample.reason is not None:
        return ("any", sample.reason, "used") if sample.used else ("any", sample.reason)
    return ("used",) if sample.used else ()
