"""What the loaders of text sets share: labelled rows without repeats, and the recorded generator."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from adamab.errors import TaskError
from adamab.run.holdout import Holdout
from adamab.study.datasets.base import ByClass, by_class, check_counts, samples_of
from adamab.task import ClassSpec, Sample, bare, folded, read_samples
from adamab.task.files import read_rows
from adamab.task.messages import place, short

EXAMPLES, RECORDING = "classes.json", "synthetic.jsonl"


def read_bytes(path: Path) -> bytes:
    """The file, or one line that says where it should be."""
    try:
        return path.read_bytes()
    except OSError:
        raise TaskError(
            f"{place(path)}: no such file, or it cannot be read; name the folder of data sets with --data"
        ) from None


def table_rows(path: Path, header: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of a CSV file with exactly these columns, each with its `file:line`."""
    for row in read_rows(path, columns=header[:1]):
        if tuple(row.fields) != tuple(header):
            raise TaskError(f"{place(path, 1)}: the columns are not {', '.join(header)}; get the file again")
        yield row.place, {name: str(value) for name, value in row.fields.items()}


def conflicting(samples: Iterable[Sample]) -> frozenset[str]:
    """Bare texts that stand under more than one class: nobody can say which is right."""
    classes: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        classes[bare(sample.text)].add(sample.class_name)
    return frozenset(text for text, names in classes.items() if len(names) > 1)


def distinct(samples: Iterable[Sample], leave_out: Collection[str] = ()) -> tuple[Sample, ...]:
    """The first of each bare text, without those of `leave_out` (bare as well)."""
    seen = set(leave_out)
    kept: list[Sample] = []
    for sample in samples:
        text = bare(sample.text)
        if text not in seen:
            seen.add(text)
            kept.append(sample)
    return tuple(kept)


def bare_texts(samples: Iterable[Sample]) -> frozenset[str]:
    """All texts of the samples, bare."""
    return frozenset(bare(sample.text) for sample in samples)


def apart_from(samples: Iterable[Sample], held_back: Iterable[Sample]) -> tuple[Sample, ...]:
    """The samples that give none of `held_back` away: no near copies, and none with one of them inside."""
    holdout = Holdout(sample.text for sample in held_back)
    return tuple(sample for sample in samples if sample.text not in holdout)


def without(texts: ByClass, held_back: Iterable[Sample]) -> dict[str, tuple[str, ...]]:
    """`apart_from` of texts by class; a class may be left with none."""
    kept = set(apart_from(samples_of(texts), held_back))
    return {name: tuple(t for t in of_class if Sample(t, name) in kept) for name, of_class in texts.items()}


def recorded_generator(
    folder: Path, specs: Sequence[ClassSpec], training: Iterable[Sample], expected: int | None
) -> tuple[ByClass, ByClass] | None:
    """The examples that the recorded generator saw and what it wrote; None where there is no recording.

    The examples must be of the `training` samples, and the recording of `expected` texts unless that is None.
    """
    examples, recording = folder / EXAMPLES, folder / RECORDING
    if not (examples.is_file() and recording.is_file()):
        return None
    seen = _seen(examples, specs)
    known = {(bare(sample.text), sample.class_name) for sample in training}
    for name, texts in seen.items():
        for number, text in enumerate(texts, 1):
            if (bare(text), name) not in known:
                raise TaskError(
                    f"{place(examples)}: example {number} of class {short(name)} is no training sample of it"
                )
    written = distinct(read_samples(recording, [spec.name for spec in specs]))
    check_counts(
        folder.name,
        {"recorded texts": len(written)},
        None if expected is None else {"recorded texts": expected},
    )
    return seen, by_class(written, specs)


def _seen(path: Path, specs: Sequence[ClassSpec]) -> ByClass:
    try:
        rows = json.loads(read_bytes(path))
        found = {row["label"]: tuple(row["examples"]) for row in rows}
    except (ValueError, KeyError, TypeError):
        raise TaskError(
            f"{place(path)}: not a list of objects with label and examples; get it again"
        ) from None
    for spec in specs:
        texts = found.get(spec.name)
        if not texts or not all(isinstance(text, str) and folded(text) for text in texts):
            raise TaskError(f"{place(path)}: class {short(spec.name)} has no examples; get it again")
    return {spec.name: found[spec.name] for spec in specs}
