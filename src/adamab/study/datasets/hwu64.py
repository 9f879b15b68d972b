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
)
from adamab.study.datasets.labelled import conflicting, distinct
from adamab.task import ClassSpec, Sample, folded, read_samples

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

    def __init__(self, parts: Mapping[str, tuple[Sample, ...]], specs: Sequence[ClassSpec]) -> None:
        self.specs = tuple(specs)
        self._parts = parts

    def material(self, generator: Source, split: Split) -> Material:
        """The three files are the three parts."""
        if split == "paper":
            raise TaskError("hwu64: the paper does not use this set; use split 'readme'")
        return Material(
            source=by_class(self._parts["train"], self.specs),
            test=self._parts["test"],
            development=self._parts["valid"],
        )


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
    taken = set(conflicting([sample for samples in rows.values() for sample in samples]))
    parts: dict[str, tuple[Sample, ...]] = {}
    for name in reversed(FILES):
        parts[name] = distinct(rows[name], taken)
        taken |= {folded(sample.text) for sample in parts[name]}
    return Hwu64Set(parts, specs)
