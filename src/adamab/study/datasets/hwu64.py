"""HWU64: what people say to an assistant at home, 64 intents. The paper does not use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from adamab.errors import TaskError
from adamab.study.datasets.base import (
    DataSet,
    Material,
    Source,
    Split,
    by_class,
    check_counts,
    described_classes,
    ordered,
)
from adamab.study.datasets.labelled import apart_from, conflicting, distinct
from adamab.study.datasets.wording import text_prompts
from adamab.task import ClassSpec, Sample, folded, read_samples

# Texts of each class of these scenarios that serve the convergence study alone.
ANALYSED = 40
SCENARIOS = {
    "office": ("alarm", "calendar", "datetime", "email", "lists"),
    "home": ("iot", "play"),
}
FILES = ("train", "valid", "test")
EXPECTED = {
    "train rows": 8954,
    "valid rows": 1076,
    "test rows": 1076,
    "repeated train rows": 3,
    "repeated valid rows": 70,
    "repeated test rows": 0,
}


class Hwu64Set(DataSet):
    """Utterances by intent."""

    name = "hwu64"
    title = "HWU64 intents"
    prompts = text_prompts(
        "The texts are what people say to a voice assistant at home, written down as it was spoken, a few "
        "words each. A class is what the assistant is to do.",
        "What is the assistant to do when it hears this?",
    )

    def __init__(self, parts: Mapping[str, tuple[Sample, ...]], specs: Sequence[ClassSpec]) -> None:
        self.specs = tuple(specs)
        self._parts = parts
        halves = {name: _analysed(name, texts) for name, texts in by_class(parts["train"], specs).items()}
        self.analysis = {name: part for name, (part, _) in halves.items() if part}
        self._source = {name: rest for name, (_, rest) in halves.items()}

    def material(self, generator: Source, split: Split) -> Material:
        """The three files are the three parts, less what of `train` the analysis has for itself."""
        if split == "paper":
            raise TaskError("hwu64: the paper does not use this set; use split 'readme'")
        return Material(
            source=self._source,
            test=self._parts["test"],
            development=self._parts["valid"],
        )


def _analysed(name: str, texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the analysis has of a class, by hash, and the rest, which must be as large or it has nothing."""
    scenario = name.partition("_")[0]
    size = ANALYSED if any(scenario in group for group in SCENARIOS.values()) else 0
    ranked = ordered(texts, "hwu64", "analysis", name)
    return (ranked[:size], ranked[size:]) if len(ranked) >= 2 * size else ((), ranked)


def load_hwu64(directory: Path, *, expected: Mapping[str, int] | None = EXPECTED) -> Hwu64Set:
    """The set from its three files; `expected` None takes files of any size."""
    specs = described_classes("hwu64")
    names = [spec.name for spec in specs]
    rows = {name: read_samples(directory / "hwu64" / f"{name}.jsonl", names) for name in FILES}
    found = {f"{name} rows": len(samples) for name, samples in rows.items()}
    for name, samples in rows.items():
        found[f"repeated {name} rows"] = len(samples) - len({folded(sample.text) for sample in samples})
    check_counts("hwu64", found, expected)
    # A text of two files stays where it counts most: in the test, then in the development part.
    unclear = conflicting([sample for samples in rows.values() for sample in samples])
    parts: dict[str, tuple[Sample, ...]] = {}
    for name in reversed(FILES):
        parts[name] = apart_from(distinct(rows[name], unclear), [s for part in parts.values() for s in part])
    return Hwu64Set(parts, specs)
